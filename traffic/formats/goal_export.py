"""A schedule as GOAL text, at one size: every send and its receive, what a rank does alone as `calc`.

Tags are channels. Messages of one connection leave in their order here, which stands as `requires`. LogGOPSim's cpu does one
calculation at a time; here they overlap where nothing orders them.
"""

from traffic.conventions import ELEMENT_BYTES
from traffic.schedule import Connection, Schedule


def to_goal(s: Schedule, count: int) -> str:
    """count: elements of a rank's buffer."""
    lines: list[list[str]] = [[] for _ in range(s.n_ranks)]
    waits: list[list[str]] = [[] for _ in range(s.n_ranks)]
    n_bytes = (s.elements(count) * ELEMENT_BYTES).tolist()
    src, dst, channel = s.src.tolist(), s.dst.tolist(), s.channel.tolist()
    last: dict[Connection, int] = {}
    for i in range(len(s)):
        me, to = src[i], dst[i]
        before = [f"{'l' if src[d] == me else 'r'}{d}" for d in s.deps_of(i).tolist()]
        if me == to:
            lines[me].append(f"l{i}: calc {s.calc_ns[i]}")
        else:
            lines[me].append(f"l{i}: send {n_bytes[i]}b to {to} tag {channel[i]}")
            lines[to].append(f"r{i}: recv {n_bytes[i]}b from {me} tag {channel[i]}")
            connection = (me, to, channel[i])
            if connection in last:
                before.append(f"l{last[connection]}")
            last[connection] = i
        waits[me] += [f"l{i} requires {label}" for label in dict.fromkeys(before)]
    ranks = ("\n".join([f"rank {r} {{", *lines[r], *waits[r], "}"]) for r in range(s.n_ranks))
    return "\n\n".join([f"num_ranks {s.n_ranks}", *ranks]) + "\n"
