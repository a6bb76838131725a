"""What a run tells a policy that places announced flows: its own, known before the first packet."""

import numpy as np

from controller import Policy, policy
from controller.circuits.routing import OverCircuits
from controller.demand import MAX_DEMANDS, Demand
from controller.flow import Flow
from controller.policy import Announced
from lab.planning.plan import Plan, wire_flows
from topologies import Fabric
from traffic.transport import WireFlow


def routing(planned: Plan, emulated: Fabric) -> Policy:
    """The run's policy; one that places announced flows has been told the run's. Of circuits those of the first slice."""
    if planned.circuits:
        return OverCircuits(planned.circuits.slices[0].circuits)
    chosen = policy(planned.experiment.routing)
    return chosen.announced(emulated, to_announce(planned, emulated)) if isinstance(chosen, Announced) else chosen


def to_announce(planned: Plan, emulated: Fabric) -> tuple[Demand, ...]:
    """The run's connections; none, where the policy places no flows. Of more than a controller takes, the largest."""
    if not isinstance(policy(planned.experiment.routing), Announced):
        return ()
    return tuple(sorted(_demands(planned, emulated), key=lambda demand: -demand.rate_mbps)[:MAX_DEMANDS])


def _demands(planned: Plan, emulated: Fabric) -> list[Demand]:
    """One per flow between NICs, since inside an HB domain there is one way only: its part of what the sender's NIC can
    send, by what it carries."""
    schedule = planned.schedule
    flows = wire_flows(planned, emulated)
    src, dst = (np.array(ranks) for ranks in zip(*((f.src_rank, f.dst_rank) for f in flows), strict=True))
    outside = ~planned.interfaces.inside(src, dst)
    sends = ~schedule.is_local
    elements = schedule.elements(schedule.natural_count or schedule.n_chunks)
    qps = len(flows) // len(schedule.connections)
    carried = np.repeat(np.bincount(schedule.connection[sends], elements[sends]) / qps, qps)
    by_rank = np.bincount(src[outside], carried[outside], len(planned.hosts))
    nic_mbps = [emulated.link_of(emulated.scale_out_port(host).intf).rate_mbps for host in planned.hosts]
    return [
        Demand(flow_of(wire), nic_mbps[wire.src_rank] * float(n / by_rank[wire.src_rank]))
        for wire, n, over_nics in zip(flows, carried, outside, strict=True)
        if over_nics
    ]


def flow_of(wire: WireFlow) -> Flow:
    return Flow(wire.src_ip, wire.dst_ip, wire.proto, wire.src_port, wire.dst_port)
