"""A data plane without a switch: walks a packet through the rules, hop by hop, and says where it comes out.

`bundle`, `multipath` and `move` are computed as Open vSwitch does, so a walk is a prediction of the real path. A select group's
hash cannot be predicted: `path` says so, `paths` gives all that may happen.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from controller.actions import LABEL_BITS, Bundle, ForgetInPort, GotoTable, Output, SetField, ShiftLabel
from controller.flow import Flow, Packet
from controller.match import mac_int, mac_text
from controller.ovs_hash import choose, modulo_n
from controller.rules import FlowRule, SwitchRules
from topologies.fabric import Fabric, Port


class DataPlaneError(Exception):
    """A packet that does not arrive, or whose way is unknown. `switch` is where."""

    def __init__(self, flow: Flow, switch: str, text: str) -> None:
        super().__init__(f"{flow}: {text} at {switch}")
        self.switch = switch


class Dropped(DataPlaneError):
    """No rule, no live port, or a frame that the receiver ignores."""


class Hairpin(Dropped):
    """Sent out of the port it came in by, which a switch does not do."""


class Loop(DataPlaneError):
    """The packet came back to a switch by the same port and with the same MAC: it circles until its TTL ends."""


class Unpredictable(DataPlaneError):
    """A select group with more than one live bucket."""


class DataPlane:
    """One state of a fabric: rules and dead links. Make it once, ask it for many flows."""

    def __init__(self, fabric: Fabric, rules: Mapping[str, SwitchRules], down: frozenset[int] = frozenset()) -> None:
        self._fabric = fabric
        self._rules = rules
        self._down = down
        self._ports: dict[str, dict[int | None, tuple[Port, Port, bool]]] = {}
        self._hosts = {port.ip: port for link in fabric.links for port in link.ports if port.ip}

    def path(self, flow: Flow) -> list[Port]:
        """The egress port of every hop, the source host's NIC first and the last switch's port last.

        Raises Dropped, Hairpin, Loop, or Unpredictable where a select group has the choice.
        """
        (only,) = self._walk(flow, _only)
        return only

    def paths(self, flow: Flow) -> list[list[Port]]:
        """Every path the flow may take: one, but for select groups. Raises as `path` if any of them fails."""
        return self._walk(flow, _any)

    def _walk(self, flow: Flow, pick: "_Pick") -> list[list[Port]]:
        nic = self._hosts.get(flow.src_ip)
        if nic is None:
            raise Dropped(flow, flow.src_ip, "no host has the source address")
        if self._fabric.link_of(nic.intf).index in self._down:
            raise Dropped(flow, nic.node, "the host's link is down")
        first, found = self._fabric.peer(nic), list[list[Port]]()
        self._enter(
            first.node, Packet(flow, first.number, self._fabric.gateway_mac), _Way((nic,), frozenset(), pick), found
        )
        return found

    def _enter(self, switch: str, packet: Packet, way: "_Way", found: list[list[Port]]) -> None:
        """Adds to `found` the ways of a packet that arrives at a switch."""
        here = (switch, packet.in_port, packet.eth_dst)
        if here in way.seen:
            raise Loop(packet.flow, switch, "goes round in a loop")
        rules = self._rules.get(switch, _NO_RULES)
        rule, packet = _through_tables(switch, rules, packet)
        seen = way.seen | {here}
        for number in way.pick(packet.flow, switch, self._live(packet.flow, switch, rules, rule)):
            if number == packet.in_port and _FORGET not in rule.actions:
                raise Hairpin(packet.flow, switch, f"sent back out of port {number}")
            egress, far, _ = self._ports_of(switch)[number]
            self._leave(switch, far, packet, _Way((*way.ports, egress), seen, way.pick), found)

    def _leave(self, switch: str, far: Port, packet: Packet, way: "_Way", found: list[list[Port]]) -> None:
        if not self._fabric.node(far.node).is_host:
            # Registers are the switch's own: the next one starts with zeros.
            self._enter(far.node, Packet(packet.flow, far.number, packet.eth_dst), way, found)
        elif far.ip != packet.flow.dst_ip:
            raise Dropped(packet.flow, switch, f"delivered to {far.node}, which has address {far.ip},")
        elif far.mac != packet.eth_dst:
            raise Dropped(packet.flow, switch, f"delivered to {far.node} with destination MAC {packet.eth_dst}")
        else:
            found.append(list(way.ports))

    def _live(self, flow: Flow, switch: str, rules: SwitchRules, rule: FlowRule) -> list[int]:
        """The ports that the rule may send the packet to, given what is down: one, or a group's live buckets."""
        forward, ports = rule.end, self._ports_of(switch)
        if isinstance(forward, Output) and forward.port in ports and ports[forward.port][2]:
            return [forward.port]
        candidates = forward.ports if isinstance(forward, Bundle) else rules.ports_of(forward)
        alive = [number in ports and ports[number][2] for number in candidates]
        if isinstance(forward, Bundle):
            place = choose(flow, forward.basis, alive)
            alive = [i == place for i in range(len(alive))]
        live = [number for number, up in zip(candidates, alive, strict=True) if up and number is not None]
        if not live:
            raise Dropped(flow, switch, f"no live port for {rule.match}")
        return live

    def _ports_of(self, switch: str) -> Mapping[int | None, tuple[Port, Port, bool]]:
        """number -> (own port, far port, whether the link is up)."""
        if switch not in self._ports:
            self._ports[switch] = {
                own.number: (own, far, link.index not in self._down)
                for own, far, link in self._fabric.neighbours(switch)
            }
        return self._ports[switch]


_NO_RULES = SwitchRules()
_FORGET = ForgetInPort()
_Pick = Callable[[Flow, str, list[int]], list[int]]


class _Way(NamedTuple):
    """How a packet came here: the egress ports, the (switch, port, destination MAC) it entered by; how it goes on."""

    ports: tuple[Port, ...]
    seen: frozenset[tuple[str, int, str]]
    pick: _Pick


def _through_tables(switch: str, rules: SwitchRules, packet: Packet) -> tuple[FlowRule, Packet]:
    """The rule that forwards the packet, and the packet as all tables up to there have made it."""
    table = 0
    while True:
        rule = rules.lookup(packet, table)
        if rule is None:
            raise Dropped(packet.flow, switch, f"no rule matches in table {table}" if table else "no rule matches")
        packet = _written(rule, packet)
        if not isinstance(rule.end, GotoTable):
            return rule, packet
        table = rule.end.table


def _written(rule: FlowRule, packet: Packet) -> Packet:
    for action in rule.rewrites:
        if isinstance(action, SetField):
            packet = Packet(packet.flow, packet.in_port, action.value, packet.registers)
        elif isinstance(action, ShiftLabel):
            packet = Packet(packet.flow, packet.in_port, _shifted(packet.eth_dst, action.n_bits), packet.registers)
        else:
            registers = list(packet.registers)
            registers[action.register] = modulo_n(packet.flow, action.basis, action.n)
            packet = Packet(packet.flow, packet.in_port, packet.eth_dst, tuple(registers))
    return packet


def _shifted(mac: str, n_bits: int) -> str:
    value, lower = mac_int(mac), (1 << (LABEL_BITS - n_bits)) - 1
    return mac_text(value & ~lower | value >> n_bits & lower)


def _only(flow: Flow, switch: str, ports: list[int]) -> list[int]:
    if len(ports) > 1:
        raise Unpredictable(flow, switch, f"a select group chooses among ports {', '.join(map(str, ports))}")
    return ports


def _any(_flow: Flow, _switch: str, ports: list[int]) -> list[int]:
    return ports


def path(
    fabric: Fabric, rules: Mapping[str, SwitchRules], flow: Flow, down: frozenset[int] = frozenset()
) -> list[Port]:
    """`DataPlane.path` for a single flow."""
    return DataPlane(fabric, rules, down).path(flow)


def paths(
    fabric: Fabric, rules: Mapping[str, SwitchRules], flow: Flow, down: frozenset[int] = frozenset()
) -> list[list[Port]]:
    """`DataPlane.paths` for a single flow."""
    return DataPlane(fabric, rules, down).paths(flow)
