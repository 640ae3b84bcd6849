"""Result files: whole or not at all, strict JSON, and errors that name the file."""

import json

import numpy as np
import pytest

from sampler.errors import InputError
from sampler.storage.results import read_draws, read_theory
from sampler.storage.run_directory import plain, read_json, write_atomically, write_json


def test_everything_becomes_strict_json(tmp_path):
    content = {
        "array": np.array([[1.5, np.nan], [np.inf, -2.0]]),
        "scalar": np.float32(0.25),
        "zero_dimensional": np.array(3.0),
        "count": np.int64(7),
        "flag": np.bool_(True),
        "tuple": (1, None, "text"),
        "nested": {3: float("-inf")},
    }
    path = tmp_path / "content.json"
    write_json(path, content)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    expected = {
        "array": [[1.5, None], [None, -2.0]],
        "scalar": 0.25,
        "zero_dimensional": 3.0,
        "count": 7,
        "flag": True,
        "tuple": [1, None, "text"],
        "nested": {"3": None},
    }
    assert json.loads(path.read_text(), parse_constant=refuse) == expected == read_json(path)


def test_plain_numbers_keep_every_digit():
    value = np.float64(0.1) + 0.2
    assert json.loads(json.dumps(plain(value))) == value


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"old": 1})

    def fail(temporary):
        temporary.write_text("half of")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"result\.json.*No space left on device"):
        write_atomically(path, fail)
    assert read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_nothing_behind(tmp_path):
    def interrupt(temporary):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "result.json", interrupt)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        write_json(tmp_path / "absent" / "a.json", {})


@pytest.mark.parametrize(
    ("read", "name", "command"),
    [(read_theory, "theory.nc", "solve"), (read_draws, "draws.nc", "sample")],
)
def test_a_missing_or_damaged_file_is_named_with_its_remedy(read, name, command, tmp_path):
    with pytest.raises(InputError, match=rf"holds no {name}; first use `{command}`"):
        read(tmp_path)
    (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(InputError, match=rf"{name}.*make it anew with `{command}`"):
        read(tmp_path)


def test_damaged_json_is_named(tmp_path):
    (tmp_path / "comparison.json").write_text('{"accuracy": ')
    with pytest.raises(InputError, match=r"comparison\.json.*cannot be read"):
        read_json(tmp_path / "comparison.json")
