"""Open vSwitch: its daemons, one database transaction for all bridges, and the sockets of its userspace datapath.

The database is spoken to directly (JSON-RPC over its unix socket, RFC 7047): for 48 bridges and 1536 ports `ovs-vsctl`
spends 1.4 s before it sends the same transaction, and its command line has a limit.
"""

import ctypes
import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.errors import EmulationError

RUN_DIR = Path("/run/openvswitch")
_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_START_DEADLINE_S = 5.0
_LISTEN_DEADLINE_S = 1.0
_CONFIGURE_DEADLINE_S = 60.0
_CLOSING_THREADS = 128
_PROBE_INTERVAL_MS = 30_000
_PACKAGE = "install the package openvswitch-switch"

# linux/if_packet.h; asm-generic/socket.h; asm-generic/unistd.h
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SYS_PIDFD_GETFD = 438
SEND_BUFFER_BYTES = 64 << 20
RECEIVE_BUFFER_BYTES = 8 << 20
_libc = ctypes.CDLL(None, use_errno=True)


# -- daemons ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Daemons:
    """A running pair, children of this process in a session of their own (Ctrl-C at the terminal does not reach them)."""

    run_dir: Path
    database: "subprocess.Popen[bytes]"
    switch: "subprocess.Popen[bytes]"

    @property
    def database_pid(self) -> int:
        return self.database.pid

    @property
    def switch_pid(self) -> int:
        return self.switch.pid

    def stop(self) -> None:
        """End both at once; there is nothing to save. Call it at the end of a run although the kernel would do it too.

        Closing a packet socket waits for a grace period of the kernel, 10 ms. The dying switch would close its 1536 one
        after another, 17 s in all; held here and closed by many threads they share their grace periods.
        """
        sockets = []
        # A switch that has died by itself has closed them.
        with suppress(OSError):
            sockets = [os.dup(sock.fileno()) for _, sock in _packet_sockets(self.switch_pid)]
        for process in (self.switch, self.database):
            process.kill()
            process.wait()
        with ThreadPoolExecutor(_CLOSING_THREADS) as pool:
            pool.map(os.close, sockets)


def start_daemons(run_dir: Path = RUN_DIR) -> Daemons:
    """ovsdb-server and ovs-vswitchd with an empty database in `run_dir`, ready for a transaction.

    Raises EmulationError within 5 s: a program is missing, or a daemon died, with the last line of its log.
    """
    for program in ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd"):
        if shutil.which(program) is None:
            raise EmulationError(f"{program} is not on this machine: {_PACKAGE}")
    if _answers(run_dir / "db.sock"):
        raise EmulationError(f"an Open vSwitch runs in {run_dir} already: end it first, or use another directory")
    # vswitchd holds two descriptors a port; it inherits our limit.
    raise_open_file_limit()
    _make_database(run_dir / "conf.db")
    database = _spawn(run_dir, "ovsdb-server", str(run_dir / "conf.db"), f"--remote=punix:{run_dir}/db.sock")
    with _database(run_dir, database) as db:
        db.transact({"op": "insert", "table": "Open_vSwitch", "row": {}})
    switch = _spawn(run_dir, "ovs-vswitchd", f"unix:{run_dir}/db.sock")
    _wait_for_file(run_dir, switch, run_dir / f"ovs-vswitchd.{switch.pid}.ctl")
    return Daemons(run_dir, database, switch)


def raise_open_file_limit() -> int:
    """Lift this process's soft limit of open files to the hard one; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


def _make_database(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
    except OSError as error:
        raise EmulationError(f"Open vSwitch's database cannot be made: {error}") from None
    made = subprocess.run(["ovsdb-tool", "create", file, _SCHEMA], capture_output=True, text=True, check=False)
    if made.returncode:
        raise EmulationError(f"ovsdb-tool: {_last_line(made.stderr)}")


def _spawn(run_dir: Path, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
    places = {f"OVS_{kind}DIR": str(run_dir) for kind in ("RUN", "DB", "LOG")}
    options = [f"--pidfile={run_dir}/{program}.pid", f"--log-file={run_dir}/{program}.log"]
    return subprocess.Popen(
        [program, *arguments, *options, "--no-chdir", "-vconsole:off", "-vsyslog:off", "-vfile:info"],
        env={**os.environ, **places},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_for_file(run_dir: Path, process: "subprocess.Popen[bytes]", file: Path) -> None:
    deadline = time.monotonic() + _START_DEADLINE_S
    while not file.exists():
        program = Path(str(process.args[0])).name  # type: ignore[index]
        if process.poll() is not None:
            raise EmulationError(f"{program} ended with status {process.returncode}: {_log_tail(run_dir, program)}")
        if time.monotonic() > deadline:
            raise EmulationError(
                f"{program} did not start within {_START_DEADLINE_S:g} s: {_log_tail(run_dir, program)}"
            )
        time.sleep(0.002)


def _log_tail(run_dir: Path, program: str) -> str:
    try:
        return _last_line((run_dir / f"{program}.log").read_text(errors="replace"))
    except OSError:
        return "it wrote no log"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def switch_pid(run_dir: Path = RUN_DIR) -> int:
    """The ovs-vswitchd that serves `run_dir`."""
    try:
        pid = int((run_dir / "ovs-vswitchd.pid").read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        raise EmulationError(f"ovs-vswitchd is not running (no process for {run_dir}/ovs-vswitchd.pid)") from None
    return pid


def find_datapath() -> str:
    """'system' when the kernel has (or can load) the openvswitch module, usable in this namespace; else 'netdev'.

    Asks generic netlink for the family `ovs_datapath`: the question itself makes the kernel load the module.
    """
    name = b"ovs_datapath\0"
    body = struct.pack("=BBHHH", 3, 1, 0, 4 + len(name), 2) + name + bytes(-len(name) % 4)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16) as link:
        link.send(struct.pack("=IHHII", 16 + len(body), 16, 1, 0, 0) + body)
        _, kind = struct.unpack_from("=IH", link.recv(4096))
    return "netdev" if kind == 2 else "system"


# -- the database -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bridge:
    """ports: (interface, OpenFlow port number); controllers: targets like 'tcp:127.0.0.1:6653'."""

    name: str
    dpid: int
    ports: Sequence[tuple[str, int]]
    controllers: Sequence[str] = ()


class Database:
    """A connection to ovsdb-server. Raises EmulationError for what the server refuses."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._connect(str(path))
        except OSError as error:
            self._socket.close()
            raise EmulationError(
                f"Open vSwitch's database does not answer at {path} ({error.strerror}): is the daemon running? "
                "`service openvswitch-switch start` starts the system's"
            ) from None

    def _connect(self, path: str) -> None:
        """A starting server has its socket file a moment before it listens."""
        deadline = time.monotonic() + _LISTEN_DEADLINE_S
        while True:
            try:
                self._socket.connect(path)
                return
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)

    def close(self) -> None:
        self._socket.close()

    def transact(self, *operations: Mapping[str, Any], timeout_s: float = 10.0) -> list[dict[str, Any]]:
        """One transaction; the results of its operations."""
        self._socket.settimeout(timeout_s)
        request = {"method": "transact", "params": ["Open_vSwitch", *operations], "id": 0}
        try:
            self._socket.sendall(json.dumps(request).encode())
            answer = self._answer()
        except OSError as error:
            raise EmulationError(f"Open vSwitch's database did not answer within {timeout_s:g} s: {error}") from None
        for result in answer["result"] or [answer]:
            if result and result.get("error"):
                raise EmulationError(f"Open vSwitch's database: {result['error']}: {result.get('details', '')}")
        return list(answer["result"])

    def _answer(self) -> dict[str, Any]:
        chunks: list[bytes] = []
        while True:
            chunk = self._socket.recv(1 << 20)
            if not chunk:
                raise ConnectionError("it closed the connection")
            chunks.append(chunk)
            # Only a whole answer ends in the closing braces and parses.
            if chunk.endswith(b"}"):
                try:
                    answer: dict[str, Any] = json.loads(b"".join(chunks))
                    return answer
                except json.JSONDecodeError:
                    continue


@contextmanager
def _database(run_dir: Path, process: "subprocess.Popen[bytes] | None" = None) -> Iterator[Database]:
    if process is not None:
        _wait_for_file(run_dir, process, run_dir / "db.sock")
    db = Database(run_dir / "db.sock")
    try:
        yield db
    finally:
        db.close()


def add_bridges(bridges: Sequence[Bridge], datapath: str, mtu: int, run_dir: Path = RUN_DIR) -> int:
    """Hand all bridges to Open vSwitch in one transaction and return its number at once: see `wait_configured`.

    Every bridge speaks OpenFlow 1.3 only, forwards nothing without a controller's rules (fail_mode secure), and has its
    datapath id and port numbers given. A name that is taken is refused by the database, with nothing changed.
    """
    with _database(run_dir) as db:
        _refuse_taken(db, bridges)
        inserts = [row for bridge in bridges for row in _bridge_rows(bridge, datapath, mtu)]
        named = ["set", [["named-uuid", _row_id("b", bridge.name)] for bridge in bridges]]
        results = db.transact(*inserts, *_bump(["bridges", "insert", named]))
        return int(results[-1]["rows"][0]["next_cfg"])


def delete_bridges(names: Sequence[str], run_dir: Path = RUN_DIR) -> None:
    """Take these bridges out, in one transaction; their ports go with them."""
    with _database(run_dir) as db:
        found = db.transact(*(_select("Bridge", [["name", "==", name]], "_uuid") for name in names))
        uuids = [row["_uuid"] for result in found for row in result["rows"]]
        db.transact(*_bump(["bridges", "delete", ["set", uuids]]))


def wait_configured(number: int, ports: Mapping[str, int], run_dir: Path = RUN_DIR) -> None:
    """Wait until ovs-vswitchd has carried transaction `number` out; every port must have the number it was to get."""
    until = {"op": "wait", "table": "Open_vSwitch", "where": [], "columns": ["cur_cfg"], "until": "=="}
    with _database(run_dir) as db:
        try:
            db.transact(
                {**until, "rows": [{"cur_cfg": number}], "timeout": int(_CONFIGURE_DEADLINE_S * 1e3)},
                timeout_s=_CONFIGURE_DEADLINE_S + 1,
            )
        except EmulationError:
            switch_pid(run_dir)
            raise EmulationError(
                f"ovs-vswitchd did not take up the bridges within {_CONFIGURE_DEADLINE_S:g} s: "
                f"{_log_tail(run_dir, 'ovs-vswitchd')}"
            ) from None
        _verify(db, ports)


def connected(run_dir: Path = RUN_DIR, bridge: str | None = None) -> bool:
    """Is every controller connection up, of one bridge or of all?"""
    with _database(run_dir) as db:
        rows = db.transact(_select("Controller", [], "_uuid", "is_connected"))[0]["rows"]
        if bridge is not None:
            mine = db.transact(_select("Bridge", [["name", "==", bridge]], "controller"))[0]["rows"]
            uuids = [uuid for row in mine for uuid in _members(row["controller"])]
            rows = [row for row in rows if row["_uuid"] in uuids]
        return all(row["is_connected"] for row in rows)


def _members(value: Any) -> list[Any]:
    """RFC 7047 writes a set of one as its member."""
    return list(value[1]) if value[0] == "set" else [value]


def _verify(db: Database, ports: Mapping[str, int]) -> None:
    rows = db.transact(_select("Interface", [], "name", "ofport", "error"))[0]["rows"]
    found = {row["name"]: row for row in rows}
    for intf, number in ports.items():
        row = found.get(intf, {})
        if row.get("error", ["set", []]) != ["set", []]:
            raise EmulationError(f"Open vSwitch cannot use interface {intf}: {row['error']}")
        if row.get("ofport") != number:
            raise EmulationError(
                f"interface {intf} should be OpenFlow port {number}, is {row.get('ofport', 'missing')}"
            )


def _refuse_taken(db: Database, bridges: Sequence[Bridge]) -> None:
    existing = {row["name"] for row in db.transact(_select("Port", [], "name"))[0]["rows"]}
    wanted = [name for bridge in bridges for name in (bridge.name, *(intf for intf, _ in bridge.ports))]
    if taken := [name for name in wanted if name in existing]:
        raise EmulationError(
            f"Open vSwitch already has a bridge or port {taken[0]!r}: end the network that made it, "
            f"or remove it with `ovs-vsctl del-br`"
        )


def _bridge_rows(bridge: Bridge, datapath: str, mtu: int) -> Iterator[dict[str, Any]]:
    other = {"datapath-id": f"{bridge.dpid:016x}", "disable-in-band": "true", "dp-desc": bridge.name}
    yield from _port_rows(bridge.name, {"type": "internal"})
    for intf, number in bridge.ports:
        yield from _port_rows(intf, {"ofport_request": number, "mtu_request": mtu})
    for i, target in enumerate(bridge.controllers):
        yield _insert("Controller", f"c{i}", bridge.name, _controller(target))
    row = {
        "name": bridge.name,
        "datapath_type": datapath,
        "fail_mode": "secure",
        "protocols": "OpenFlow13",
        "other_config": ["map", list(other.items())],
        "ports": _named("p", [bridge.name, *(intf for intf, _ in bridge.ports)]),
        "controller": ["set", [["named-uuid", _row_id(f"c{i}", bridge.name)] for i in range(len(bridge.controllers))]],
    }
    yield _insert("Bridge", "b", bridge.name, row)


def _controller(target: str) -> dict[str, Any]:
    """A probe every 30 s, not 5: a switch thread that is busy for a while is not a lost connection."""
    return {
        "target": target,
        "max_backoff": 1000,
        "connection_mode": "out-of-band",
        "inactivity_probe": _PROBE_INTERVAL_MS,
    }


def _port_rows(name: str, interface: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield _insert("Interface", "i", name, {"name": name, **interface})
    yield _insert("Port", "p", name, {"name": name, "interfaces": ["named-uuid", _row_id("i", name)]})


def _insert(table: str, kind: str, name: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"op": "insert", "table": table, "row": row, "uuid-name": _row_id(kind, name)}


def _named(kind: str, names: Sequence[str]) -> list[Any]:
    return ["set", [["named-uuid", _row_id(kind, name)] for name in names]]


def _row_id(kind: str, name: str) -> str:
    """RFC 7047 wants an identifier; names may hold dashes and dots."""
    return f"{kind}_{name.encode().hex()}"


def _select(table: str, where: Sequence[Any], *columns: str) -> dict[str, Any]:
    return {"op": "select", "table": table, "where": where, "columns": columns}


def _bump(mutation: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Change the root row and number the change; ovs-vswitchd writes the number into cur_cfg when it has obeyed."""
    mutate = {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [mutation, ["next_cfg", "+=", 1]]}
    return mutate, _select("Open_vSwitch", [], "next_cfg")


# -- the userspace datapath's sockets ------------------------------------------------------------------------------------


def enlarge_socket_buffers(pid: int, bridge: str, port: int, n_ports: int, run_dir: Path = RUN_DIR) -> None:
    """Give ovs-vswitchd's packet sockets room: one sends for all ports, and each port has one that receives.

    The send buffer counts every frame that waits in any shaped queue; at its default of 212 992 bytes about ten jumbo
    frames fill it, and then frames vanish without a counter. The receive buffers' default loses frames whenever the
    switch thread is starved for a moment. The send socket is born with the first output, so one frame goes out of
    `port` of `bridge` first, to nobody's address, which whoever gets it ignores. Only for the userspace datapath.
    """
    _send_one_frame(run_dir / f"{bridge}.mgmt", port)
    n_send = n_receive = 0
    for row, sock in _packet_sockets(pid):
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        n_send += row.sends
        n_receive += not row.sends
    if (n_send, n_receive) != (1, n_ports):
        raise EmulationError(
            f"ovs-vswitchd has {n_send} send and {n_receive} receive sockets where 1 and {n_ports} were expected: "
            "its buffers cannot be enlarged and it would lose frames silently"
        )


def datapath_drops(pid: int) -> int:
    """Frames that the receive sockets dropped since the last call: reading PACKET_STATISTICS resets it."""
    drops = 0
    for row, sock in _packet_sockets(pid):
        if not row.sends:
            drops += struct.unpack("=II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
    return drops


@dataclass(frozen=True)
class _PacketRow:
    """A line of /proc/net/packet. The socket that only sends is bound to protocol 0 and no interface."""

    inode: str
    sends: bool


def _packet_sockets(pid: int) -> Iterator[tuple[_PacketRow, socket.socket]]:
    """Every packet socket of the process, borrowed with pidfd_getfd for the length of one step."""
    rows = _packet_rows()
    pidfd = os.pidfd_open(pid)
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            row = rows.get(_link_target(f"/proc/{pid}/fd/{fd}"))
            if row is not None:
                with socket.socket(fileno=_borrow(pidfd, int(fd))) as sock:
                    yield row, sock
    finally:
        os.close(pidfd)


def _packet_rows() -> dict[str, _PacketRow]:
    rows = {}
    for line in Path("/proc/net/packet").read_text().splitlines()[1:]:
        _, _, _, protocol, interface, *_, inode = line.split()
        rows[f"socket:[{inode}]"] = _PacketRow(inode, (protocol, interface) == ("0000", "0"))
    return rows


def _link_target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _borrow(pidfd: int, fd: int) -> int:
    borrowed: int = _libc.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0)
    if borrowed < 0:
        raise EmulationError(
            f"cannot reach ovs-vswitchd's sockets: {os.strerror(ctypes.get_errno())} (needs Linux 5.6)"
        )
    return borrowed


def _send_one_frame(management: Path, port: int) -> None:
    frame = "0200000000ff0200000000fe0800" + "00" * 46
    command = ["ovs-ofctl", "-O", "OpenFlow13", "-t", "10", "packet-out", f"unix:{management}"]
    command.append(f"in_port=local packet={frame} actions=output:{port}")
    sent = subprocess.run(command, capture_output=True, text=True, check=False)
    if sent.returncode:
        raise EmulationError(f"ovs-ofctl packet-out {management}: {_last_line(sent.stderr)}")
