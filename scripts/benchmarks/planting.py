"""Plants one fault in a running lab: a process of its own, entered into the sandbox from outside, which knows no product.

nsenter -t LAB -n -p -m python planting.py KIND ELEMENT...        by tc, ip, iptables, ovs-ofctl, ovs-vsctl and signals
"""

import ctypes
import os
import platform
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

# Of frames, that a lossy link takes.
_LOSS = 0.05
_STOP_S, _GO_S, _FOR_S = 0.3, 0.3, 30.0
_SHOT, _STOLEN, _UNSPEC = 2, 4, -1


def unshaped(intf: str) -> None:
    _in(intf, f"tc qdisc del dev {intf} root")


def half_rate(intf: str, rate_mbps: str) -> None:
    half = float(rate_mbps) / 2
    burst = "burst 9064 cburst 9064 quantum 9014"
    _in(intf, f"tc class change dev {intf} parent 5: classid 5:1 htb rate {half}mbit {burst}")


def lossy_filter(intf: str, silent: str) -> None:
    """An eBPF filter at egress that takes frames: with or without a drop that the kernel counts."""
    path = f"/sys/fs/bpf/planted-{intf}"
    sh("mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf")
    _pin(_program(_LOSS, _STOLEN if silent == "silent" else _SHOT), path)
    sh(f"tc qdisc add dev {intf} clsact && tc filter add dev {intf} egress bpf da object-pinned {path}")


def lossy_host(host: str) -> None:
    rule = f"-m statistic --mode random --probability {_LOSS} -j DROP"
    sh(f"ip netns exec {host} iptables -A INPUT {rule}")


def crossed(a: str, far_a: str, b: str, far_b: str, rate_mbps: str) -> None:
    """The cables of a and b anew, each to the other's far end; shaped as they were, so that only the wiring is wrong."""
    sh(f"ip link del {a}; ip link del {b}")
    sh(f"ip link add {a} type veth peer name {far_b}; ip link add {b} type veth peer name {far_a}")
    for intf in (a, far_a, b, far_b):
        sh(f"ip link set {intf} mtu 9000 up")
        sh(f"ethtool -K {intf} tx off tso off gso off > /dev/null 2>&1 || true")
    # Open vSwitch takes the new ones up by their names, which wipes what was shaped before.
    time.sleep(0.5)
    for intf in (a, far_a, b, far_b):
        _shape(intf, rate_mbps)


def replugged(switch: str, a: str, number_a: str, b: str, number_b: str, rate_mbps: str) -> None:
    """Two cables of a switch in each other's port."""
    sh(
        f"ovs-vsctl del-port {switch} {a} -- del-port {switch} {b} "
        f"-- add-port {switch} {a} -- set Interface {a} ofport_request={number_b} mtu_request=9000 "
        f"-- add-port {switch} {b} -- set Interface {b} ofport_request={number_a} mtu_request=9000"
    )
    for intf in (a, b):
        _shape(intf, rate_mbps)


def dark_rules(ocs: str, source: str) -> None:
    sh(f"ovs-ofctl -O OpenFlow13 del-flows {ocs} in_port={source}")


def hog() -> None:
    """Spins until it is ended, as important as any process; who it is stands on its first line."""
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    print(os.getpid(), flush=True)
    while True:
        pass


def stopped(text: str) -> None:
    """The process whose environment has the text does not run half of the time."""
    (pid,) = [p for p in map(int, filter(str.isdecimal, os.listdir("/proc"))) if text in _environment(p)]
    with suppress(ProcessLookupError):
        end = time.monotonic() + _FOR_S
        while time.monotonic() < end:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(_STOP_S)
            os.kill(pid, signal.SIGCONT)
            time.sleep(_GO_S)


def _environment(pid: int) -> list[str]:
    with suppress(OSError), open(f"/proc/{pid}/environ") as file:
        return file.read().split("\0")
    return []


def _in(intf: str, command: str) -> None:
    host, is_host = intf.partition("-")[0], intf.startswith("h")
    sh(f"ip netns exec {host} {command}" if is_host else command)


def _shape(intf: str, rate_mbps: str) -> None:
    burst = "burst 9064 cburst 9064 quantum 9014"
    sh(f"tc qdisc replace dev {intf} root handle 5: htb default 1")
    sh(f"tc class add dev {intf} parent 5: classid 5:1 htb rate {rate_mbps}mbit {burst}")
    sh(f"tc qdisc add dev {intf} parent 5:1 handle 50: bfifo limit {256 * 9014}")


def sh(command: str) -> None:
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise SystemExit(f"planting.py: {command}: {done.stderr.strip()}")


# -- a filter, instruction by instruction (linux/bpf.h) -------------------------------------------------------------


def _program(probability: float, verdict: int) -> bytes:
    """r0 = get_prandom_u32(); r0 > p x 2^32: unspec; else the verdict."""
    most = int(probability * 2**32)
    return b"".join(
        struct.pack("=BBhi", *instruction)
        for instruction in (
            (0x85, 0, 0, 7),
            (0xB4, 1, 0, most),
            (0x2D, 0x10, 2, 0),
            (0xB7, 0, 0, verdict),
            (0x95, 0, 0, 0),
            (0xB7, 0, 0, _UNSPEC),
            (0x95, 0, 0, 0),
        )
    )


def _pin(code: bytes, path: str) -> None:
    instructions, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    where = ctypes.addressof(instructions), ctypes.addressof(licence)
    fd = _bpf(5, struct.pack("=IIQQIIQ", 3, len(code) // 8, *where, 0, 0, 0))
    name = ctypes.create_string_buffer(path.encode())
    _bpf(6, struct.pack("=QII", ctypes.addressof(name), fd, 0))


def _bpf(command: int, attributes: bytes) -> int:
    number = {"x86_64": 321}.get(platform.machine(), 280)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.syscall(number, command, buffer, len(attributes)))
    if fd < 0:
        raise SystemExit(f"planting.py: bpf({command}): {os.strerror(ctypes.get_errno())}")
    return fd


PLANTERS: dict[str, Callable[..., None]] = {
    planter.__name__: planter
    for planter in (unshaped, half_rate, lossy_filter, lossy_host, crossed, replugged, dark_rules, hog, stopped)
}


def main(argv: Sequence[str]) -> None:
    PLANTERS[argv[0]](*argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
