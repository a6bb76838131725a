"""Rules for single flows, above those of a base policy: which path each takes, switch by switch.

The switch of the destination needs none: the base policy delivers.
"""

from collections import defaultdict
from collections.abc import Mapping

from controller.actions import DecTtl, Output
from controller.demand import HAVE_PORTS
from controller.flow import Flow
from controller.match import Match
from controller.paths import Path
from controller.prefix_rules import BASE_PRIORITY
from controller.rules import FlowRule, SwitchRules

# Above the longest prefix's.
_PRIORITY = BASE_PRIORITY + 100


def with_exact(base: Mapping[str, SwitchRules], paths: Mapping[Flow, Path]) -> dict[str, SwitchRules]:
    added = defaultdict(list)
    for flow, path in paths.items():
        for switch, port in path:
            added[switch].append(FlowRule(exact_match(flow), (DecTtl(), Output(port)), _PRIORITY))
    return {name: SwitchRules((*rules.flows, *added[name]), rules.groups) for name, rules in base.items()}


def exact_match(flow: Flow) -> Match:
    ports = (flow.src_port, flow.dst_port) if flow.proto in HAVE_PORTS else (None, None)
    return Match(None, flow.src_ip, flow.dst_ip, flow.proto, *ports)
