"""bpf(2): programs and their memory in the kernel. What is made lives as long as an interface or this process holds it."""

import ctypes
import os
import platform
import struct

from topologies.errors import EmulationError

# asm/unistd.h; linux/bpf.h
_SYS_BPF = {"x86_64": 321}.get(platform.machine(), 280)
_MAP_CREATE, _PROG_LOAD = 0, 5
_MAP_TYPE_ARRAY, _MMAPABLE = 2, 1 << 10
_PROG_TYPE_SCHED_CLS = 3
_libc = ctypes.CDLL(None, use_errno=True)


def array_map(n_bytes: int) -> int:
    """A descriptor of an array map with one value of so many bytes, all zero, which can be mapped."""
    # union bpf_attr for BPF_MAP_CREATE: type, key size, value size, entries, flags.
    return _bpf(_MAP_CREATE, struct.pack("=5I", _MAP_TYPE_ARRAY, 4, n_bytes, 1, _MMAPABLE), "map of counters")


def load(code: bytes, what: str) -> int:
    """A descriptor of the program, for tc."""
    # union bpf_attr for BPF_PROG_LOAD: type, instructions, their address, licence, log level, size and buffer.
    # skb_ecn_set_ce is for programs that call themselves GPL; it says nothing about the rest.
    instructions, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    where = ctypes.addressof(instructions), ctypes.addressof(licence)
    attributes = struct.pack("=IIQQIIQ", _PROG_TYPE_SCHED_CLS, len(code) // 8, *where, 0, 0, 0)
    return _bpf(_PROG_LOAD, attributes, what)


def _bpf(command: int, attributes: bytes, what: str) -> int:
    """A descriptor, closed on exec."""
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    fd = int(_libc.syscall(_SYS_BPF, command, buffer, len(attributes)))
    if fd < 0:
        raise EmulationError(f"eBPF {what}: {os.strerror(ctypes.get_errno())}")
    return fd
