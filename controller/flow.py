"""A flow: the five values by which switches tell packets apart."""

from dataclasses import dataclass

ICMP, TCP, UDP, SCTP = 1, 6, 17, 132


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
