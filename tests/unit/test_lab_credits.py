"""Credits in place of PFC: what may be under way never is more than the queue of any link holds."""

import re
from collections import Counter

import pytest

from lab.errors import LabError
from lab.planning.credits import credits_of
from lab.planning.experiment import load
from lab.planning.forecast import Forecast, forecast_of
from lab.planning.plan import plan
from lab.planning.scale import Scale
from topologies.shaping import shape
from traffic.framing import rocev2
from traffic.rocev2.reliability import Reliability

SETTINGS: dict[str, object] = {
    "topology": "spine-leaf:spines=2,leaves=2,hosts_per_leaf=4", "link_rate": "50Mbit", "transport": "rocev2",
    "lossless": "credits", "queue": 32,
}  # fmt: skip
# 32 frames of 9000 bytes and Ethernet's header. A first packet of 4096 bytes is 4170 with all headers, an acknowledgement 62.
QUEUE, PACKET, ACK = 32 * 9014, 4096 + 14 + 20 + 8 + 12 + 16 + 4, 14 + 20 + 8 + 12 + 4 + 4


def forecast(**settings: object) -> Forecast:
    return forecast_of(plan(load(None, SETTINGS | settings)), Scale())


@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all", "incast"])
@pytest.mark.parametrize("qps", [1, 2])
def test_no_queue_can_overflow(collective: str, qps: int) -> None:
    expected = forecast(collective=collective, qps=qps)
    packets_of = expected.credits()
    under_way: Counter[str] = Counter()
    for flow, packets in packets_of.items():
        src, dst, channel = flow.connection
        c = src, dst, channel * qps + flow.qp
        under_way.update({port.intf: packets * PACKET for port in expected.paths[c]})
        for port in expected.ack_paths[c]:
            under_way[port.intf] += packets * ACK
    assert set(expected.plan.schedule.connections) == {flow.connection for flow in packets_of}
    assert max(under_way.values()) <= QUEUE
    # One packet more for each and the fullest would be over, but for those that a window of 64 holds back.
    assert max(under_way.values()) > QUEUE / 2 or set(packets_of.values()) == {64}


def test_a_link_that_many_share_is_divided_among_them() -> None:
    """Seven into one: 288 448 bytes by 7 x 4170 are 9 packets each."""
    assert set(forecast(collective="incast").credits().values()) == {QUEUE // (7 * PACKET)} == {9}


def test_a_queue_without_room_for_a_packet_of_each_is_refused() -> None:
    with pytest.raises(
        LabError,
        match=(
            r"^--lossless credits: the queue pairs that cross leaf1-eth\d have 934,080 bytes with one packet each, its queue "
            r"holds 288,448: use a longer --queue, fewer --qps or a smaller --path-mtu$"
        ),
    ):
        forecast(collective="incast", qps=32)


def test_where_paths_are_unknown_credits_are_refused() -> None:
    with pytest.raises(
        LabError, match=re.escape("--lossless credits needs to know which queues a packet crosses: with")
    ):
        forecast(spread="packet")


def test_a_link_without_a_queue_limits_nobody() -> None:
    expected = forecast()
    one = next(iter(expected.paths))
    some = {one: expected.paths[one]}, {one: expected.ack_paths[one]}
    assert credits_of(*some, {}, rocev2(9000), most=64) == {one: 64}
    only = {next(iter(expected.paths[one])).intf: shape(50, 9000, queue_frames=1)}
    assert credits_of(*some, only, rocev2(9000), most=64) == {one: 9014 // PACKET}


def test_a_sender_with_few_credits_asks_for_acknowledgements_in_time() -> None:
    few, one = (Reliability(reorder=32).within(n) for n in (9, 1))
    assert (few.window, few.ack_every, few.reorder) == (9, 4, 9)
    assert (one.window, one.ack_every) == (1, 1)
    assert Reliability().within(1000) == Reliability()
