"""DCQCN's first steps, by the published formulas and by hand; and the pacing of frames."""

import pytest

from traffic.errors import TrafficError
from traffic.rocev2.dcqcn import Dcqcn, DcqcnParameters
from traffic.rocev2.pacing import FixedRate, Pacer

_LINE = 40_000.0
_T = 55_000


def limited(**parameters: float) -> Dcqcn:
    """At half the line rate, after its first CNP at time 0."""
    control = Dcqcn(DcqcnParameters.at_line_rate(_LINE, **parameters))
    control.on_cnp(0)
    return control


def test_the_first_notification_halves_the_rate() -> None:
    control = limited()
    # alpha is 1: rate (1 - 1/2); then alpha = 255/256 + 1/256.
    assert (control.rate_mbps, control.target_mbps, control.alpha) == (20_000, 40_000, 1)


def test_alpha_falls_while_no_notification_comes_and_weighs_the_next_cut() -> None:
    control = limited()
    control.advance(2 * _T)
    assert control.alpha == pytest.approx((255 / 256) ** 2)
    # Two timers: (40 + 20) / 2 = 30, (40 + 30) / 2 = 35.
    assert control.rate_mbps == 35_000
    control.on_cnp(2 * _T + 1)
    assert control.target_mbps == 35_000
    assert control.rate_mbps == pytest.approx(35_000 * (1 - (255 / 256) ** 2 / 2))
    assert control.alpha == pytest.approx((255 / 256) ** 3 + 1 / 256)


def test_a_notification_starts_the_timers_anew() -> None:
    control = limited()
    control.on_cnp(_T - 1)
    # 20 (1 - 1/2).
    assert (control.rate_mbps, control.target_mbps) == (10_000, 20_000)
    control.advance(2 * _T - 2)
    assert control.rate_mbps == 10_000
    control.advance(2 * _T - 1)
    assert control.rate_mbps == 15_000


def test_a_notification_starts_the_byte_count_and_the_rest_of_alpha_anew() -> None:
    control = limited(byte_counter=1000)
    control.on_sent(999)
    control.on_cnp(_T - 1)
    control.on_sent(999)
    assert control.rate_mbps == 10_000
    control.advance(2 * _T - 2)
    assert control.alpha == 1
    control.advance(2 * _T - 1)
    assert control.alpha == 255 / 256


def test_the_target_is_never_above_the_line_rate() -> None:
    control = limited(fast_recovery_steps=1, additive_increase_mbps=10**6)
    control.advance(_T)
    assert (control.target_mbps, control.rate_mbps) == (_LINE, 30_000)


def test_fast_recovery_then_additive_increase() -> None:
    control = limited(additive_increase_mbps=50)
    control.on_cnp(0)
    # target 20 000, rate 10 000: four halvings of the distance, then at the fifth timer the target rises as well.
    rates = []
    for i in range(1, 7):
        control.advance(i * _T)
        rates.append(control.rate_mbps)
    assert rates == pytest.approx([15_000, 17_500, 18_750, 19_375, 19_712.5, 19_906.25])
    assert control.target_mbps == 20_100


def test_bytes_count_as_timers_do() -> None:
    control = limited(byte_counter=1000)
    control.on_sent(999)
    assert control.rate_mbps == 20_000
    control.on_sent(1)
    assert control.rate_mbps == 30_000
    control.on_sent(2000)
    assert control.rate_mbps == 37_500


def test_hyper_increase_when_both_counts_are_above_fast_recovery() -> None:
    control = limited(byte_counter=1000, additive_increase_mbps=1, hyper_increase_mbps=10, fast_recovery_steps=1)
    for _ in range(2):
        control.on_cnp(0)
    # target 10 000, rate 5 000 after the third cut. F = 1: every step is additive until both counts are 2.
    assert (control.target_mbps, control.rate_mbps) == (10_000, 5_000)
    control.on_sent(3000)
    assert control.target_mbps == 10_003
    control.advance(_T)
    assert control.target_mbps == 10_004
    # Counts 3 and 2: i = 1. Then 3 and 3: i = 2.
    control.advance(2 * _T)
    assert control.target_mbps == 10_014
    control.advance(3 * _T)
    assert control.target_mbps == 10_034


def test_rates_stay_between_the_least_and_the_line_rate() -> None:
    control = limited()
    for _ in range(20):
        control.on_cnp(0)
    assert control.rate_mbps == 100
    control.advance(10**9)
    assert control.rate_mbps == control.target_mbps == _LINE


def test_before_the_first_notification_nothing_changes() -> None:
    control = Dcqcn(DcqcnParameters.at_line_rate(_LINE))
    control.on_sent(10**9)
    control.advance(10**12)
    assert (control.rate_mbps, control.alpha) == (_LINE, 1)


def test_published_constants() -> None:
    """Those of the first author's simulator, which is one of 40 Gbit/s, and of the paper."""
    p = DcqcnParameters.at_line_rate(40_000)
    assert (p.gain, p.alpha_timer_ns, p.rate_timer_ns, p.byte_counter, p.fast_recovery_steps, p.cnp_interval_ns) == (
        1 / 256,
        55_000,
        55_000,
        10_000_000,
        5,
        50_000,
    )
    assert (p.additive_increase_mbps, p.hyper_increase_mbps, p.min_rate_mbps) == (40, 200, 100)


def test_rates_are_in_proportion_to_the_line_rate() -> None:
    p = DcqcnParameters.at_line_rate(400_000, hyper_increase_mbps=7)
    assert (p.additive_increase_mbps, p.hyper_increase_mbps, p.min_rate_mbps) == (400, 7, 1000)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"gain": 0}, "DCQCN gain 0: use more than 0 and at most 1"),
        (
            {"min_rate_mbps": -1},
            "DCQCN least rate -1 Mbit/s: use more than 0 and at most the line rate, 40000 Mbit/s",
        ),
        ({"byte_counter": 0}, "DCQCN byte counter 0: use 1 or more"),
        ({"cnp_interval_ns": 0}, "DCQCN CNP interval in ns 0: use 1 or more"),
        ({"additive_increase_mbps": 0}, "DCQCN increases: use more than 0 Mbit/s"),
    ],
)
def test_refusals(parameters: dict[str, float], text: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        DcqcnParameters.at_line_rate(_LINE, **parameters)
    assert str(refusal.value) == text


def test_frames_leave_at_the_rate_of_the_time() -> None:
    control = Dcqcn(DcqcnParameters.at_line_rate(100, min_rate_mbps=1, rate_timer_ns=10**9))
    pacer = Pacer(control)
    assert pacer.ready_ns == 0
    # 1250 bytes at 100 Mbit/s are 100 us.
    pacer.on_sent(5000, 1250)
    assert pacer.ready_ns == 105_000
    # Sent when it was due, at half the rate.
    control.on_cnp(100_000)
    pacer.on_sent(105_000, 1250)
    assert pacer.ready_ns == 305_000
    # Late: without a burst allowance the time is lost.
    pacer.on_sent(400_000, 1250)
    assert pacer.ready_ns == 600_000


def test_what_is_sent_counts_for_congestion_control() -> None:
    control = Dcqcn(DcqcnParameters.at_line_rate(100, min_rate_mbps=1, rate_timer_ns=10**9, byte_counter=1000))
    control.on_cnp(0)
    # The byte counter is over with this frame: (100 + 50) / 2.
    Pacer(control).on_sent(0, 1000)
    assert control.rate_mbps == 75


def test_a_late_wake_up_is_made_up_for_within_the_allowance() -> None:
    """125 bytes at 1 Gbit/s are 1 us."""
    pacer = Pacer(Dcqcn(DcqcnParameters.at_line_rate(1000)), burst_ns=1000)
    pacer.on_sent(10_000, 125)
    assert pacer.ready_ns == 11_000
    pacer.on_sent(11_400, 125)
    assert pacer.ready_ns == 12_000
    # 2 us late, of which 1 us is made up for.
    pacer.on_sent(14_000, 125)
    assert pacer.ready_ns == 14_000


def test_a_sender_that_had_nothing_to_send_makes_up_for_nothing() -> None:
    pacer = Pacer(Dcqcn(DcqcnParameters.at_line_rate(1000)), burst_ns=10_000)
    pacer.on_sent(10_000, 125)
    pacer.pause()
    pacer.on_sent(20_000, 125)
    assert pacer.ready_ns == 21_000


def test_what_a_pacer_kept_of_its_rate_is_told() -> None:
    """1250 bytes at 100 Mbit/s are 100 us: two frames in time, one 50 us late; what follows a pause is not counted."""
    pacer = Pacer(FixedRate(100))
    for now_us in (0, 100, 200, 350):
        pacer.on_sent(now_us * 1000, 1250)
    assert (pacer.asked_ns, pacer.took_ns) == (300_000, 350_000)
    pacer.pause()
    pacer.on_sent(9_000_000, 1250)
    assert (pacer.asked_ns, pacer.took_ns) == (300_000, 350_000)
    pacer.control.on_cnp(0)
    assert pacer.control.rate_mbps == 100
