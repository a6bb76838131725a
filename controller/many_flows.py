"""The paths of many flows at once, where a hash over the next hops of shortest paths decides: what `DataPlane` finds flow by
flow from the rules, here from arrays, without the rules (tests compare the two).

A million flows, or a fabric of thousands of switches, whose rules alone are millions. Policies that route by anything else have
no such table: `table_of` knows none for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from controller.match import ipv4_int
from controller.ovs_hash import Words, choose_each, hash_xors
from controller.policies.ecmp import basis_of, ecmp
from controller.policies.ecmp_polarised import SAME_BASIS, ecmp_polarised
from controller.policies.single_path import single_path
from controller.policy import Policy, PolicyError
from controller.routing import adjacency, switch_of_address
from topologies.fabric import Fabric, Node, Port

Ints = NDArray[np.int64]
_UNREACHED = np.iinfo(np.int16).max
# Flows that are looked at together: their tables of next hops stay in the cache.
_AT_ONCE = 1 << 15
# Policy, switch -> the basis of its hash; None: it takes the first port.
_CHOICES: tuple[tuple[Policy, Callable[[Node], int | None]], ...] = (
    (ecmp, basis_of),
    (ecmp_polarised, lambda _: SAME_BASIS),
    (single_path, lambda _: None),
)


@dataclass(frozen=True)
class FlowTable:
    """5-tuples as columns: (flows,) each, addresses as numbers; proto: of all of them."""

    src_ip: Ints
    dst_ip: Ints
    src_port: Ints
    dst_port: Ints
    proto: int

    def __len__(self) -> int:
        return len(self.src_ip)

    def reversed(self) -> "FlowTable":
        return FlowTable(self.dst_ip, self.src_ip, self.dst_port, self.src_port, self.proto)

    def some(self, first: int, end: int) -> "FlowTable":
        src_ip, dst_ip, src_port, dst_port = (
            column[first:end] for column in (self.src_ip, self.dst_ip, self.src_port, self.dst_port)
        )
        return FlowTable(src_ip, dst_ip, src_port, dst_port, self.proto)


def table_of(policy: Policy, fabric: Fabric) -> "NextHops | None":
    """None where the policy does not choose among shortest paths by a hash that can be computed."""
    return next((NextHops(fabric, basis) for known, basis in _CHOICES if known is policy), None)


class NextHops:
    """A directed link is a number: twice its link's index, and one more from end b to end a.

    peer, egress: (switches, ports) of each switch's ports toward others, by port number; -1 where there is none. hops:
    (switches, owners) from each switch to each that has hosts.
    """

    def __init__(self, fabric: Fabric, basis_of: Callable[[Node], int | None]) -> None:
        self.fabric = fabric
        switches = fabric.switches
        place = {switch.name: i for i, switch in enumerate(switches)}
        self._basis = np.array([basis_of(switch) or 0 for switch in switches], dtype=np.uint64)
        self._hashes = any(basis_of(switch) is not None for switch in switches)
        self._join(fabric, place)
        at = switch_of_address(fabric)
        order = sorted(at, key=ipv4_int)
        self._addresses = np.array([ipv4_int(ip) for ip in order])
        owners, self._owner = np.unique([place[at[ip]] for ip in order], return_inverse=True)
        self.owner_switch: Ints = owners.astype(np.int64)
        port_of = {port.ip: port for link in fabric.links for port in link.ports if port.ip}
        self._nic = np.array([directed(fabric, port_of[ip]) for ip in order], dtype=np.int64)
        self.hops = _hops(self.peer, self.owner_switch)

    def _join(self, fabric: Fabric, place: dict[str, int]) -> None:
        graph = adjacency(fabric)
        shape = len(graph), max(map(len, graph.values()), default=0)
        self.peer, self.egress = np.full(shape, -1), np.full(shape, -1)
        number = {(p.node, p.number): directed(fabric, p) for link in fabric.links for p in link.ports}
        for name, links in graph.items():
            for j, (port, peer) in enumerate(links):
                self.peer[place[name], j], self.egress[place[name], j] = place[peer], number[name, port]

    def owner_of(self, addresses: Ints) -> Ints:
        """The number, among the switches with hosts, of the one that each address is attached to."""
        found: Ints = self._owner[self._index(addresses)]
        return found

    def nic_of(self, addresses: Ints) -> Ints:
        """The directed link that leaves each address's interface; its opposite leads to it."""
        found: Ints = self._nic[self._index(addresses)]
        return found

    def _index(self, addresses: Ints) -> Ints:
        return np.searchsorted(self._addresses, addresses)

    def next_ports(self, switch: Ints, owner: Ints) -> NDArray[np.bool_]:
        """(n, ports) which of a switch's ports lie on shortest paths to an owner."""
        there = self.peer[switch]
        nearer: NDArray[np.bool_] = self.hops[there, owner[:, None]] < self.hops[switch, owner][:, None]
        return nearer & (there >= 0)

    def paths(self, flows: FlowTable) -> tuple[Ints, Ints]:
        """CSR (start, directed link) of each flow's path, the source's NIC first. Raises PolicyError where there is none."""
        parts = [self._some_paths(flows.some(i, i + _AT_ONCE)) for i in range(0, len(flows), _AT_ONCE)]
        lengths = np.concatenate([np.zeros(1, dtype=np.int64), *(length for length, _ in parts)])
        links = np.concatenate([np.zeros(0, dtype=np.int64), *(link for _, link in parts)])
        return np.cumsum(lengths), links

    def _some_paths(self, flows: FlowTable) -> tuple[Ints, Ints]:
        """(flows,) the lengths of their paths, and the links of all, one after the other."""
        switch, owner = self.owner_switch[self.owner_of(flows.src_ip)], self.owner_of(flows.dst_ip)
        left = self.hops[switch, owner].astype(np.int64)
        self._require_reached(flows, left)
        addresses, ports = (a.astype(np.uint64) for a in (flows.src_ip ^ flows.dst_ip, flows.src_port ^ flows.dst_port))
        links = np.full((len(flows), int(left.max(initial=0)) + 2), -1)
        links[:, 0] = self.nic_of(flows.src_ip)
        for hop in range(1, links.shape[1] - 1):
            going = np.flatnonzero(left >= hop)
            candidates = self.next_ports(switch[going], owner[going])
            hashed = hash_xors(addresses[going], flows.proto, ports[going], self._basis[switch[going]])
            port = self._chosen(candidates, hashed)
            links[going, hop] = self.egress[switch[going], port]
            switch[going] = self.peer[switch[going], port]
        links[np.arange(len(flows)), left + 1] = self.nic_of(flows.dst_ip) ^ 1
        return left + 2, links[links >= 0]

    def _chosen(self, candidates: NDArray[np.bool_], hashed: Words) -> Ints:
        """(n,) the column that each takes of those that are true in its row."""
        if not self._hashes:
            first: Ints = candidates.argmax(axis=1)
            return first
        nth, several = candidates.cumsum(axis=1), candidates.sum(axis=1)
        choosing = np.flatnonzero(several > 1)
        place = np.zeros(len(candidates), dtype=np.int64)
        place[choosing] = choose_each(hashed[choosing], several[choosing])
        column: Ints = (nth == place[:, None] + 1).argmax(axis=1)
        return column

    def _require_reached(self, flows: FlowTable, hops: Ints) -> None:
        lost = np.flatnonzero(hops >= _UNREACHED)
        if len(lost):
            src, dst = (IPv4Address(int(a[lost[0]])) for a in (flows.src_ip, flows.dst_ip))
            raise PolicyError(f"no way from {src} to {dst}: {len(lost)} of {len(flows)} flows have none")


def directed(fabric: Fabric, egress: Port) -> int:
    link = fabric.link_of(egress.intf)
    return 2 * link.index + (link.b is egress or link.b.intf == egress.intf)


def egress_ports(fabric: Fabric, links: Ints) -> list[Port]:
    """The ports by which directed links are entered."""
    return [fabric.links[number >> 1].ports[number & 1] for number in links.tolist()]


def numbers_of(addresses: Sequence[str]) -> Ints:
    return np.array([ipv4_int(ip) for ip in addresses], dtype=np.int64)


def _hops(peer: Ints, owners: Ints) -> NDArray[np.int16]:
    """(switches, owners) breadth-first from all owners at once."""
    n, (row, column) = len(peer), np.nonzero(peer >= 0)
    joined = csr_array((np.ones(len(row), dtype=np.float32), (row, peer[row, column])), shape=(n, n))
    hops = np.full((n, len(owners)), _UNREACHED, dtype=np.int16)
    frontier = np.zeros((n, len(owners)), dtype=np.float32)
    frontier[owners, np.arange(len(owners))] = 1
    distance = 0
    while frontier.any():
        hops[frontier > 0] = distance
        frontier = ((joined @ frontier > 0) & (hops == _UNREACHED)).astype(np.float32)
        distance += 1
    return hops
