"""The requester of a reliable connection: messages in, packets out, acknowledgements in. No socket and no clock.

Packets are counted from `first_psn` without bound; on the wire the count is taken modulo 2^24.

Go-back-N (InfiniBand Architecture vol. 1, 9.7.5): a NAK for packet n acknowledges all before n, and n and all after it are
sent again. Selective repeat is that of IRN (Mittal et al., SIGCOMM 2018): a NAK also tells which later packet arrived, and
what is missing before such a one is sent again, once; a timeout sends again all that is not known to have arrived.
"""

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from traffic.errors import TransportError
from traffic.rocev2.opcodes import RDMA_WRITE, Opcode, Verb, n_packets
from traffic.rocev2.psn import MODULUS, unwrap
from traffic.rocev2.reliability import Reliability


class RetryExceededError(TransportError):
    """A packet was not acknowledged, however often it was sent: what ibverbs calls IBV_WC_RETRY_EXC_ERR."""


class Outgoing(NamedTuple):
    """A packet to send: n_bytes of message `message` (counted from 0) from `offset`. again: it was sent before."""

    psn: int
    opcode: Opcode
    ack_request: bool
    message: int
    offset: int
    n_bytes: int
    message_bytes: int
    again: bool


class Sender:
    """retransmitted, timeouts: so far. `completed` messages are acknowledged, all in order."""

    def __init__(self, reliability: Reliability, first_psn: int = 0, verb: Verb = RDMA_WRITE) -> None:
        self._r = reliability
        self._verb = verb
        self.completed = 0
        self.retransmitted = 0
        self.timeouts = 0
        self.deadline_ns: int | None = None
        # Of the messages from `completed` on: number of the first packet, and bytes.
        self._firsts: list[int] = []
        self._sizes: list[int] = []
        # All below `_acknowledged` has arrived; `_next` goes out next; below `_sent` all went out; `_end` is not posted yet.
        self._acknowledged = self._next = self._sent = self._end = first_psn
        self._retries = 0
        self._last_nak: int | None = None
        # Selective repeat: what is known to have arrived early; what to send again, and what was, since the last timeout.
        self._arrived: set[int] = set()
        self._again: deque[int] = deque()
        self._sent_again: set[int] = set()

    @property
    def is_idle(self) -> bool:
        """Everything posted is acknowledged."""
        return self._acknowledged == self._end

    @property
    def has_sent_all(self) -> bool:
        """Everything posted went out, once at least."""
        return self._next == self._end

    def post(self, n_bytes: int) -> int:
        """A message of so many bytes, behind those before; its number."""
        self._firsts.append(self._end)
        self._sizes.append(n_bytes)
        self._end += n_packets(n_bytes, self._r.mtu_bytes)
        return self.completed + len(self._firsts) - 1

    def next_packet(self, now_ns: int) -> Outgoing | None:
        """What to send now; None while there is nothing, or the window is full."""
        while self._again:
            number = self._again.popleft()
            # It may have arrived since it was taken for lost.
            if number >= self._acknowledged and number not in self._arrived:
                return self._packet(number, now_ns)
        if self._next == self._end or self._next - self._acknowledged >= self._r.window:
            return None
        self._next += 1
        return self._packet(self._next - 1, now_ns)

    def _packet(self, number: int, now_ns: int) -> Outgoing:
        again = number < self._sent
        self._sent = max(self._sent, number + 1)
        self.retransmitted += again
        # From the last packet on, not from the oldest: one that is held back sends few before the next acknowledgement.
        self.deadline_ns = now_ns + self._r.timeout_ns
        at = bisect_right(self._firsts, number) - 1
        index, size = number - self._firsts[at], self._sizes[at]
        count = n_packets(size, self._r.mtu_bytes)
        offset = index * self._r.mtu_bytes
        asks = index == count - 1 or (number + 1) % self._r.ack_every == 0
        return Outgoing(
            number % MODULUS,
            self._verb.opcode(index, count),
            asks,
            self.completed + at,
            offset,
            min(self._r.mtu_bytes, size - offset),
            size,
            again,
        )

    # -- what comes back ----------------------------------------------------------------------------------------------

    def on_acknowledge(self, psn: int, now_ns: int) -> None:
        """All up to and with `psn` has arrived."""
        self._advance(unwrap(psn, self._acknowledged) + 1, now_ns)

    def on_nak(self, psn: int, now_ns: int, arrived_psn: int | None = None) -> None:
        """All before `psn` has arrived, `psn` has not; arrived_psn: of a selective receiver, a later one that has."""
        missing = unwrap(psn, self._acknowledged)
        self._advance(missing, now_ns)
        if arrived_psn is not None:
            self._on_early(unwrap(arrived_psn, self._acknowledged))
        # What was never sent cannot be missed, what has arrived since is old news, and a receiver asks only once: a second
        # NAK for the same packet is a copy of the first.
        elif self._acknowledged <= missing < self._sent and missing != self._last_nak:
            self._last_nak = missing
            self._next = missing
            self.deadline_ns = now_ns + self._r.timeout_ns

    def _on_early(self, number: int) -> None:
        if not self._acknowledged < number < self._sent:
            return
        self._arrived.add(number)
        lost = range(self._acknowledged, max(self._arrived) - self._r.reorder)
        missing = [n for n in lost if n not in self._arrived and n not in self._sent_again]
        self._again.extend(missing)
        self._sent_again.update(missing)

    def _advance(self, to: int, now_ns: int) -> None:
        if not self._acknowledged < to <= self._sent:
            return
        self._acknowledged = to
        self._next = max(self._next, to)
        self._retries = 0
        self.deadline_ns = now_ns + self._r.timeout_ns if self._sent > to else None
        if self._arrived or self._sent_again:
            self._arrived = {n for n in self._arrived if n >= to}
            self._sent_again = {n for n in self._sent_again if n >= to}
        # A message is done when the one after it would begin; the last when all that is posted has arrived.
        done = len(self._firsts) if to == self._end else bisect_right(self._firsts, to) - 1
        if done:
            del self._firsts[:done], self._sizes[:done]
            self.completed += done

    def hold(self, until_ns: int) -> None:
        """It may not send before: what it could not send, nobody can have acknowledged."""
        if self.deadline_ns is not None:
            self.deadline_ns = max(self.deadline_ns, until_ns + self._r.timeout_ns)

    def on_time(self, now_ns: int) -> None:
        """To be called when `deadline_ns` has passed. Raises RetryExceededError when that was once too often."""
        if self.deadline_ns is None or now_ns < self.deadline_ns:
            return
        if self._retries == self._r.retry_limit:
            raise RetryExceededError(
                f"packet {self._acknowledged % MODULUS} was not acknowledged within {self._r.timeout_ns / 1e6:g} ms, "
                f"{self._retries + 1} times in a row"
            )
        self._retries += 1
        self.timeouts += 1
        if self._r.selective:
            self._again = deque(range(self._acknowledged, self._sent))
            self._sent_again = set(self._again)
        else:
            self._next = self._acknowledged
        self.deadline_ns = now_ns + self._r.timeout_ns
