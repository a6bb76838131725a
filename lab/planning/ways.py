"""Every flow's path and its acknowledgements' way back, known before the first packet.

Where the policy chooses among shortest paths by a hash that can be computed, all flows at once, else flow by flow through the
policy's rules. A path is unknown where the controller is the user's, where the policy leaves the choice to a hash that nobody
can compute, or where it follows measured load.
"""

from collections.abc import Callable, Sequence

import numpy as np

from controller import rules_of
from controller.dataplane import DataPlane, DataPlaneError, Unpredictable
from controller.flow import Flow
from controller.many_flows import FlowTable, NextHops, egress_ports, numbers_of, table_of
from controller.policy import Policy, PolicyError, Reactive
from lab.errors import LabError
from lab.model.wire import Paths
from lab.planning.announcing import flow_of, routing
from lab.planning.plan import Plan
from topologies import Fabric, Port
from traffic.transport import WireFlow


class Unknown(Exception):
    """Paths that cannot be known, and why."""


def ways(planned: Plan, emulated: Fabric, flows: Sequence[WireFlow]) -> Paths:
    """Of the flows, in their order. Raises Unknown; LabError when the policy drops one of them."""
    e = planned.experiment
    if e.controller:
        raise Unknown("the controller is not ours, so the paths are not known")
    if e.spread != "flow":
        raise Unknown(f"with --spread {e.spread} a connection takes many paths, the model knows one")
    if e.rate_limit_mbps is not None:
        raise Unknown("--rate-limit holds senders back, the model knows the links' rates alone")
    if planned.circuits and len(planned.circuits.slices) > 1:
        raise Unknown("circuits change while it runs")
    chosen = routing(planned, emulated)
    if isinstance(chosen, Reactive):
        raise Unknown(f"{e.routing} moves flows while they run")
    try:
        table = table_of(chosen, emulated)
        return _by_hash(table, flows) if table else _by_rules(chosen, emulated, flows)
    except Unpredictable:
        raise Unknown(f"{e.routing} leaves the choice of path to a hash that cannot be computed") from None
    except (DataPlaneError, PolicyError) as error:
        raise LabError(f"routing {planned.routing} does not carry this traffic: {error}") from None


def _by_hash(table: NextHops, flows: Sequence[WireFlow]) -> Paths:
    src_ip, dst_ip = (numbers_of([getattr(f, name) for f in flows]) for name in ("src_ip", "dst_ip"))
    src_port, dst_port = (np.array([getattr(f, name) for f in flows]) for name in ("src_port", "dst_port"))
    there = FlowTable(src_ip, dst_ip, src_port, dst_port, flows[0].proto)
    forth, back = table.paths(there), table.paths(there.reversed())
    used, first, place = np.unique(np.concatenate([forth[1], back[1]]), return_index=True, return_inverse=True)
    # As they are first crossed, which is how `Paths.of` numbers them.
    order, split = np.argsort(first), len(forth[1])
    place = np.argsort(order)[place]
    return Paths(forth[0], place[:split], back[0], place[split:], tuple(egress_ports(table.fabric, used[order])))


def _by_rules(policy: Policy, emulated: Fabric, flows: Sequence[WireFlow]) -> Paths:
    plane = DataPlane(emulated, rules_of(policy, emulated))
    path: Callable[[Flow], list[Port]] = plane.path
    there = [flow_of(f) for f in flows]
    back = [Flow(f.dst_ip, f.src_ip, f.proto, f.dst_port, f.src_port) for f in there]
    return Paths.of([path(f) for f in there], [path(f) for f in back])
