"""ECMP by 5-tuple, done so that it holds for UDP: the default.

An OpenFlow 1.3 select group hashes UDP by address only, so all queue pairs of a RoCE pair would share one path, and
it uses the same hash on every switch. `bundle` takes the hash fields and a basis; the datapath id as basis makes
switches decide independently.

Its hash is symmetric: it sees source XOR destination, of addresses and of ports. So h1->h5, h2->h6, h3->h7 with equal
ports may all be one flow to it (198.18.0.1 ^ 198.18.0.9 = 198.18.0.2 ^ 198.18.0.10): traffic must vary a port.
"""

from controller.actions import Bundle, Forward
from controller.policy import multipath
from controller.prefix_rules import only_port, route
from controller.rules import GroupRule, SwitchRules
from topologies.fabric import Fabric, Node


@multipath
def ecmp(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    return route(fabric, down, spread)


def spread(switch: Node, _prefix: int, ports: tuple[int | None, ...]) -> tuple[Forward, GroupRule | None]:
    return only_port(ports) or Bundle(basis_of(switch), ports), None


def basis_of(switch: Node) -> int:
    # The wire format has 16 bits for the basis.
    return (switch.dpid or 0) & 0xFFFF
