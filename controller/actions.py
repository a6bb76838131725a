"""What is done to the packets that a rule matches. Text as `ovs-ofctl dump-flows` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controller.flow import N_REGISTERS
from controller.match import RuleError

_MAX_BASIS = 0xFFFF
# All of a MAC but its first byte, which says unicast and locally administered.
LABEL_BITS = 40


@dataclass(frozen=True, slots=True)
class SetField:
    field: Literal["eth_dst", "eth_src"]
    value: str

    def __str__(self) -> str:
        return f"set_field:{self.value}->{self.field}"


@dataclass(frozen=True, slots=True)
class DecTtl:
    """One hop less to live: a packet caught between two states of the fabric dies instead of circling."""

    def __str__(self) -> str:
        return "dec_ttl"


@dataclass(frozen=True, slots=True)
class Multipath:
    """Open vSwitch's `multipath`: load a register with a hash of the 5-tuple modulo `n`, for a later table to match."""

    basis: int
    n: int
    register: int = 0

    def __post_init__(self) -> None:
        _check_basis("multipath", self.basis)
        if not 1 <= self.n <= 0x10000:
            raise RuleError(f"multipath over {self.n} values: 1..65536 are possible")
        if not 0 <= self.register < N_REGISTERS:
            raise RuleError(f"multipath into register {self.register}: choose from 0..{N_REGISTERS - 1}")

    def __str__(self) -> str:
        return f"multipath(symmetric_l3l4+udp,{self.basis},modulo_n,{self.n},0,NXM_NX_REG{self.register}[])"


@dataclass(frozen=True, slots=True)
class ShiftLabel:
    """Open vSwitch's `move`: the lower `LABEL_BITS` of the destination MAC, shifted right by `n_bits`. The highest `n_bits`
    of them stay what they were."""

    n_bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.n_bits < LABEL_BITS:
            raise RuleError(f"a label shifted by {self.n_bits} bits: 1..{LABEL_BITS - 1} are possible")

    def __str__(self) -> str:
        last = LABEL_BITS - 1
        return f"move:NXM_OF_ETH_DST[{self.n_bits}..{last}]->NXM_OF_ETH_DST[0..{last - self.n_bits}]"


@dataclass(frozen=True, slots=True)
class ForgetInPort:
    """Open vSwitch's `load` of 0 into the ingress port: the packet may leave by the port that it came in by, which a switch
    otherwise refuses without a word. Right where the two directions of a cable lead to different switches."""

    def __str__(self) -> str:
        return "load:0->NXM_OF_IN_PORT[]"


@dataclass(frozen=True, slots=True)
class Output:
    port: int

    def __str__(self) -> str:
        return f"output:{self.port}"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Open vSwitch's `bundle`: one of `ports` by highest random weight over a hash of the 5-tuple, dead ports skipped.

    The hash sees a port's *place* in the list, not its number. A place that is None is vacant: it keeps the later
    ones where they are, so that a port's going and coming moves that port's flows and no others.
    """

    basis: int
    ports: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if not any(self.ports):
            raise RuleError("a bundle without ports drops every packet")
        _check_basis("bundle", self.basis)

    @property
    def live_ports(self) -> tuple[int, ...]:
        return tuple(p for p in self.ports if p is not None)

    def __str__(self) -> str:
        members = ",".join("vacant" if p is None else str(p) for p in self.ports)
        return f"bundle(symmetric_l3l4+udp,{self.basis},hrw,ofport,members:{members})"


@dataclass(frozen=True, slots=True)
class Group:
    group_id: int

    def __str__(self) -> str:
        return f"group:{self.group_id}"


@dataclass(frozen=True, slots=True)
class GotoTable:
    """Go on in a later table. OpenFlow calls it an instruction; like an output it ends what a rule does."""

    table: int

    def __str__(self) -> str:
        return f"goto_table:{self.table}"


Forward = Output | Bundle | Group
# What ends a rule.
End = Forward | GotoTable
Action = SetField | DecTtl | Multipath | ShiftLabel | ForgetInPort | End


def _check_basis(action: str, basis: int) -> None:
    # The wire format has 16 bits.
    if not 0 <= basis <= _MAX_BASIS:
        raise RuleError(f"{action} basis {basis} is outside 0..{_MAX_BASIS}")
