"""The assembler: encodings as RFC 9669 prints them and as the kernel's own macros (linux/filter.h) give them."""

import pytest

from topologies.bpf import (
    R0,
    R1,
    R2,
    R6,
    R7,
    R10,
    Instruction,
    add,
    add_imm,
    assemble,
    big_endian_16,
    call,
    exit_,
    fetch_add,
    jump_if_greater,
    jump_if_less,
    jump_if_not,
    label,
    load,
    load_byte,
    load_half,
    load_word,
    map_value,
    modulo,
    mov,
    mov_imm,
    mov_imm64,
    mul,
    shift_right,
    store,
    store_half,
    sub,
    xor,
)


@pytest.mark.parametrize(
    ("instruction", "encoding"),
    [
        # RFC 9669 section 3.1: opcode, source and destination register, offset, immediate.
        (mov(R6, R1), "bf 16 0000 00000000"),  # BPF_MOV64_REG
        (mov_imm(R0, -1), "b7 00 0000 ffffffff"),  # BPF_MOV64_IMM
        (add(R1, R2), "0f 21 0000 00000000"),
        (add_imm(R1, -28), "07 01 0000 e4ffffff"),
        (sub(R1, R2), "1f 21 0000 00000000"),
        (mul(R7, R1), "2f 17 0000 00000000"),
        (xor(R7, R1), "af 17 0000 00000000"),
        (shift_right(R7, 31), "77 07 0000 1f000000"),
        (modulo(R1, 64), "97 01 0000 40000000"),
        (big_endian_16(R7), "dc 07 0000 10000000"),  # BPF_ENDIAN(BPF_TO_BE, 16)
        (load_byte(R1, R10, -28), "71 a1 e4ff 00000000"),  # BPF_LDX_MEM(BPF_B)
        (load_half(R1, R10, -22), "69 a1 eaff 00000000"),  # BPF_LDX_MEM(BPF_H)
        (store_half(R10, -30, R1), "6b 1a e2ff 00000000"),  # BPF_STX_MEM(BPF_H)
        (load(R1, R6, 24), "79 61 1800 00000000"),  # BPF_LDX_MEM(BPF_DW)
        (load_word(R0, R1, 0), "61 10 0000 00000000"),
        (store(R6, 24, R1), "7b 16 1800 00000000"),
        (fetch_add(R6, 8, R7), "db 76 0800 01000000"),  # BPF_ATOMIC | BPF_DW, BPF_ADD | BPF_FETCH
        (mov_imm64(R1, 0x0123456789ABCDEF), "18 01 0000 efcdab89 00 00 0000 67452301"),
        (map_value(R6, 5, 64), "18 26 0000 05000000 00 00 0000 40000000"),  # BPF_PSEUDO_MAP_VALUE = 2
        (call(5), "85 00 0000 05000000"),
        (exit_(), "95 00 0000 00000000"),
    ],
)
def test_encodings(instruction: Instruction, encoding: str) -> None:
    assert assemble([instruction]) == bytes.fromhex(encoding)


def test_a_jump_counts_words_from_the_next_instruction() -> None:
    """A 64-bit immediate is two of them; a label is none."""
    program = [jump_if_less(R0, R1, "end"), mov_imm64(R0, 1), label("end"), exit_(), jump_if_greater(R0, R1, "end")]
    code = assemble(program)
    assert code[:8] == bytes.fromhex("ad 10 0200 00000000")
    assert code[-8:] == bytes.fromhex("2d 10 feff 00000000")
    assert assemble([jump_if_not(R1, 6, "end"), label("end")]) == bytes.fromhex(
        "55 01 0000 06000000"
    )  # BPF_JMP_IMM(BPF_JNE)


def test_a_label_that_is_not_there() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        assemble([jump_if_less(R0, R1, "nowhere"), exit_()])
