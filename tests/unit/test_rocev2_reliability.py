"""The reliable connection's two ends, joined by a path that loses, copies and delays as it is told."""

import heapq
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traffic.errors import TrafficError
from traffic.rocev2.opcodes import ENDS, SEND, Opcode
from traffic.rocev2.receiver import Answer, Receiver
from traffic.rocev2.reliability import Reliability
from traffic.rocev2.sender import Outgoing, RetryExceededError, Sender

_PATH_NS, _TIMEOUT_NS = 100, 5000
_LOST = -1
# What becomes of a packet: lost, or the extra delays of its copies.
Fate = tuple[int, ...]


@dataclass
class Path:
    """Both directions; `fates` are used up by the packets in the order in which they leave, then all goes well."""

    sender: Sender
    receiver: Receiver
    fates: list[Fate] = field(default_factory=list)
    now_ns: int = 0
    sent: list[Outgoing] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    taken: list[tuple[int, int, int]] = field(default_factory=list)
    _early: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _events: list[tuple[int, int, Outgoing | tuple[str, int, int | None]]] = field(default_factory=list)
    _n: int = 0

    def carry(self, what: Outgoing | tuple[str, int, int | None]) -> None:
        for delay in self.fates.pop(0) if self.fates else (0,):
            self._n += 1
            heapq.heappush(self._events, (self.now_ns + _PATH_NS + delay, self._n, what))

    def run(self, most_events: int = 5000) -> None:
        """Until everything posted is acknowledged."""
        for _ in range(most_events):
            while (packet := self.sender.next_packet(self.now_ns)) is not None:
                self.sent.append(packet)
                self.carry(packet)
            if self.sender.is_idle:
                return
            deadline = self.sender.deadline_ns
            assert deadline is not None
            if not self._events or deadline < self._events[0][0]:
                self.now_ns = deadline
                self.sender.on_time(deadline)
            else:
                self.now_ns, _, what = heapq.heappop(self._events)
                self._deliver(what)
        raise AssertionError("not done")

    def _deliver(self, what: Outgoing | tuple[str, int, int | None]) -> None:
        if not isinstance(what, Outgoing):
            kind, psn, arrived = what
            if kind == "ack":
                self.sender.on_acknowledge(psn, self.now_ns)
            else:
                self.sender.on_nak(psn, self.now_ns, arrived)
            return
        ends = what.opcode in ENDS
        answer = self.receiver.on_data(
            what.psn, ends_message=ends, ack_request=what.ack_request, ce=False, now_ns=self.now_ns
        )
        self.answers.append(answer)
        if answer.accepted:
            assert answer.number not in self._early
            self._early[answer.number] = (what.message, what.offset, what.n_bytes)
        for number in sorted(n for n in self._early if n < self.receiver.expected):
            self.taken.append(self._early.pop(number))
        if answer.acknowledge:
            self.carry(("ack", answer.psn, None))
        elif answer.nak:
            self.carry(("nak", answer.psn, what.psn if answer.accepted else None))


def path(fates: list[Fate], messages: list[int], first_psn: int = 0, **parameters: int | bool) -> Path:
    reliability = Reliability(mtu_bytes=256, timeout_ns=_TIMEOUT_NS, **parameters)  # type: ignore[arg-type]
    sender = Sender(reliability, first_psn)
    for n_bytes in messages:
        sender.post(n_bytes)
    receiver = Receiver(first_psn, selective=reliability.selective, window=reliability.window)
    return Path(sender, receiver, list(fates))


def cut(messages: list[int]) -> list[tuple[int, int, int]]:
    """(message, offset, bytes) of each packet, in order."""
    return [
        (m, offset, min(256, n_bytes - offset))
        for m, n_bytes in enumerate(messages)
        for offset in range(0, max(n_bytes, 1), 256)
    ]


fates = st.lists(
    st.one_of(
        st.just((0,)),
        st.just(()),
        st.tuples(st.integers(0, 3000)),
        st.tuples(st.integers(0, 3000), st.integers(0, 9000)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    fates=fates,
    messages=st.lists(st.integers(0, 3000), min_size=1, max_size=6),
    first_psn=st.sampled_from([0, 5, (1 << 24) - 3]),
    selective=st.booleans(),
    window=st.integers(1, 12),
    ack_every=st.integers(1, 12),
    reorder=st.integers(0, 3),
)
def test_whatever_the_path_does_all_arrives_once_and_in_order(
    fates: list[Fate],
    messages: list[int],
    first_psn: int,
    selective: bool,
    window: int,
    ack_every: int,
    reorder: int,
) -> None:
    joined = path(
        fates,
        messages,
        first_psn,
        selective=selective,
        window=window,
        ack_every=min(ack_every, window),
        reorder=min(reorder, window),
        retry_limit=len(fates),
    )
    joined.run()
    assert joined.taken == cut(messages)
    assert joined.sender.completed == joined.receiver.msn == len(messages)
    assert joined.sender.deadline_ns is None
    assert joined.sender.retransmitted == len(joined.sent) - len(cut(messages))


def numbers(joined: Path) -> list[int]:
    return [packet.psn for packet in joined.sent]


ONE: Fate = (0,)
LOSE: Fate = ()


def test_without_loss_each_packet_goes_once_and_acknowledgements_are_as_many_as_asked() -> None:
    joined = path([], [256 * 6, 256 * 4], window=64, ack_every=4)
    joined.run()
    assert numbers(joined) == list(range(10))
    # Every fourth, and the last of each message.
    assert [p.psn for p in joined.sent if p.ack_request] == [3, 5, 7, 9]
    assert [a.psn for a in joined.answers if a.acknowledge] == [3, 5, 7, 9]
    assert joined.sender.timeouts == joined.receiver.out_of_order == 0


def test_go_back_n_sends_again_all_from_the_lost_packet_on() -> None:
    joined = path([ONE, ONE, LOSE], [256 * 6], window=64, ack_every=64)
    joined.run()
    assert numbers(joined) == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5]
    assert [p.again for p in joined.sent] == [False] * 6 + [True] * 4
    # One NAK although three packets came ahead of the missing one.
    assert [a.psn for a in joined.answers if a.nak] == [2]
    assert (joined.receiver.out_of_order, joined.sender.timeouts) == (3, 0)


def test_go_back_n_stops_at_what_was_sent_then_goes_on_with_what_is_new() -> None:
    joined = path([LOSE], [256 * 6], window=4, ack_every=2)
    joined.run()
    # The window holds 0 to 3; the NAK for 0 brings them again; the acknowledgement of 1 opens it for 4 and 5.
    assert numbers(joined) == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]


def test_each_gap_is_reported_once_it_is_the_first() -> None:
    # 1 is lost; when all from it on come again, 3 is.
    joined = path([ONE, LOSE, ONE, ONE, ONE, ONE, ONE, ONE, LOSE], [256 * 5], window=64, ack_every=64)
    joined.run()
    assert numbers(joined) == [0, 1, 2, 3, 4, 1, 2, 3, 4, 3, 4]
    assert [a.psn for a in joined.answers if a.nak] == [1, 3]
    assert joined.sender.timeouts == 0


def test_a_copy_of_a_nak_does_not_bring_everything_twice() -> None:
    joined = path([LOSE, ONE, ONE, (0, 10)], [256 * 3], window=64, ack_every=64)
    joined.run()
    assert numbers(joined) == [0, 1, 2, 0, 1, 2]


def test_an_acknowledgement_that_comes_after_the_timeout_is_not_ignored() -> None:
    sender = Sender(Reliability(mtu_bytes=256, timeout_ns=10))
    sender.post(256 * 3)
    assert [p.psn for p in iter(lambda: sender.next_packet(0), None)] == [0, 1, 2]
    sender.on_time(10)
    sender.on_acknowledge(1, 11)
    assert [p.psn for p in iter(lambda: sender.next_packet(11), None)] == [2]
    assert sender.deadline_ns == 21


def test_who_is_held_back_does_not_take_its_own_slowness_for_a_loss() -> None:
    sender = Sender(Reliability(mtu_bytes=256, timeout_ns=10))
    sender.post(3 * 256)
    sender.next_packet(0)
    sender.next_packet(8)
    assert sender.deadline_ns == 18
    sender.hold(100)
    sender.on_time(50)
    assert (sender.timeouts, sender.deadline_ns) == (0, 110)
    sender.on_time(110)
    assert sender.timeouts == 1


def test_a_lost_last_packet_comes_again_after_the_timeout_alone() -> None:
    joined = path([ONE, ONE, ONE, LOSE], [256 * 4], window=64, ack_every=2)
    joined.run()
    assert numbers(joined) == [0, 1, 2, 3, 2, 3]
    # 0 and 1 were acknowledged after two path lengths; then the timeout, and two path lengths more.
    assert joined.now_ns == 2 * _PATH_NS + _TIMEOUT_NS + 2 * _PATH_NS
    assert joined.sender.timeouts == 1


def test_a_lost_acknowledgement_costs_a_timeout_and_the_receiver_says_it_again() -> None:
    joined = path([ONE, ONE, LOSE], [512], window=64, ack_every=64)
    joined.run()
    assert numbers(joined) == [0, 1, 0, 1]
    assert joined.taken == cut([512])
    assert joined.receiver.duplicates == 2


def test_selective_repeat_sends_again_only_what_was_lost() -> None:
    joined = path([ONE, LOSE, ONE, LOSE, ONE, ONE], [256 * 6], window=64, ack_every=64, selective=True)
    joined.run()
    assert numbers(joined) == [0, 1, 2, 3, 4, 5, 1, 3]
    assert joined.sender.timeouts == 0


def test_selective_repeat_waits_for_packets_that_are_merely_late() -> None:
    swapped: list[Fate] = [ONE, (50,), ONE, ONE]
    eager = path(swapped, [256 * 6], window=64, ack_every=64, selective=True)
    patient = path(swapped, [256 * 6], window=64, ack_every=64, selective=True, reorder=5)
    for joined in (eager, patient):
        joined.run()
        assert joined.taken == cut([256 * 6])
    assert numbers(eager) == [0, 1, 2, 3, 4, 5, 1]
    assert numbers(patient) == [0, 1, 2, 3, 4, 5]


def test_after_a_timeout_selective_repeat_skips_what_has_arrived() -> None:
    # 1 is lost twice: its second loss is seen by the timeout only.
    joined = path([ONE, LOSE, ONE, ONE, *[ONE] * 2, LOSE], [256 * 4], window=64, ack_every=64, selective=True)
    joined.run()
    assert numbers(joined) == [0, 1, 2, 3, 1, 1]
    assert joined.sender.timeouts == 1


def test_a_selective_receiver_answers_a_repetition_that_does_not_ask() -> None:
    # 1 is lost, comes again, and the acknowledgement of all is lost; 3, which asked, is known to have arrived.
    joined = path([ONE, LOSE, *[ONE] * 5, LOSE], [256 * 4], window=64, ack_every=64, selective=True)
    joined.run()
    assert numbers(joined) == [0, 1, 2, 3, 1, 1]
    assert joined.sender.timeouts == 1


def test_a_dead_path_is_an_error_with_its_name_after_the_retries() -> None:
    joined = path([LOSE] * 100, [256], first_psn=9, window=1, ack_every=1, retry_limit=2)
    with pytest.raises(RetryExceededError, match=r"^packet 9 was not acknowledged within 0\.005 ms, 3 times in a row$"):
        joined.run()
    assert numbers(joined) == [9, 9, 9]
    assert joined.now_ns == 3 * _TIMEOUT_NS


def test_progress_starts_the_retries_anew() -> None:
    # Each of four packets is lost twice; two retries are enough for each.
    joined = path([LOSE, LOSE, ONE, ONE] * 4, [256] * 4, window=1, ack_every=1, retry_limit=2)
    joined.run()
    assert joined.sender.timeouts == 8


def test_opcodes_follow_the_place_in_the_message() -> None:
    sender = Sender(Reliability(mtu_bytes=256), verb=SEND)
    for n_bytes in (0, 700):
        sender.post(n_bytes)
    packets = [sender.next_packet(0) for _ in range(5)]
    assert packets[4] is None
    assert [(p.opcode, p.offset, p.n_bytes, p.message_bytes) for p in packets if p] == [
        (Opcode.SEND_ONLY, 0, 0, 0),
        (Opcode.SEND_FIRST, 0, 256, 700),
        (Opcode.SEND_MIDDLE, 256, 256, 700),
        (Opcode.SEND_LAST, 512, 188, 700),
    ]


def test_answers_about_packets_never_sent_are_ignored() -> None:
    sender = Sender(Reliability(mtu_bytes=256), first_psn=10)
    sender.post(512)
    sender.next_packet(0)
    sender.on_acknowledge(11, 1)
    sender.on_nak(200, 1)
    sender.on_nak(10, 1, arrived_psn=11)
    assert not sender.is_idle
    packet = sender.next_packet(2)
    assert packet is not None
    assert (packet.psn, packet.again) == (11, False)


def test_congestion_notifications_are_at_most_one_an_interval() -> None:
    receiver = Receiver(cnp_interval_ns=50_000)
    marks = [(0, True), (10_000, True), (49_999, True), (50_000, True), (60_000, False), (120_000, True)]
    answers = [
        receiver.on_data(i, ends_message=False, ack_request=False, ce=ce, now_ns=t) for i, (t, ce) in enumerate(marks)
    ]
    assert [a.cnp for a in answers] == [True, False, False, True, False, True]
    assert all(a.accepted for a in answers)


def test_a_selective_receiver_keeps_no_more_than_a_window() -> None:
    receiver = Receiver(selective=True, window=4)
    late = [
        receiver.on_data(n, ends_message=False, ack_request=False, ce=False, now_ns=0).accepted for n in (1, 3, 4, 5)
    ]
    assert late == [True, True, False, False]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"mtu_bytes": 1400}, "path MTU 1400: use one of 256, 512, 1024, 2048, 4096"),
        ({"window": 0}, "window 0: use 1 to 4194304"),
        ({"window": 8, "ack_every": 9}, "packets per acknowledgement 9: use 1 to 8"),
        ({"retry_limit": -1}, "retry limit -1: use 0 or more"),
        ({"timeout_ns": 0}, "retransmission timeout in ns 0: use 1 or more"),
    ],
)
def test_refusals(parameters: dict[str, int], text: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        Reliability(**parameters)  # type: ignore[arg-type]
    assert str(refusal.value) == text


def test_the_timeout_is_that_of_nccl() -> None:
    # 4.096 us x 2^18
    assert Reliability().timeout_ns == 1_073_741_824
