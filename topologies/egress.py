"""The impairments' programs at work: loaded by bpf(2), attached to interfaces over netlink, their counters read as memory.

One array map of one value holds the memory of all programs. It is mapped, so reading every counter is no system call;
it and the programs live as long as an interface uses them or this process does, and nothing is left in a file system.
"""

import mmap
import os
import struct
from collections.abc import Sequence

from topologies import bpf_system, netlink, netlink_requests
from topologies.bpf import assemble
from topologies.impairments import MEMORY_BYTES, EgressCounts, Impairments, program
from topologies.shaping import Finding, Shape

# As tc shows it.
_NAME = "impairments"


class EgressPrograms:
    """One program for each of the interfaces."""

    def __init__(self, intfs: Sequence[str], impairments: Impairments) -> None:
        self._impairments = impairments
        self._memory_of = {intf: i * MEMORY_BYTES for i, intf in enumerate(intfs)}
        n_bytes = len(intfs) * MEMORY_BYTES
        self._map_fd = bpf_system.array_map(n_bytes)
        self._memory = mmap.mmap(self._map_fd, n_bytes)

    def __contains__(self, intf: str) -> bool:
        return intf in self._memory_of

    def attach(self, intf: str, shape: Shape) -> None:
        """To an interface of the caller's namespace. Again after it was taken off, or for another shape: it goes on where
        it was."""
        code = assemble(program(self._map_fd, self._memory_of[intf], intf, shape, self._impairments))
        fd = bpf_system.load(code, f"program for {intf}")
        try:
            netlink.apply(netlink_requests.program(netlink.index_of(intf), intf, fd, _NAME))
        finally:
            os.close(fd)

    def counts(self) -> dict[str, EgressCounts]:
        """Since the start, of every interface."""
        return {
            intf: EgressCounts(*struct.unpack_from("=3Q", self._memory, at)) for intf, at in self._memory_of.items()
        }

    def findings(self, attached: frozenset[tuple[str, str]]) -> list[Finding]:
        """The interfaces without a program. attached: (interface, name) of those that have some."""
        return [
            Finding(intf, "program", "attached", "none") for intf in self._memory_of if (intf, _NAME) not in attached
        ]

    def close(self) -> None:
        self._memory.close()
        os.close(self._map_fd)
