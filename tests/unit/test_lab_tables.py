"""From counters made by hand to the tables of a diagnosis."""

from dataclasses import replace

import numpy as np
import pytest

from lab.measuring.monitor import Window
from lab.measuring.tables import Seen, host_uses, idle_queues, link_uses
from topologies import topology
from topologies.impairments import EgressCounts
from topologies.inspected import Inspection, IpCounts
from topologies.shaping import shapes

FABRIC = topology("spine-leaf:spines=1,leaves=2,hosts_per_leaf=1").build().with_links(rate_mbps=20)
SHAPES = shapes(FABRIC, 9000)
INTFS = ("leaf1-eth1", "leaf1-eth2")
NOTHING = Inspection({}, (), {}, {}, {}, {}, {})


def window(n: int = 11) -> Window:
    """Samples every 0.1 s, readings every 0.5 s; 2.5 Mbyte/s over the second link, half of that over the first."""
    at = np.arange(n) / 10
    sent = np.stack((at * 1_250_000, at * 2_500_000), axis=1).astype(np.int64)
    readings = at[::5]
    quiet = np.zeros((len(readings), 2), np.int64)
    return Window(
        at_s=at, began_s=at, intfs=INTFS, bytes_sent=sent, frames_sent=sent // 9014, backlog_bytes=np.zeros(n, np.int64),
        forwarding=[0, 1], stopped_s=0.0, idle_share=0.5, other_cores=0.0, steal_share=0.0, switch_wait_share=0.0,
        queue_at_s=readings, queue_bytes=quiet, queue_frames=quiet, queue_drops=quiet, filtered=quiet - 1, dequeued=quiet,
    )  # fmt: skip


def test_a_link_that_idles_while_frames_wait_is_named_with_what_it_sent() -> None:
    """Frames wait for both links at all three readings; the first sends half of its 2.5 Mbyte/s, the second all of it."""
    waiting = np.full((3, 2), 5)
    (said,) = idle_queues(FABRIC, SHAPES, replace(window(), queue_frames=waiting))
    assert said == "leaf1->h1 (leaf1-eth1) sent 50% of its rate while frames waited"


def test_a_link_for_which_nothing_waits_may_idle() -> None:
    assert list(idle_queues(FABRIC, SHAPES, window())) == []
    once = np.array([[5, 0], [0, 0], [5, 0]])
    assert list(idle_queues(FABRIC, SHAPES, replace(window(), queue_frames=once))) == []


def test_losses_that_were_asked_for_are_not_among_what_programs_swallowed() -> None:
    """100 frames come to the program of the first link, 60 leave; 30 were to be lost."""
    filtered = np.full((3, 2), -1)
    filtered[:, 0] = (0, 40, 100)
    seen = replace(window(), filtered=filtered, dequeued=np.array([[0, 0], [20, 0], [60, 0]]))
    on_purpose = {"leaf1-eth1": EgressCounts(100, 30, 0)}
    uses = link_uses(
        FABRIC, SHAPES, seen, Seen(NOTHING, {}), Seen(NOTHING, {}), lost_behind={"leaf1-eth2": 3}, on_purpose=on_purpose
    )
    assert [(one.swallowed, one.lost_behind) for one in uses] == [(10, 0), (0, 3)]
    # 20 Mbit/s are 2.5 Mbyte/s, and after a pause the bucket and a frame: 9064 and 9014 bytes.
    assert uses[1].excess == pytest.approx(2.5e6 / (2.5e6 + 18_078))


def test_what_a_host_loses_is_the_difference_of_its_layers() -> None:
    """Its NIC took 100 packets of which IP delivered 90; IP sent 50 of which 44 came to the NIC, and 4 were to be lost there."""
    before = replace(NOTHING, ip={"h1": IpCounts(1000, 500)}, sent={"h1": 500}, received={"h1": 1000})
    after = replace(NOTHING, ip={"h1": IpCounts(1090, 550)}, sent={"h1": 544}, received={"h1": 1100})
    (use,) = host_uses(FABRIC, before, after, {"h1-eth0": EgressCounts(50, 4, 0)})
    assert (use.lost_in, use.lost_out) == (10, 2)


def test_a_transport_that_leaves_the_host_s_stack_out_loses_nothing_in_it() -> None:
    """Packet sockets send what IP has not counted."""
    before = replace(NOTHING, ip={"h1": IpCounts()}, sent={"h1": 0}, received={"h1": 0})
    after = replace(NOTHING, ip={"h1": IpCounts(10, 0)}, sent={"h1": 900}, received={"h1": 10})
    (use,) = host_uses(FABRIC, before, after, {})
    assert (use.lost_in, use.lost_out) == (0, 0)
