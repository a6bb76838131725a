"""A flow: the five values by which switches tell packets apart. A packet: the flow, and what a switch adds to it."""

from dataclasses import dataclass

ICMP, TCP, UDP, SCTP = 1, 6, 17, 132
# Registers that rules may load and match. Open vSwitch has sixteen; they are 0 when a packet enters a switch.
N_REGISTERS = 2


@dataclass(frozen=True, slots=True)
class Flow:
    """The 5-tuple. `proto` is IANA's protocol number; ports are 0 where the protocol has none."""

    src_ip: str
    dst_ip: str
    proto: int = UDP
    src_port: int = 0
    dst_port: int = 0

    def __str__(self) -> str:
        return f"{self.src_ip}:{self.src_port}->{self.dst_ip}:{self.dst_port}/{self.proto}"


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of the flow inside a switch: the port it came in by, its present destination MAC, the registers."""

    flow: Flow
    in_port: int
    eth_dst: str
    registers: tuple[int, ...] = (0,) * N_REGISTERS
