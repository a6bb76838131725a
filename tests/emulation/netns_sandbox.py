"""Runs a function of a test file inside network, PID and mount namespaces of its own, which the kernel takes back.

    result = in_sandbox(function, *arguments)       # function: of a module's top level; arguments and result as JSON

Inside: a fresh /proc, an empty /run, loopback up, no daemon. A failure carries what the function wrote to stderr.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_UNSHARE = ("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--propagation", "private")
_PREPARE = "mount -t proc proc /proc && mount -t tmpfs tmpfs /run && ip link set lo up"


def in_sandbox(function: Callable[..., Any], *arguments: Any, timeout_s: float = 60.0, python: str = "") -> Any:
    """What `function(*arguments)` returns when it is called inside a new sandbox."""
    call = json.dumps([function.__module__, function.__name__, arguments])
    done = subprocess.run(
        [*_UNSHARE, python or sys.executable, "-c", "import netns_sandbox as s; s.inside()", call],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{HERE}"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


def inside() -> None:
    module, name, arguments = json.loads(sys.argv[1])
    sh(_PREPARE)
    print(json.dumps(getattr(importlib.import_module(module), name)(*arguments)))


def sh(command: str, netns: str | None = None) -> str:
    """A shell command's output, in a namespace if named; a failure carries its error text."""
    enter = ["ip", "netns", "exec", netns] if netns else []
    done = subprocess.run([*enter, "bash", "-ec", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[:200]}: {done.stdout[-500:]} {done.stderr[-2000:]}"
    return done.stdout
