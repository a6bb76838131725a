"""What a test needs, said by markers: a test whose need is not met is skipped with a reason that a user can act on."""

import importlib.util
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from lab.machine import probes
from topologies import ovs_daemons

# How long an example takes says something about the machine, nothing about what is tested.
hypothesis.settings.register_profile("timeless", deadline=None)
hypothesis.settings.load_profile("timeless")

EMULATION, VM = (Path(__file__).parent / name for name in ("emulation", "vm"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    probes.complete_path()
    for item in items:
        if EMULATION in item.path.parents or VM in item.path.parents:
            item.add_marker(pytest.mark.emulation)
        if VM in item.path.parents:
            item.add_marker(pytest.mark.full_kernel)
        if reason := unmet_need(item):
            item.add_marker(pytest.mark.skip(reason=reason))


def unmet_need(item: pytest.Item) -> str:
    """Why this test cannot run here; '' when it can."""
    missing = [tool for m in item.iter_markers("needs") for tool in m.args if shutil.which(tool) is None]
    if missing:
        packages = {probes.OPTIONAL_TOOLS[tool][0] if tool in probes.OPTIONAL_TOOLS else tool for tool in missing}
        return f"{', '.join(missing)} missing: apt-get install {' '.join(sorted(packages))}"
    if item.get_closest_marker("emulation") and (reason := cannot_emulate()):
        return reason
    if item.get_closest_marker("full_kernel") and not has_full_kernel():
        return "this kernel lacks the module openvswitch or sch_netem: sudo scripts/vm.sh test"
    if item.get_closest_marker("root") and os.geteuid() != 0:
        return "needs root: sudo scripts/test.sh"
    return ""


@cache
def has_full_kernel() -> bool:
    """scripts/vm.sh says that it has, so that in its machine nothing is skipped."""
    if "VM_TEST" in os.environ:
        return True
    return ovs_daemons.find_datapath() == "system" and "netem" in probes.usable_qdiscs()


@cache
def cannot_emulate() -> str:
    if os.geteuid() != 0:
        return "needs root: sudo scripts/test.sh"
    missing = [*probes.missing_tools()]
    if importlib.util.find_spec("mininet") is None:
        missing.append("Mininet's Python module")
    if missing:
        return f"{', '.join(missing)} missing: sudo scripts/setup.sh"
    if subprocess.run(
        ["unshare", "--net", "--pid", "--mount", "--fork", "true"], capture_output=True, check=False
    ).returncode:
        return (
            "this root may not make namespaces: run on a machine or in a container with CAP_SYS_ADMIN and CAP_NET_ADMIN"
        )
    return ""
