"""Question and answer over OpenFlow: matches replies to requests by transaction id, with a deadline."""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from controller.openflow import ofp
from controller.ryu_compat import hub


class NoAnswer(Exception):
    """A switch that did not answer in time, or whose connection is closing."""


class _Pending:
    def __init__(self, key: tuple[Any, int]) -> None:
        self.key = key
        self.bodies: list[Any] = []
        self.abandoned = False
        self.done = hub.Event()


class Exchange:
    """Requests in flight. Keyed by connection and transaction id: a switch that reconnects starts anew."""

    def __init__(self) -> None:
        self._pending: dict[tuple[Any, int], _Pending] = {}

    def ask(self, datapath: Any, request: Any, timeout_s: float) -> list[Any]:
        """The bodies of all parts of the reply. Blocks this green thread; raises NoAnswer."""
        return self.finish(self.start(datapath, request), timeout_s)

    def ask_all(self, requests: Iterable[tuple[str, Any, Any]], timeout_s: float) -> dict[str, list[Any]]:
        """(name, datapath, request) of many switches at once -> name: bodies, of those that answered in time."""
        pending = [(name, self.start(datapath, request)) for name, datapath, request in requests]
        deadline, answers = time.monotonic() + timeout_s, {}
        for name, question in pending:
            with suppress(NoAnswer):
                answers[name] = self.finish(question, deadline - time.monotonic())
        return answers

    def start(self, datapath: Any, request: Any) -> _Pending:
        """Send the request; `finish` waits for its reply. So many switches can be asked at once."""
        datapath.set_xid(request)
        pending = _Pending((datapath, request.xid))
        self._pending[pending.key] = pending
        if not datapath.send_msg(request):
            _abandon(pending)
        return pending

    def finish(self, pending: _Pending, timeout_s: float) -> list[Any]:
        try:
            if not pending.done.wait(max(timeout_s, 0.001)):
                raise NoAnswer("no answer in time")
            if pending.abandoned:
                raise NoAnswer("the connection ended before the answer")
            return pending.bodies
        finally:
            del self._pending[pending.key]

    def abandon(self, datapath: Any) -> None:
        """The connection is gone: nobody need wait for its answers until the deadline."""
        for pending in [p for p in self._pending.values() if p.key[0] is datapath]:
            _abandon(pending)

    def reply(self, message: Any) -> None:
        """Take in one message; a multipart reply is complete when a part has no MORE flag."""
        pending = self._pending.get((message.datapath, message.xid))
        if pending is None:
            return
        pending.bodies.extend(getattr(message, "body", None) or ())
        if not getattr(message, "flags", 0) & ofp.OFPMPF_REPLY_MORE:
            pending.done.set()


def _abandon(pending: _Pending) -> None:
    pending.abandoned = True
    pending.done.set()
