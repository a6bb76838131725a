"""Where packets go: a policy turns a Fabric into rules, a thin Ryu application sends them.

To add a policy: a file in policies/ with a function `(fabric, down) -> {switch name: SwitchRules}`, and a line in
POLICIES; `@only_on(...)` says which fabrics it can route, if not all. The command line, the help and the registry-wide
tests pick it up from here. A policy that follows measured load is a value with `react`, one that places announced flows
a value with `announced`: see Reactive and Announced.
"""

from controller.policies.adaptive import Adaptive
from controller.policies.ecmp import ecmp
from controller.policies.ecmp_group import ecmp_group
from controller.policies.ecmp_polarised import ecmp_polarised
from controller.policies.k_shortest import k_shortest
from controller.policies.minimal import minimal
from controller.policies.per_flow import PerFlow
from controller.policies.single_path import single_path
from controller.policies.ugal import Ugal
from controller.policies.valiant import valiant
from controller.policy import Policy, PolicyError, check_fits, fits, multipath, only_on, parse_policy, rules_of
from topologies.fabric import Fabric

POLICIES: dict[str, Policy] = {
    "ecmp": ecmp,
    "ecmp-polarised": ecmp_polarised,
    "ecmp-group": ecmp_group,
    "single-path": single_path,
    "minimal": minimal,
    "valiant": valiant,
    "ugal": Ugal(),
    "k-shortest": k_shortest,
    "per-flow": PerFlow(),
    "adaptive": Adaptive(),
}


def policy(spec: str) -> Policy:
    """'ecmp' or './mine.py:POLICY' -> the policy."""
    return parse_policy(spec, POLICIES)


def policy_for(spec: str, fabric: Fabric) -> Policy:
    """The policy, refused unless it fits the fabric."""
    chosen = policy(spec)
    check_fits(spec, chosen, fabric, POLICIES)
    return chosen


__all__ = [
    "POLICIES",
    "Policy",
    "PolicyError",
    "fits",
    "multipath",
    "only_on",
    "policy",
    "policy_for",
    "rules_of",
]
