"""Recipes that ship with the program: questions, needs, and copies to begin with.

They are the recipes of the gallery. The first two lines of each are comments: its title, and
`Needs …`, with needs and time. Other comments name files as seen from the folder of the
recipe.
"""

import shlex
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from sampler.errors import InputError

# An installed package has copies (setup.py); in the repository they are where they are written.
INSTALLED = Path(__file__).parents[1] / "gallery"
GALLERY = INSTALLED if INSTALLED.is_dir() else Path(__file__).parents[2] / "runs"
SUFFIX = ".toml"
# The one to begin with.
FIRST = "quickstart"


@dataclass(frozen=True)
class ShippedRecipe:
    """A recipe of the gallery.

    name   its name, and that of its file without the suffix
    title  its question, a sentence
    needs  data or programs, and time, as in `nothing; half a minute`
    text   the whole file
    """

    name: str
    title: str
    needs: str
    text: str

    @property
    def data(self) -> list[str]:
        """Names of the files that it reads and that ship with it; of a model's folder all."""
        of_task = tomllib.loads(self.text)["task"]
        texts = [text for text in of_task.values() if isinstance(text, str) and "/" not in text]
        model = GALLERY / of_task["model"] if "model" in of_task else None
        files = [*(GALLERY / text for text in texts), *(sorted(model.glob("*")) if model else ())]
        return [file.relative_to(GALLERY).as_posix() for file in files if file.is_file()]

    def command_at(self, path: Path) -> str:
        """Return the command for a copy; a recipe with a section [training] is for `train`."""
        command = "train" if "training" in tomllib.loads(self.text) else "run"
        return f"attention-posterior {command} {shlex.quote(str(path))}"


def names_of_shipped() -> list[str]:
    """Return the names of all recipes that ship, that for beginners first."""
    names = sorted(path.stem for path in GALLERY.glob(f"*{SUFFIX}"))
    return sorted(names, key=lambda name: name != FIRST)


def shipped_recipe(name: str) -> ShippedRecipe:
    """Return a recipe by its name or by that of its file.

    Raises InputError for a name that no recipe has, with the names nearest to it.
    """
    names, asked = names_of_shipped(), bare_name(name)
    if asked not in names:
        near = get_close_matches(asked, names, n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        remedy = f"no such recipe ships; {meant}`attention-posterior new --list` names all"
        raise InputError("NAME", name, remedy)
    text = (GALLERY / f"{asked}{SUFFIX}").read_text(encoding="utf-8")
    title, needs = (line.removeprefix("# ") for line in text.splitlines()[:2])
    return ShippedRecipe(asked, title, needs.removeprefix("Needs ").removesuffix("."), text)


def bare_name(name: str | Path) -> str:
    """Return a name without folder and suffix."""
    return Path(name).name.removesuffix(SUFFIX)


def write_shipped(recipe: ShippedRecipe, path: Path) -> list[Path]:
    """Write a copy of a recipe, and of the data that ship with it; return the files.

    Data that are there already, the same to the byte, are left as they are. Raises InputError,
    before anything is written, where a file would be replaced.
    """
    if path.is_dir():
        remedy = f"is a directory; name a file, as in --out {path / (recipe.name + SUFFIX)}"
        raise InputError("--out", path, remedy)
    contents = {path: recipe.text.encode()}
    for name in recipe.data:
        beside, data = path.parent / name, (GALLERY / name).read_bytes()
        if not (beside.is_file() and beside.read_bytes() == data):
            contents[beside] = data
    for file in contents:
        if file.exists():
            remedy = "is there already, and nothing is replaced; name another place with --out FILE"
            raise InputError("new", file, remedy)
    for file, content in contents.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as opened:
            opened.write(content)
    return list(contents)


def remedy_for_missing(path: Path) -> str:
    """Remedy for a missing recipe: another file that is meant, or a copy."""
    name = bare_name(path)
    default = Path(name + SUFFIX)
    for meant in (path.with_name(name + SUFFIX), default):
        if meant.is_file():
            return f"no such file; did you mean {meant}?"
    if name in names_of_shipped():
        return f"no such file; `attention-posterior new {name}` writes {default}"
    return "no such file; name a TOML file to read"
