"""Mininet's objects over a network that is built in batches: they describe and command, they do not build.

Stock Mininet starts a shell for every node and types every command into it. Here a node's shell starts with its first
command, inside the namespace that already exists; and interfaces go up and down over netlink.
"""

import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from mininet.link import Intf, Link
from mininet.node import Host, OVSSwitch

from topologies import ovs_bridges
from topologies.emulation import Emulation, mac
from topologies.fabric import Link as FabricCable

SHELL_PREFIX = ("mnexec", "-d")


class _LazyShell:
    """Mixed in before a Mininet node class: no shell until a command wants one.

    Before the network is up, the commands of Mininet's constructors (`ifconfig lo up`) are not carried out: the batches
    do their work.
    """

    emulation: Emulation
    enters: Sequence[str] = ()
    shell: Any
    inNamespace: bool
    _shell_pid: int | None = None

    @property
    def pid(self) -> int | None:
        """The shell's; asking for it starts the shell."""
        self._ensure_shell()
        return self._shell_pid

    @pid.setter
    def pid(self, pid: int | None) -> None:
        self._shell_pid = pid

    def startShell(self, mnopts: str | None = None) -> None:
        """Mininet's constructor calls this; the shell waits for its first command."""
        self._ensure_shell()

    def _ensure_shell(self) -> None:
        if self.emulation.is_up and self.shell is None:
            # The namespace exists: `enters` goes into it, mnexec must not make another.
            wanted, self.inNamespace = self.inNamespace, False
            try:
                super().startShell()  # type: ignore[misc]
            finally:
                self.inNamespace = wanted

    def cmd(self, *args: Any, **kwargs: Any) -> str:
        if not self.emulation.is_up:
            return ""
        self._ensure_shell()
        return str(super().cmd(*args, **kwargs))  # type: ignore[misc]

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        self._ensure_shell()
        super().sendCmd(*args, **kwargs)  # type: ignore[misc]

    def popen(self, *args: Any, **kwargs: Any) -> "subprocess.Popen[Any]":
        """Mininet's: a list, words, or one string; shell=True for a shell line. No shell of the node is needed."""
        shell = kwargs.pop("shell", False)
        kwargs.pop("mncmd", None)
        line = args[0] if len(args) == 1 else list(args)
        if shell:
            line = ["sh", "-c", line if isinstance(line, str) else " ".join(line)]
        words = shlex.split(line) if isinstance(line, str) else line
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self._popen([*SHELL_PREFIX, *words], **{**streams, **kwargs})

    def _popen(self, cmd: Sequence[str], **params: Any) -> "subprocess.Popen[Any]":
        process: subprocess.Popen[Any] = super()._popen([*self.enters, *cmd], **params)  # type: ignore[misc]
        return process

    def __repr__(self) -> str:
        intfs = ",".join(f"{intf.name}:{intf.IP()}" for intf in self.intfList())  # type: ignore[attr-defined]
        return f"<{type(self).__name__} {self}: {intfs} pid={self._shell_pid}> "


class FabricHost(_LazyShell, Host):  # type: ignore[misc]
    """A host in the namespace /run/netns/<its name>, with a /sys that shows its interfaces."""

    isSetup = True

    def __init__(self, name: str, *, emulation: Emulation, **params: Any) -> None:
        self.emulation = emulation
        self.enters = ("ip", "netns", "exec", name)
        super().__init__(name, **params)


class FabricSwitch(_LazyShell, OVSSwitch):  # type: ignore[misc]
    """A bridge. `switch leaf1 stop` and `start` at the prompt take it out and bring it back shaped."""

    isSetup = True
    OVSVersion = "2.17"

    def __init__(self, name: str, *, emulation: Emulation, **params: Any) -> None:
        self.emulation = emulation
        super().__init__(name, **params)

    def start(self, controllers: Any) -> None:
        self.emulation.start_switch(self.name)

    def stop(self, deleteIntfs: bool = True) -> None:
        self.emulation.stop_switch(self.name)

    def connected(self) -> bool:
        return ovs_bridges.connected(self.emulation.run_dir, self.name)

    def dpctl(self, *args: str) -> str:
        return self.cmd("ovs-ofctl -O OpenFlow13", args[0], self, *args[1:])


class FabricIntf(Intf):  # type: ignore[misc]
    """One end of a cable; its address is the fabric's."""

    def config(self, **params: Any) -> dict[str, Any]:
        """Mininet's constructor calls this. The batches configure the interface; here it only learns its address."""
        ip = self.node.emulation.port(self.name).ip
        self.ip: str | None = ip
        self.prefixLen: str | None = "32" if ip else None
        return {}

    def ifconfig(self, *args: str) -> str:
        """'up' and 'down' as Mininet asks for them; '' is success, as there. Anything else is ifconfig's own."""
        if not self.node.emulation.is_up:
            return ""
        if args in (("up",), ("down",)):
            self.set_up(args == ("up",))
            return ""
        return str(super().ifconfig(*args))

    def set_up(self, up: bool) -> None:
        self.node.emulation.set_up(self.name, up)

    def isUp(self, setUp: bool = False) -> bool:
        if setUp:
            self.set_up(True)
            return True
        out, _, _ = self.node.pexec("ip", "link", "show", "dev", self.name)
        return "UP" in out.partition(">")[0].partition("<")[2].split(",")

    def updateIP(self) -> str | None:
        return str(self.ip) if self.ip else None

    def updateMAC(self) -> str | None:
        return str(self.mac) if self.mac else None

    def updateAddr(self) -> tuple[str | None, str | None]:
        return self.updateIP(), self.updateMAC()


class FabricLink(Link):  # type: ignore[misc]
    """A cable that exists already, or will."""

    @classmethod
    def makeIntfPair(cls, *args: Any, **kwargs: Any) -> None:
        """Nothing: the batches make the cables."""

    def stop(self) -> None:
        """Nothing: the network takes all cables down together."""


def link_options(link: FabricCable) -> dict[str, Any]:
    """The keywords of Mininet's addLink for a cable of the fabric."""
    a, b = link.ports
    return {
        "cls": FabricLink,
        "intf": FabricIntf,
        "port1": a.number,
        "port2": b.number,
        "intfName1": a.intf,
        "intfName2": b.intf,
        "addr1": mac(link, a),
        "addr2": mac(link, b),
    }
