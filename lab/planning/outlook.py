"""A prediction for more ranks than have a schedule, in hardware units: nothing of that size is emulated here.

What it cannot say it refuses by name: other algorithms, policies without a table of next hops, workloads, patterns, files.
"""

from dataclasses import dataclass

import numpy as np

import traffic
from controller import policy
from controller.many_flows import FlowTable, NextHops, directed, egress_ports, numbers_of, table_of
from lab.errors import LabError
from lab.model.closed_forms import ClosedForm, closed_form
from lab.model.fluid import Prediction, over_links
from lab.model.outlined import Links, on_the_wire, owner_pairs, split_evenly
from lab.model.wire import Floats, Ints
from lab.planning import sending
from lab.planning.experiment import SETTINGS, Experiment
from lab.planning.plan import endpoints
from lab.planning.reach import b_acc_mbps
from lab.planning.roofline import Cut, worst_cut
from lab.planning.scale import Scale
from lab.planning.site import MAX_RANKS, Site, site
from topologies import TOPOLOGIES, topology
from traffic.conventions import ELEMENT_BYTES, buffer_elements, bus_factor, sizes
from traffic.layout import Layout
from traffic.outline import AllPairs, Outline, Phase, outline
from traffic.placement import hb_domains

# A fabric of these is made and routed in seconds.
MAX_OUTLINED_RANKS = 32_768
HASHED, EVEN = "phases, each flow's path", "phases, bytes split evenly among equal-cost paths"
# Settings that change what is sent, or its paths, in ways that no outline knows.
_NOT_OUTLINED = (
    "schedule", "workload", "channels", "slice_bytes", "helpers_at", "spread", "controller", "circuits", "flows_per_host",
)  # fmt: skip


def is_large(e: Experiment) -> bool:
    """More ranks than a schedule is written down for. A fabric of the user's own says how many only when it is built."""
    if e.ranks is None and e.topology.partition(":")[0] not in TOPOLOGIES:
        return False
    return (topology(e.topology).closed_form().hosts if e.ranks is None else e.ranks) > MAX_RANKS


@dataclass(frozen=True)
class Outlook:
    """Of one size, in hardware units."""

    size_bytes: int
    roofline_s: float
    busbw_gbytes_s: float
    found: Prediction


class Outlooks:
    """Of one experiment, size after size."""

    def __init__(self, e: Experiment) -> None:
        _require_outlined(e)
        self.site: Site = site(e, MAX_OUTLINED_RANKS)
        sending.require_possible(e, self.site.nic_mbps)
        s, n = self.site, self.site.ranks
        self.algorithm = e.algorithm or next(iter(traffic.COLLECTIVES[e.collective]))
        self.cut: Cut = worst_cut(e.collective, s.interfaces, b_acc_mbps(s.fabric, s.members))
        self.form: ClosedForm | None = closed_form(e.collective, self.algorithm, n)
        self._outline: Outline = outline(e.collective, self.algorithm, Layout(n, hb_domains(s.fabric, s.hosts)))
        found = table_of(policy(e.routing), s.fabric)
        if found is None:
            raise LabError(
                f"--routing {e.routing}: of {n} ranks paths are known by ecmp, ecmp-polarised and single-path only: use one of "
                f"these, or --ranks {MAX_RANKS} or fewer"
            )
        self._table: NextHops = found
        self._links = Links(s.fabric)
        self._flows = None if isinstance(self._outline, AllPairs) else self._opened(self._outline)

    def all(self) -> list[Outlook]:
        e, s = self.site.experiment, self.site
        outlooks = []
        for asked in sizes(e.min_bytes, e.max_bytes, e.step_factor):
            size = buffer_elements(e.collective, asked, s.ranks) * ELEMENT_BYTES
            if not size:
                raise LabError(f"-b leaves {e.collective} over {s.ranks} ranks nothing to send: use a larger one")
            found = self._all_pairs(size) if isinstance(self._outline, AllPairs) else self._phases(self._outline, size)
            busbw = size / found.seconds * bus_factor(e.collective, s.ranks) / 1e9
            outlooks.append(Outlook(size, self.cut.seconds(size), busbw, found))
        return outlooks

    # -- phases -------------------------------------------------------------------------------------------------------

    def _opened(self, phases: tuple[Phase, ...]) -> list[FlowTable]:
        """Each phase's flows, as the transport opens them, which numbers a rank's connections over all phases."""
        s, e, n = self.site, self.site.experiment, self.site.ranks
        used, place = np.unique(np.concatenate([p.src * n + p.dst for p in phases]), return_inverse=True)
        pairs = [(*divmod(int(code), n), 0) for code in used]
        flows = traffic.TRANSPORTS[e.transport].plan(endpoints(s, s.fabric), pairs, **sending.plan_options(e))
        src_ip, dst_ip = (numbers_of([getattr(f, end) for f in flows]) for end in ("src_ip", "dst_ip"))
        src_port, dst_port = (np.array([getattr(f, end) for f in flows]) for end in ("src_port", "dst_port"))
        tables, first = [], 0
        for phase in phases:
            mine = place[first : first + len(phase.src)]
            at = (mine[:, None] * e.qps + np.arange(e.qps)).ravel()
            tables.append(FlowTable(src_ip[at], dst_ip[at], src_port[at], dst_port[at], flows[0].proto))
            first += len(phase.src)
        return tables

    def _phases(self, phases: tuple[Phase, ...], size_bytes: int) -> Prediction:
        assert self._flows is not None
        carried, seconds = np.zeros(len(self._links.rate_bytes_s)), 0.0
        for phase, flows in zip(phases, self._flows, strict=True):
            n_bytes = phase.share * size_bytes / self.site.experiment.qps
            load = self._links.load(self._table, flows, n_bytes, self.site.framing)
            carried += phase.repeats * load.carried
            seconds += phase.repeats * load.seconds
        return self._prediction(carried, seconds, HASHED)

    # -- all to all ---------------------------------------------------------------------------------------------------

    def _all_pairs(self, size_bytes: int) -> Prediction:
        assert isinstance(self._outline, AllPairs)
        s, n, table = self.site, self.site.ranks, self._table
        at = s.interfaces
        data, acks = on_the_wire(size_bytes / n, s.framing)
        nics = numbers_of([str(port.ip) for port in at.scale_out])
        owner, nic = table.owner_of(nics), table.nic_of(nics)
        demand = owner_pairs(owner, len(table.owner_switch), 1.0)
        messages = np.full(n, n - 1.0)
        carried = np.zeros(len(self._links.rate_bytes_s))
        for domain in at.domains:
            # Inside an HB domain bytes go over its own switch.
            here = np.array(domain)
            pairs = np.outer(np.ones(len(here)), np.ones(len(here))) - np.eye(len(here))
            np.subtract.at(demand, (owner[here][:, None], owner[here][None]), pairs)
            messages[here] -= len(here) - 1
            self._inside(carried, here, len(here) - 1.0)
        np.fill_diagonal(demand, 0)
        between, chose = split_evenly(table, demand)
        carried += between
        carried[nic] += messages
        carried[nic ^ 1] += messages
        # Both directions carry as many messages, and so as many acknowledgements.
        wire = carried * (data + acks)
        busy_s = wire / self._links.rate_bytes_s
        alpha_s = self._longest_s(nics)
        seconds = float(busy_s.max()) + self._outline.turns * alpha_s
        return self._prediction(wire, seconds, EVEN if chose else HASHED)

    def _inside(self, carried: Floats, ranks: Ints, messages: float) -> None:
        for port in (self.site.interfaces.scale_up[rank] for rank in ranks.tolist()):
            if port and messages:
                number = directed(self.site.fabric, port)
                carried[[number, number ^ 1]] += messages

    def _longest_s(self, nics: Ints) -> float:
        """The longest path's delay, of one message from each rank half-way round."""
        half = np.roll(nics, len(nics) // 2)
        zeros = np.zeros(len(nics), dtype=np.int64)
        start, link = self._table.paths(FlowTable(nics, half, zeros, zeros, 6))
        return float(np.add.reduceat(self._links.delay_s[link], start[:-1]).max())

    def _prediction(self, carried: Floats, seconds: float, model: str) -> Prediction:
        used = np.flatnonzero(carried)
        ports, rates = egress_ports(self.site.fabric, used), self._links.rate_bytes_s[used]
        return over_links(self.site.fabric, ports, carried[used], rates, seconds, model)


def _require_outlined(e: Experiment) -> None:
    for name in _NOT_OUTLINED:
        setting = SETTINGS[name]
        if getattr(e, setting.field) != getattr(Experiment, setting.field):
            raise LabError(
                f"{setting.option} is not for more than {MAX_RANKS} ranks: leave it out, or use --ranks {MAX_RANKS}"
            )
    if e.collective in traffic.PATTERNS:
        raise LabError(f"{e.collective} is not for more than {MAX_RANKS} ranks: use --ranks {MAX_RANKS} or fewer")
    if e.scale not in (None, Scale()):
        raise LabError(f"more than {MAX_RANKS} ranks are predicted in the hardware's units: leave --scale out")
