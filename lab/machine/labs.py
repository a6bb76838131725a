"""Running labs: list, enter, end."""

import os
import signal
import time

from lab.errors import LabError
from lab.machine import sandbox
from lab.machine.sandbox import Sandbox

_STOP_DEADLINE_S = 30.0


def show() -> int:
    """`ps`: one line per running lab."""
    rows = [(s.init_pid, s.describe()) for s in sandbox.labs()]
    if not rows:
        print("no lab is running")
        return 0
    width = max(len(about.get("fabric", "?")) for _, about in rows)
    print(f"{'LAB':>8}  {'FABRIC':<{width}} {'DOING':<20} {'SINCE':<20} USER")
    for pid, about in rows:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about.get("started", 0)))
        print(
            f"{pid:>8}  {about.get('fabric', '?'):<{width}} {about.get('doing', '?'):<20} {since:<20} {about.get('user', '?')}"
        )
    return 0


def enter(lab: str | None, command: list[str]) -> int:
    """`shell`: the user's shell, or a command, inside a running lab."""
    chosen = _choose(lab)
    if not command:
        os.environ["PS1"] = f"lab {chosen.init_pid}# "
        command = ["bash", "--norc"]
        print(
            "ovs-vsctl, ovs-ofctl and tcpdump see the lab; `ip netns exec h1 ping ...` runs in a host; exit leaves it"
        )
    return sandbox.enter(chosen, command)


def stop(lab: str | None) -> int:
    """`stop`: ask a running lab to clean up and end."""
    chosen = _choose(lab)
    os.kill(chosen.init_pid, signal.SIGTERM)
    if not sandbox.wait_until(lambda: all(s != chosen for s in sandbox.labs()), _STOP_DEADLINE_S):
        os.kill(chosen.init_pid, signal.SIGKILL)
    print(f"lab {chosen.init_pid} ended")
    return 0


def _choose(lab: str | None) -> Sandbox:
    running = list(sandbox.labs())
    ids = ", ".join(str(s.init_pid) for s in running)
    if not running:
        raise LabError("no lab is running: start one with `sudo python3 run_topo.py cli`")
    if lab is None:
        if len(running) > 1:
            raise LabError(f"several labs are running: name one of {ids}")
        return running[0]
    for s in running:
        if str(s.init_pid) == lab:
            return s
    raise LabError(f"no lab {lab}: running are {ids}")
