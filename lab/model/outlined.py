"""The model for more ranks than have a schedule: phase by phase, what the busiest link takes of each.

T = the sum over phases of repeats x (alpha + the busiest link's bytes / its rate): the alpha-beta closed form, with the links
that flows share in it. Exact where all ranks go through the phases in step. Alpha is the delay of the links on the longest path:
no interface's, switch's or program's time is in it.

An all-to-all has too many flows to find the path of each: its bytes are split evenly among equal-cost paths. A hash leaves
somewhat more on the busiest link where it has a choice.
"""

from dataclasses import dataclass

import numpy as np

from controller.many_flows import FlowTable, NextHops
from lab.model.wire import Floats, Ints
from topologies.fabric import Fabric
from traffic.framing import Framing


@dataclass(frozen=True)
class Load:
    """carried: (directed links,) wire bytes; seconds: on the busiest link, with the longest path's delay; even: split among
    equal-cost paths, not hashed."""

    carried: Floats
    seconds: float
    even: bool = False


class Links:
    """rate_bytes_s, delay_s: (directed links,)."""

    def __init__(self, fabric: Fabric) -> None:
        self.rate_bytes_s = np.repeat([link.rate_mbps for link in fabric.links], 2) * 1e6 / 8
        self.delay_s = np.repeat([link.delay_us for link in fabric.links], 2) * 1e-6

    def load(self, table: NextHops, flows: FlowTable, n_bytes: float, framing: Framing) -> Load:
        """Of one message of n_bytes on every flow, all at one time."""
        (start, link), (_, back) = table.paths(flows), table.paths(flows.reversed())
        data, acks = on_the_wire(n_bytes, framing)
        n = len(self.rate_bytes_s)
        carried = np.bincount(link, minlength=n) * data + np.bincount(back, minlength=n) * acks
        delay_s = np.add.reduceat(self.delay_s[link], start[:-1]).max()
        return Load(carried, float(delay_s + (carried / self.rate_bytes_s).max()))


def on_the_wire(n_bytes: float, f: Framing) -> tuple[float, float]:
    """Bytes of a message's frames, and of its acknowledgements."""
    frames = np.ceil(n_bytes / f.payload_bytes)
    first = f.first_header_bytes if frames else 0
    return float(n_bytes + frames * f.header_bytes + first), float(np.ceil(frames / f.frames_per_ack) * f.ack_bytes)


def split_evenly(table: NextHops, demand: Floats) -> tuple[Floats, bool]:
    """demand: (owners, owners) bytes between switches with hosts. (directed links,) what links between switches carry, and
    whether any of it had a choice."""
    hops, owners = table.hops, np.arange(len(table.owner_switch))
    here = np.zeros(hops.shape)
    here[table.owner_switch] = demand
    carried, chose = np.zeros(2 * len(table.fabric.links)), False
    farthest = int(hops[table.owner_switch][:, owners].max(initial=0, where=demand > 0))
    for left in range(farthest, 0, -1):
        switch, owner = np.nonzero((hops == left) & (here > 0))
        next_ports = table.next_ports(switch, owner)
        n_next = next_ports.sum(axis=1)
        chose = chose or bool((n_next > 1).any())
        pair, port = np.nonzero(next_ports)
        part = (here[switch, owner] / n_next)[pair]
        carried += np.bincount(table.egress[switch[pair], port], part, len(carried))
        np.add.at(here, (table.peer[switch[pair], port], owner[pair]), part)
    return carried, chose


def owner_pairs(owner: Ints, n_owners: int, n_bytes: float) -> Floats:
    """(owners, owners) bytes between switches with hosts, of n_bytes from every rank to every other. owner: (ranks,)."""
    ranks = np.bincount(owner, minlength=n_owners) * float(n_bytes)
    demand: Floats = np.outer(ranks, ranks / n_bytes)
    np.fill_diagonal(demand, 0)
    return demand
