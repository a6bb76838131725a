"""What was measured once on this machine, in a sandbox, and is kept for the next run. An edge."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.machine import probes, sandbox

FOLDER = Path("/var/cache/ai-fabric-testbed")


def machine_key(mtu: int) -> str:
    """A measurement holds for one CPU, kernel, Open vSwitch and frame size."""
    return f"{probes.cpu_model()}/{os.cpu_count()}/{os.uname().release}/{probes.open_vswitch_version()}/{mtu}"


def known(file: Path, mtu: int) -> Any:
    """What was kept for this machine as it is now, None where nothing was."""
    with suppress(OSError, ValueError, KeyError):
        return json.loads(file.read_text())[machine_key(mtu)]
    return None


def keep(file: Path, mtu: int, value: Any) -> None:
    """As good as it goes: a folder that cannot be written costs a measurement each time, no more."""
    kept = {}
    with suppress(OSError, ValueError):
        kept = json.loads(file.read_text())
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({**kept, machine_key(mtu): value}, indent=1))
        new.rename(file)


def measured_in_sandbox(measure: Callable[[], Any], *, fabric: str, doing: str, remedy: str) -> Any:
    """What `measure()` returns in a sandbox of its own. Raises LabError with the remedy when it fails."""
    read, write = os.pipe()

    def job() -> int:
        os.write(write, json.dumps(measure()).encode())
        return 0

    status = sandbox.run(job, about=sandbox.about(fabric=fabric, doing=doing))
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    if status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if status == 128 + signal.SIGTERM:
        raise SystemExit(status)
    if status != 0 or not text:
        raise LabError(f"{doing} failed (status {status}): {remedy}")
    return json.loads(text)
