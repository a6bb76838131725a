"""The programs of `topologies.spray` at work: two for all hosts, attached to each one's scale-out interfaces."""

import os

from topologies import bpf_system, netlink, netlink_requests
from topologies.bpf import assemble
from topologies.fabric import Fabric
from topologies.shaping import Finding
from topologies.spray import MEMORY_BYTES, arriving, leaving, sprayed_intfs
from topologies.spread import Spread

# As tc shows them.
_NAMES = _LEAVING, _ARRIVING = "spray", "spray-restore"
# Behind the impairments': what those lose takes no turn.
_PLACE = 2


class SprayPrograms:
    def __init__(self, fabric: Fabric, spread: Spread) -> None:
        self._intfs = sprayed_intfs(fabric)
        self._fds: list[int] = []
        try:
            self._fds.append(bpf_system.array_map(MEMORY_BYTES))
            self._fds.append(bpf_system.load(assemble(leaving(self._fds[0], spread)), f"program {_LEAVING}"))
            self._fds.append(bpf_system.load(assemble(arriving()), f"program {_ARRIVING}"))
        except BaseException:
            self.close()
            raise

    def __contains__(self, intf: str) -> bool:
        return intf in self._intfs

    def attach(self, intf: str) -> None:
        """To an interface of the caller's namespace. Restoring comes first: nothing arrives that would not be."""
        _, spray, restore = self._fds
        index = netlink.index_of(intf)
        netlink.apply(
            [
                *netlink_requests.program(index, intf, restore, _ARRIVING, on_arrival=True),
                *netlink_requests.program(index, intf, spray, _LEAVING, place=_PLACE),
            ]
        )

    def findings(self, attached: frozenset[tuple[str, str]]) -> list[Finding]:
        """The interfaces without one of the programs. attached: (interface, name) of those that there are."""
        return [
            Finding(intf, f"program {name}", "attached", "none")
            for intf in sorted(self._intfs)
            for name in _NAMES
            if (intf, name) not in attached
        ]

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []
