"""eBPF programs as data: one function for each instruction that is needed here, and a two-pass assembler.

A program of forty instructions does not repay a C compiler and the kernel's headers on every machine; named like the
instruction set's own (RFC 9669) they read line by line beside the C that they stand for. The kernel's verifier proves of
each program, when it is loaded, that it ends and touches only what it may.

    assemble([mov_imm(R0, 1), jump_if_less(R0, R1, "end"), mov_imm(R0, 2), label("end"), exit_()])

Registers: R0 holds results, R1 to R5 arguments (a call destroys them), R6 to R9 survive calls, R1 is the context at first,
R10 points behind the stack.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = range(11)

# RFC 9669, sections 3 to 5: the class is in the low three bits of an opcode.
_LDX_WORD, _LDX_HALF, _LDX_BYTE, _LDX_DOUBLE = 0x61, 0x69, 0x71, 0x79
_STX_HALF, _STX_DOUBLE, _STX_ATOMIC_DOUBLE = 0x6B, 0x7B, 0xDB
_ALU64_IMM, _ALU64_REG, _JUMP_IMM, _JUMP_REG, _TO_BIG_ENDIAN = 0x07, 0x0F, 0x05, 0x0D, 0xDC
_ADD, _SUB, _MUL, _RSH, _MOD, _XOR, _MOV = 0x00, 0x10, 0x20, 0x70, 0x90, 0xA0, 0xB0
_JGT, _JNE, _JLT, _CALL, _EXIT, _LD_IMM64 = 0x20, 0x50, 0xA0, 0x85, 0x95, 0x18
_FETCH_ADD = 0x01
# The source register of a 64-bit immediate says what it is: here an address inside a map's only value.
_MAP_VALUE = 2
_WORD = struct.Struct("<BBhI")


class Instruction(NamedTuple):
    """offset and imm as the opcode means them; to: the label that a jump's offset is computed from. A label is no opcode."""

    opcode: int | None
    dst: int = 0
    src: int = 0
    offset: int = 0
    imm: int = 0
    to: str = ""

    @property
    def words(self) -> int:
        """The 8-byte words that it takes."""
        return 0 if self.opcode is None else 2 if self.opcode == _LD_IMM64 else 1


def label(name: str) -> Instruction:
    return Instruction(None, to=name)


def mov(dst: int, src: int) -> Instruction:
    return Instruction(_ALU64_REG | _MOV, dst, src)


def mov_imm(dst: int, imm: int) -> Instruction:
    """imm: 32 bits, sign-extended."""
    return Instruction(_ALU64_IMM | _MOV, dst, imm=imm)


def mov_imm64(dst: int, imm: int) -> Instruction:
    return Instruction(_LD_IMM64, dst, imm=imm)


def map_value(dst: int, map_fd: int, offset: int) -> Instruction:
    """dst = address of byte `offset` of the only value of an array map."""
    return Instruction(_LD_IMM64, dst, _MAP_VALUE, imm=offset << 32 | map_fd)


def add(dst: int, src: int) -> Instruction:
    return Instruction(_ALU64_REG | _ADD, dst, src)


def add_imm(dst: int, imm: int) -> Instruction:
    """imm: 32 bits, sign-extended."""
    return Instruction(_ALU64_IMM | _ADD, dst, imm=imm)


def sub(dst: int, src: int) -> Instruction:
    return Instruction(_ALU64_REG | _SUB, dst, src)


def mul(dst: int, src: int) -> Instruction:
    return Instruction(_ALU64_REG | _MUL, dst, src)


def xor(dst: int, src: int) -> Instruction:
    return Instruction(_ALU64_REG | _XOR, dst, src)


def shift_right(dst: int, bits: int) -> Instruction:
    return Instruction(_ALU64_IMM | _RSH, dst, imm=bits)


def modulo(dst: int, imm: int) -> Instruction:
    """Unsigned."""
    return Instruction(_ALU64_IMM | _MOD, dst, imm=imm)


def big_endian_16(dst: int) -> Instruction:
    """dst = its low 16 bits, between the machine's byte order and the network's; the others are cleared."""
    return Instruction(_TO_BIG_ENDIAN, dst, imm=16)


def load_byte(dst: int, src: int, offset: int) -> Instruction:
    """dst = the 8 bits at src + offset."""
    return Instruction(_LDX_BYTE, dst, src, offset)


def load_half(dst: int, src: int, offset: int) -> Instruction:
    """dst = the 16 bits at src + offset."""
    return Instruction(_LDX_HALF, dst, src, offset)


def load_word(dst: int, src: int, offset: int) -> Instruction:
    """dst = the 32 bits at src + offset."""
    return Instruction(_LDX_WORD, dst, src, offset)


def load(dst: int, src: int, offset: int) -> Instruction:
    """dst = the 64 bits at src + offset."""
    return Instruction(_LDX_DOUBLE, dst, src, offset)


def store_half(dst: int, offset: int, src: int) -> Instruction:
    """The 16 bits at dst + offset = src."""
    return Instruction(_STX_HALF, dst, src, offset)


def store(dst: int, offset: int, src: int) -> Instruction:
    """The 64 bits at dst + offset = src."""
    return Instruction(_STX_DOUBLE, dst, src, offset)


def fetch_add(dst: int, offset: int, src: int) -> Instruction:
    """Add src to the 64 bits at dst + offset, atomically; src = what stood there before."""
    return Instruction(_STX_ATOMIC_DOUBLE, dst, src, offset, _FETCH_ADD)


def jump_if_less(dst: int, src: int, to: str) -> Instruction:
    """Unsigned."""
    return Instruction(_JUMP_REG | _JLT, dst, src, to=to)


def jump_if_greater(dst: int, src: int, to: str) -> Instruction:
    """Unsigned."""
    return Instruction(_JUMP_REG | _JGT, dst, src, to=to)


def jump_if_not(dst: int, imm: int, to: str) -> Instruction:
    """If dst is another number than imm: 32 bits, sign-extended."""
    return Instruction(_JUMP_IMM | _JNE, dst, imm=imm, to=to)


def call(helper: int) -> Instruction:
    """R0 = helper(R1, ..., R5). Its number is bpf_func_id's in linux/bpf.h."""
    return Instruction(_CALL, imm=helper)


def exit_() -> Instruction:
    """Return R0."""
    return Instruction(_EXIT)


def assemble(program: Sequence[Instruction]) -> bytes:
    """The program as the kernel takes it. A jump to a label that is not there is a KeyError."""
    places: dict[str, int] = {}
    at = 0
    for instruction in program:
        if instruction.opcode is None:
            places[instruction.to] = at
        at += instruction.words
    return b"".join(_encode(program, places))


def _encode(program: Sequence[Instruction], places: dict[str, int]) -> Iterator[bytes]:
    at = 0
    for i in program:
        at += i.words
        if i.opcode is not None:
            # A jump counts words from the instruction after it.
            offset = places[i.to] - at if i.to else i.offset
            yield _WORD.pack(i.opcode, i.src << 4 | i.dst, offset, i.imm & 0xFFFFFFFF)
        if i.words == 2:
            yield _WORD.pack(0, 0, 0, i.imm >> 32 & 0xFFFFFFFF)
