"""A host's interface, used as a NIC is: whole RoCEv2 frames out and in, past the kernel's own UDP and IP.

A packet socket, not a UDP one: the source port may change with each frame, the type of service too, and the ICRC covers an
IP header that the kernel would write. (1458-byte frames sent and received between two namespaces by one thread: 2.8 us
against 2.1 us of CPU each.) Frames pass the interface's queue, so they are shaped; `send_buffer_bytes` must stay below what
that queue holds, or it drops what the socket would have held back.

What comes in also reaches the kernel's UDP, which would answer "port unreachable": a socket on the port takes it, and its
filter drops all of it.
"""

import ctypes
import fcntl
import socket
import struct
from pathlib import Path

from traffic.errors import TransportError
from traffic.rocev2.next_hop import NextHop, next_hop
from traffic.rocev2.queue_pair import UDP_PORT

# asm-generic/socket.h, linux/if_packet.h, linux/if_ether.h
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_ATTACH_FILTER = 32, 33, 26
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_ETH_P_IP = 0x0800
_SIOCGIFMTU = 0x8921
_RECEIVE_BUFFER_BYTES = 8 << 20
# Classic BPF (linux/filter.h): code, where to jump if true and if not, operand.
_Instruction = tuple[int, int, int, int]
_LOAD_BYTE, _LOAD_HALF, _JUMP_EQUAL, _RETURN = 0x30, 0x28, 0x15, 0x06
_ALL_BYTES = 1 << 18
_ROCEV2: tuple[_Instruction, ...] = (
    (_LOAD_BYTE, 0, 0, 14),
    (_JUMP_EQUAL, 0, 5, 0x45),
    (_LOAD_BYTE, 0, 0, 23),
    (_JUMP_EQUAL, 0, 3, socket.IPPROTO_UDP),
    (_LOAD_HALF, 0, 0, 36),
    (_JUMP_EQUAL, 0, 1, UDP_PORT),
    (_RETURN, 0, 0, _ALL_BYTES),
    (_RETURN, 0, 0, 0),
)
_NOTHING: tuple[_Instruction, ...] = ((_RETURN, 0, 0, 0),)


class Nic:
    """Of the calling thread's namespace, in which it must be made; to be used from anywhere.

    Raises TransportError when the interface cannot be used so.
    """

    def __init__(self, intf: str, *, send_buffer_bytes: int) -> None:
        self.intf = intf
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, send_buffer_bytes)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
            # Before the sockets are bound: from then on frames come.
            _attach(self._socket, _ROCEV2)
            _attach(self._sink, _NOTHING)
            self._sink.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, intf.encode())
            self._sink.bind(("0.0.0.0", UDP_PORT))
            # For IPv4 only, such a socket sees no frame that goes out.
            self._socket.bind((intf, _ETH_P_IP))
        except OSError as error:
            self.close()
            raise TransportError(f"cannot send RoCEv2 from {intf}: {error.strerror}") from None
        self.mac: str = self._socket.getsockname()[4].hex(":")
        self.mtu_bytes = _mtu_bytes(self._socket, intf)

    def fileno(self) -> int:
        return self._socket.fileno()

    def limit_send_buffer(self, n_bytes: int) -> None:
        """Of what waits in the interface's queue; the kernel doubles the number, and counts about twice a frame's bytes."""
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, n_bytes)

    def dropped(self) -> int:
        """Frames that came while the receive buffer was full, since the last call: reading it resets it."""
        return int(struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1])

    def close(self) -> None:
        self._socket.close()
        self._sink.close()


def way_to(ip: str) -> NextHop:
    """From the calling thread's namespace."""
    # /proc/net is that of the process, whatever namespace the thread is in.
    tables = Path("/proc/thread-self/net")
    return next_hop(ip, (tables / "route").read_text(), (tables / "arp").read_text())


def _mtu_bytes(sock: socket.socket, intf: str) -> int:
    """struct ifreq: a name, then the number."""
    answer = fcntl.ioctl(sock, _SIOCGIFMTU, struct.pack("16si12x", intf.encode(), 0))
    return int(struct.unpack_from("i", answer, 16)[0])


def _attach(sock: socket.socket, program: tuple[_Instruction, ...]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))
