"""Is the schedule of flows right that are no collective? A pattern's rule says who sends to whom. No byte moves.

Flows that add nothing and touch no chunk of another flow leave at every receiver what their senders began with, whatever the
network does. A pattern's wait for nothing, messages for what their schedule says.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.errors import TrafficError
from traffic.races import check_races, order
from traffic.schedule import Ints, Schedule


@dataclass(frozen=True)
class Rule:
    """holds: (src, dst, n ranks) of the pairs of ranks that have flows, each pair once, sorted; text: what it asks."""

    holds: Callable[[Ints, Ints, int], bool]
    text: str


def _all_once(ranks: Ints, n: int) -> bool:
    return np.array_equal(np.sort(ranks), np.arange(n))


# To add a pattern: a line here.
RULES: dict[str, Rule] = {
    "permutation": Rule(
        lambda src, dst, n: _all_once(src, n) and _all_once(dst, n),
        "every rank sends to one other and receives from one other",
    ),
    "uniform_random": Rule(
        lambda src, dst, n: len(np.unique(src)) == n,
        "every rank sends",
    ),
    "group_shift": Rule(
        lambda src, dst, n: _all_once(src, n) and len(np.unique((dst - src) % n)) == 1,
        "every rank sends to one other, all equally far on",
    ),
    "incast": Rule(
        lambda src, dst, n: len(src) == n - 1 and len(np.unique(dst)) == 1,
        "all ranks but one send to that one",
    ),
}


# The collective of schedules of messages (messages.py): sends of any size to anybody, for which there is no rule.
MESSAGES = "messages"
# Those that move what their senders hold, each into a chunk of its own.
FLOWS = (*RULES, MESSAGES)


def check_flows(schedule: Schedule) -> None:
    """Raises TrafficError, naming a flow where there is one to name. The columns have been checked before."""
    (_check_messages if schedule.collective == MESSAGES else _check_pattern)(schedule)


def _check_messages(s: Schedule) -> None:
    _refuse_first(s, s.reduce, "is added to what is there: messages are copied")
    _refuse_first(s, s.is_local & (s.n_chunks_sent > 0), "stays at its rank: messages go to others")
    _refuse_first(s, s.dst_chunk != s.first_chunk, "lands elsewhere: a message has one chunk at both ends")
    _refuse_first(s, s.n_chunks_sent > 1, "has several chunks: a message has one")
    messages = np.flatnonzero(~s.is_local)
    places = [end[messages].astype(np.int64) * s.n_chunks + s.first_chunk[messages] for end in (s.src, s.dst)]
    _, first, n = np.unique(np.concatenate(places), return_index=True, return_counts=True)
    shared = np.zeros(len(s), dtype=np.bool_)
    shared[messages[first[n > 1] % max(1, len(messages))]] = True
    _refuse_first(s, shared, "shares its chunk with another: each message has its own")
    order(s)


def _check_pattern(schedule: Schedule) -> None:
    _refuse_first(schedule, np.diff(schedule.dep_start) > 0, "waits for another: flows start at once")
    _refuse_first(schedule, schedule.reduce, "is added to what is there: flows are copied")
    _refuse_first(schedule, schedule.is_local, "stays at its rank: flows go to others")
    _refuse_first(
        schedule, schedule.dst_chunk != schedule.first_chunk, "lands elsewhere: a flow has one chunk at both ends"
    )
    if len(schedule.connections) != len(schedule):
        raise TrafficError(f"{len(schedule)} flows on {len(schedule.connections)} connections: each needs its own")
    check_races(schedule, order(schedule))
    per_sender = np.bincount(schedule.src)
    if len(np.unique(per_sender[per_sender > 0])) > 1:
        busiest = int(per_sender.argmax())
        raise TrafficError(
            f"rank {busiest} has {per_sender[busiest]} flows, others have fewer: {schedule.collective} gives all alike"
        )
    rule = RULES[schedule.collective]
    pairs = np.unique(np.stack((schedule.src, schedule.dst)), axis=1)
    if not rule.holds(pairs[0], pairs[1], schedule.n_ranks):
        raise TrafficError(f"this is no {schedule.collective} of {schedule.n_ranks} ranks: there, {rule.text}")


def _refuse_first(schedule: Schedule, bad: NDArray[np.bool_], what: str) -> None:
    if bad.any():
        raise TrafficError(f"send {schedule.name_of(int(np.argmax(bad)))} {what}")
