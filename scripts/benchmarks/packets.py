"""RoCEv2 frames between two namespaces: our batches against Scapy's sendp, and sending alone against tcpreplay."""

import os
import re
import resource
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, Pairs, Target, figure
from benchmarks.machine import inside
from topologies import namespaces, netlink
from topologies.netlink_requests import End, set_link, veth
from traffic.rocev2.batch import Batch
from traffic.rocev2.frames import Frames
from traffic.rocev2.nic import Nic
from traffic.rocev2.opcodes import Opcode
from traffic.rocev2.packet import parse
from traffic.rocev2.queue_pair import QueuePair
from traffic.rocev2.templates import templates

_MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
_HOSTS = ("sender", "receiver")
_PAYLOAD_BYTES = 1400
_FRAME_BYTES = 1458
_SLOTS = 64
_AGAINST_SCAPY = Target("ratio", low=50)
_AGAINST_TCPREPLAY = Target("ratio", low=1.2)
_CPU = Target("ours", high=30)


def packets(*, quick: bool) -> list[Figure]:
    pairs, n = (1, 20_000) if quick else (5, 200_000)

    def job() -> dict[str, Any]:
        nics = _two_nics()
        both = [(_both_ways(*nics, n, anew=False)[0], _sendp(n // 100)) for _ in range(pairs)]
        anew = [_both_ways(*nics, n, anew=True) for _ in range(pairs)]
        nics[1].close()
        alone = [(_send_only(nics[0], n), _tcpreplay(n)) for _ in range(pairs)]
        return {"both": both, "alone": alone, "anew": anew}

    measured = inside(job, "two namespaces")
    both, alone = (Pairs(*map(tuple, zip(*measured[name], strict=True))) for name in ("both", "alone"))
    anew_s, cpu_s = (statistics.median(column) for column in zip(*measured["anew"], strict=True))
    note = f"{_FRAME_BYTES} bytes, prebuilt"
    crafted = (
        f"each frame written with PSN and ICRC, sent, received, checked: {anew_s:.0f} frames/s; without a transport"
    )
    return [
        both.figure("frames sent and received", "frames/s", _AGAINST_SCAPY, f"{note}; peer: sendp"),
        alone.figure("frames sent", "frames/s", _AGAINST_TCPREPLAY, f"{note}, nobody listens; peer: tcpreplay"),
        figure("CPU per GB of payload", cpu_s, "s/GB", _CPU, note=crafted),
    ]


def _two_nics() -> tuple[Nic, Nic]:
    """With one cable between them, unshaped."""
    namespaces.create(_HOSTS, lambda name: None)
    fds = [os.open(namespaces.path(name), os.O_RDONLY) for name in _HOSTS]
    ends = [End(f"{name}-0", mac, 1500, fd) for name, mac, fd in zip(_HOSTS, _MACS, fds, strict=True)]
    netlink.apply([veth(*ends)])

    def opened(intf: str) -> Nic:
        netlink.apply([set_link(netlink.index_of(intf), intf, up=True)])
        return Nic(intf, send_buffer_bytes=8 << 20)

    sender, receiver = namespaces.each([(name, f"{name}-0") for name in _HOSTS], opened)
    return sender, receiver


def _frames() -> Frames:
    return Frames(templates(), QueuePair(*_MACS, "198.18.0.1", "198.18.0.2", 17, 18, 0xC132))


def _both_ways(sender: Nic, receiver: Nic, n: int, *, anew: bool) -> tuple[float, float]:
    """By one thread: frames/s, and CPU seconds per GB. anew: each frame is written with PSN and ICRC, and checked."""
    frames, payload = _frames(), memoryview(bytes(_PAYLOAD_BYTES))
    out, come = Batch(_SLOTS, _FRAME_BYTES), Batch(_SLOTS, _FRAME_BYTES)

    def write(first_psn: int) -> None:
        for i, slot in enumerate(out.slots):
            out.set_length(i, frames.data(slot, Opcode.RDMA_WRITE_MIDDLE, first_psn + i, payload))

    write(0)
    got = 0
    cpu, began = _cpu_s(), time.perf_counter()
    for first in range(0, n, _SLOTS):
        if anew:
            write(first)
        out.send(sender.fileno(), 0, _SLOTS)
        frames_in = come.receive(receiver.fileno())
        got += sum(parse(frame) is not None for frame in frames_in) if anew else len(frames_in)
    wall = time.perf_counter() - began
    if got < n:
        raise RuntimeError(f"{n - got} of {n} frames did not arrive")
    return got / wall, (_cpu_s() - cpu) / (got * _PAYLOAD_BYTES / 1e9)


def _send_only(sender: Nic, n: int) -> float:
    frames, out = _frames(), Batch(_SLOTS, _FRAME_BYTES)
    for i, slot in enumerate(out.slots):
        out.set_length(i, frames.data(slot, Opcode.RDMA_WRITE_MIDDLE, i, memoryview(bytes(_PAYLOAD_BYTES))))
    sent, began = 0, time.perf_counter()
    while sent < n:
        sent += out.send(sender.fileno(), 0, _SLOTS)
    return sent / (time.perf_counter() - began)


def _sendp(n: int) -> float:
    """Scapy's own: the same list of frames, as Scapy's packets."""
    from scapy.all import conf, sendp
    from scapy.layers.l2 import Ether

    out = Batch(1, _FRAME_BYTES)
    length = _frames().data(out.slots[0], Opcode.RDMA_WRITE_MIDDLE, 0, memoryview(bytes(_PAYLOAD_BYTES)))
    packet = Ether(bytes(out.slots[0][:length]))

    def send(intf: str) -> float:
        conf.ifaces.reload()
        copies = [packet.copy() for _ in range(n)]
        began = time.perf_counter()
        sendp(copies, iface=intf, verbose=False)
        return n / (time.perf_counter() - began)

    return namespaces.each([(_HOSTS[0], f"{_HOSTS[0]}-0")], send)[0]


def _tcpreplay(n: int) -> float:
    frames, out = _frames(), Batch(1, _FRAME_BYTES)
    length = frames.data(out.slots[0], Opcode.RDMA_WRITE_MIDDLE, 0, memoryview(bytes(_PAYLOAD_BYTES)))
    record = struct.pack("=IIII", 0, 0, length, length) + out.slots[0][:length]
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + record * 1000)
        file.flush()
        command = ["nsenter", f"--net={namespaces.path(_HOSTS[0])}", "tcpreplay", "--topspeed", "--preload-pcap"]
        command += [f"--loop={n // 1000}", f"--intf1={_HOSTS[0]}-0", str(Path(file.name))]
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = re.search(r"Rated:.*?([\d.]+) pps", said.stdout)
    if found is None:
        raise RuntimeError(f"tcpreplay: {said.stdout[-200:]} {said.stderr[-300:]}")
    return float(found[1])


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
