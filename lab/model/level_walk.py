"""The model for schedules of more sends than events can be followed one by one: whole levels of dependency at once.

All sends of a level that share a link share its rate and end together; a link is a token bucket that owes its burst after
a pause. Where sends of different levels meet on a link, or one end of a shared link could go faster than another, this is
an approximation; where no link is shared within a level it is what the fluid model gives (tests compare them).
"""

import numpy as np

from lab.model.fluid import Latency, Prediction, prediction
from lab.model.wire import Floats, Ints, Paths, Sends, Wire, levels
from topologies.fabric import Fabric
from traffic.ranges import ranges


class LevelWalk:
    """The state of a prediction: when each link's bucket will be full again, when each send arrived."""

    def __init__(self, fabric: Fabric, sends: Sends, paths: Paths, mtu: int, latency: Latency) -> None:
        self._fabric, self._sends, self._paths, self._latency = fabric, sends, paths, latency
        wire = self._wire = Wire(fabric, sends, paths, mtu)
        self._byte_s = 1 / wire.rate_bytes_s
        self._burst_s = np.where(np.isfinite(wire.burst_bytes), wire.burst_bytes, 0.0) * self._byte_s
        self._delay_s = wire.delay_s + latency.per_hop_s
        # A link's `paid` is the time at which its bucket, filling at the link's rate, is back at zero.
        self._paid = np.full(len(paths.intfs), -np.inf)
        self._arrived = np.zeros(len(sends))

    def run(self) -> Prediction:
        for level in levels(self._sends.dep_start, self._sends.deps):
            self._step(level)
        # Sends of different levels that meet on a link at one time are not seen to share it: its bytes are a lower bound.
        busy = float((self._wire.carried * self._byte_s - self._burst_s).max(initial=0.0))
        return prediction(self._fabric, self._paths, self._wire, max(float(self._arrived.max()), busy), "levels")

    def _step(self, level: Ints) -> None:
        start = self._start_of(level)
        local = self._sends.connection[level] < 0
        self._arrived[level[local]] = start[local] + self._sends.calc_s[level[local]]
        level, start = level[~local], start[~local]
        p = self._paths
        on = self._sends.connection[level]
        link, send, share = p.forth.of(on)
        self._load(link, self._wire.send_bytes[level][send] * share, start[send])
        back_link, back_send, back_share = p.back.of(on)
        self._load(back_link, self._wire.ack_bytes[level][back_send] * back_share, start[back_send], acks=True)
        # The last frame leaves a link when the bucket is back at zero, less what the frame itself takes from it.
        left = self._paid[link] - self._wire.last_frame_bytes[level][send] * self._byte_s[link]
        sent = start.copy()
        np.maximum.at(sent, send, left)
        self._arrived[level] = sent + np.bincount(send, self._delay_s[link] * share, len(level)) + self._latency.end_s

    def _start_of(self, level: Ints) -> Floats:
        s = self._sends
        first, n_deps = s.dep_start[level], s.dep_start[level + 1] - s.dep_start[level]
        start = np.zeros(len(level))
        owner = np.repeat(np.arange(len(level)), n_deps)
        np.maximum.at(start, owner, self._arrived[s.deps[ranges(first, n_deps)]])
        return start

    def _load(self, link: Ints, n_bytes: Floats, start: Floats, acks: bool = False) -> None:
        """Pay for a level's bytes on each link, from when the first of them can be there."""
        n = len(self._paid)
        taken = np.bincount(link, n_bytes, n) * self._byte_s
        used = np.unique(link)
        if acks:
            # Acknowledgements trickle among the data: they cost their bytes and never wait for the level's start.
            self._paid[used] += taken[used]
            return
        first = np.full(n, np.inf)
        np.minimum.at(first, link, start)
        self._paid[used] = np.maximum(self._paid[used], first[used] - self._burst_s[used]) + taken[used]
