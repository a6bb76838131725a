"""What a policy is: a pure function from a fabric and its dead links to rules; and how its name is read.

ecmp                   a registered name
./mine.py:POLICY       a function in a user's own file
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from controller.demand import Demand
from controller.loads import Loads
from controller.match import Match, RuleError
from controller.per_fabric import per_fabric
from controller.rules import SwitchRules
from topologies import user_code
from topologies.errors import Refused, unknown
from topologies.fabric import Fabric

# (fabric, indices of the links that are down) -> rules by switch name
Policy = Callable[[Fabric, frozenset[int]], dict[str, SwitchRules]]
_P = TypeVar("_P", bound=Policy)


@runtime_checkable
class Reactive(Protocol):
    """A policy whose rules depend on measured load: a value that is called like any other policy, and can tell its
    successor. So a decision is a pure function too, and the state between decisions is the policy itself."""

    # How often links are measured.
    period_s: float

    def __call__(self, fabric: Fabric, down: frozenset[int], /) -> dict[str, SwitchRules]: ...

    def react(self, fabric: Fabric, down: frozenset[int], loads: Loads, /) -> "Reactive":
        """The policy from now on; one that is equal changes nothing."""

    def summary(self) -> dict[str, Any]:
        """What it has decided, for people, as plain data."""


@runtime_checkable
class Announced(Protocol):
    """A policy whose rules depend on announced flows: a value, as a reactive one is."""

    @property
    def demands(self) -> tuple[Demand, ...]:
        """All that are announced at present."""

    def __call__(self, fabric: Fabric, down: frozenset[int], /) -> dict[str, SwitchRules]: ...

    def announced(self, fabric: Fabric, demands: tuple[Demand, ...], /) -> "Announced":
        """The policy from now on, with these flows instead. Raises Refused."""

    def summary(self) -> dict[str, Any]:
        """What it has decided, for people, as plain data."""


class PolicyError(Refused):
    """A policy that does not exist, or whose rules do not fit the fabric."""


def multipath(policy: _P) -> _P:
    """Marks a policy that uses every equal-cost path, which `check` then demands of it."""
    policy.__dict__["multipath"] = True
    return policy


def is_multipath(policy: Policy) -> bool:
    return bool(getattr(policy, "multipath", False))


def only_on(has_shape: Callable[[Fabric], bool]) -> Callable[[_P], _P]:
    """Marks a policy that can only route fabrics of a certain shape."""

    def mark(policy: _P) -> _P:
        policy.__dict__["has_shape"] = has_shape
        return policy

    return mark


def fits(policy: Policy, fabric: Fabric) -> bool:
    """Whether the policy can route the fabric; one that says nothing fits any."""
    has_shape: Callable[[Fabric], bool] = getattr(policy, "has_shape", lambda _: True)
    return has_shape(fabric)


def check_fits(spec: str, policy: Policy, fabric: Fabric, registry: Mapping[str, Policy]) -> None:
    """Refuses a policy that does not fit the fabric, with the known ones that do."""
    if not fits(policy, fabric):
        known = ", ".join(sorted(name for name, other in registry.items() if fits(other, fabric)))
        raise PolicyError(f"policy {spec!r} does not fit fabric {fabric.name}: choose from {known}")


def parse_policy(spec: str, registry: Mapping[str, Policy]) -> Policy:
    """The policy that a text form names; refuses with the known names."""
    return user_code.function(
        spec, "policy", registry, "(fabric, down) -> {switch name: SwitchRules}", refusal=PolicyError
    )


def rules_of(policy: Policy, fabric: Fabric, down: frozenset[int] = frozenset()) -> dict[str, SwitchRules]:
    """The policy's rules, one entry for every switch of the fabric, checked to fit it.

    Raises PolicyError: a user's own policy may do anything, and a traceback from inside it helps nobody.
    """
    what = f"policy {getattr(policy, '__name__', str(policy))}"
    try:
        return user_code.call(what, lambda: _checked(fabric, policy(fabric, down)))
    except RuleError as error:
        raise PolicyError(f"{what}: {error}") from error
    except Refused as refusal:
        raise PolicyError(str(refusal)) from refusal


def _checked(fabric: Fabric, rules: object) -> dict[str, SwitchRules]:
    if not isinstance(rules, Mapping):
        raise RuleError(f"must return {{switch name: SwitchRules}}, not {type(rules).__name__}")
    for switch, its_rules in rules.items():
        if not isinstance(its_rules, SwitchRules):
            raise RuleError(f"must return SwitchRules for {switch!r}, not {type(its_rules).__name__}")
        _check_fits(fabric, switch, its_rules)
    return {switch.name: rules.get(switch.name, SwitchRules()) for switch in fabric.switches}


def _check_fits(fabric: Fabric, switch: str, rules: SwitchRules) -> None:
    ports = _ports_by_switch(fabric)
    if switch not in ports:
        raise RuleError(unknown("switch", switch, ports))
    if missing := rules.used_ports - ports[switch]:
        raise RuleError(f"{switch} has no port {min(missing)}: its ports are 1..{max(ports[switch], default=0)}")
    if any(flow.table == 0 and flow.match == _EVERYTHING for flow in rules.flows):
        raise RuleError(f"{switch} has a rule that matches every packet")


_EVERYTHING = Match()


@per_fabric
def _ports_by_switch(fabric: Fabric) -> Mapping[str, frozenset[int]]:
    return {s.name: frozenset(port.number for port in fabric.ports_of(s.name)) for s in fabric.switches}
