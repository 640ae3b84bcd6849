"""Accelerators by their published numbers, and what is refused as one."""

from dataclasses import replace

import pytest

from sampler.errors import InputError
from sampler.jobs.cards import CARDS, card_named

H100 = CARDS["h100"]


def test_a_tenth_of_the_bandwidth_takes_ten_times_longer_where_bytes_bind():
    slow = replace(H100, bandwidth=H100.bandwidth / 10)
    moved, few = 1e9, 1e3
    assert H100.bound(few, moved, "float64") == "bytes"
    times = [card.roofline(few, moved, "float64") for card in (H100, slow)]
    assert times[1] == pytest.approx(10 * times[0], rel=1e-15)
    # Where operations bind, bandwidth is nothing.
    assert H100.bound(1e12, few, "float64") == "operations"
    assert slow.roofline(1e12, few, "float64") == H100.roofline(1e12, few, "float64")


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_operations_take_their_number_over_the_rate_of_their_precision(precision):
    assert H100.roofline(getattr(H100, precision), 0.0, precision) == 1.0


def test_a_card_by_its_numbers_is_the_one_by_its_name():
    numbers = "bandwidth=3.35TB/s,float64=34TFLOP/s,float32=67TFLOP/s,memory=80GB"
    assert card_named(numbers) == H100 == card_named("H100")
    assert (
        card_named("memory=80e9B, float32=67e3 GFLOP/s,bandwidth=3350GB/s,float64=3.4e13FLOP/s")
        == H100
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h300", "use h200, h100"),
        ("bandwidth=3TB/s,memory=80GB", "float64, float32 missing"),
        ("bandwidth=3TB,float64=1FLOP/s,float32=1FLOP/s,memory=80GB", "in B/s"),
        ("bandwidth=0TB/s,float64=1FLOP/s,float32=1FLOP/s,memory=80GB", "above 0"),
        ("speed=3TB/s", "'speed' is not one of bandwidth"),
        ("memory=1GB,memory=2GB", "'memory' is given twice"),
    ],
)
def test_what_is_no_card_is_refused_with_what_to_write(text, said):
    with pytest.raises(InputError, match="--device") as refused:
        card_named(text)
    assert said in str(refused.value)
    assert refused.value.remedy.endswith(("memory=80GB", "B/s"))
