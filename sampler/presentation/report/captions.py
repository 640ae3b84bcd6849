"""Caption and text alternative of every figure: what is compared, and how to read it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caption:
    """alternative: for whoever cannot see the figure. text: below it."""

    alternative: str
    text: str


RESULTS = {
    "accuracy": Caption(
        "Points with error bars: accuracy of the theory, of the sampled exact posterior and of the "
        "network of infinite width, one per row.",
        "Accuracy on the test set. Theory and exact posterior should agree; their distance from "
        "infinite width (GP) is what finite width changes.",
    ),
    "order_parameter": Caption(
        "Coloured matrices over pairs of attention paths: order parameter U₁ of the theory, its "
        "sampled posterior mean, and their difference.",
        "Order parameter U₁ over pairs of attention paths: theory, samples, and their difference. "
        "At infinite width it is diagonal.",
    ),
    "order_parameter_trained": Caption(
        "Coloured matrices over pairs of attention paths: U₁ of the theory, of the samples and of "
        "the network trained by gradient descent.",
        "U₁ of theory, samples and the network trained by gradient descent, each on its own scale.",
    ),
    "predictor_mean": Caption(
        "Scatter plots over the test set: sampled mean and variance of the predictor against those "
        "of the theory, with the line of equality.",
        "The predictor, a point per test example: samples against theory. On the line they agree.",
    ),
    "predictor_sampled": Caption(
        "Sampled mean and deviation of the predictor over the test set, without a theory beside.",
        "The predictor over the test set, by the samples alone.",
    ),
    "reliability": Caption(
        "Share of labels +1 against the predicted probability of +1, with error bars, for theory, "
        "samples and infinite width; below, how many labels each bin holds.",
        "Calibration on the test set: where a probability is predicted, that share of labels "
        "should be +1, as on the diagonal.",
    ),
    "kernel_alignment": Caption(
        "Alignment of the principal components of the training kernel with the labels, "
        "component by component: theory against infinite width.",
        "How much of the labels lies along each principal component of the training kernel: theory "
        "against infinite width (GP).",
    ),
    "head_scores": Caption(
        "Scores of the attention heads against the accuracy that removing each of them costs.",
        "Head scores against what removing a head costs.",
    ),
    "pruning": Caption(
        "Accuracy against the number of heads removed, by score, by magnitude and at random.",
        "Accuracy while heads are removed one after the other.",
    ),
}
DIAGNOSTICS = {
    "function_space_ranks": Caption(
        "Rank histograms, one line per chain, of log posterior, predictor and U₁; they are flat "
        "where the chains agree.",
        "Ranks of the slowest elements among all draws, chain by chain. Chains that agree are flat "
        "and stay within the grey band for the most part.",
    ),
    "order_parameter_ranks": Caption(
        "Rank histograms, one line per chain, of the elements of U₁; flat where the chains agree.",
        "Ranks of the elements of U₁ among all draws, chain by chain.",
    ),
    "predictor_ranks": Caption(
        "Rank histograms, one line per chain, of the predictor at a few test examples; flat where "
        "the chains agree.",
        "Ranks of the predictor at a few test examples among all draws, chain by chain.",
    ),
    "ess_evolution": Caption(
        "Lines: effective sample size in bulk and tails against the number of draws, for log "
        "posterior, predictor and U₁, with the limit.",
        "Effective sample size as the draws come in. It grows in proportion where the chains mix; "
        "a curve that flattens has not seen everything.",
    ),
    "autocorrelation": Caption(
        "Lines: autocorrelation against lag for log posterior, predictor and U₁, with the range "
        "expected of independent draws.",
        "Autocorrelation of the slowest elements. The sooner it falls into the grey band, the more "
        "a draw is worth.",
    ),
    "energy": Caption(
        "Histograms: energies of the sampler and their changes from draw to draw; beside them "
        "E-BFMI chain by chain, with the limit.",
        "Energies of the sampler against their changes from draw to draw. Where changes are much "
        "narrower, the tails are explored slowly, and E-BFMI falls below its limit.",
    ),
}
SWEEP = {
    "accuracy_against_width": Caption(
        "Accuracy at every point of the sweep: theory, sampled exact posterior with error bars, "
        "and infinite width.",
        "Accuracy on the test set along the sweep: theory, exact posterior, infinite width (GP).",
    ),
    "accuracy_at_chosen_temperatures": Caption(
        "Accuracy against width at the temperature chosen on the validation split: theory, "
        "samples, infinite width; beside it the validation accuracy over the grid.",
        "Accuracy at the temperatures chosen on the validation split, and the grid of choices.",
    ),
    "order_parameter_against_width": Caption(
        "Coloured matrices over pairs of attention paths: U₁ of the theory above the samples, for "
        "several points of the sweep.",
        "Order parameter U₁ along the sweep: theory above, samples below.",
    ),
    "finite_size": Caption(
        "Diagonal of U₁ against width for theory and samples, and below their difference with its "
        "power law.",
        "Theory and exact posterior approach each other as the width grows: above the diagonal of "
        "U₁, below the difference with a fitted power law.",
    ),
    "form_comparison": Caption(
        "Forms of attention, one per row: alignment of their path kernels, off-diagonal share of "
        "U₁, and accuracy of theory, exact posterior and infinite width, with error bars.",
        "Forms of attention, means over seeds with their standard errors. On the left how alike "
        "their paths are (smaller: less redundant), on the right how well they predict.",
    ),
    "kernel_alignment": RESULTS["kernel_alignment"],
}
