"""What a link does to frames besides carrying them: loss and congestion marks, as one small eBPF program per direction.

Delay and jitter are elsewhere (`topologies.wires`): a program can hold no frame. It runs on the egress of a link's end
(clsact), before the shaper, frame by frame:

    loss    the n-th frame is taken if the n-th output of SplitMix64 (Steele, Lea, Flood 2014) is below p x 2^64.
            The generator is started from the seed and the interface's name, so a run repeats its losses for the same
            frames in the same order, and directions are independent. (The kernel's own bpf_get_prandom_u32 has no seed.)
    marks   CE where a frame would wait longer than the threshold in a queue at the shaped rate. Only its virtual finish
            time is kept; it follows the real queue, which HTB hides, as far as clocks and timers agree (some ms).

A frame that is lost is reported as sent, as netem does it: a wire tells no sender. (With TC_ACT_SHOT a host's own TCP
would see a local error and send again without a loss.) It takes no time on the link either, because it never reaches
the shaper; 1 % of loss leaves 1 % more room.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple

from topologies.bpf import (
    R0,
    R1,
    R2,
    R3,
    R4,
    R6,
    R7,
    R8,
    R9,
    Instruction,
    add,
    call,
    exit_,
    fetch_add,
    jump_if_greater,
    jump_if_less,
    label,
    load,
    load_word,
    map_value,
    mov,
    mov_imm,
    mov_imm64,
    mul,
    shift_right,
    store,
    sub,
    xor,
)
from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.shaping import Shape, shaped_ports

# A program's memory, in 64-bit words: frames seen, lost and marked; when the phantom queue will be empty (ns).
_SEEN, _LOST, _MARKED, _FINISH = 0, 8, 16, 24
MEMORY_BYTES = 32
# linux/pkt_cls.h: go on as if there were no program; end here, and tell the sender that all is well.
_TC_ACT_UNSPEC, _TC_ACT_STOLEN = -1, 4
# linux/bpf.h, enum bpf_func_id; struct __sk_buff begins with the frame's length.
_KTIME_GET_NS, _SKB_PULL_DATA, _SKB_ECN_SET_CE, _SKB_LEN = 5, 39, 97, 0
# Frames longer than a page from a packet socket have the Ethernet header alone in reach; marks need IPv4's 20 bytes too.
_HEADERS = 14 + 20
# SplitMix64's constants.
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK_64 = 2**64 - 1
# Fractions of a nanosecond per byte: 2^20 keep a rate of 10 Tbit/s to 0.1 %, and 2^16 bytes at 1 kbit/s in 64 bits.
_FRACTION_BITS = 20


@dataclass(frozen=True, slots=True)
class Impairments:
    """Of every scale-out link, in both directions; times are emulated.

    loss: probability of a frame. jitter_us: by which a link's delay varies, up and down. ecn_threshold_us: the wait above
    which a frame is marked, None = no marks. seed: of all that is random. queue_frames: that the queue of any link holds,
    None = as `shaping.shape` has it. hold_us: how long what is sent to an optical switch may have to wait for a circuit, None =
    it does not wait.
    """

    loss: float = 0.0
    jitter_us: float = 0.0
    ecn_threshold_us: float | None = None
    seed: int = 1
    queue_frames: int | None = None
    hold_us: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= 1:
            raise TopologyError(f"loss {self.loss:g} is not a probability: use 0 to 1")
        if not 0 <= self.jitter_us < math.inf:
            raise TopologyError(f"jitter {self.jitter_us:g} us cannot be meant: use 0 or more")
        if self.ecn_threshold_us is not None and not self.ecn_threshold_us > 0:
            raise TopologyError(f"ECN threshold {self.ecn_threshold_us:g} us marks every frame: use more than 0")

    @property
    def at_egress(self) -> bool:
        """Some of it is done by a program."""
        return self.loss > 0 or self.ecn_threshold_us is not None


NO_IMPAIRMENTS = Impairments()


class EgressCounts(NamedTuple):
    """Of one direction of a link: frames that came to it, those it lost on purpose, those it marked."""

    seen: int = 0
    lost: int = 0
    marked: int = 0

    def since(self, before: "EgressCounts") -> "EgressCounts":
        return EgressCounts(*(now - then for now, then in zip(self, before, strict=True)))


UNTOUCHED = EgressCounts()


def impaired_intfs(fabric: Fabric) -> tuple[str, ...]:
    """Every shaped end of a scale-out link."""
    ports = (port.intf for port in shaped_ports(fabric))
    return tuple(intf for intf in ports if fabric.link_of(intf).kind != "scale-up")


def seed_of(seed: int, intf: str) -> int:
    """64 bits for one interface, whatever other interfaces there are."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{intf}".encode(), digest_size=8).digest(), "big")


def program(map_fd: int, memory: int, intf: str, shape: Shape, impairments: Impairments) -> list[Instruction]:
    """The program of one interface. memory: where its words stand in the map's value, in bytes."""
    threshold_us = impairments.ecn_threshold_us
    return [
        mov(R8, R1),
        map_value(R6, map_fd, memory),
        mov_imm(R7, 1),
        fetch_add(R6, _SEEN, R7),
        *_draw(R7, seed_of(impairments.seed, intf)),
        mov_imm64(R1, min(_MASK_64, int(impairments.loss * 2**64))),
        jump_if_less(R7, R1, "lose"),
        *(_mark(shape, round(threshold_us * 1e3)) if threshold_us is not None else ()),
        label("pass"),
        mov_imm(R0, _TC_ACT_UNSPEC),
        exit_(),
        label("lose"),
        mov_imm(R1, 1),
        fetch_add(R6, _LOST, R1),
        mov_imm(R0, _TC_ACT_STOLEN),
        exit_(),
    ]


def _draw(n: int, seed: int) -> list[Instruction]:
    """Register n = output n of SplitMix64, counted from 0. It needs no state but n: two cores may draw at once."""
    return [
        mov_imm64(R1, _GAMMA),
        mul(n, R1),
        mov_imm64(R1, (seed + _GAMMA) & _MASK_64),
        add(n, R1),
        *_xor_shifted(n, 30),
        mov_imm64(R1, _MIX_1),
        mul(n, R1),
        *_xor_shifted(n, 27),
        mov_imm64(R1, _MIX_2),
        mul(n, R1),
        *_xor_shifted(n, 31),
    ]


def _xor_shifted(register: int, bits: int) -> list[Instruction]:
    return [mov(R1, register), shift_right(R1, bits), xor(register, R1)]


def _mark(shape: Shape, threshold_ns: int) -> list[Instruction]:
    """Mark the frame if it would wait too long, and put it into the phantom queue.

    The queue drains as HTB does: after a pause it owes the burst. Two cores that send on one interface at once may lose
    one of their frames from it.
    """
    burst_ns = round(shape.burst_bytes * 1e9 / shape.rate_bytes_s)
    byte_ns = round(2**_FRACTION_BITS * 1e9 / shape.rate_bytes_s)
    return [
        call(_KTIME_GET_NS),
        mov(R9, R0),
        load(R7, R6, _FINISH),
        mov_imm64(R2, burst_ns),
        sub(R0, R2),
        jump_if_greater(R7, R0, "queued"),
        mov(R7, R0),
        label("queued"),
        load_word(R3, R8, _SKB_LEN),
        mov_imm64(R4, byte_ns),
        mul(R3, R4),
        shift_right(R3, _FRACTION_BITS),
        add(R3, R7),
        store(R6, _FINISH, R3),
        mov_imm64(R2, threshold_ns),
        add(R9, R2),
        jump_if_less(R7, R9, "pass"),
        mov(R1, R8),
        mov_imm(R2, _HEADERS),
        call(_SKB_PULL_DATA),
        mov(R1, R8),
        call(_SKB_ECN_SET_CE),
        fetch_add(R6, _MARKED, R0),
    ]
