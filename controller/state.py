"""What the controller knows and wants: no sockets, no clock, no Ryu. Events go in, stages of steps come out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from controller.demand import Demand
from controller.loads import Loads
from controller.policy import Announced, Policy, Reactive, rules_of
from controller.rules import SwitchRules
from controller.update import Stage, plan
from topologies.errors import Refused
from topologies.fabric import Fabric


@dataclass
class State:
    """`installed` has the switches whose present rules are known; `_dead` the interfaces that were reported down.

    A link is down when either end says so: each end's switch reports for itself, one may be late or gone.
    """

    fabric: Fabric
    policy: Policy
    installed: dict[str, SwitchRules] = field(default_factory=dict)
    _dead: set[str] = field(default_factory=set)
    _target: tuple[frozenset[int], Policy, dict[str, SwitchRules]] | None = None

    def __post_init__(self) -> None:
        self._switch_of = {switch.dpid: switch.name for switch in self.fabric.switches}
        self._intf = {(port.node, port.number): port.intf for link in self.fabric.links for port in link.ports}

    def switch_of(self, dpid: int) -> str | None:
        return self._switch_of.get(dpid)

    # -- what happens -----------------------------------------------------------------------------------------------

    def reported(self, switch: str, rules: SwitchRules, live_ports: Iterable[int]) -> None:
        """A switch has connected and said what it has; a port of the fabric that it does not name is dead."""
        self.installed[switch] = rules
        live = set(live_ports)
        for port in self.fabric.ports_of(switch):
            self.port(switch, port.number, up=port.number in live)

    def gone(self, switch: str) -> None:
        """A switch has disconnected. Its links stay as they are: it forwards without us."""
        self.installed.pop(switch, None)

    def port(self, switch: str, number: int, *, up: bool) -> None:
        """A port has changed; one that is not the fabric's (the bridge's own LOCAL) does not matter."""
        intf = self._intf.get((switch, number))
        if intf is not None:
            (self._dead.discard if up else self._dead.add)(intf)

    def measured(self, loads: Loads) -> bool:
        """How busy links were of late; whether the policy wants other rules now."""
        if not isinstance(self.policy, Reactive):
            return False
        before, self.policy = self.policy, self.policy.react(self.fabric, self.down, loads)
        return before != self.policy

    def announce(self, demands: tuple[Demand, ...]) -> dict[str, Any]:
        """These flows, and no others, are announced from now on; what the policy decides. Raises Refused."""
        if not isinstance(self.policy, Announced):
            raise Refused("the policy places no announced flows: use one that does, such as per-flow")
        policy = self.policy = self.policy.announced(self.fabric, demands)
        return policy.summary()

    # -- what follows from it ---------------------------------------------------------------------------------------

    @property
    def down(self) -> frozenset[int]:
        """Indices of the links that are down."""
        return frozenset(self.fabric.link_of(intf).index for intf in self._dead)

    @property
    def target(self) -> dict[str, SwitchRules]:
        """What every switch should have. Raises PolicyError."""
        down = self.down
        if self._target is None or self._target[0] != down or self._target[1] != self.policy:
            self._target = (down, self.policy, rules_of(self.policy, self.fabric, down))
        return self._target[2]

    def stages(self) -> list[Stage]:
        """What to send to the switches we know, in order."""
        return plan(self.fabric, self.installed, self.target)

    def sent(self, switches: Iterable[str], target: dict[str, SwitchRules]) -> None:
        """These switches have confirmed `target`."""
        self.installed.update((s, target[s]) for s in switches if s in self.installed)

    @property
    def is_converged(self) -> bool:
        """Every switch of the fabric has the rules it should have."""
        return self.installed == self.target
