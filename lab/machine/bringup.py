"""Inside a sandbox: Open vSwitch, the controller and the fabric, up and ready for traffic; and all of it down again."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from controller import client
from controller.demand import Demand, to_plain
from lab.errors import LabError
from lab.machine import hop_budget
from lab.machine.relay import controller_target
from lab.machine.sandbox import CONTROLLER_SOCKET, OVS_RUN_DIR, REST_PORT, RUN_DIR, wait_until
from lab.paths import REPOSITORY
from lab.planning.circuits import SetUp
from lab.progress import Progress
from topologies import Fabric, ovs_daemons
from topologies.impairments import NO_IMPAIRMENTS, Impairments
from topologies.mininet_adapter import FabricNet
from topologies.tcp import DEFAULT_TCP, Tcp

CONTROLLER_PORT = 6653
_READY_DEADLINE_S = 60.0
# One of the user's runs already.
_CONNECTED_DEADLINE_S = 30.0
_URGENT_NICENESS = -10


@dataclass(frozen=True)
class Lab:
    """A fabric that is up. controller: None where it is not ours, or there is none; hop_frames_per_s: what the impairment hop
    carries on this machine, None without a hop or a measurement."""

    fabric: Fabric
    net: FabricNet
    daemons: ovs_daemons.Daemons
    datapath: str
    controller: "subprocess.Popen[bytes] | None"
    hop_frames_per_s: float | None


@contextmanager
def lab_up(
    fabric: Fabric,
    *,
    policy: str | SetUp | None,
    mtu: int,
    addressing: str = "l3",
    controller: str | None = None,
    announced: Sequence[Demand] = (),
    tcp: Tcp = DEFAULT_TCP,
    impairments: Impairments = NO_IMPAIRMENTS,
    progress: Progress,
) -> Iterator[Lab]:
    """Everything up when the block begins: ports added, links shaped, rules confirmed by barriers.

    policy: its name or file, or where routes follow circuits what is set up of them; None = no controller at all.
    controller: the user's own, reached through the relay.
    announced: flows that the policy places from the start.
    """
    progress.step("starting Open vSwitch")
    daemons = ovs_daemons.start_daemons(OVS_RUN_DIR)
    datapath = ovs_daemons.find_datapath()
    process = _start_controller(fabric, policy, announced) if policy and not controller else None
    if controller and not wait_until(CONTROLLER_SOCKET.exists, 5.0):
        raise LabError("the relay to the controller outside did not come up")
    progress.step(f"building {len(fabric.hosts)} hosts, {len(fabric.switches)} switches, {len(fabric.links)} links")
    net = FabricNet(
        fabric,
        mtu=mtu,
        addressing=addressing,
        datapath=datapath,
        controllers=(controller_target(controller, CONTROLLER_PORT),) if policy else (),
        tcp=tcp,
        impairments=impairments,
        progress=progress.step,
    )
    try:
        net.start()
        progress.step("waiting for the switches' rules")
        if process:
            _wait_ready(process)
        elif controller and not net.waitConnected(timeout=_CONNECTED_DEADLINE_S):
            raise RuntimeError(
                f"not every switch is connected to {controller} within {_CONNECTED_DEADLINE_S:g} s: does it speak OpenFlow 1.3?"
            )
        yield Lab(fabric, net, daemons, datapath, process, hop_budget.known(mtu) if net.uses_hop else None)
    except Exception as error:
        # What fails first is whatever waits for a packet; it cannot know why none comes.
        if ended := daemons.ended():
            raise RuntimeError(f"Open vSwitch ended ({ended}): {error}") from error
        raise
    finally:
        if process:
            process.terminate()
        daemons.stop()
        progress.done()


def _start_controller(fabric: Fabric, policy: str | SetUp, announced: Sequence[Demand]) -> "subprocess.Popen[bytes]":
    fabric_file = RUN_DIR / "fabric.json"
    fabric_file.write_text(fabric.to_json())
    arguments: list[Any] = ["--fabric", fabric_file, "--port", CONTROLLER_PORT, "--rest-port", REST_PORT]
    arguments += _over_circuits(policy) if isinstance(policy, SetUp) else ["--policy", policy]
    if announced:
        flows_file = RUN_DIR / "flows.json"
        flows_file.write_text(json.dumps([to_plain(demand) for demand in announced]))
        arguments += ["--flows", flows_file]
    with (RUN_DIR / "controller.log").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", "controller", *map(str, arguments)],
            # Not its directory: a policy file's relative path is the user's.
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Ctrl-C at the prompt is for the command there, not for its process group.
            start_new_session=True,
        )
    if isinstance(policy, SetUp):
        # It sleeps through each dark time, and has to be on time at its end, whoever computes.
        os.setpriority(os.PRIO_PROCESS, started.pid, _URGENT_NICENESS)
    return started


def _over_circuits(circuits: SetUp) -> list[Any]:
    circuits_file = RUN_DIR / "circuits.json"
    circuits_file.write_text(json.dumps(circuits.circuits))
    given = {
        "dark": circuits.dark,
        "in-the-dark": circuits.in_the_dark,
        "seed": circuits.seed,
        "circuits": circuits_file,
    }
    return [f"--{option}={value}" for option, value in given.items()]


def _wait_ready(process: "subprocess.Popen[bytes]") -> None:
    """Until every switch confirmed its rules; a controller that died is noticed at once, with its last words."""
    end = time.monotonic() + _READY_DEADLINE_S
    while True:
        try:
            client.wait_ready(f"http://127.0.0.1:{REST_PORT}", 1.0)
            return
        except client.ControllerError as error:
            if process.poll() is not None:
                raise RuntimeError(f"the controller ended with status {process.returncode}: {_last_words()}") from None
            if time.monotonic() > end:
                raise RuntimeError(f"{error} ({_last_words()})") from None


def _last_words() -> str:
    lines = (RUN_DIR / "controller.log").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"
