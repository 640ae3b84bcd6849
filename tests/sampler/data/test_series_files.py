"""Series of the UEA archive: what is read from files, and what is refused."""

import numpy as np
import pytest

from sampler.data.time_series import SeriesArchive, read_ts
from sampler.errors import InputError
from sampler.settings.task_sections import Attention

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


TRAIN, TRAIN_LABELS = make_series(5, 0), ("walk", "run", "walk", "walk", "run")
TEST, TEST_LABELS = make_series(4, 1), ("run", "run", "walk", "run")


def write(folder, train=TRAIN, test=TEST, **settings):
    folder.mkdir(exist_ok=True)
    for name, values, labels in (("TRAIN", train, TRAIN_LABELS), ("TEST", test, TEST_LABELS)):
        text = ts_text(values, labels, **settings)
        (folder / f"{folder.name}_{name}.ts").write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "Gait")


def read(folder, heads=(("lag", "random"), ("uniform",)), lag=2, **settings):
    section = SeriesArchive(folder=folder, **settings)
    return section.make(Attention(heads=heads, lag=lag))


def test_what_was_written_comes_back(tmp_path):
    """Comments, case, blank lines and a byte order mark do not matter."""
    path, text = tmp_path / "Gait.ts", ts_text(TRAIN, TRAIN_LABELS)
    text = "% first\x0cof\u2028three\n" + text.replace("@data\n", "@Data\n\n# now\n% one\n")
    text = text.replace("@classLabel", "@classlabel").replace(":walk", ": walk ")
    path.write_text(text, encoding="utf-8-sig", newline="\r\n")
    received = read_ts(path)
    assert np.array_equal(received.values, TRAIN)
    assert (received.labels, received.classes) == (TRAIN_LABELS, CLASSES)


@pytest.mark.parametrize("stride", [1, 4])
def test_tokens_are_means_of_steps_in_units_of_the_training_series(folder, stride):
    task = read(folder, heads=(("uniform",),), stride=stride)
    means = [
        np.stack([one[:, t : t + stride].mean(axis=1) for t in range(0, STEPS, stride)], axis=1)
        for one in (TRAIN, TEST)
    ]
    # Sums of thirty numbers of order ten, over a standard deviation of order one.
    tolerance = 30 * 10 * np.finfo(float).eps
    for split, mean in zip((task.train, task.test), means, strict=True):
        expected = (mean - means[0].mean(axis=(0, 1))) / means[0].std(axis=(0, 1))
        received = split.inputs[:, 1:, :CHANNELS]
        assert received.shape == expected.shape
        assert np.abs(received - expected).max() <= 10 * tolerance
    assert task.train.labels[:, 0].tolist() == [1, -1, 1, 1, -1]
    assert task.test.labels[:, 0].tolist() == [-1, -1, 1, -1]


def test_the_stride_is_the_smallest_that_leaves_few_enough_tokens(folder):
    for settings, tokens in (({}, 6), ({"max_tokens": 5}, 3), ({"stride": 4, "max_tokens": 50}, 2)):
        received = read(folder, heads=(("uniform",),), **settings)
        assert received.train.tokens == tokens + 1


def test_two_of_many_classes_are_separated_and_others_left_out(tmp_path):
    folder = write(tmp_path / "Gait", classes=("walk", "sit", "run"))
    path = folder / "Gait_TRAIN.ts"
    path.write_text(path.read_text().replace(":walk", ":sit", 1))
    task = read(folder, classes=("run", "walk"))
    assert task.train.labels[:, 0].tolist() == [1, -1, -1, 1]
    expected = (TRAIN[1:] - TRAIN[1:].mean(axis=(0, 1))) / TRAIN[1:].std(axis=(0, 1))
    tolerance = 30 * 10 * np.finfo(float).eps
    assert np.abs(task.train.inputs[:, 1:, :CHANNELS] - expected).max() <= tolerance


def changed(old, new):
    """Change the training file."""

    def change(folder):
        path = folder / "Gait_TRAIN.ts"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


def one_class(folder):
    for path in folder.iterdir():
        path.write_text(path.read_text().replace(":run", ":walk").replace("walk run", "walk"))


FIRST = repr(float(TRAIN[0, 0, 0]))
REFUSED = {
    "no class": (changed("@classLabel true walk run", ""), "task.folder"),
    "a value too many": (changed(f"{FIRST},", f"{FIRST},7,"), "task.folder"),
    "a missing value": (changed(f"{FIRST},", "?,"), "task.folder"),
    "no file": (lambda folder: (folder / "Gait_TEST.ts").unlink(), "task.folder"),
    "other steps": (lambda folder: write(folder, test=make_series(4, 1, steps=7)), "Gait_TEST.ts"),
    "one class": (one_class, "task.classes"),
    "three classes": (lambda folder: write(folder, classes=(*CLASSES, "sit")), "task.classes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused(case, folder):
    change, field = REFUSED[case]
    change(folder)
    with pytest.raises(InputError) as caught:
        read(folder)
    assert caught.value.field == field


def test_a_lag_is_shorter_than_the_series(folder):
    """At most the last step sees the first one; of heads of other kinds nothing is asked."""
    read(folder, lag=STEPS - 1)
    with pytest.raises(InputError) as caught:
        read(folder, lag=STEPS)
    assert caught.value.field == "attention.lag"
    read(folder, heads=(("uniform",),), lag=STEPS)


# 0.1 and 1/3 have rounded sums, of 1.0 and 0.5 they are exact.
CONSTANTS = [0.1, 1 / 3, -7.7, 1e9 + 0.1, 1e-12, 1.0, 0.0]


@pytest.mark.parametrize("stride", [1, 7])
def test_a_channel_that_is_constant_but_for_rounding_is_zero(stride, tmp_path):
    """Means over `stride` equal numbers, and over the rest of them, differ in their last digits."""
    steps, channels = 2 * stride + max(1, stride // 2), len(CONSTANTS) + 1
    train, test = (make_series(count, count, steps, channels) for count in (5, 4))
    for values in (train, test):
        values[..., :-1] = CONSTANTS
    folder = write(tmp_path / "Gait", train, test)
    task = read(folder, heads=(("uniform",),), stride=stride)
    for split in (task.train, task.test):
        received = split.inputs[:, 1:, : len(CONSTANTS)]
        assert np.all(np.abs(received) <= stride * np.spacing(np.abs(CONSTANTS)))
    moving = task.train.inputs[:, 1:, len(CONSTANTS)]
    assert np.mean(moving) == pytest.approx(0.0, abs=1e-12)
    assert np.std(moving) == pytest.approx(1.0, rel=1e-12)


def test_a_channel_that_changes_by_more_than_rounding_is_a_feature(tmp_path):
    stride = 3
    train = make_series(5, 0, 3 * stride)
    train[..., 0] = 0.1
    train[2, :, 0] = 0.1 * (1.0 + 1e-14)
    task = read(write(tmp_path / "Gait", train, make_series(4, 1, 3 * stride)), stride=stride)
    received = task.train.inputs[:, 1:, 0]
    # One series of five is high: (4, −1, −1, −1, −1)/2, to the digits that 1e-14 leaves.
    np.testing.assert_allclose(received[2], 2.0, atol=0.2)
    np.testing.assert_allclose(np.delete(received, 2, axis=0), -0.5, atol=0.2)
