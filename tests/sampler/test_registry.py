"""Tables that are added to from outside: a task, an attention variant, and a package with both."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pydantic import field_validator, model_validator

from sampler import registry
from sampler.attention.variants import VARIANTS, Softmax
from sampler.data.array_files import open_npz
from sampler.data.image_files import open_archive
from sampler.data.make import build_task
from sampler.errors import ExitCode, InputError
from sampler.registry import Registry
from sampler.settings.recipe import Recipe, load_recipe
from sampler.settings.task_sections import TASKS, TaskSettings
from sampler.settings.types import Count
from tests import ROOT
from tests.commands import SMALLEST


@pytest.fixture
def open_tables(monkeypatch):
    """What a test registers is gone after it."""
    for table in (TASKS, VARIANTS):
        monkeypatch.setattr(table, "_entries", dict(table._entries))


def test_a_table_names_what_there_is():
    table = Registry("fruit", {"apple": 1, "text": "string:digits"})
    assert table.register("pear", 2) == 2
    assert list(table) == ["apple", "text", "pear"]
    assert table["text"] == "0123456789", "imported when it is asked for"
    assert "pear" in table
    with pytest.raises(ValueError, match="pear"):
        table.register("pear", 3)
    with pytest.raises(KeyError, match="apple, text, pear"):
        table["plum"]


REFUSED = InputError("task.odd", 3, "use network.widths instead")


class OddCoin(TaskSettings):
    """Refuses itself, as pydantic checks it."""

    kind: Literal["coin"] = "coin"
    examples: Count = 8

    @field_validator("examples")
    @classmethod
    def refuse(cls, examples: int) -> int:
        raise REFUSED


class Odd(Softmax):
    """Refuses itself, or the tokens it is given."""

    kind: Literal["odd"] = "odd"
    by_tokens: bool = False

    @model_validator(mode="after")
    def refuse(self) -> "Odd":
        if not self.by_tokens:
            raise REFUSED
        return self

    def refuse_tokens(self, tokens: int) -> None:
        raise REFUSED


@pytest.mark.usefixtures("open_tables")
def test_a_refusal_from_outside_reaches_the_user_as_it_is(tmp_path):
    """It is a ValueError: pydantic takes one for a report of its own, and wraps it."""
    assert isinstance(REFUSED, ValueError)
    TASKS.register("coin", OddCoin)
    VARIANTS.register("odd", Odd)
    coin = 'name = "coin"\ntask = {kind = "coin", examples = 6}\nnetwork = {widths = 3}\n'
    (tmp_path / "coin.toml").write_text(coin)
    (tmp_path / "tiny.toml").write_text(SMALLEST)
    by_tokens = 'attention.form={kind="odd", by_tokens=true}'
    for make in (
        lambda: load_recipe(tmp_path / "coin.toml"),
        lambda: Recipe(task={"kind": "coin", "examples": 3}, network={"widths": 3}),
        lambda: load_recipe(tmp_path / "tiny.toml", ['attention.form={kind="odd"}']),
        lambda: build_task(load_recipe(tmp_path / "tiny.toml", [by_tokens])),
    ):
        with pytest.raises(InputError) as caught:
            make()
        assert caught.value is REFUSED


def test_a_refusal_while_a_file_is_read_reaches_the_user_as_it_is(tmp_path):
    """Of the file nothing is wrong."""
    file = tmp_path / "file.npz"  # which is a zip archive, too
    np.savez(file, array=np.zeros(2))
    for opened in (lambda: open_npz(file, "path"), lambda: open_archive(file)):
        with pytest.raises(InputError) as caught, opened():
            raise REFUSED
        assert caught.value is REFUSED


def package(folder: Path, module: str, body: str) -> None:
    """An installed package with a module that it names under the entry point."""
    (folder / f"{module}.py").write_text(body)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[attention_posterior]\nmine = {module}\n")


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """A folder in which packages are found."""
    monkeypatch.syspath_prepend(tmp_path)
    registry.load_plugins.cache_clear()
    yield tmp_path
    registry.load_plugins.cache_clear()


@pytest.mark.usefixtures("open_tables")
def test_an_installed_package_is_imported_before_a_recipe_is_read(site):
    body = (
        "from sampler.attention.variants import VARIANTS, Softmax\n"
        "class Mine(Softmax):\n    kind: str = 'mine'\n"
        "VARIANTS.register('mine', Mine)\n"
    )
    package(site, "plugin_of_a_test", body)
    (site / "tiny.toml").write_text(SMALLEST)
    command = ["check", "tiny.toml", "--set", 'attention.form={kind="mine"}']
    program = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(site)!r}]\n"
    program += f"from sampler.cli import main; code = main({command!r})\n"
    # Other processes know it, and not what is registered here.
    program += "from sampler.registry import registered_by_scripts\n"
    program += "assert registered_by_scripts() == []\n"
    program += "from sampler.attention.variants import VARIANTS\n"
    program += "VARIANTS.register('here', VARIANTS['mine'])\n"
    program += "assert [name for _, name in registered_by_scripts()] == ['here']\n"
    program += "sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", program], cwd=site, capture_output=True, text=True)
    assert done.returncode == ExitCode.OK, done.stderr
    assert 'form = {kind = "mine"' in done.stdout


def test_a_package_that_cannot_be_imported_is_named(site):
    package(site, "broken_plugin_of_a_test", "import no_such_module")
    with pytest.raises(
        InputError,
        match=r"^plugin mine = .*ModuleNotFoundError.*broken_plugin_of_a_test$",
    ):
        Recipe(name="a", task={"kind": "markov_chain"}, network={"widths": 3})
