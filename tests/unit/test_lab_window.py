"""TCP's window against bandwidth-delay products worked out by hand."""

import pytest

from lab.planning.experiment import load
from lab.planning.forecast import Forecast, forecast_of
from lab.planning.plan import plan
from lab.planning.scale import Scale

SPINE_LEAF = {
    "topology": "spine-leaf:spines=2,leaves=2,hosts_per_leaf=2",
    "link_rate": "20Mbit",
    "min_bytes": "1M",
    "max_bytes": "1M",
}


def forecast(**settings: object) -> Forecast:
    return forecast_of(plan(load(None, SPINE_LEAF | settings)), Scale())


def test_it_is_two_bandwidth_delay_products_of_the_longest_way() -> None:
    """Four links of 20 Mbit/s take a frame of 9014 bytes 14.4 ms, the emulator 10 ms: 24.4 ms x 2.5 MB/s x 2 are 13.5 frames."""
    assert forecast().window_frames == 14


def test_it_covers_the_links_delay_there_and_back() -> None:
    """8 x 5 ms more: 64.4 ms x 2.5 MB/s x 2 are 35.7 frames."""
    assert forecast(delay="5ms").window_frames == 36


def test_where_nobody_knows_the_way_it_is_a_long_one() -> None:
    """Eight links: 28.8 ms and 10 ms, x 2.5 MB/s x 2, are 21.5 frames."""
    assert forecast(spread="flowlet").window_frames == 22


@pytest.mark.parametrize(
    ("settings", "window_frames"),
    [({"window": 8}, 8), ({"window": 0}, None), ({"transport": "rocev2"}, None), ({"transport": "udp"}, None)],
)
def test_it_is_what_was_asked_for_and_of_tcp_alone(settings: dict[str, object], window_frames: int | None) -> None:
    assert forecast(**settings).window_frames == window_frames
