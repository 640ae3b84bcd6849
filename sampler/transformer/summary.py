"""What a trained network can do: accuracies on every split, beside the pixel nearest neighbour."""

from sampler.errors import InputError
from sampler.images.all_runs import ARCHIVE, read_all_runs
from sampler.images.character_splits import CharacterSplits, refuse_shared_drawings
from sampler.images.drawings import Drawings
from sampler.images.episodes import Episodes, draw_episodes
from sampler.images.image_source import omniglot_folder
from sampler.random_streams import stream
from sampler.transformer.evaluation import accuracy, predict_episodes
from sampler.transformer.model_file import TrainedModel
from sampler.transformer.nearest_neighbour import nearest_neighbour
from sampler.transformer.training_data import EVALUATION, patch_table

MOST_RUN_EPISODES = 7600


def training_summary(model: TrainedModel, splits: CharacterSplits) -> dict:
    """Accuracies on training, validation and test episodes that nothing was chosen on.

    Where Omniglot's one-shot runs lie beside the training's files, and hold none of its drawings,
    they are a fourth split.
    """
    settings = model.recipe.training
    judged = {}
    for position, name in enumerate(("train", "validation", "test")):
        drawings: Drawings = getattr(splits, name)
        generator = stream(settings.seed, EVALUATION, position)
        episodes = draw_episodes(drawings, settings.evaluation_examples, generator)
        judged[name] = judge(model, drawings, episodes)
    return {
        "step": model.step,
        "parameters": model.shape.parameter_count,
        "form": [[form.kind for form in of_layer] for of_layer in model.recipe.forms],
        "splits": judged | one_shot_runs(model, splits),
    }


def judge(model: TrainedModel, drawings: Drawings, episodes: Episodes) -> dict:
    """Accuracy of the network and of the nearest neighbour on the same episodes."""
    table = patch_table(drawings, model.embedding, model.recipe.task.channels)
    predictions = predict_episodes(model.parameters, table, episodes, model.recipe.forms)
    return {
        "characters": drawings.characters,
        "episodes": episodes.examples,
        "network": accuracy(predictions, episodes.targets),
        "nearest_neighbour": accuracy(nearest_neighbour(drawings, episodes), episodes.targets),
    }


def one_shot_runs(model: TrainedModel, splits: CharacterSplits) -> dict:
    """The ready-made episodes, or why they are left out; empty where they are not there."""
    task, settings = model.recipe.task, model.recipe.training
    if task.images != "omniglot" or not (omniglot_folder(task) / ARCHIVE).is_file():
        return {}
    try:
        drawings, episodes = read_all_runs(
            omniglot_folder(task),
            min(settings.evaluation_examples, MOST_RUN_EPISODES),
            stream(settings.seed, EVALUATION, 3),
        )
        refuse_shared_drawings(splits.train, drawings, "task.folder", ARCHIVE)
    except InputError as problem:
        return {"all_runs": {"left_out": str(problem)}}
    return {"all_runs": judge(model, drawings, episodes) | {"characters": None}}


def summary_text(summary: dict) -> str:
    """The accuracies as a table in plain text."""
    kinds = ", ".join(sorted({kind for of_layer in summary["form"] for kind in of_layer}))
    lines = [
        f"attention: {kinds}",
        f"step {summary['step']}, accuracy ± binomial error: network | nearest neighbour",
    ]
    for name, split in summary["splits"].items():
        if "left_out" in split:
            lines.append(f"  {name:<11} left out: {split['left_out']}")
            continue
        values = [
            f"{split[of]['accuracy']:.3f} ± {split[of]['error']:.3f}"
            for of in ("network", "nearest_neighbour")
        ]
        lines.append(f"  {name:<11} {' | '.join(values)}")
    return "\n".join(lines)
