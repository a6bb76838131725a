"""Where packets go: a policy turns a Fabric into rules, a thin Ryu application sends them.

To add a policy: a file in policies/ with a function `(fabric, down) -> {switch name: SwitchRules}`, and a line in
POLICIES. The command line, the help and the registry-wide tests pick it up from here.
"""

from controller.policies.ecmp import ecmp
from controller.policies.ecmp_group import ecmp_group
from controller.policies.ecmp_polarised import ecmp_polarised
from controller.policies.single_path import single_path
from controller.policy import Policy, PolicyError, multipath, parse_policy, rules_of

POLICIES: dict[str, Policy] = {
    "ecmp": ecmp,
    "ecmp-polarised": ecmp_polarised,
    "ecmp-group": ecmp_group,
    "single-path": single_path,
}


def policy(spec: str) -> Policy:
    """'ecmp' or './mine.py:POLICY' -> the policy."""
    return parse_policy(spec, POLICIES)


__all__ = ["POLICIES", "Policy", "PolicyError", "multipath", "policy", "rules_of"]
