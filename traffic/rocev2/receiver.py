"""The responder of a reliable connection: packets in; what to take and what to answer out. No socket and no clock."""

from typing import NamedTuple

from traffic.rocev2.psn import MODULUS, unwrap


class Answer(NamedTuple):
    """accepted: take the payload; it is the `number`th packet, and those below the receiver's `expected` are in order.

    acknowledge: answer so, about `psn`; nak: that `psn` is the first that is missing, and, of a selective receiver, that the
    packet just accepted has arrived; cnp: tell the sender of congestion.
    """

    number: int
    accepted: bool
    acknowledge: bool = False
    nak: bool = False
    psn: int = 0
    cnp: bool = False


class Receiver:
    """selective: keep up to `window` packets that come early; else drop them.

    cnp_interval_ns: at most one congestion notification in that time, None = none at all. msn: messages received.
    """

    def __init__(
        self, first_psn: int = 0, *, selective: bool = False, window: int = 64, cnp_interval_ns: int | None = None
    ) -> None:
        self.expected = first_psn
        self.msn = 0
        self.out_of_order = 0
        self.duplicates = 0
        self._selective = selective
        self._window = window
        self._cnp_interval_ns = cnp_interval_ns
        self._last_cnp_ns: int | None = None
        self._nak_sent = False
        # Packets that came early -> whether they end a message.
        self._early: dict[int, bool] = {}

    def on_data(self, psn: int, *, ends_message: bool, ack_request: bool, ce: bool, now_ns: int) -> Answer:
        number = unwrap(psn, self.expected)
        if number == self.expected:
            answer = self._in_order(number, ends_message, ack_request)
        elif number < self.expected or number in self._early:
            answer = self._again(number, ack_request)
        else:
            answer = self._ahead(number, ends_message)
        return answer._replace(cnp=True) if ce and self._may_notify(now_ns) else answer

    def _in_order(self, number: int, ends_message: bool, ack_request: bool) -> Answer:
        self._nak_sent = False
        filled = bool(self._early)
        self._take(ends_message)
        while self.expected in self._early:
            self._take(self._early.pop(self.expected))
        # After a gap the sender waits for news, whether it asked or not.
        if not (ack_request or filled):
            return Answer(number, True)
        return Answer(number, True, acknowledge=True, psn=self._last())

    def _take(self, ends_message: bool) -> None:
        self.expected += 1
        self.msn += ends_message

    def _again(self, number: int, ack_request: bool) -> Answer:
        """The acknowledgement may have been lost: say again how far it got."""
        self.duplicates += 1
        # A selective sender may leave out the very packet that asks, because it knows that it has arrived.
        return Answer(number, False, acknowledge=ack_request or self._selective, psn=self._last())

    def _ahead(self, number: int, ends_message: bool) -> Answer:
        self.out_of_order += 1
        missing = self.expected % MODULUS
        if self._selective:
            if number >= self.expected + self._window:
                return Answer(number, False)
            self._early[number] = ends_message
            return Answer(number, True, nak=True, psn=missing)
        # One NAK until the missing packet has come (vol. 1, 9.7.5.2.8): the sender would go back for each.
        first, self._nak_sent = not self._nak_sent, True
        return Answer(number, False, nak=first, psn=missing)

    def _last(self) -> int:
        return (self.expected - 1) % MODULUS

    def _may_notify(self, now_ns: int) -> bool:
        if self._cnp_interval_ns is None:
            return False
        if self._last_cnp_ns is not None and now_ns - self._last_cnp_ns < self._cnp_interval_ns:
            return False
        self._last_cnp_ns = now_ns
        return True
