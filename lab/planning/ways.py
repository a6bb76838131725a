"""Every flow's path and its acknowledgements' way back, known before the first packet.

Where the policy chooses among shortest paths by a hash that can be computed, all flows at once, else flow by flow through the
policy's rules. A path is unknown where the controller is the user's, where the policy leaves the choice to a hash that nobody
can compute, where it follows measured load, or where it changes with pauses. With packets sprayed a flow has a walk for each
source port that they leave by in turn.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from controller import rules_of
from controller.dataplane import DataPlane, DataPlaneError, Unpredictable
from controller.flow import Flow
from controller.many_flows import FlowTable, NextHops, egress_ports, numbers_of, table_of
from controller.policy import Policy, PolicyError, Reactive
from lab.errors import LabError
from lab.model.wire import Paths, Way, Ways, queue_pair_connection
from lab.planning import sending
from lab.planning.announcing import flow_of, routing
from lab.planning.experiment import Experiment
from lab.planning.plan import Plan
from topologies import Fabric
from traffic.schedule import Connection
from traffic.transport import WireFlow

# Through the rules: one takes 50 to 200 us.
_MAX_WALKS = 20_000


class Unknown(Exception):
    """Paths that cannot be known, and why."""


def ways(planned: Plan, emulated: Fabric, flows: Sequence[WireFlow]) -> Paths:
    """Of the flows, in their order. Raises Unknown; LabError when the policy drops one of them."""
    e = planned.experiment
    if e.controller:
        raise Unknown("the controller is not ours, so the paths are not known")
    if e.spread == "flowlet":
        raise Unknown("with --spread flowlet paths follow pauses, which nobody knows before")
    if e.rate_limit_mbps is not None:
        raise Unknown("--rate-limit holds senders back, the model knows the links' rates alone")
    if planned.circuits and len(planned.circuits.slices) > 1:
        raise Unknown("circuits change while it runs")
    chosen = routing(planned, emulated)
    if isinstance(chosen, Reactive):
        raise Unknown(f"{e.routing} moves flows while they run")
    try:
        table = table_of(chosen, emulated) if e.spread == "flow" else None
        return _by_hash(table, flows) if table else _by_rules(planned, chosen, emulated, flows)
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
    ports = tuple(egress_ports(table.fabric, used[order]))
    whole = np.ones(len(place))
    return Paths(
        Ways(forth[0], place[:split], whole[:split]),
        Ways(back[0], place[split:], whole[split:]),
        tuple(port.intf for port in ports),
        ports,
    )


def _by_rules(planned: Plan, policy: Policy, emulated: Fabric, flows: Sequence[WireFlow]) -> Paths:
    plane = DataPlane(emulated, rules_of(policy, emulated))
    walk = _Walk(planned.experiment, emulated, plane, len(flows))
    paths: dict[Connection, Way] = {}
    ack_paths: dict[Connection, Way] = {}
    for f in flows:
        there = flow_of(f)
        back = Flow(f.dst_ip, f.src_ip, f.proto, f.dst_port, f.src_port)
        of = queue_pair_connection(f.connection, f.qp, planned.experiment.qps)
        paths[of], ack_paths[of] = walk.way(there), walk.way(back, acknowledges=True)
    return Paths.of(list(paths), paths, ack_paths)


class _Walk:
    """Flows' ways, each packet's where they are sprayed. Of many flows not every turn is walked: they make up for each other."""

    def __init__(self, e: Experiment, emulated: Fabric, plane: DataPlane, n_flows: int) -> None:
        self._e, self._plane = e, plane
        self._turns = max(1, _MAX_WALKS // (2 * max(n_flows, 1)))
        self._sprayed_ips = {emulated.scale_out_port(host.name).ip for host in emulated.hosts}

    def way(self, flow: Flow, *, acknowledges: bool = False) -> Way:
        as_one = acknowledges and not sending.spreads_acknowledgements(self._e)
        if self._e.spread == "flow" or as_one or flow.src_ip not in self._sprayed_ips:
            return self._plane.path(flow)
        turns = [replace(flow, src_port=p) for p in sending.source_ports(self._e, flow.src_port)[: self._turns]]
        crossed = Counter(port for turn in turns for port in self._plane.path(turn))
        return {port: n / len(turns) for port, n in crossed.items()}
