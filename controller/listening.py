"""Is a TCP port free, and if not, whose is it?"""

import os
import socket
from pathlib import Path

from topologies.errors import Refused

_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp, from the kernel's tcp_states.h


def check_free(host: str, port: int) -> None:
    """Raise Refused, naming the port and its owner, unless a server could listen there.

    Eventlet listens with SO_REUSEPORT, so that two controllers could share a port and each get some of the switches.
    """
    if not host:
        # To bind(), all of the machine's addresses.
        raise Refused("an empty address to listen on: use 127.0.0.1, or 0.0.0.0 for every interface")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Refused(f"cannot listen on {host} port {port}: {reason}{_by_whom(port)}; choose another") from error


def _by_whom(port: int) -> str:
    pid = owner(port)
    return f" (process {pid}: {Path(f'/proc/{pid}/comm').read_text().strip()})" if pid else ""


def owner(port: int) -> int | None:
    """The process that listens on a TCP port in this network namespace, as far as we may see."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for fd in Path("/proc").glob("[0-9]*/fd/*") if wanted else ():
        try:
            if os.readlink(fd) in wanted:
                return int(fd.parts[2])
        except OSError:
            continue
    return None


def _listening_inodes(port: int) -> list[str]:
    tables = [Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6")]
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return [row[9] for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port]
