"""What a policy is: a pure function from a fabric and its dead links to rules; and how its name is read.

ecmp                   a registered name
./mine.py:POLICY       a function in a user's own file
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from controller.rules import Match, RuleError, SwitchRules
from topologies import user_code
from topologies.errors import Refused, unknown
from topologies.fabric import Fabric

# (fabric, indices of the links that are down) -> rules by switch name
Policy = Callable[[Fabric, frozenset[int]], dict[str, SwitchRules]]
_P = TypeVar("_P", bound=Policy)


class PolicyError(Refused):
    """A policy that does not exist, or whose rules do not fit the fabric."""


def multipath(policy: _P) -> _P:
    """Marks a policy that uses every equal-cost path, which `check` then demands of it."""
    policy.__dict__["multipath"] = True
    return policy


def is_multipath(policy: Policy) -> bool:
    return bool(getattr(policy, "multipath", False))


def parse_policy(spec: str, registry: Mapping[str, Policy]) -> Policy:
    """The policy that a text form names; refuses with the known names."""
    if not user_code.is_file(spec):
        if spec not in registry:
            raise PolicyError(unknown("policy", spec, registry))
        return registry[spec]
    loaded, rest = user_code.load_attribute(spec, "policy")
    if rest or not callable(loaded):
        raise PolicyError(f"policy {spec!r}: must be a function (fabric, down) -> {{switch name: SwitchRules}}")
    policy: Policy = loaded
    return policy


def rules_of(policy: Policy, fabric: Fabric, down: frozenset[int] = frozenset()) -> dict[str, SwitchRules]:
    """The policy's rules, one entry for every switch of the fabric, checked to fit it.

    Raises PolicyError: a user's own policy may do anything, and a traceback from inside it helps nobody.
    """
    what = f"policy {getattr(policy, '__name__', repr(policy))}"
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
    switches = {s.name for s in fabric.switches}
    if switch not in switches:
        raise RuleError(unknown("switch", switch, switches))
    ports = {p.number for p in fabric.ports_of(switch)}
    used = {port for flow in rules.flows for port in rules.ports_of(flow.forward)}
    used.update(port for group in rules.groups for port in group.ports)
    if not used <= ports:
        raise RuleError(f"{switch} has no port {min(used - ports)}: its ports are 1..{max(ports, default=0)}")
    if any(flow.match == Match() for flow in rules.flows):
        raise RuleError(f"{switch} has a rule that matches every packet")
