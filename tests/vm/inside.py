"""A fabric that is up in a sandbox, as a run brings it up, and what a function finds out there.

By fork and by threads that enter a host, because on an emulated CPU a fresh Python imports for longer than most tests take.
"""

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

from lab.machine import sandbox
from lab.machine.bringup import Lab, lab_up
from lab.progress import Progress
from tests.emulation.netns_sandbox import install_rules
from topologies import namespaces
from topologies.fabric import Fabric

T = TypeVar("T")


def in_lab(
    fabric: Fabric, job: Callable[[Lab], Any], *, policy: str | None = None, mtu: int = 1500, **options: Any
) -> Any:
    """What `job(lab)` returns, as JSON, at most a pipe's 64 kB. policy: None = rules of one path, without a controller."""
    read, write = os.pipe()

    def work() -> int:
        with lab_up(fabric, policy=policy, mtu=mtu, progress=Progress(), **options) as lab:
            if policy is None:
                install_rules(fabric)
            os.write(write, json.dumps(job(lab)).encode())
        return 0

    status = sandbox.run(work, about=sandbox.about(fabric=fabric.name, doing="tests/vm"))
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    assert status == 0 and text, f"status {status}"
    return json.loads(text)


def in_host(host: str, work: Callable[[], T]) -> T:
    """`work()` in a host's namespace: sockets that it makes stay there."""
    (result,) = namespaces.each([(host, None)], lambda _: work())
    return result


def address(fabric: Fabric, host: str) -> str:
    return fabric.scale_out_port(host).ip or ""
