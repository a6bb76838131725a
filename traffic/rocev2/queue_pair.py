"""One end of a reliable connection, as its packets show it, and which numbers the ends have."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traffic.schedule import Connection

UDP_PORT = 4791
# The first number that Linux's software RoCE gives to a user's queue pair: those below are for management.
_FIRST_QPN = 0x11
_MAX_QPN = (1 << 24) - 1
_N_QPNS = _MAX_QPN + 1 - _FIRST_QPN
# The range that Linux picks RoCEv2 source ports from: IB_ROCE_UDP_ENCAP_VALID_PORT_MIN and up.
FIRST_SOURCE_PORT = 0xC000


@dataclass(frozen=True, slots=True)
class QueuePair:
    """What is the same in every packet that it sends. ect: data packets say that they may be marked (ECT(0))."""

    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_qpn: int
    dst_qpn: int
    src_port: int
    dscp: int = 0
    ect: bool = True
    rkey: int = 0

    def __post_init__(self) -> None:
        for what, value, most in (
            ("source QP number", self.src_qpn, _MAX_QPN),
            ("destination QP number", self.dst_qpn, _MAX_QPN),
            ("UDP source port", self.src_port, 0xFFFF),
            ("DSCP", self.dscp, 63),
        ):
            if not 0 <= value <= most:
                raise ValueError(f"{what} {value}: allowed are 0 to {most}")


def linux_source_port(local_qpn: int, remote_qpn: int) -> int:
    """The UDP source port that Linux gives a connection without a flow label: the same in both directions.

    rdma_calc_flow_label and rdma_flow_label_to_udp_sport in include/rdma/ib_verbs.h: the product of the numbers folded to
    20 bits, those to 14. Few connections then share few ports, as they do in a real cluster.
    """
    label = local_qpn * remote_qpn
    label ^= label >> 20
    label ^= label >> 40
    label &= 0xFFFFF
    return FIRST_SOURCE_PORT | ((label & 0x3FFF) ^ (label >> 14))


def first_number(host: str, seed: int) -> int:
    """With which a host begins. Drawn from the seed and its name alone, so that it does not depend on the other hosts: a NIC
    has had other queue pairs before. Were it the same everywhere, many pairs of ranks would share one source port."""
    return _FIRST_QPN + random.Random(f"{seed}/{host}").randrange(_N_QPNS)


def queue_pair_numbers(
    host: Mapping[int, str], connections: Sequence[Connection], qps: int = 1, seed: int = 1
) -> list[tuple[int, int]]:
    """(source's, destination's) of each connection's `qps` queue pairs: each host numbers its own from its first number on, in
    the connections' order, those of a connection in a row, as NCCL makes them.

    host: of each rank.
    """
    following: dict[str, int] = {}

    def number(rank: int) -> int:
        name = host[rank]
        n = following.get(name) or first_number(name, seed)
        # Behind the last comes the first that is no management's.
        following[name] = n + 1 if n < _MAX_QPN else _FIRST_QPN
        return n

    return [(number(src), number(dst)) for src, dst, _ in connections for _ in range(qps)]
