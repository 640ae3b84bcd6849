# %% [markdown]
# # From a task to a verdict on the theory
#
# A network of two attention layers reads noisy sequences and says which of two hidden Markov chains
# made them. Its attention is fixed: a *good* head looks where the hidden state is the same, a
# *uniform* one looks everywhere. Its values are random, trained by the rules of probability: we ask
# for their posterior. Two paths lead through the heads, and the 2 × 2 matrix U₁ says how much each
# counts, and how much they count together. Theory predicts U₁; here its posterior is sampled, too.
#
#     python -m runs.studies.tutorial.study [FOLDER]      (half a minute)

# %%
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from sklearn.calibration import CalibrationDisplay

import sampler
from runs.studies.scripts import Study, estimate
from sampler.analysis.calibration import BINS, calibration_error, probability_of_positive
from sampler.analysis.predictors import number, predicted
from sampler.data.task import Task
from sampler.presentation import style

study = Study(__file__)

# %% The data: 60 sequences to learn from, 500 to be tested on, with much noise.
recipe = sampler.Recipe(
    task=sampler.MarkovChain(
        perpendicular_noise=5.0, seed=8, examples_train=60, examples_test=500, features=100
    ),
    attention={"heads": [["good", "uniform"], ["uniform"]]},
    network={"widths": 10},
    posterior={"temperature": 0.01},
)
print(recipe.task)


# %% What such data look like, with two heads in each layer and fewer tokens.
def hidden_states(inputs: np.ndarray) -> np.ndarray:
    """Sign of the difference of both halves of the features, [example, token], without BOS."""
    half = (inputs.shape[2] - inputs.shape[1]) // 2
    features = inputs[:, 1:, : 2 * half]
    return np.sign(features[:, :, :half].sum(axis=2) - features[:, :, half:].sum(axis=2))


def draw_task(task: Task) -> Figure:
    """Draw states of sequences of both classes, and the attention of each head to one of them."""
    data = task.train
    figure = style.new_figure(style.WIDTH, 7.4)
    upper, lower = figure.subfigures(2, 1, height_ratios=[2.5, 4.9])
    for ax, sign, name in zip(
        upper.subplots(2, 1, sharex=True), (1, -1), ("class +", "class −"), strict=True
    ):
        states = hidden_states(data.inputs[data.labels[:, 0] == sign][:SEQUENCES])
        ax.imshow(states, cmap="cividis", vmin=-1.4, vmax=1.4, aspect="auto")
        for line in range(1, len(states)):
            ax.axhline(line - 0.5, color="white", linewidth=3.0)
        ax.spines[:].set_visible(False)
        ax.set_yticks([])
        ax.tick_params(length=0)
        stay = 0.7 if sign > 0 else 0.3
        ax.set_title(f"{name}: keeps its state with probability {stay}", loc="left")
    ax.set_xticks([0, 9, 19, 29], ["1", "10", "20", "30"])
    ax.set_xlabel("token; both colours are the hidden states of four sequences")
    axes = lower.subplots(2, 2)
    # One head in each panel: that of layer 1 above, of layer 2 below.
    for layer, (row, heads) in enumerate(zip(axes, task.head_names, strict=True)):
        for head, (ax, name) in enumerate(zip(row, heads, strict=True)):
            matrix = data.attention[layer][0, head]
            image = ax.imshow(np.sqrt(matrix), cmap="Greys", vmin=0.0, vmax=1.0)
            ax.set_title(f"layer {layer + 1}, head {head}: {name}")
            ax.set_xticks([0, 10, 20, 30], ["BOS", "10", "20", "30"])
            ax.set_yticks([0, 10, 20, 30], ["BOS", "10", "20", "30"])
    for ax in axes[:, 0]:
        ax.set_ylabel("key (attended)")
    for ax in axes[1]:
        ax.set_xlabel("query")
    bar = lower.colorbar(image, ax=axes, location="bottom", shrink=0.7, aspect=30.0)
    bar.set_ticks(np.sqrt([0.0, 0.1, 0.3, 0.6, 1.0]), labels=["0", "0.1", "0.3", "0.6", "1"])
    bar.set_label(r"attention $\Omega$ in a sequence of class +")
    bar.outline.set_visible(False)
    return figure


TOKENS, SEQUENCES = 30, 4
small = sampler.MarkovChain(examples_train=2 * SEQUENCES, examples_test=2, tokens=TOKENS)
four_heads = sampler.Attention(heads=[["good", "random"], ["uniform", "random"]])
with style.figure_style():
    study.draw(draw_task(small.make(four_heads)), "task")

# %% The theory at one width: a saddle point, solved to rounding.
theory = sampler.solve(recipe)
print(theory.attrs["explanation"])
print(theory["order_parameter"].sel(predictor="leading").to_pandas().round(3), "\n")

# %% The exact posterior at this width, by NUTS in the space of the order parameters, with as many
# draws as its diagnostics ask for.
draws = sampler.sample(recipe)

# %% The two side by side. The error of a difference says whether it is real, its size whether it
# matters: the theory is that of wide networks, and this one is narrow.
comparison = sampler.compare(theory, draws)
print(comparison)

# %% The narrower the network, the more its posterior chooses between paths.
widths = [3, 10, 30, 100, 300, 1000]
by_width = [sampler.solve(recipe.changed({"network.widths": N})) for N in widths]
rows = {}
print("\n   N   U₁ good   U₁ uniform   accuracy")
for N, solved in zip(widths, by_width, strict=True):
    good, uniform = map(float, np.diag(solved["order_parameter"].sel(predictor="leading")))
    rows[str(N)] = {"good": good, "uniform": uniform, "accuracy": number(solved, "accuracy")}
    print(f"{N:4}{good:10.3f}{uniform:13.3f}{number(solved, 'accuracy'):11.3f}")
print(f" GP     1.000        1.000{number(theory, 'accuracy', 'infinite'):11.3f}")

# %% Theory against width, and the exact posterior where it was sampled.
with style.figure_style():
    figure = style.new_figure(style.WIDTH, 4.3, "Two paths, $\\mathcal{T}$ = 0.01")
    left, right = figure.subplots(1, 2)
    elements = comparison.elements("order_parameter")
    sampled, mcse = elements["sampled"].values, elements["error"].values
    for path, (name, line) in enumerate(zip(theory["path"].values, "-:", strict=True)):
        diagonal = [float(predicted(solved, "order_parameter")[path, path]) for solved in by_width]
        left.loglog(widths, diagonal, line, color=style.THEORY)
        left.errorbar([10], sampled[path, path], mcse[path, path], fmt="D", color=style.SAMPLED)
        above = {"xytext": (6, 6)} if path == 0 else {"xytext": (0, -60)}
        where = {"textcoords": "offset points", "color": style.THEORY, **above}
        left.annotate(str(name), (widths[0], diagonal[0]), **where)
    left.axhline(1.0, color=style.GAUSSIAN_PROCESS, ls="--")
    left.set(xlabel="width $N$", title="diagonal of $U_1$", xlim=(2.5, 1200), ylim=(0.9, 8.0))
    left.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    left.yaxis.set_minor_locator(NullLocator())
    accuracies = [100 * number(solved, "accuracy") for solved in by_width]
    right.semilogx(widths, accuracies, color=style.THEORY, label=style.LEADING)
    found = comparison.table().loc["accuracy", "sampled"]
    right.errorbar(
        [10], 100 * found["value"], 100 * found["test_error"], fmt="D", color=style.SAMPLED,
        label=f"{style.EXACT}; accuracy ± error of the test set",
    )  # fmt: skip
    limit = 100 * number(theory, "accuracy", "infinite")
    right.axhline(limit, color=style.GAUSSIAN_PROCESS, ls="--", label=style.LIMIT)
    right.set(xlabel="width $N$", title="accuracy on the test set (%)", xlim=(2.5, 1200))
    style.accuracy_axis(right.yaxis)
    style.legend_below(figure, right.get_legend_handles_labels())
    study.draw(figure)

# %% Is it right as often as it says? Probabilities of +1 against the share of labels +1.
mean, variance = (comparison.elements(f"predictor_{name}") for name in ("mean", "variance"))
predictors = ("leading", "sampled", "infinite", "infinite_tuned")


def probability_of(predictor: str) -> np.ndarray:
    """The probability of +1 at every test example."""
    if predictor == "sampled":
        noise = variance["sampled"] + theory.attrs["temperature"]
        return probability_of_positive(mean["sampled"], noise).values
    noise = variance["predicted"] + theory["temperature"]
    return probability_of_positive(mean["predicted"], noise).sel(predictor=predictor).values


probabilities = {predictor: probability_of(predictor) for predictor in predictors}
positive = draws["predictions_constant_data"]["labels_test"].values > 0
with style.figure_style():
    figure = style.new_figure(style.WIDTH, 4.6, "Calibration on the test set, $N$ = 10")
    ax = figure.subplots()
    for predictor, one in probabilities.items():
        marks = {"color": style.colour_of(predictor), "name": comparison.names[predictor]}
        marks["linestyle"] = "--" if predictor == "infinite_tuned" else "-"
        bins = {"n_bins": BINS, "strategy": "quantile"}  # fifty examples in each
        CalibrationDisplay.from_predictions(positive, one, ax=ax, **bins, **marks)
    ax.get_legend().remove()
    ax.set(xlabel="predicted probability of +1", ylabel="share of labels +1")
    style.legend_below(figure, ax.get_legend_handles_labels())
    study.draw(figure, "reliability")


# %% A calibration error is above 0 even of a calibrated predictor: labels drawn from its own
# probabilities say by how much.
def error_if_calibrated(probability: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the calibration error over drawn labels."""
    drawn = np.random.default_rng(0).random((1000, *probability.shape)) < probability
    copies = np.broadcast_to(probability, drawn.shape)
    errors = calibration_error(copies[..., None], drawn[..., None])
    return float(errors.mean()), float(errors.std(ddof=1))


# %% What the documentation quotes of it.
table = comparison.table()
sampled = table.loc["accuracy", "sampled"]
numbers = {
    "widths": rows,
    "accuracy": {name: table.loc[("accuracy", name), "value"] for name in predictors}
    | {"sampled": estimate(sampled["value"], sampled["error"], "MCSE")},
    "accuracy of the test set": estimate(sampled["value"], sampled["test_error"], "binomial"),
    "own temperature": number(theory, "temperature", "infinite_tuned"),
}
for predictor in predictors:
    density, error = (
        table.loc[name, predictor]
        for name in ("log_predictive_density", "expected_calibration_error")
    )
    expected, deviation = error_if_calibrated(probabilities[predictor])
    numbers[predictor] = {
        "density": estimate(density["value"], density["test_error"], "over test examples"),
        "calibration error": estimate(error["value"], error["test_error"], "over test examples"),
        "if calibrated": estimate(expected, deviation, "over drawn labels"),
        "deviations": (error["value"] - expected) / deviation,
        "MCSE": {"density": density["error"], "calibration error": error["error"]},
    }
study.record(numbers, seeds={"task": 8})
