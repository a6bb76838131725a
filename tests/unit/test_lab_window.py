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


def test_it_is_two_bandwidth_delay_products_of_each_way() -> None:
    """Two links below one leaf: 7.2 ms of store-and-forward and the emulator's 35 ms, x 2.5 MB/s x 2, are 23.4 frames of 9014
    bytes; four by a spine: 49.4 ms, 27.4 frames."""
    windows = forecast(collective="all_to_all").windows
    assert {c[:2]: frames for c, frames in windows.items() if c[0] == 0} == {(0, 1): 24, (0, 2): 28, (0, 3): 28}


def test_it_covers_the_links_delay_there_and_back() -> None:
    """8 x 5 ms more: 89.4 ms x 2.5 MB/s x 2 are 49.6 frames."""
    assert max(forecast(delay="5ms").windows.values()) == 50


@pytest.mark.parametrize(("delay", "frames"), [("0us", 36), ("5ms", 58)])
def test_where_nobody_knows_the_way_it_is_a_long_one(delay: str, frames: int) -> None:
    """Eight links: 28.8 ms and 35 ms, x 2.5 MB/s x 2, are 35.4 frames; eight times 5 ms are 22.2 more."""
    assert set(forecast(spread="flowlet", delay=delay).windows.values()) == {frames}


@pytest.mark.parametrize(
    ("settings", "windows"),
    [
        ({"window": 8}, {8}),
        ({"window": 0}, set()),
        ({"transport": "rocev2"}, set()),
        ({"transport": "udp", "window": 0}, set()),
    ],
)
def test_it_is_what_was_asked_for_and_of_tcp_alone(settings: dict[str, object], windows: set[int]) -> None:
    assert set(forecast(**settings).windows.values()) == windows


def test_one_that_holds_senders_back_has_no_prediction() -> None:
    """Four frames of store-and-forward are one product."""
    assert forecast(window=3).unknown == "--window 3 holds senders back: 4 frames are one bandwidth-delay product"
    assert forecast(window=4).unknown == ""
