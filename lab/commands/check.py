"""`check ./mine.py`: a user's own topologies, policies and circuit schedulers meet the same conformance tests that ours pass.
`check answers.toml`: a student's answers to a lab of docs/labs."""

from controller.circuits.conformance import check_file as check_schedulers
from controller.circuits.conformance import is_scheduler
from controller.conformance import check_file as check_policies
from controller.policy import PolicyError
from lab.errors import LabError
from lab.exercises import check_answers
from topologies import user_code
from topologies.conformance import check_class
from topologies.topology import is_topology

_WHAT = "topology, policy or scheduler"


def check_file(spec: str) -> int:
    """Print a line per topology, policy and scheduler found in ./FILE.py or ./FILE.py:NAME, or per answer of a lab; 0 when all
    pass, 1 when one fails."""
    if spec.endswith(".toml"):
        return _check_answers(spec)
    found = {**_topologies(spec), **_schedulers(spec), **_policies(spec)}
    if not found:
        raise LabError(
            f"{spec}: nothing to check: a topology is a frozen dataclass with build(), a policy a function (fabric, down), a "
            "scheduler a function (demand, parameters)"
        )
    for name, findings in found.items():
        print(f"{name}: {'fails' if findings else 'passes'}")
        for finding in findings:
            print(f"  {finding}")
    return 1 if any(found.values()) else 0


def _check_answers(path: str) -> int:
    findings = check_answers(path)
    width = max(len(finding.key) for finding in findings)
    for finding in findings:
        print(f"{'right' if finding.is_right else 'WRONG'}  {finding.key:<{width}}  {finding.text}")
    right = sum(finding.is_right for finding in findings)
    print(
        f"passed: {right} of {right}" if right == len(findings) else f"not passed: {right} of {len(findings)} are right"
    )
    return 0 if right == len(findings) else 1


def _topologies(spec: str) -> dict[str, list[str]]:
    if user_code.is_file(spec):
        cls, _ = user_code.load_attribute(spec, _WHAT)
        classes = {spec.rpartition(":")[2]: cls} if is_topology(cls) else {}
    else:
        module = user_code.load_module(spec, _WHAT)
        classes = {n: v for n, v in vars(module).items() if is_topology(v) and v.__module__ == module.__name__}
    return {f"topology {name}": check_class(cls) for name, cls in classes.items()}


def _schedulers(spec: str) -> dict[str, list[str]]:
    if user_code.is_file(spec) and not is_scheduler(user_code.load_attribute(spec, _WHAT)[0]):
        return {}
    return {f"scheduler {name}": findings for name, findings in check_schedulers(spec).items()}


def _policies(spec: str) -> dict[str, list[str]]:
    if user_code.is_file(spec):
        named, _ = user_code.load_attribute(spec, _WHAT)
        if is_topology(named) or is_scheduler(named):
            return {}
    try:
        return {f"policy {name}": [str(f) for f in findings] for name, findings in check_policies(spec).items()}
    except PolicyError as error:
        raise LabError(str(error)) from None
