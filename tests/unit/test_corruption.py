"""A byte that changes on its way is noticed: by every algorithm of every collective, on whichever connection it was."""

import pytest

import traffic
from tests.unit.traffic_fakes import FakeStream, FakeTransport, Ticks, filled, whole, wrong
from traffic import Layout
from traffic.replay import Replay
from traffic.schedule import Connection, Schedule

LAYOUT = Layout(4, domains=((0, 1), (2, 3)))
# 64 elements for each rank: no message is empty.
COUNT = 512
EVERY = [(collective, name) for collective, known in traffic.COLLECTIVES.items() for name in known]


class Corrupting(FakeStream):
    """Turns one bit of the first element that arrives: of its exponent, so that no sum rounds it away."""

    def __init__(self, stream: FakeStream) -> None:
        super().__init__(stream.end, whole)
        self._is_done = False

    def recv_into(self, buffer: memoryview, /) -> int:
        n = super().recv_into(buffer)
        if not self._is_done and n >= 4:
            self._is_done = True
            raw = buffer.cast("B")
            raw[3] ^= 0x40
        return n


def wrong_with(schedule: Schedule, corrupted: Connection | None) -> int:
    buffers = filled(schedule, COUNT)
    with FakeTransport(schedule.connections) as transport:
        if corrupted is not None:
            transport.receivers[corrupted] = Corrupting(transport.receivers[corrupted])
        Replay(schedule, COUNT, transport, Ticks()).run(buffers, stall_s=2.0)
    return wrong(schedule, buffers)


@pytest.mark.parametrize(("collective", "algorithm"), EVERY)
def test_one_bit_on_any_connection_is_counted_as_wrong(collective: str, algorithm: str) -> None:
    schedule = traffic.schedule(collective, algorithm, LAYOUT)
    assert wrong_with(schedule, None) == 0
    unnoticed = [connection for connection in schedule.connections if not wrong_with(schedule, connection)]
    assert unnoticed == []
