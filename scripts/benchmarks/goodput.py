"""One flow's goodput: our replay over TCP, against iperf3, in turn between the same two hosts of the same lab."""

import json
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figure import Figure, Pairs, Target
from benchmarks.machine import inside, prefer
from lab.machine.bringup import Lab, lab_up
from lab.planning.sending import TCP_CONGESTION_CONTROLS
from lab.progress import Progress
from topologies.spine_leaf import SpineLeaf
from traffic.replay import Replay
from traffic.schedule import ScheduleBuilder
from traffic.transport import Endpoint
from traffic.transports.tcp import TcpTransport

_RATES_MBPS = (50, 100)
_TARGET = Target("ratio", low=0.99)
_IPERF_PORT = 5201
# From the second leaf on there is a single path, so both go over the same links.
_FABRIC = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1)


def goodput(*, quick: bool) -> list[Figure]:
    return [_at_rate(rate, pairs=2 if quick else 5, seconds=2 if quick else 4) for rate in _RATES_MBPS]


def _at_rate(rate_mbps: int, *, pairs: int, seconds: int) -> Figure:
    fabric = _FABRIC.build().with_links(rate_mbps=rate_mbps)

    def job() -> dict[str, Any]:
        prefer()
        with lab_up(fabric, policy="ecmp", mtu=9000, progress=Progress(quiet=True)) as lab:
            turns = [(_replayed_mbps(lab, rate_mbps, seconds), _iperf_mbps(lab, seconds)) for _ in range(pairs)]
        return {"ours": [a for a, _ in turns], "peer": [b for _, b in turns]}

    measured = inside(job, fabric.name)
    turns = Pairs(tuple(measured["ours"]), tuple(measured["peer"]))
    return turns.figure(f"goodput at {rate_mbps} Mbit/s", "Mbit/s", _TARGET, f"{seconds} s each, peer: iperf3")


def _ends(lab: Lab) -> tuple[tuple[str, str], tuple[str, str]]:
    """(host, address) of the sender and the receiver."""
    first, last = lab.fabric.hosts[0].name, lab.fabric.hosts[-1].name
    return (first, str(lab.fabric.scale_out_port(first).ip)), (last, str(lab.fabric.scale_out_port(last).ip))


def _replayed_mbps(lab: Lab, rate_mbps: float, seconds: int) -> float:
    """A schedule of one send, over a connection of its own, as iperf3 has; from the first byte out to the last in."""
    builder = ScheduleBuilder("sendrecv", "direct", n_ranks=2, n_chunks=1)
    builder.send(0, 1, 0, reduce=False)
    schedule = builder.build()
    count = int(rate_mbps * 1e6 / 8 * seconds / 4)
    endpoints = [Endpoint(r, host, ip, str(lab.net.netns_path(host))) for r, (host, ip) in enumerate(_ends(lab))]
    with TcpTransport(endpoints, schedule.connections, congestion_control=TCP_CONGESTION_CONTROLS[0]) as transport:
        buffers = [np.zeros(count, np.float32) for _ in endpoints]
        result = Replay(schedule, count, transport).run(buffers)
        for stream in transport.senders.values():
            # Ends with a reset: in TIME_WAIT it would keep its ports from the next connection.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return count * 32 / result.duration_ns * 1e3


def _iperf_mbps(lab: Lab, seconds: int) -> float:
    """What iperf3's receiver saw."""
    (sender, _), (receiver, ip) = _ends(lab)
    server = subprocess.Popen(
        [*_in(lab, receiver), "iperf3", "--server", "--one-off", "--forceflush", "--port", str(_IPERF_PORT)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _await_listening(server)
        client = ["iperf3", "--client", ip, "--port", str(_IPERF_PORT), "--time", str(seconds), "--json"]
        client += ["--congestion", TCP_CONGESTION_CONTROLS[0]]
        done = subprocess.run([*_in(lab, sender), *client], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"iperf3: {json.loads(done.stdout).get('error', done.stdout)}")
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 1e6
    finally:
        server.kill()
        server.communicate()


def _await_listening(server: "subprocess.Popen[str]") -> None:
    assert server.stdout is not None
    for line in server.stdout:
        if "listening" in line:
            return
    raise RuntimeError("iperf3's server did not start")


def _in(lab: Lab, host: str) -> list[str]:
    return ["nsenter", f"--net={Path(lab.net.netns_path(host))}"]
