"""Bridges in Open vSwitch: all of a fabric's in one database transaction, and whether the switch has obeyed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.errors import EmulationError
from topologies.ovs_daemons import RUN_DIR, log_tail, switch_pid
from topologies.ovs_database import Database, select

_CONFIGURE_DEADLINE_S = 60.0
_PROBE_INTERVAL_MS = 30_000


@dataclass(frozen=True)
class Bridge:
    """ports: (interface, OpenFlow port number); controllers: targets like 'tcp:127.0.0.1:6653'."""

    name: str
    dpid: int
    ports: Sequence[tuple[str, int]]
    controllers: Sequence[str] = ()


def add_bridges(bridges: Sequence[Bridge], datapath: str, mtu: int, run_dir: Path = RUN_DIR) -> int:
    """Hand all bridges to Open vSwitch in one transaction and return its number at once: see `wait_configured`.

    Every bridge speaks OpenFlow 1.3 only, forwards nothing without a controller's rules (fail_mode secure), and has its
    datapath id and port numbers given. A name that is taken is refused by the database, with nothing changed.
    """
    with Database(run_dir) as db:
        _refuse_taken(db, bridges)
        inserts = [row for bridge in bridges for row in _bridge_rows(bridge, datapath, mtu)]
        named = ["set", [["named-uuid", _row_id("b", bridge.name)] for bridge in bridges]]
        results = db.transact(*inserts, *_bump(["bridges", "insert", named]))
        return int(results[-1]["rows"][0]["next_cfg"])


def delete_bridges(names: Sequence[str], run_dir: Path = RUN_DIR) -> None:
    """Take these bridges out, in one transaction; their ports go with them."""
    with Database(run_dir) as db:
        found = db.transact(*(select("Bridge", [["name", "==", name]], "_uuid") for name in names))
        uuids = [row["_uuid"] for result in found for row in result["rows"]]
        db.transact(*_bump(["bridges", "delete", ["set", uuids]]))


def wait_configured(number: int, ports: Mapping[str, int], run_dir: Path = RUN_DIR) -> None:
    """Wait until ovs-vswitchd has carried transaction `number` out; every port must have the number it was to get."""
    until = {"op": "wait", "table": "Open_vSwitch", "where": [], "columns": ["cur_cfg"], "until": "=="}
    with Database(run_dir) as db:
        try:
            db.transact(
                {**until, "rows": [{"cur_cfg": number}], "timeout": int(_CONFIGURE_DEADLINE_S * 1e3)},
                timeout_s=_CONFIGURE_DEADLINE_S + 1,
            )
        except EmulationError:
            switch_pid(run_dir)
            raise EmulationError(
                f"ovs-vswitchd did not take up the bridges within {_CONFIGURE_DEADLINE_S:g} s: "
                f"{log_tail(run_dir, 'ovs-vswitchd')}"
            ) from None
        _verify(db, ports)


def connected(run_dir: Path = RUN_DIR, bridge: str | None = None) -> bool:
    """Is every controller connection up, of one bridge or of all?"""
    with Database(run_dir) as db:
        rows = db.transact(select("Controller", [], "_uuid", "is_connected"))[0]["rows"]
        if bridge is not None:
            mine = db.transact(select("Bridge", [["name", "==", bridge]], "controller"))[0]["rows"]
            uuids = [uuid for row in mine for uuid in _members(row["controller"])]
            rows = [row for row in rows if row["_uuid"] in uuids]
        return all(row["is_connected"] for row in rows)


def _members(value: Any) -> list[Any]:
    """RFC 7047 writes a set of one as its member."""
    return list(value[1]) if value[0] == "set" else [value]


def _verify(db: Database, ports: Mapping[str, int]) -> None:
    rows = db.transact(select("Interface", [], "name", "ofport", "error"))[0]["rows"]
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
    existing = {row["name"] for row in db.transact(select("Port", [], "name"))[0]["rows"]}
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


def _bump(mutation: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Change the root row and number the change; ovs-vswitchd writes the number into cur_cfg when it has obeyed."""
    mutate = {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [mutation, ["next_cfg", "+=", 1]]}
    return mutate, select("Open_vSwitch", [], "next_cfg")
