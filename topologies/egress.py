"""The impairments' programs at work: loaded by bpf(2), attached to interfaces over netlink, their counters read as memory.

One array map of one value holds the memory of all programs. It is mapped, so reading every counter is no system call;
it and the programs live as long as an interface uses them or this process does, and nothing is left in a file system.
"""

import ctypes
import mmap
import os
import platform
import struct
from collections.abc import Sequence

from topologies import netlink, netlink_requests
from topologies.bpf import assemble
from topologies.errors import EmulationError
from topologies.impairments import MEMORY_BYTES, EgressCounts, Impairments, program
from topologies.shaping import Finding, Shape

# asm/unistd.h; linux/bpf.h
_SYS_BPF = {"x86_64": 321}.get(platform.machine(), 280)
_MAP_CREATE, _PROG_LOAD = 0, 5
_MAP_TYPE_ARRAY, _MMAPABLE = 2, 1 << 10
_PROG_TYPE_SCHED_CLS = 3
_libc = ctypes.CDLL(None, use_errno=True)


class EgressPrograms:
    """One program for each of the interfaces."""

    def __init__(self, intfs: Sequence[str], impairments: Impairments) -> None:
        self._impairments = impairments
        self._memory_of = {intf: i * MEMORY_BYTES for i, intf in enumerate(intfs)}
        n_bytes = len(intfs) * MEMORY_BYTES
        self._map_fd = _array_map(n_bytes)
        self._memory = mmap.mmap(self._map_fd, n_bytes)

    def __contains__(self, intf: str) -> bool:
        return intf in self._memory_of

    def attach(self, intf: str, shape: Shape) -> None:
        """To an interface of the caller's namespace. Again after it was taken off, or for another shape: it goes on where
        it was."""
        code = assemble(program(self._map_fd, self._memory_of[intf], intf, shape, self._impairments))
        fd = _load(code, intf)
        try:
            netlink.apply(netlink_requests.egress_program(netlink.index_of(intf), intf, fd))
        finally:
            os.close(fd)

    def counts(self) -> dict[str, EgressCounts]:
        """Since the start, of every interface."""
        return {
            intf: EgressCounts(*struct.unpack_from("=3Q", self._memory, at)) for intf, at in self._memory_of.items()
        }

    def findings(self, attached: frozenset[str]) -> list[Finding]:
        """The interfaces without a program. attached: those that have one."""
        return [Finding(intf, "program", "attached", "none") for intf in self._memory_of if intf not in attached]

    def close(self) -> None:
        self._memory.close()
        os.close(self._map_fd)


def _array_map(n_bytes: int) -> int:
    """union bpf_attr for BPF_MAP_CREATE: type, key size, value size, entries, flags."""
    return _bpf(_MAP_CREATE, struct.pack("=5I", _MAP_TYPE_ARRAY, 4, n_bytes, 1, _MMAPABLE), "map of counters")


def _load(code: bytes, intf: str) -> int:
    """union bpf_attr for BPF_PROG_LOAD: type, instructions, their address, licence, log level, size and buffer."""
    # skb_ecn_set_ce is for programs that call themselves GPL; it says nothing about the rest.
    instructions, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    where = ctypes.addressof(instructions), ctypes.addressof(licence)
    attributes = struct.pack("=IIQQIIQ", _PROG_TYPE_SCHED_CLS, len(code) // 8, *where, 0, 0, 0)
    return _bpf(_PROG_LOAD, attributes, f"program for {intf}")


def _bpf(command: int, attributes: bytes, what: str) -> int:
    """bpf(2): a descriptor, closed on exec."""
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    fd = int(_libc.syscall(_SYS_BPF, command, buffer, len(attributes)))
    if fd < 0:
        raise EmulationError(f"eBPF {what}: {os.strerror(ctypes.get_errno())}")
    return fd
