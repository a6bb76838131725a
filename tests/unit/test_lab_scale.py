"""The two-factor scale model and its automatic choice."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import LabError
from lab.planning.scale import MAX_EMULATED_MBPS, Budget, Load, Scale, choose_scale, frames_per_step, parse_scale
from topologies import topology


def test_the_designs_example() -> None:
    """400 Gbit/s / 8000 is 50 Mbit/s; 1 GiB / 64 is 16 MiB; a second of it is 1/125 s of the hardware's."""
    scale = Scale(8000, 64)
    assert scale.time_dilation == 125
    assert scale.emulated_bytes(2**30) == 2**24
    assert scale.hardware_s(1.0) == 0.008
    assert scale.emulated_s(20e-6) == pytest.approx(2.5e-3)
    link = scale.fabric(topology("spine-leaf").build()).links[0]
    assert link.rate_mbps == 50


def test_text_form() -> None:
    assert parse_scale("auto") is None
    assert parse_scale("1") == Scale(1, 1)
    assert parse_scale("8000") == Scale(8000, 8000)
    assert parse_scale("8000:64") == Scale(8000, 64)
    assert str(Scale(8000, 64)) == "8000:64"
    for bad in ("", "a:b", "1:2:3", "-1", "0", "nan", "inf"):
        with pytest.raises(LabError):
            parse_scale(bad)


def test_a_rate_that_cannot_be_shaped_is_refused() -> None:
    fabric = topology("spine-leaf").build()
    with pytest.raises(LabError) as caught:
        Scale(1, 1).fabric(fabric)
    assert str(caught.value) == (
        "link h1-leaf1: 400Gbit at rate_scale 1 is 400Gbit here, and a link can be shaped to 100kbit to 34Gbit: "
        "use --scale auto, or another --scale RATE[:SIZE]"
    )
    with pytest.raises(LabError, match="is 40kbit here"):
        Scale(1e7, 1).fabric(fabric)
    assert Scale(400_000 / MAX_EMULATED_MBPS, 1).fabric(fabric).links[0].rate_mbps == pytest.approx(MAX_EMULATED_MBPS)


def test_auto_on_a_slow_machine_goes_slower() -> None:
    load = Load(frame_hops_per_s=2e8, traffic_s=0.28, step_bytes=2**24, rate_mbps=400_000, mss=8948)
    slow, fast = (choose_scale(load, Budget(x), 60.0) for x in (50_000, 200_000))
    assert slow.rate_scale > fast.rate_scale


@given(
    hops=st.floats(1e5, 1e12), traffic=st.floats(1e-4, 1e3), rate=st.sampled_from([25e3, 100e3, 400e3, 800e3]),
    budget=st.floats(1e4, 1e6),
)  # fmt: skip
def test_auto_keeps_its_promises(hops: float, traffic: float, rate: float, budget: float) -> None:
    """Within the time, or eight times that where 30 frames in 1 MiB need it; the emulated rate readable and shapeable."""
    scale = choose_scale(Load(hops, traffic, 2**20, rate, 8948), Budget(budget), 60.0)
    emulated = rate / scale.rate_scale
    enough = 2**20 / scale.size_scale / 8948 >= 30
    assert traffic * scale.time_dilation <= 48.0 * (8 if enough else 1) * (1 + 1e-9)
    assert 0.1 * (1 - 1e-9) <= emulated <= 200 * (1 + 1e-9)
    digits = emulated / 10 ** math.floor(math.log10(emulated) + 1e-9)
    assert min(abs(digits - x) for x in (1, 2, 2.5, 4, 5, 8)) < 1e-6


def test_auto_takes_longer_where_messages_would_have_too_few_frames() -> None:
    """1 s of traffic at 1/2000 of the rate, 20 s are asked for: sizes / 100. Steps of 10 MB have 30 frames at 37 and less, and
    eight times the time allows 13 and more. Steps of 1.5 MB need 5: too long for any good."""
    load = Load(2e8, 1.0, 10e6, 400_000, 8948)
    budget = Budget(2 * 2e8 / 2000)
    assert choose_scale(load, budget, 32.0) == Scale(2000, 25)
    assert choose_scale(replace(load, step_bytes=1.5e6), budget, 32.0) == Scale(2000, 100)


def test_small_hardware_is_not_enlarged() -> None:
    scale = choose_scale(Load(10.0, 1e-3, 2**20, 10.0, 1448), Budget(1e6), 60.0)
    assert scale == Scale(1, 1)


def test_frames_per_step() -> None:
    """256 MiB over 16 ranks at size_scale 64: the field's rule of 30 frames is just missed."""
    assert frames_per_step(2**28 / 16, 8948, Scale(8000, 64)) == pytest.approx(29.3, abs=0.01)
