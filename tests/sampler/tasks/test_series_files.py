"""Series of the UEA archive: two formats with one content, and what is refused by file and line."""

import io

import numpy as np
import pytest
from scipy.io import arff

from sampler.attention.heads import factored_attention
from sampler.attention.variants import Softmax
from sampler.cli import main
from sampler.errors import ExitCode, InputError
from sampler.recipes.task_section import AttentionSection
from sampler.tasks.series_files import averaged, read_arff, read_ts
from sampler.tasks.task import draw_layers, query_and_key_weights
from sampler.tasks.time_series import SeriesArchiveSection, lag_weights

CLASSES = ("walk", "run")
STEPS, CHANNELS = 6, 3


def make_series(examples, seed, steps=STEPS, channels=CHANNELS):
    """Series [example, step, channel] whose channels have means and sizes of their own."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((examples, steps, channels))
    return np.round(values * np.arange(1, channels + 1) + 10.0, 6)


def ts_text(values, labels, classes=CLASSES):
    header = (
        "# made here\n@problemName Gait\n@timeStamps false\n@missing false\n@univariate false\n"
        f"@dimensions {values.shape[2]}\n@equalLength true\n@seriesLength {values.shape[1]}\n"
        f"@classLabel true {' '.join(classes)}\n\n@data\n"
    )
    return header + "".join(
        ":".join(",".join(map(repr, map(float, channel))) for channel in one.T) + f":{label}\n"
        for one, label in zip(values, labels, strict=True)
    )


def arff_text(values, labels, classes=CLASSES, quote="'"):
    attributes = "".join(f"@attribute att{t} numeric\n" for t in range(values.shape[1]))
    header = (
        f"% made here\n@relation 'Gait'\n@attribute relationalAtt relational\n{attributes}"
        f"@end relationalAtt\n@attribute activity {{{','.join(classes)}}}\n\n@data\n"
    )
    return header + "".join(
        quote
        + r"\n".join(",".join(map(repr, map(float, channel))) for channel in one.T)
        + f"{quote},{label}\n"
        for one, label in zip(values, labels, strict=True)
    )


WRITERS = {".ts": ts_text, ".arff": arff_text}
TRAIN, TRAIN_LABELS = make_series(5, 0), ("walk", "run", "walk", "walk", "run")
TEST, TEST_LABELS = make_series(4, 1), ("run", "run", "walk", "run")


def write(folder, suffix, train=TRAIN, test=TEST, **settings):
    folder.mkdir(exist_ok=True)
    for name, values, labels in (("TRAIN", train, TRAIN_LABELS), ("TEST", test, TEST_LABELS)):
        text = WRITERS[suffix](values, labels, **settings)
        (folder / f"{folder.name}_{name}{suffix}").write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "Gait", ".ts")


def read(folder, heads=(("lag", "random"), ("uniform",)), **settings):
    section = SeriesArchiveSection(kind="time_series", folder=str(folder), **settings)
    return section.make(AttentionSection(heads=heads, lag=2))


@pytest.mark.parametrize("suffix", WRITERS)
def test_what_was_written_comes_back(tmp_path, suffix):
    path = tmp_path / f"file{suffix}"
    path.write_text(WRITERS[suffix](TRAIN, TRAIN_LABELS))
    received = {".ts": read_ts, ".arff": read_arff}[suffix](path)
    assert np.array_equal(received.values, TRAIN)
    assert received.labels == TRAIN_LABELS
    assert received.classes == CLASSES


def test_both_formats_make_the_same_task(tmp_path):
    one, other = (read(write(tmp_path / f"Gait{s[1:]}", s)) for s in WRITERS)
    assert one.train.inputs.shape == (5, STEPS + 1, CHANNELS + STEPS + 1)
    for split, expected in zip(one.splits, other.splits, strict=True):
        assert np.array_equal(split.inputs, expected.inputs)
        assert np.array_equal(split.labels, expected.labels)
        for matrices, others in zip(split.attention, expected.attention, strict=True):
            assert np.array_equal(matrices, others)


def test_scipy_reads_the_same_from_arff(tmp_path):
    path = tmp_path / "Gait.arff"
    path.write_text(arff_text(TRAIN, TRAIN_LABELS))
    expected, _ = arff.loadarff(io.StringIO(path.read_text()))
    received = read_arff(path)
    for example, (channels, label) in enumerate(expected):
        assert np.array_equal(received.values[example].T, np.array(channels.tolist()))
        assert received.labels[example] == label.decode()


# Where a comment may stand: on lines of its own, and in .arff after anything else.
COMMENTS = {
    ".ts": [("@data\n", "@data\n% one\n# another\n"), ("@problemName", "%\n% made\n@problemName")],
    ".arff": [
        ("relational\n", "relational % one series\n"),
        ("numeric\n", "numeric\t% a step, 100 %\n"),
        ("@end relationalAtt\n", "@end relationalAtt %\n"),
        ("{walk,run}\n", "{walk,'run'} % two 'classes'\n"),
        ("@data\n", "@data % now\n% one\n"),
        (",walk\n", ",walk % slow\n"),
    ],
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_byte_order_marks_and_comments_are_no_data(tmp_path, suffix):
    path, text = tmp_path / f"Gait{suffix}", WRITERS[suffix](TRAIN, TRAIN_LABELS)
    for plain, commented in COMMENTS[suffix]:
        assert plain in text
        text = text.replace(plain, commented)
    # Line separators of Unicode and form feeds do not end a comment.
    text = "% first\x0cof\u2028three\n" + text
    path.write_text(text, encoding="utf-8-sig", newline="\r\n")
    received = {".ts": read_ts, ".arff": read_arff}[suffix](path)
    assert np.array_equal(received.values, TRAIN)
    assert (received.labels, received.classes) == (TRAIN_LABELS, CLASSES)


def test_a_per_cent_sign_in_quotation_marks_is_no_comment(tmp_path):
    path = tmp_path / "Gait.arff"
    labels = tuple(f"'{label} 50%'" for label in TRAIN_LABELS)
    path.write_text(arff_text(TRAIN, labels, classes=("'walk 50%'", "'run 50%'")))
    received = read_arff(path)
    assert received.classes == ("walk 50%", "run 50%")
    assert received.labels == tuple(f"{label} 50%" for label in TRAIN_LABELS)


def test_quotation_marks_comments_and_case_do_not_matter(tmp_path):
    path = tmp_path / "Gait.arff"
    text = arff_text(TRAIN, TRAIN_LABELS, quote='"')
    text = text.replace("{walk,run}", "{ 'walk', \"run\" }").replace("@data\n", "@DATA\n% now\n\n")
    path.write_bytes(b"% \xb5\r\n" + text.replace(",walk\n", ", 'walk'\r\n").encode())
    assert np.array_equal(read_arff(path).values, TRAIN)
    assert read_arff(path).labels == TRAIN_LABELS
    path = tmp_path / "Gait.ts"
    text = ts_text(TRAIN, TRAIN_LABELS).replace("@timeStamps false", "@timestamps FALSE")
    path.write_text(text.replace("@data\n", "@Data\n\n# now\n").replace(":walk", ": walk "))
    assert np.array_equal(read_ts(path).values, TRAIN)


def test_a_ts_header_need_not_give_the_sizes(tmp_path):
    path = tmp_path / "Gait.ts"
    lines = ts_text(TRAIN, TRAIN_LABELS).splitlines(keepends=True)
    path.write_text("".join(x for x in lines if not x.startswith(("@dim", "@seriesL"))))
    assert np.array_equal(read_ts(path).values, TRAIN)


def test_channels_are_in_units_of_the_training_series(folder):
    task = read(folder)
    received = task.train.inputs[:, 1:, :CHANNELS]
    # Sums of thirty numbers of order ten, over a standard deviation of order one.
    tolerance = 30 * 10 * np.finfo(float).eps
    assert np.abs(received.mean(axis=(0, 1))).max() <= tolerance
    assert np.abs(received.std(axis=(0, 1)) - 1).max() <= tolerance
    expected = (TEST - TRAIN.mean(axis=(0, 1))) / TRAIN.std(axis=(0, 1))
    assert np.abs(task.test.inputs[:, 1:, :CHANNELS] - expected).max() <= tolerance
    assert task.train.labels[:, 0].tolist() == [1, -1, 1, 1, -1]
    assert task.test.labels[:, 0].tolist() == [-1, -1, 1, -1]


def test_a_channel_that_is_constant_in_training_is_zero_there(tmp_path):
    train = TRAIN.copy()
    train[..., 1] = 0.1
    task = read(write(tmp_path / "Gait", ".ts", train))
    assert np.abs(task.train.inputs[:, 1:, 1]).max() <= 0.1 * 30 * np.finfo(float).eps


def test_the_heads_are_those_of_the_seed(folder):
    task = read(folder, head_seed=3)
    attention = AttentionSection(heads=(("lag", "random"), ("uniform",)), lag=2)
    positions = STEPS + 1

    def weights_of(kind, generator):
        lag = {"lag": lambda: lag_weights(CHANNELS, positions, 2)}
        return query_and_key_weights(kind, CHANNELS + positions, 10.0, generator, lag)

    weights = draw_layers(attention, weights_of, 3)
    expected = factored_attention(task.train.inputs, *weights[0], (Softmax(), Softmax()))
    assert np.array_equal(task.train.attention[0], expected)
    assert not np.array_equal(read(folder).train.attention[0], expected)
    # Equal logits give equal weights, exactly.
    assert np.array_equal(task.train.attention[1], np.full((5, 1, 7, 7), 1 / 7))


@pytest.mark.parametrize("stride", [1, 2, 4, 6, 9])
def test_tokens_are_means_of_neighbouring_steps(stride):
    received = averaged(TRAIN, stride)
    expected = [TRAIN[:, t : t + stride].mean(axis=1) for t in range(0, STEPS, stride)]
    tolerance = stride * np.abs(TRAIN).max() * np.finfo(float).eps
    assert received.shape == (5, len(expected), CHANNELS)
    assert np.abs(received - np.stack(expected, axis=1)).max() <= tolerance


def test_the_stride_is_the_smallest_that_leaves_few_enough_tokens(folder):
    for settings, tokens in (
        ({}, 6),
        ({"max_tokens": 6}, 6),
        ({"max_tokens": 5}, 3),
        ({"max_tokens": 3}, 3),
        ({"max_tokens": 2}, 2),
        ({"stride": 4, "max_tokens": 50}, 2),
    ):
        received = read(folder, heads=(("uniform",),), **settings)
        assert received.train.tokens == tokens + 1


def test_two_of_many_classes_are_separated(tmp_path):
    classes = ("walk", "sit", "run")
    folder = write(tmp_path / "Gait", ".ts", classes=classes)
    with pytest.raises(InputError, match=r"^task\.classes = .*walk, sit, run.*\[\"walk\", \"sit\""):
        read(folder)
    task = read(folder, classes=("run", "walk"))
    assert task.train.labels[:, 0].tolist() == [-1, 1, -1, -1, 1]
    with pytest.raises(InputError, match=r"^Gait_TRAIN\.ts = 'sit': no training series"):
        read(folder, classes=("sit", "walk"))
    with pytest.raises(InputError, match=r"^task\.classes = 'fly': is no class"):
        read(folder, classes=("fly", "walk"))


def test_series_of_other_classes_are_left_out(tmp_path):
    folder = write(tmp_path / "Gait", ".ts", classes=("walk", "sit", "run"))
    path = folder / "Gait_TRAIN.ts"
    path.write_text(path.read_text().replace(":walk", ":sit", 1))
    task = read(folder, classes=("walk", "run"))
    assert task.train.labels[:, 0].tolist() == [-1, 1, 1, -1]
    expected = (TRAIN[1:] - TRAIN[1:].mean(axis=(0, 1))) / TRAIN[1:].std(axis=(0, 1))
    tolerance = 30 * 10 * np.finfo(float).eps
    assert np.abs(task.train.inputs[:, 1:, :CHANNELS] - expected).max() <= tolerance


def data_lines(change):
    """Change the first line after @data."""

    def changed(text):
        head, mark, data = text.partition("@data\n")
        first, *rest = data.splitlines()
        return head + mark + "\n".join([change(first), *rest]) + "\n"

    return changed


def replaced(old, new):
    def changed(text):
        assert old in text
        return text.replace(old, new, 1)

    return changed


def first_number(new):
    """Put something in the place of the first value."""
    return data_lines(lambda line: line.replace(line.split(",")[0].lstrip("'"), new, 1))


def without_data(text):
    return text.partition("@data")[0] + "@data\n"


BAD_FILES = [
    (".ts", replaced("@data\n", ""), r"line 11 = .*: data must come after a line @data"),
    (".ts", lambda text: text.partition("@data")[0], r"line 10 = \(end of file\): no line @data"),
    (".ts", without_data, r"line 11 = @data: no series follow"),
    (".ts", lambda text: "", r"line 1 = \(end of file\): no line @data"),
    (".ts", replaced("@timeStamps false", "@timeStamps true"), r"line 3 = .*not supported"),
    (".ts", replaced("@classLabel true", "@classLabel false"), r"line 9 = .*need classes"),
    (".ts", replaced("@classLabel true walk run\n", ""), r"line 10 = @data: comes without @class"),
    (".ts", replaced("@dimensions 3", "@dimensions three"), r"line 6 = .*whole number from 1"),
    (".ts", replaced("@dimensions 3", "@dimensions 2"), r"line 12 = 3 dimensions: .* have 2"),
    (".ts", replaced("@seriesLength 6", "@seriesLength 5"), r"line 12 = 6 values in dimension 1"),
    (".ts", data_lines(lambda x: x.partition(":")[2]), r"line 12 = 2 dimensions: .* have 3"),
    (".ts", data_lines(lambda x: x.replace(":", ",7:", 2)), r"line 12 = 7 values in dimension 1"),
    (".ts", data_lines(lambda x: x.replace(":", ",7:", 1)), r"line 12 = 7 values in dimension 1"),
    (".ts", data_lines(lambda x: x.replace(":", " ")), r"line 12 = .*must end in a colon"),
    (".ts", data_lines(lambda x: x.replace("walk", "fly")), r"line 12 = 'fly': is no class"),
    (".ts", first_number("?"), r"line 12 = '\?': is missing in dimension 1"),
    (".ts", first_number("NaN"), r"line 12 = 'NaN': is missing"),
    (".ts", first_number(""), r"line 12 = '': is missing"),
    (".ts", first_number("inf"), r"line 12 = 'inf': is no finite number"),
    (".ts", first_number("ten"), r"line 12 = 'ten': is no finite number, in dimension 1"),
    (".ts", first_number("(0"), r"line 12 = '\(0': time stamps are not supported"),
    (".arff", replaced("@data\n", ""), r"line 13 = .*data must come after a line @data"),
    (".arff", without_data, r"line 13 = @data: no series follow"),
    (".arff", replaced("@attribute activity {walk,run}\n", ""), r"line 12 = @data: .*classes"),
    (".arff", replaced("relationalAtt relational", "att numeric"), r"line 3 = .*multivariate"),
    (".arff", replaced("att2 numeric", "att2 string"), r"line 6 = .*multivariate problem"),
    (".arff", replaced("@attribute att5 numeric\n", ""), r"line 13 = 6 values in dimension 1"),
    (".arff", data_lines(lambda x: x.replace("'", "")), r"line 14 = .*quotation marks"),
    (".arff", data_lines(lambda x: x.replace(r"\n", r",1\n", 1)), r"line 14 = 7 values in dim"),
    (".arff", data_lines(lambda x: x.replace(r"\n", ",", 1)), r"line 14 = 12 values in dimension"),
    (".arff", data_lines(lambda x: x.replace("walk", "fly")), r"line 14 = 'fly': is no class"),
    (".arff", first_number("?"), r"line 14 = '\?': is missing in dimension 1"),
    (".arff", first_number("ten"), r"line 14 = 'ten': is no finite number"),
]


@pytest.mark.parametrize(("suffix", "change", "message"), BAD_FILES)
def test_what_cannot_be_used_is_named_by_file_and_line(tmp_path, suffix, change, message):
    folder = write(tmp_path / "Gait", suffix)
    path = folder / f"Gait_TRAIN{suffix}"
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=rf"^Gait_TRAIN{suffix}, {message}") as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_later_lines_are_held_to_the_first_where_the_header_says_nothing(tmp_path):
    folder = write(tmp_path / "Gait", ".arff")
    path = folder / "Gait_TEST.arff"
    *rest, last = path.read_text().splitlines()
    path.write_text("\n".join([*rest, last.replace(r"\n", r"\n1,2,3,4,5,6\n", 1)]))
    with pytest.raises(InputError, match=r"^Gait_TEST\.arff, line 17 = 4 dimensions: .* have 3"):
        read(folder)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (make_series(4, 1, channels=2), r"^Gait_TEST\.ts = 2 dimensions: Gait_TRAIN\.ts has 3"),
        (make_series(4, 1, steps=7), r"^Gait_TEST\.ts = 7 time steps: Gait_TRAIN\.ts has 6"),
    ],
)
def test_test_series_are_like_training_series(tmp_path, test, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "Gait", ".ts", test=test))


def test_one_class_is_nothing_to_tell(folder):
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("run", "walk").replace("walk walk", "walk"))
    with pytest.raises(InputError, match=r"^Gait_TRAIN\.ts = 'walk': declares fewer than two"):
        read(folder)


def test_files_and_folders_that_are_not_there(folder, tmp_path):
    with pytest.raises(InputError, match=r"^task\.folder = .*/None': is no folder"):
        read(tmp_path / "None")
    with pytest.raises(InputError, match=r"holds no Other_TRAIN\.ts or Other_TRAIN\.arff"):
        read(folder, problem="Other")
    (folder / "Gait_TEST.ts").unlink()
    with pytest.raises(InputError, match=r"^task\.folder = .*holds no Gait_TEST\.ts or"):
        read(folder)


RECIPE = """
name = "gait"
task = { kind = "time_series", folder = "Gait" }
network.widths = 4
posterior.temperature = 0.5
attention.lag = 2
"""


@pytest.fixture
def recipe(folder):
    path = folder.parent / "recipe.toml"
    path.write_text(RECIPE)
    return path


def test_check_finds_the_folder_beside_the_recipe(recipe, capsys):
    assert main(["check", str(recipe)]) == ExitCode.OK
    text = capsys.readouterr().out
    for expected in ("training examples P           5", "tokens                        7"):
        assert expected in text
    assert f'folder = "{recipe.parent / "Gait"}"' in text


@pytest.mark.parametrize(
    ("setting", "start"),
    [
        ("task.folder=Elsewhere", "task.folder = "),
        ('task.classes=["a", "a"]', "task.classes = ['a', 'a']: name two different classes"),
        ("task.tokens=30", "task.tokens = 30: this key is unknown; did you mean task.max_tokens?"),
        ("task.stride=0", "task.stride = 0: must be at least 1"),
        ("attention.lag=6", "attention.lag = 6: must be below the 6 tokens"),
    ],
)
def test_bad_settings_are_named(recipe, capsys, setting, start):
    assert main(["check", str(recipe), "--set", setting]) == ExitCode.BAD_INPUT
    line = capsys.readouterr().err
    assert line.startswith(f"attention-posterior: {start}"), line
    assert line.count("\n") == 1
