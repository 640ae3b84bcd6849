"""The command `train`: a network by gradient descent, resumable, ending in a model file.

Recipe, data and directory are checked before JAX is imported.
"""

import time
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.data.labels import LabelledSplits
from sampler.data.one_shot import CharacterSplits, read_drawings, split_characters
from sampler.data.raven import MatrixSplits, MatrixTrainingSection
from sampler.data.time_series import SeriesSection, series_to_learn
from sampler.errors import ExitCode
from sampler.jobs.interruption import Interruption
from sampler.presentation.terminal import print_line
from sampler.runtime import jax_settings, refuse_absent_platforms
from sampler.settings.identity import settings_that_fix_draws
from sampler.settings.recipe import TrainingRecipe
from sampler.settings.training import TRAIN
from sampler.storage.checkpoints import Checkpoints
from sampler.storage.directory import (
    CHECKPOINT_FOLDER,
    claim_directory,
    locked,
    log_to,
    remove_unfinished,
)
from sampler.storage.files import write_json, write_table
from sampler.storage.manifest import determining, finish_command, finished_code, record_stage
from sampler.transformer.model import MODEL_FILE, TrainedModel, write_model

if TYPE_CHECKING:
    from sampler.training.steps import TrainingState
    from sampler.training.training_data import LearningData

CURVE_FILE, SUMMARY_FILE = "learning_curve.csv", "training_summary.json"


def start_training(recipe: TrainingRecipe, directory: Path, interruption: Interruption) -> ExitCode:
    """Read the data, claim the directory, and train what is left of the training."""
    splits = read_splits(recipe)
    refuse_absent_platforms()
    common = determining(settings_that_fix_draws(recipe), splits.checksum)
    claim_directory(directory, recipe, TRAIN, common)
    with locked(directory):
        return TrainingJob(recipe, splits, directory, common, interruption).work()


TrainingSplits = CharacterSplits | LabelledSplits | MatrixSplits


def read_splits(recipe: TrainingRecipe) -> TrainingSplits:
    """Read all splits of a training recipe. Raises InputError where they cannot be used."""
    if isinstance(recipe.task, SeriesSection):
        return series_to_learn(recipe)
    if isinstance(recipe.task, MatrixTrainingSection):
        return MatrixSplits(recipe.task)
    return split_characters(read_drawings(recipe.task), recipe.task)


@dataclass
class TrainingJob:
    """One training in its claimed directory, saved from time to time."""

    recipe: TrainingRecipe
    splits: TrainingSplits
    directory: Path
    fingerprint: dict
    interruption: Interruption
    _saved: int | None = field(default=None, init=False)
    _seconds: float = field(default=0.0, init=False)

    def work(self) -> ExitCode:
        """Train what is left, then write curve, model and summary.

        A training that came to its end is left alone. Raises RequeueError when a signal asks to
        stop, with everything saved.
        """

        with log_to(self.directory):
            remove_unfinished(self.directory)
            if self.finished():
                print_line(f"{self.directory}: `{TRAIN}` was finished before, with exit code 0")
                return ExitCode.OK
            with jax_settings("float32"):
                state = self.train()
                self.store(state)
            record_stage(self.directory, TRAIN, self._seconds)
            finish_command(self.directory, TRAIN, ExitCode.OK)
            print_line(f"results: {self.directory}")
            return ExitCode.OK

    @cached_property
    def checkpoints(self) -> Checkpoints:
        folder = self.directory / CHECKPOINT_FOLDER
        return Checkpoints(folder, self.fingerprint, work="training")

    @cached_property
    def data(self) -> "LearningData":
        from sampler.training.training_data import learning_data

        return learning_data(self.recipe, self.splits)

    def finished(self) -> bool:
        files = (MODEL_FILE, CURVE_FILE, SUMMARY_FILE)
        return finished_code(self.directory, TRAIN, files) is not None

    def train(self) -> "TrainingState":
        """From the newest checkpoint, or from the beginning, to the last step."""
        from sampler.jobs.progress import TrainingProgress
        from sampler.training.steps import initial_state, stored_training, train

        state, stored = initial_state(self.recipe, self.data), self.checkpoints.newest()
        if stored is not None:
            state, self._seconds = stored_training(stored, state), stored.header["seconds"]
        steps = self.recipe.training.steps
        with TrainingProgress(steps) as progress:
            latest = time.monotonic()

            def on_chunk(state: "TrainingState") -> None:
                nonlocal latest
                now = time.monotonic()
                self._seconds += now - latest
                latest = now
                progress(state)
                if self.checkpoints.due or state.is_last(self.recipe.training):
                    self.save(state)
                where = f"training step {state.step} of {steps}"
                self.interruption.leave_if_asked(where, partial(self.save, state))

            return train(self.recipe, self.data, state, on_chunk)

    def save(self, state: "TrainingState") -> None:
        """Store a checkpoint, unless that of this state is there."""
        from sampler.training.steps import training_content

        if state.step != self._saved:
            header, arrays = training_content(state, self.recipe.training.steps)
            self.checkpoints.save(header | {"seconds": self._seconds}, arrays)
            self._saved = state.step

    def store(self, state: "TrainingState") -> None:
        """Write the learning curve, the model and its summary."""
        import pandas as pd

        from sampler.training.training_data import summary_text, training_summary

        write_table(self.directory / CURVE_FILE, pd.DataFrame(state.curve))
        kept, step = state.kept(self.recipe.training)
        model = TrainedModel(self.recipe, kept, self.data.embedding, step, self.splits.checksum)
        checksum = write_model(self.directory, model)
        summary = training_summary(model, self.data) | {
            "model_sha256": checksum,
            "seconds": self._seconds,
        }
        write_json(self.directory / SUMMARY_FILE, summary)
        print_line(summary_text(summary))
