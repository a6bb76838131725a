"""What watching costs: the monitor's CPU time on a fabric of 1024 links."""

import time
from typing import Any

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure
from lab.machine.bringup import lab_up
from lab.measuring.run import watched
from lab.progress import Progress
from topologies.spine_leaf import SpineLeaf

_SHARE = Target("ours", high=3)
_RATE_MBPS = 20


def sampler(*, quick: bool) -> list[Figure]:
    fabric = SpineLeaf(16, 32, 16).build().with_links(rate_mbps=_RATE_MBPS)
    seconds = 3.0 if quick else 20.0

    def job() -> dict[str, Any]:
        with lab_up(fabric, policy=None, mtu=9000, progress=Progress(quiet=True)) as lab, watched(lab) as monitor:
            start = monitor.mark()
            time.sleep(seconds)
            window = monitor.window(start, monitor.mark())
            return {"share": window.sampler_share, "samples": len(window.at_s), "readings": len(window.queue_at_s)}

    found = machine.inside(job, fabric.name)
    per_s = (
        f"{found['samples'] / seconds:.1f} samples and {found['readings'] / seconds:.1f} readings of queues a second"
    )
    return [
        figure(
            "sampler, 1024 links", found["share"] * 100, "% core", _SHARE, note=f"{len(fabric.links)} links, {per_s}"
        )
    ]
