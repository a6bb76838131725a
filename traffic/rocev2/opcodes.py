"""Operations of a reliable connection and how a message is cut into packets (InfiniBand Architecture vol. 1, 9.2 and 9.4)."""

from dataclasses import dataclass
from enum import IntEnum

from traffic.errors import TrafficError

# What an InfiniBand path MTU can be: bytes of payload in a packet (ibv_mtu).
PATH_MTUS = (256, 512, 1024, 2048, 4096)


class Opcode(IntEnum):
    """The first byte of a Base Transport Header."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_ONLY = 0x04
    RDMA_WRITE_FIRST = 0x06
    RDMA_WRITE_MIDDLE = 0x07
    RDMA_WRITE_LAST = 0x08
    RDMA_WRITE_ONLY = 0x0A
    ACKNOWLEDGE = 0x11
    CNP = 0x81


@dataclass(frozen=True, slots=True)
class Verb:
    """The four opcodes of a kind of message."""

    first: Opcode
    middle: Opcode
    last: Opcode
    only: Opcode

    def opcode(self, index: int, n_packets: int) -> Opcode:
        """Of packet `index` of a message."""
        if n_packets == 1:
            return self.only
        if index == 0:
            return self.first
        return self.last if index == n_packets - 1 else self.middle


SEND = Verb(Opcode.SEND_FIRST, Opcode.SEND_MIDDLE, Opcode.SEND_LAST, Opcode.SEND_ONLY)
RDMA_WRITE = Verb(Opcode.RDMA_WRITE_FIRST, Opcode.RDMA_WRITE_MIDDLE, Opcode.RDMA_WRITE_LAST, Opcode.RDMA_WRITE_ONLY)
DATA = frozenset(opcode for verb in (SEND, RDMA_WRITE) for opcode in (verb.first, verb.middle, verb.last, verb.only))
# The last packet of a message.
ENDS = frozenset(opcode for verb in (SEND, RDMA_WRITE) for opcode in (verb.last, verb.only))
# Those that carry a RETH: where the message goes and how long it is.
WITH_RETH = frozenset((Opcode.RDMA_WRITE_FIRST, Opcode.RDMA_WRITE_ONLY))


def require_path_mtu(mtu_bytes: int) -> None:
    """Raises TrafficError for what is no InfiniBand path MTU."""
    if mtu_bytes not in PATH_MTUS:
        raise TrafficError(f"path MTU {mtu_bytes}: use one of {', '.join(map(str, PATH_MTUS))}")


def n_packets(n_bytes: int, mtu_bytes: int) -> int:
    """A message's packets, all full but the last. A message without a byte is one packet."""
    return max(1, -(-n_bytes // mtu_bytes))
