"""A machine for eBPF programs, after RFC 9669, as far as ours use it: what a program does is tested without a kernel."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_MASK = 2**64 - 1
# Where the regions of memory begin; a program only ever gets addresses from the machine. The stack ends where R10 points.
CONTEXT, MEMORY, STACK = 0x1000_0000, 0x2000_0000, 0x3000_0000
STACK_BYTES = 512
_ARITHMETIC: dict[int, Callable[[int, int], int]] = {
    0x00: lambda a, b: a + b,
    0x10: lambda a, b: a - b,
    0x20: lambda a, b: a * b,
    0x70: lambda a, b: a >> b,
    0x90: lambda a, b: a % b,
    0xA0: lambda a, b: a ^ b,
    0xB0: lambda _, b: b,
}
_JUMPS: dict[int, Callable[[int, int], bool]] = {
    0x20: lambda a, b: a > b,
    0x50: lambda a, b: a != b,
    0xA0: lambda a, b: a < b,
}
_WIDTHS = {0x61: 4, 0x69: 2, 0x71: 1, 0x79: 8, 0x6B: 2, 0x7B: 8}


@dataclass
class Machine:
    """code: assembled; context: what R1 points to; memory: the value of the map; helpers: number -> (R1 ... R5) -> R0."""

    code: bytes
    context: bytearray
    memory: bytearray
    helpers: Mapping[int, Callable[..., int]] = field(default_factory=dict)
    stack: bytearray = field(default_factory=lambda: bytearray(STACK_BYTES))

    def run(self) -> int:
        """R0 at the end, signed 32 bits as the kernel reads a result."""
        words = [struct.unpack_from("<BBhi", self.code, at) for at in range(0, len(self.code), 8)]
        r = [0] * 11
        r[1], r[10] = CONTEXT, STACK + STACK_BYTES
        at = 0
        while True:
            opcode, registers, offset, imm = words[at]
            dst, src = registers & 0xF, registers >> 4
            at += 1
            kind = opcode & 0x07
            if opcode == 0x95:
                return int(struct.unpack("<i", struct.pack("<I", r[0] & 0xFFFFFFFF))[0])
            if opcode == 0x18:
                high = words[at][3]
                at += 1
                r[dst] = MEMORY + high if src == 2 else (high & 0xFFFFFFFF) << 32 | imm & 0xFFFFFFFF
            elif opcode == 0x85:
                r[0] = self.helpers[imm](*r[1:6]) & _MASK
                r[1:6] = [0xDEAD] * 5
            elif kind == 7:
                r[dst] = _ARITHMETIC[opcode & 0xF0](r[dst], r[src] if opcode & 8 else imm) & _MASK
            elif opcode == 0xDC:
                assert imm == 16, f"{imm} bits"
                r[dst] = int.from_bytes((r[dst] & 0xFFFF).to_bytes(2, "little"), "big")
            elif kind == 5:
                at += offset if _JUMPS[opcode & 0xF0](r[dst], (r[src] if opcode & 8 else imm) & _MASK) else 0
            elif kind == 1:
                r[dst] = int.from_bytes(self.read(r[src] + offset, _WIDTHS[opcode]), "little")
            elif kind == 3 and opcode in _WIDTHS:
                self._store(r[dst] + offset, r[src], _WIDTHS[opcode])
            else:
                assert (opcode, imm) == (0xDB, 1), f"unknown instruction {opcode:#x}"
                old = int.from_bytes(self.read(r[dst] + offset, 8), "little")
                self._store(r[dst] + offset, old + r[src], 8)
                r[src] = old

    def _region(self, address: int) -> tuple[bytearray, int]:
        if address >= STACK:
            return self.stack, address - STACK
        return (self.memory, address - MEMORY) if address >= MEMORY else (self.context, address - CONTEXT)

    def read(self, address: int, n: int) -> bytes:
        region, at = self._region(address)
        assert 0 <= at <= len(region) - n
        return bytes(region[at : at + n])

    def write(self, address: int, data: bytes) -> None:
        region, at = self._region(address)
        assert 0 <= at <= len(region) - len(data)
        region[at : at + len(data)] = data

    def _store(self, address: int, value: int, n: int) -> None:
        self.write(address, (value & _MASK).to_bytes(8, "little")[:n])
