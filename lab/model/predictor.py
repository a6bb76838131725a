"""What a collective should take: a roofline without a network in it, and a prediction with one (the fluid model)."""

import math
from collections.abc import Mapping

from lab.model.fluid import DEFAULT_LATENCY, Fluid, Latency, Prediction, prediction
from lab.model.level_walk import LevelWalk
from lab.model.wire import Paths, Sends, Way, Wire, shares
from topologies.fabric import Fabric
from traffic.schedule import Connection

# All of a ring of 1024 ranks; a million sends take the fluid model some 20 s of CPU time.
MAX_FLUID_SENDS = 2_200_000
# Of a training step, for which there is no other model: its groups do the same at one time (35 688 operations of 16 ranks: 6 s).
MAX_STEP_SENDS = 40_000


def roofline_s(size_bytes: float, algo_factor: float, b_acc_mbps: float) -> float:
    """The BMWG draft's 8 S x algo_factor / B_acc: no latency, no headers. algo_factor belongs to the collective, e.g.
    2(n-1)/n for all-reduce; b_acc_mbps: sum of one accelerator's NIC rates (Mbit/s)."""
    return 8 * size_bytes * algo_factor / (b_acc_mbps * 1e6)


def predict(
    fabric: Fabric,
    sends: Sends,
    paths: Mapping[Connection, Way],
    mtu: int,
    *,
    ack_paths: Mapping[Connection, Way] | None = None,
    latency: Latency = DEFAULT_LATENCY,
) -> Prediction:
    """One iteration of the collective on the emulated fabric.

    paths: connection -> the egress port of every hop, or of those of all its packets, each with its share of the bytes;
    ack_paths: connection -> the way back, by default the opposite connection's path, or the same links. An empty path (one
    host) costs nothing. Of more sends than the fluid model follows, with computing between them, only the bytes are known: the
    seconds are nan.
    """
    back = _ways_back(fabric, paths) if ack_paths is None else ack_paths
    return predict_over(fabric, sends, Paths.of(sends.connections, paths, back), mtu, latency=latency)


def predict_over(
    fabric: Fabric, sends: Sends, links: Paths, mtu: int, *, latency: Latency = DEFAULT_LATENCY
) -> Prediction:
    """The same with the paths as arrays."""
    if len(sends) == 0:
        return Prediction(0.0, "", {})
    computes = bool(sends.calc_s.any())
    if len(sends) <= (MAX_STEP_SENDS if computes else MAX_FLUID_SENDS):
        return Fluid(fabric, sends, links, mtu, latency).run()
    if computes:
        # Levels know no computing beside sending.
        return prediction(fabric, links, Wire(fabric, sends, links, mtu), math.nan, "bytes only")
    return LevelWalk(fabric, sends, links, mtu, latency).run()


def busiest_link_s(fabric: Fabric, sends: Sends, links: Paths, mtu: int) -> float:
    """The time that the fullest link needs for its bytes: a lower bound, whatever waits for what."""
    wire = Wire(fabric, sends, links, mtu)
    return float((wire.carried / wire.rate_bytes_s).max(initial=0.0))


def _ways_back(fabric: Fabric, paths: Mapping[Connection, Way]) -> dict[Connection, Way]:
    def back(src: int, dst: int, channel: int) -> Way:
        same_links = {fabric.peer(port): share for port, share in shares(paths[src, dst, channel])}
        return paths.get((dst, src, channel), same_links)

    return {connection: back(*connection) for connection in paths}
