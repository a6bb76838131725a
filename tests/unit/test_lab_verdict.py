"""Evidence to verdict: each condition alone, with the text that a user reads."""

from typing import Any

import pytest

from lab.kpis import collision_band
from lab.measuring.diagnosis import Diagnosis
from lab.measuring.verdict import Evidence, collision_note, collision_notes, judge
from topologies import topology
from topologies.delay_line import Report
from topologies.impairments import EgressCounts

UNSHAPED = Diagnosis("unshaped link", "leaf1->spine2 (leaf1-eth3)", "qdisc should be htb, is none")
HOG = Diagnosis("CPU hog", "python3 (4711)", "other processes used 0.9 cores")
FINE: dict[str, Any] = {
    "iterations_done": 3, "iterations_asked": 3, "idle_share": 0.4, "switch_queue_frames": 2.0, "switch_wait_share": 0.01,
    "steal_share": 0.0, "sender_lateness_frames": 1.0, "stall_s": 0.1, "segments": 10_000.0, "retransmits": 3,
    "frames_per_step": 36.0, "measured_to_predicted": 1.02, "planned_bytes": {"h1-eth0": 1e6},
    "counted_bytes": {"h1-eth0": 1_004_000},
}  # fmt: skip


def test_all_checks_hold() -> None:
    verdict = judge(Evidence(**FINE))
    assert (verdict.level, verdict.reason) == ("ok", "")


def test_what_was_not_observed_says_nothing() -> None:
    assert judge(Evidence(iterations_done=1, iterations_asked=1)).level == "ok"


@pytest.mark.parametrize(
    ("level", "change", "reason"),
    [
        ("invalid", {"iterations_done": 0}, "none of 3 iterations completed"),
        ("invalid", {"wrong": 12}, "wrong result: 12 elements differ from what the collective must give"),
        (
            "invalid",
            {"diagnoses": (UNSHAPED,)},
            "unshaped link leaf1->spine2 (leaf1-eth3): qdisc should be htb, is none",
        ),
        (
            "invalid",
            {"switch_queue_frames": 74.0},
            "CPU-limited: frames waited 74 frame times for the switch thread, 8 are tolerated",
        ),
        (
            "invalid",
            {"idle_share": 0.012, "measured_to_predicted": 1.06},
            "CPU-limited: the machine was 1.2% idle, 5% is the least",
        ),
        (
            "invalid",
            {"switch_wait_share": 0.4, "measured_to_predicted": 1.06},
            "CPU-limited: the switch thread waited for a core 40% of the time",
        ),
        ("invalid", {"datapath_stopped_s": 1.4}, "the switch process was stopped for 1.4 s"),
        ("invalid", {"stall_s": 2.0}, "the fabric stood still for 2.0 s while sends were outstanding"),
        (
            "invalid",
            {"dropped_at_sockets": 9},
            "9 frames lost at full sockets of the hosts: the transport could not keep up",
        ),
        (
            "degraded",
            {"timeouts": 3, "stall_s": 1.1},
            "3 retransmission timeouts, nothing moved for 1.1 s at the longest",
        ),
        (
            "degraded",
            {"measured_to_predicted": 1.9, "queue_drops": 3220, "retransmits": 8822, "resent_for_losses": 9000},
            "1.90 times the predicted time: full queues dropped 3,220 frames, 8,822 segments were sent again",
        ),
        ("ok", {"pacing": 0.996}, "senders kept 0.996 of the rate that was asked for"),
        ("degraded", {"pacing": 0.96}, "senders kept 0.960 of the rate that was asked for"),
        ("invalid", {"pacing": 0.7}, "senders kept 0.700 of the rate that was asked for"),
        (
            "degraded",
            {"lossless_asked": True, "queue_drops": 7, "resent_for_losses": 640},
            "queues dropped 7 frames, though credits were to keep that from happening",
        ),
        (
            # The bytes that were lost are on no link behind, nothing moves while they are waited for, and it took no time.
            "degraded",
            {
                "data_bytes": 4_000_000,
                "lost_bytes": 3_000_000,
                "counted_bytes": {"h1-eth0": 250_000},
                "stall_s": 0.9,
                "measured_to_predicted": 0.3,
            },
            (
                "25.0% of the data arrived, 3,000,000 of 4,000,000 bytes were lost and nobody sends them again: values were not "
                "compared, and the time has the wait for them in it"
            ),
        ),
        ("ok", {"retransmits": 640, "queue_drops": 10, "resent_for_losses": 640}, ""),
        (
            "degraded",
            {"retransmits": 900, "queue_drops": 10, "resent_for_losses": 640},
            "260 segments (2.6%) sent again that no link had lost",
        ),
        ("invalid", {"datapath_drops": 5}, "5 frames lost inside Open vSwitch"),
        (
            "invalid",
            {"counted_bytes": {"h1-eth0": 500_000}, "links": {"h1-eth0": "h1->leaf1"}},
            "h1->leaf1 (h1-eth0) carried 500,000 bytes where the schedule sends 1,000,000 (-50.0%)",
        ),
        (
            "invalid",
            {"measured_to_predicted": 0.5, "measured_to_bound": 0.6},
            "faster than its links allow: 0.60 of what the fullest one needs for its bytes",
        ),
        # Flows may share better than max-min fairly; short messages go at once.
        ("ok", {"measured_to_predicted": 0.85, "measured_to_bound": 1.05}, ""),
        ("ok", {"measured_to_predicted": 1.0, "measured_to_bound": 0.5}, ""),
        ("degraded", {"iterations_done": 2}, "interrupted: 2 of 3 iterations"),
        (
            "degraded",
            {"frames_per_step": 7.33, "more_frames": "use 4.1MiB or more, or a smaller size_scale"},
            "quantised: 7.33 full frames in a step's message, 30 are needed: use 4.1MiB or more, or a smaller size_scale",
        ),
        (
            "degraded",
            {"controller_status": -9},
            "the controller ended with status -9: the switches had the rules that it left them",
        ),
        ("degraded", {"diagnoses": (HOG,)}, "CPU hog python3 (4711): other processes used 0.9 cores"),
        ("degraded", {"steal_share": 0.1}, "the hypervisor took 10% of the CPU"),
        (
            "degraded",
            {"switch_wait_share": 0.1, "measured_to_predicted": 1.06},
            "the switch thread waited for a core 10% of the time",
        ),
        (
            "degraded",
            {"switch_queue_frames": 9.0},
            "frames waited 9 frame times for the switch thread, 8 are tolerated",
        ),
        ("degraded", {"sender_lateness_frames": 20.0}, "senders were late by 20 frame times (p99), 8 are tolerated"),
        ("degraded", {"measured_to_predicted": 1.61}, "1.61 times the predicted time, unexplained"),
        ("degraded", {"retransmits": 500, "queue_drops": 40}, "460 segments (4.6%) sent again that no link had lost"),
    ],
)
def test_each_condition(level: str, change: dict[str, Any], reason: str) -> None:
    verdict = judge(Evidence(**(FINE | change)))
    assert (verdict.level, verdict.reason) == (level, reason)


LOSSY: dict[str, Any] = FINE | {"loss_asked": 0.01, "impaired": EgressCounts(10_000, 104, 0)}


def test_losses_that_were_asked_for_are_a_remark() -> None:
    """Their retransmissions, TCP's waits and the longer time are what was to be seen."""
    verdict = judge(Evidence(**(LOSSY | {"retransmits": 190, "stall_s": 0.7, "measured_to_predicted": 1.9})))
    assert (verdict.level, verdict.reason) == (
        "ok",
        "links lost 104 of 10000 frames as asked (100 expected), which the prediction does not know",
    )


def test_more_or_fewer_losses_than_chance_explains() -> None:
    """100 are expected of 10 000, with a standard deviation of 9.95: four of them and one frame more are tolerated."""
    for lost, level in ((59, "degraded"), (60, "ok"), (140, "ok"), (141, "degraded")):
        verdict = judge(Evidence(**(LOSSY | {"impaired": EgressCounts(10_000, lost, 0)})))
        assert verdict.level == level, lost
    assert verdict.reasons[0] == "links lost 141 of 10000 frames on purpose, 1.00% were asked for"


def hop(frames: int, lost: int, late_p99_us: float) -> dict[str, Any]:
    """Two seconds of a hop that carries 9000 frames/s, on delays of 10 and 40 ms."""
    report = Report(frames=frames, lost=lost, seconds=2.0, cpu_s=1.0, late_p99_us=late_p99_us)
    return FINE | {"hop": report, "hop_frames_per_s": 9000.0, "delays_us": (10_000.0, 40_000.0)}


@pytest.mark.parametrize(
    ("level", "change", "reason"),
    [
        ("ok", hop(10_000, 0, 2400), ""),
        (
            "degraded",
            hop(10_000, 0, 2600),
            (
                "the impairment hop was late by 2.6 ms (p99) on a delay of 10 ms: it had 5,000 frames/s, it carries 9,000 "
                "with a core of its own"
            ),
        ),
        (
            "degraded",
            hop(20_000, 0, 100),
            "more than the impairment hop carries: it had 10,000 frames/s, it carries 9,000 with a core of its own",
        ),
        (
            "invalid",
            hop(10_000, 3, 100),
            "3 frames lost inside the impairment hop: it had 5,000 frames/s, it carries 9,000 with a core of its own",
        ),
        ("ok", FINE | {"jitter_asked": True}, "the prediction knows the delay, not its jitter"),
    ],
)
def test_the_impairment_hop(level: str, change: dict[str, Any], reason: str) -> None:
    verdict = judge(Evidence(**change))
    assert (verdict.level, verdict.reason) == (level, reason)


def test_what_is_under_way_on_long_links_is_no_standstill() -> None:
    """A round trip of eight links of 100 ms, and TCP's timer."""
    far = FINE | {"delays_us": (100_000.0,)}
    assert judge(Evidence(**(far | {"stall_s": 1.2}))).level == "ok"
    assert judge(Evidence(**(far | {"stall_s": 1.4}))).level == "invalid"


def test_segments_sent_again_beyond_the_losses_asked_for() -> None:
    assert judge(Evidence(**(LOSSY | {"retransmits": 500}))).level == "degraded"


def test_grave_reasons_come_first_and_decide() -> None:
    verdict = judge(Evidence(**(FINE | {"wrong": 1, "diagnoses": (HOG,)})))
    assert verdict.level == "invalid"
    assert [r.split(":")[0] for r in verdict.reasons] == ["wrong result", "CPU hog python3 (4711)"]


def test_a_link_that_was_not_as_asked_is_named_before_what_follows_from_it() -> None:
    fast = {"measured_to_predicted": 0.5, "measured_to_bound": 0.5}
    verdict = judge(Evidence(**(FINE | fast | {"wrong": 1, "diagnoses": (HOG, UNSHAPED)})))
    assert [r.split(" ")[0] for r in verdict.reasons] == ["unshaped", "wrong", "CPU", "faster"]


def test_other_labs_are_named_where_the_machine_was_too_small_for_all() -> None:
    beside = FINE | {"idle_share": 0.0, "measured_to_predicted": 1.13, "other_labs_cores": 1.24}
    assert judge(Evidence(**beside)).reason == (
        "CPU-limited: the machine was 0.0% idle, 5% is the least, other labs used 1.2 cores"
    )


def test_four_links_that_were_not_as_asked_are_three_and_a_number() -> None:
    verdict = judge(Evidence(**(FINE | {"diagnoses": (UNSHAPED,) * 4})))
    assert verdict.reasons[3:] == ("and 1 more links or circuits that were not as asked",)


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({}, "ok"),
        ({"measured_to_predicted": 1.06}, "invalid"),
        ({"sender_lateness_frames": 9.0}, "invalid"),
        ({"switch_queue_frames": 9.0}, "invalid"),
        ({"switch_queue_frames": None}, "invalid"),
        ({"measured_to_predicted": None}, "invalid"),
    ],
)
def test_a_busy_machine_matters_where_somebody_waited(change: dict[str, Any], level: str) -> None:
    """Two labs on two cores leave nothing idle, and their threads wait for each other; whether that cost anything is seen in
    the switch's backlog, the senders' lateness and the time. Where one of the three is unknown, it may have."""
    busy = FINE | {"idle_share": 0.002, "switch_wait_share": 0.3, "measured_to_predicted": 1.03}
    assert judge(Evidence(**(busy | change))).level == level


def test_an_interrupted_row_is_not_blamed_for_bytes_it_did_not_send() -> None:
    verdict = judge(Evidence(**(FINE | {"iterations_done": 1, "counted_bytes": {"h1-eth0": 300_000}})))
    assert verdict.level == "degraded"


def test_acknowledgements_alone_are_not_counted() -> None:
    """TCP decides how often it acknowledges: a link that carries nothing else is not judged by its bytes."""
    planned = {"h1-eth0": 1e6, "leaf2-eth6": 4_000.0}
    assert judge(Evidence(**(FINE | {"planned_bytes": planned, "counted_bytes": {"h1-eth0": 1_000_000}}))).level == "ok"


def test_uneven_few_flows_are_explained_not_blamed() -> None:
    assert collision_note("leaf1", 4.0, collision_band(1, 4), 1, 4) == (
        "leaf1: 1 flow on 4 links, MMR 4.00, as chance gives (expected 4.00, 95 % in 4.00 to 4.00)"
    )
    fabric = topology("spine-leaf:spines=4,leaves=2").build()
    up = next(own for own, far, _ in fabric.neighbours("leaf1") if far.node == "spine1")
    assert collision_notes(fabric, [[fabric.scale_out_port("h1"), up]], {up.intf: 5e6}) == [
        "leaf1: 1 flow on 4 links, MMR 4.00, as chance gives (expected 4.00, 95 % in 4.00 to 4.00)"
    ]
    assert "outside what chance gives" in collision_note("leaf1", 4.0, collision_band(256, 4), 256, 4)


def test_packets_that_overtook_each_other_as_was_asked_are_a_result() -> None:
    """Without --spread the same is segments sent again for no reason, and a time that nothing explains."""
    reordered = FINE | {"retransmits": 500, "out_of_order": 700, "spread": "packet"}
    seen = judge(Evidence(**reordered))
    assert seen.level == "ok"
    assert seen.reasons == (
        "spread by packet, packets overtook each other: 700 came out of order, 500 segments were sent again",
    )
    slow = judge(Evidence(**(reordered | {"measured_to_predicted": 1.5})))
    assert (slow.level, slow.reasons[0]) == ("degraded", "1.50 times the predicted time: packets were reordered")
    asked_for_none = judge(Evidence(**(reordered | {"spread": "flow", "measured_to_predicted": 1.5})))
    assert asked_for_none.reasons[0] == "1.50 times the predicted time, unexplained"
    assert "sent again that no link had lost" in asked_for_none.reasons[1]


def test_what_congested_links_drop_is_a_result() -> None:
    assert judge(Evidence(**(FINE | {"retransmits": 500, "queue_drops": 480}))).level == "ok"


def test_senders_that_cannot_keep_up_are_no_network() -> None:
    """Late alone is a condition; late, and seven times as slow as predicted, is the sender's speed."""
    late = {"sender_lateness_frames": 412.0}
    assert judge(Evidence(**(FINE | late | {"measured_to_predicted": 1.02}))).level == "degraded"
    verdict = judge(Evidence(**(FINE | late | {"measured_to_predicted": 7.26})))
    assert verdict.level == "invalid"
    assert (
        "CPU-limited: senders were late by 412 frame times (p99), and it took 7.26 times the predicted time"
        in verdict.reason
    )
