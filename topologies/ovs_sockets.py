"""The packet sockets of Open vSwitch's userspace datapath, borrowed from the running switch: room for frames, and drops."""

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from topologies import syscalls
from topologies.errors import EmulationError, last_line

# linux/if_packet.h; asm-generic/socket.h
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
# The kernel doubles what it is asked for, in 31 bits: a frame costs it memory, up to twice its bytes.
_SEND_BUFFER_BYTES = range(64 << 20, 1 << 30)
_RECEIVE_BUFFER_BYTES = 8 << 20


def enlarge_socket_buffers(pid: int, bridge: str, port: int, n_ports: int, queues_bytes: int, run_dir: Path) -> None:
    """Give ovs-vswitchd's packet sockets room: one sends for all ports, and each port has one that receives.

    The send buffer counts every frame that waits in any shaped queue; at its default of 212 992 bytes about ten jumbo
    frames fill it, and then frames vanish without a counter. The receive buffers' default loses frames whenever the
    switch thread is starved for a moment. The send socket is born with the first output, so one frame goes out of
    `port` of `bridge` first, to nobody's address, which whoever gets it ignores. queues_bytes: that wait where all queues are
    full. Only for the userspace datapath.
    """
    send_bytes = send_buffer_bytes(queues_bytes)
    _send_one_frame(run_dir / f"{bridge}.mgmt", port)
    n_send = n_receive = 0
    for sends, sock in packet_sockets(pid):
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, send_bytes)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        n_send += sends
        n_receive += not sends
    if (n_send, n_receive) != (1, n_ports):
        raise EmulationError(
            f"ovs-vswitchd has {n_send} send and {n_receive} receive sockets where 1 and {n_ports} were expected: "
            "its buffers cannot be enlarged and it would lose frames silently"
        )


def send_buffer_bytes(queues_bytes: int) -> int:
    """What to ask for, for so many bytes in queues."""
    return min(max(queues_bytes, _SEND_BUFFER_BYTES.start), _SEND_BUFFER_BYTES.stop - 1)


def datapath_drops(pid: int) -> int:
    """Frames that the receive sockets dropped since the last call: reading PACKET_STATISTICS resets it."""
    drops = 0
    for sends, sock in packet_sockets(pid):
        if not sends:
            drops += struct.unpack("=II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
    return drops


def packet_sockets(pid: int) -> Iterator[tuple[bool, socket.socket]]:
    """Every packet socket of the process, and whether it is the one that sends: borrowed for the length of one step."""
    sends = _packet_sockets_that_send()
    pidfd = os.pidfd_open(pid)
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            name = _link_target(f"/proc/{pid}/fd/{fd}")
            if name in sends:
                with socket.socket(fileno=_borrow(pidfd, int(fd))) as sock:
                    yield sends[name], sock
    finally:
        os.close(pidfd)


def _packet_sockets_that_send() -> dict[str, bool]:
    """All of the namespace, by name ('socket:[4711]'). The one that only sends has protocol 0 and no interface."""
    sends = {}
    for line in Path("/proc/net/packet").read_text().splitlines()[1:]:
        _, _, _, protocol, interface, *_, inode = line.split()
        sends[f"socket:[{inode}]"] = (protocol, interface) == ("0000", "0")
    return sends


def _link_target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _borrow(pidfd: int, fd: int) -> int:
    try:
        return syscalls.pidfd_getfd(pidfd, fd)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise EmulationError(f"cannot reach ovs-vswitchd's sockets: {reason} (needs Linux 5.6)") from None


def _send_one_frame(management: Path, port: int) -> None:
    frame = "0200000000ff0200000000fe0800" + "00" * 46
    command = ["ovs-ofctl", "-O", "OpenFlow13", "-t", "10", "packet-out", f"unix:{management}"]
    command.append(f"in_port=local packet={frame} actions=output:{port}")
    sent = subprocess.run(command, capture_output=True, text=True, check=False)
    if sent.returncode:
        raise EmulationError(f"ovs-ofctl packet-out {management}: {last_line(sent.stderr)}")
