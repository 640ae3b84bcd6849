"""The command `train`: a network by gradient descent, resumable, ending in a model file.

Recipe, data and directory are checked before JAX is imported.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.errors import ExitCode
from sampler.jobs.interruption import Interruption
from sampler.presentation.terminal import print_line
from sampler.runtime import jax_settings, refuse_absent_platforms
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import TrainingRecipe
from sampler.settings.training import TRAIN
from sampler.storage.checkpoints import Checkpoints
from sampler.storage.directory import CHECKPOINT_FOLDER
from sampler.storage.files import write_json, write_table
from sampler.storage.fingerprint import determining
from sampler.storage.run_directory import opened_directory
from sampler.transformer.trained_transformer import MODEL_FILE, TrainedTransformer, write_model

if TYPE_CHECKING:
    from sampler.training.steps import TrainingState
    from sampler.training.training_data import LearningData

CURVE_FILE, SUMMARY_FILE = "learning_curve.csv", "training_summary.json"
# Losses whose mean is shown.
RECENT = 100


def start_training(recipe: TrainingRecipe, directory: Path, interruption: Interruption) -> ExitCode:
    """Finish a training, then write curve, model and summary.

    A finished training is left as it is. Raises RequeueError when a signal asks to stop, with
    everything saved.
    """
    splits = recipe.task.read(recipe.training)
    refuse_absent_platforms()
    fingerprint = determining(settings_that_fix_draws(recipe), splits.checksum)
    with opened_directory(directory, recipe, fingerprint) as held:
        files = (MODEL_FILE, CURVE_FILE, SUMMARY_FILE)
        if held.manifest.outcome and all((directory / file).is_file() for file in files):
            print_line(f"{directory}: `{TRAIN}` was finished before, with exit code 0")
            return ExitCode.OK
        held.begin(TRAIN)
        checkpoints = Checkpoints(directory / CHECKPOINT_FOLDER, fingerprint, work="training")
        with jax_settings("float32"):
            from sampler.training.training_data import learning_data

            data = learning_data(recipe, splits)
            state, seconds = train_from(checkpoints, recipe, data, interruption)
            store_training(directory, recipe, data, state, seconds)
        held.record_stage(TRAIN, seconds)
        held.end(ExitCode.OK)
        print_line(f"results: {directory}")
    return ExitCode.OK


def train_from(
    checkpoints: Checkpoints,
    recipe: TrainingRecipe,
    data: "LearningData",
    interruption: Interruption,
) -> "tuple[TrainingState, float]":
    """From the newest checkpoint, or from the beginning, to the last step, and the seconds."""
    from sampler.jobs.progress import Progress
    from sampler.training.steps import initial_state, stored_training, train, training_content

    state, earlier = initial_state(recipe, data), 0.0
    stored = checkpoints.newest()
    if stored is not None:
        state, earlier = stored_training(stored, state), stored.header["seconds"]
    steps = recipe.training.steps
    with Progress() as progress:
        progress.wait("compiling")
        began = time.monotonic() - earlier

        def on_chunk(state: "TrainingState") -> None:
            def save() -> None:
                header, arrays = training_content(state, steps)
                checkpoints.save(header | {"seconds": time.monotonic() - began}, arrays)

            progress.show("training", state.step, steps, losses_text(state))
            where = f"training step {state.step} of {steps}"
            if checkpoints.due or state.is_last(recipe.training):
                save()
                interruption.leave_if_asked(where)
            interruption.leave_if_asked(where, save)

        state = train(recipe, data, state, on_chunk)
        return state, time.monotonic() - began


def losses_text(state: "TrainingState") -> str:
    """The latest losses, and the latest and the best validation."""
    # A validation takes the losses before it into its point of the curve.
    losses = state.losses[-RECENT:] or (state.curve[-1]["training_loss"],)
    text = f"loss {sum(losses) / len(losses):.3f}"
    if not state.curve:
        return text
    latest, best = state.curve[-1], state.best_point
    return (
        f"{text}, validation accuracy {latest['validation_accuracy']:.3f}, best "
        f"{best['validation_accuracy']:.3f} at step {best['step']}"
    )


def store_training(
    directory: Path,
    recipe: TrainingRecipe,
    data: "LearningData",
    state: "TrainingState",
    seconds: float,
) -> None:
    """Write the learning curve, the model and its summary."""
    import pandas as pd

    from sampler.training.training_data import summary_text, training_summary

    write_table(directory / CURVE_FILE, pd.DataFrame(state.curve))
    kept, step = state.kept(recipe.training)
    model = TrainedTransformer(recipe, kept, data.embedding, step, data.splits.checksum)
    write_model(directory, model)
    summary = training_summary(model, data)
    summary |= {"model_sha256": model.checksum, "seconds": seconds}
    write_json(directory / SUMMARY_FILE, summary)
    print_line(summary_text(summary))
