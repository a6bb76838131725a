"""Which packets a rule is about. Text as `ovs-ofctl dump-flows` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network

from controller.flow import Packet
from topologies.errors import Refused


class RuleError(Refused):
    """A rule, or a set of them, that no switch should be sent."""


@lru_cache(maxsize=65536)
def ipv4_int(address: str) -> int:
    """'198.18.0.1' -> 0xc6120001."""
    return int(IPv4Address(address))


@lru_cache(maxsize=65536)
def _canonical(prefix: str) -> str:
    try:
        network = IPv4Network(prefix)
    except ValueError as error:
        raise RuleError(f"{prefix!r} is not an IPv4 address or prefix: {error}") from None
    return str(network.network_address) if network.prefixlen == 32 else str(network)


@lru_cache(maxsize=65536)
def value_and_mask(prefix: str) -> tuple[int, int]:
    """'198.18.0.0/29' -> (0xc6120000, 0xfffffff8)."""
    address, _, length = prefix.partition("/")
    return ipv4_int(address), (0xFFFFFFFF << (32 - int(length or 32))) & 0xFFFFFFFF


def is_in(address: str, prefix: str) -> bool:
    value, mask = value_and_mask(prefix)
    return ipv4_int(address) & mask == value


@lru_cache(maxsize=65536)
def mac_int(mac: str) -> int:
    """'02:00:00:00:00:fe' -> 0x0200000000fe."""
    return int(mac.replace(":", ""), 16)


def mac_text(value: int) -> str:
    """0x0200000000fe -> '02:00:00:00:00:fe'."""
    return value.to_bytes(6, "big").hex(":")


def _is_mac(mac: str, wanted: str) -> bool:
    value, slash, mask = wanted.partition("/")
    return mac_int(mac) & mac_int(mask) == mac_int(value) if slash else mac == value


@dataclass(frozen=True, slots=True)
class Match:
    """Which packets: a field that is None matches any. Addresses are IPv4 prefixes ('198.18.0.0/29', '198.18.0.1');
    `eth_dst` is a MAC, or one with a mask ('02:00:00:00:00:03/02:00:00:00:00:0f').

    `l4_src` and `l4_dst` are TCP, UDP or SCTP ports and need `ip_proto`, as OpenFlow's prerequisites say. `reg0` and
    `reg1` are what an earlier table has loaded.
    """

    in_port: int | None = None
    ipv4_src: str | None = None
    ipv4_dst: str | None = None
    ip_proto: int | None = None
    l4_src: int | None = None
    l4_dst: int | None = None
    eth_dst: str | None = None
    reg0: int | None = None
    reg1: int | None = None

    def __post_init__(self) -> None:
        for name in ("ipv4_src", "ipv4_dst"):
            prefix = getattr(self, name)
            if prefix is not None:
                object.__setattr__(self, name, _canonical(prefix))
        if self.ip_proto is None and (self.l4_src is not None or self.l4_dst is not None):
            raise RuleError(f"match {self}: a layer 4 port needs ip_proto")

    @property
    def is_ip(self) -> bool:
        return not (self.ipv4_src is None and self.ipv4_dst is None and self.ip_proto is None)

    @property
    def is_by_destination(self) -> bool:
        """Whether `ipv4_dst` is all that it asks."""
        others = (
            self.in_port,
            self.ipv4_src,
            self.ip_proto,
            self.l4_src,
            self.l4_dst,
            self.eth_dst,
            self.reg0,
            self.reg1,
        )
        return others == (None,) * len(others)

    def covers(self, packet: Packet) -> bool:
        flow = packet.flow
        # Prefixes last: they cost the most to compare.
        return (
            (self.in_port is None or self.in_port == packet.in_port)
            and (self.eth_dst is None or _is_mac(packet.eth_dst, self.eth_dst))
            and (self.reg0 is None or self.reg0 == packet.registers[0])
            and (self.reg1 is None or self.reg1 == packet.registers[1])
            and (self.ip_proto is None or self.ip_proto == flow.proto)
            and (self.l4_src is None or self.l4_src == flow.src_port)
            and (self.l4_dst is None or self.l4_dst == flow.dst_port)
            and (self.ipv4_dst is None or is_in(flow.dst_ip, self.ipv4_dst))
            and (self.ipv4_src is None or is_in(flow.src_ip, self.ipv4_src))
        )

    def __str__(self) -> str:
        values = (
            ("reg0", self.reg0),
            ("reg1", self.reg1),
            ("in_port", self.in_port),
            ("dl_dst", self.eth_dst),
            ("nw_src", self.ipv4_src),
            ("nw_dst", self.ipv4_dst),
            ("nw_proto", self.ip_proto),
            ("tp_src", self.l4_src),
            ("tp_dst", self.l4_dst),
        )
        fields = [f"{name}={value}" for name, value in values if value is not None]
        return ",".join(["ip", *fields] if self.is_ip else fields)
