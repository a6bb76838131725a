"""Plan files: circuits by the names of the switches and ports that they join, in TOML or CSV.

TOML                                             CSV: the same settings in comments, then a line for each circuit
    slice = "100ms"                                  # slice = "100ms"
    guardband = "1ms"                                # guardband = "1ms"
    cycles = 3                                       # cycles = 3
    [[slices]]                                       slice,circuit,length
    circuits = ["leaf1:5 - leaf2:5", "leaf3 > leaf4"]    1,leaf1:5 - leaf2:5,
    [[slices]]                                       1,leaf3 > leaf4,
    length = "200ms"                                 2,leaf1 - leaf3,200ms
    circuits = ["leaf1 - leaf3"]

'-' is a circuit both ways, '>' one from left to right. Without ports it takes the first free pair that ends in one optical
switch. `cycles`: a number or "once"; without it the plan goes round until the run ends. In place of slices, `scheduler` names who
decides.
"""

import csv
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.circuits.changing import CrossConnects
from controller.circuits.plan import Plan, PlannedSlice
from controller.circuits.scheduler import parse_scheduler
from controller.circuits.uplinks import Uplink, Uplinks, uplinks
from topologies.errors import Refused, unknown
from topologies.fabric import Fabric
from topologies.units import parse_duration_us

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SETTINGS = ("slice", "guardband", "cycles", "scheduler", "slices")
_OF_A_SLICE = ("circuits", "length")
_COLUMNS = ("slice", "circuit", "length")
_CIRCUIT = re.compile(r"^\s*([^\s:>]+?)(?::(\d+))?\s*(?:\s-\s|(>))\s*([^\s:>]+?)(?::(\d+))?\s*$")


def read_plan(path: str, fabric: Fabric) -> Plan:
    """Raises Refused, naming the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return plan_from_csv(text, fabric) if path.endswith(".csv") else plan_from_toml(text, fabric)
    except Refused as refusal:
        raise Refused(f"{path}: {refusal}") from None


def plan_from_toml(text: str, fabric: Fabric) -> Plan:
    return plan_from_data(_toml(text), fabric)


def plan_from_csv(text: str, fabric: Fabric) -> Plan:
    lines = text.splitlines()
    data = _toml("\n".join(line.lstrip("# ") for line in lines if line.startswith("#")))
    rows = csv.DictReader(line for line in lines if line.strip() and not line.startswith("#"))
    if missing := [name for name in _COLUMNS[:2] if name not in (rows.fieldnames or ())]:
        raise Refused(f"no column {missing[0]!r}: the first line must be {','.join(_COLUMNS)}, length may be left out")
    by_slice: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = by_slice.setdefault(row["slice"], {"circuits": []})
        one["circuits"].append(row["circuit"])
        if (length := row.get("length")) and one.setdefault("length", length) != length:
            raise Refused(f"slice {row['slice']} is given two lengths, {one['length']} and {length}")
    return plan_from_data({**data, "slices": list(by_slice.values())}, fabric)


def plan_from_data(data: Mapping[str, Any], fabric: Fabric) -> Plan:
    """What a plan file holds, or the body of a request. Raises Refused."""
    for key in data:
        if key not in _SETTINGS:
            raise Refused(unknown("setting", key, _SETTINGS))
    slices, scheduler = data.get("slices", []), data.get("scheduler")
    if bool(slices) == bool(scheduler):
        raise Refused("a plan has either slices or a scheduler")
    if scheduler is not None:
        # Not above: the controller reads circuits with this file, and need not wait for scipy.
        from controller.circuits.schedulers import SCHEDULERS

        parse_scheduler(str(scheduler), SCHEDULERS)
    default_us = _duration("slice", data["slice"]) if "slice" in data else None
    joined = uplinks(fabric)
    return Plan(
        slices=tuple(_slice(number, one, default_us, joined) for number, one in enumerate(_list(slices), 1)),
        scheduler=scheduler,
        slice_us=default_us,
        guardband_us=_duration("guardband", data.get("guardband", "0")),
        cycles=_cycles(data.get("cycles")),
    )


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"not TOML: {error}") from None


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Refused("slices must be a list of tables, [[slices]]")
    return value


def _duration(key: str, value: Any) -> float:
    try:
        return parse_duration_us(value)
    except Refused as refusal:
        raise Refused(f"{key}: {refusal}") from None


def _cycles(value: Any) -> int | None:
    if value == "once":
        return 1
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise Refused(f'cycles = {value!r}: must be a whole number from 1, or "once"')
    return value


def _slice(number: int, data: Any, default_us: float | None, joined: Uplinks) -> PlannedSlice:
    what = f"slice {number}"
    if not isinstance(data, dict) or not isinstance(data.get("circuits"), list):
        raise Refused(f'{what}: must have circuits = ["leaf1 - leaf2", ...]')
    for key in data:
        if key not in _OF_A_SLICE:
            raise Refused(f"{what}: {unknown('setting', key, _OF_A_SLICE)}")
    length_us = _duration(f"{what}: length", data["length"]) if "length" in data else default_us
    if not length_us:
        raise Refused(f'{what} has no length: give it one, or all of them with slice = "100ms"')
    return PlannedSlice(circuits_from_texts(data["circuits"], joined, what), length_us)


# -- circuits -------------------------------------------------------------------------------------------------------


def circuits_from_data(data: Any, joined: Uplinks, what: str) -> dict[str, CrossConnects]:
    """The body of a request, or a JSON file. `what` is named in refusals."""
    if not isinstance(data, list):
        raise Refused(f"{what} must be a list, such as ['leaf1:5 - leaf2:5', 'leaf3 > leaf4']")
    return circuits_from_texts(data, joined, what)


def circuits_from_texts(texts: Iterable[Any], joined: Uplinks, what: str) -> dict[str, CrossConnects]:
    """['leaf1:5 - leaf2:5', 'leaf3 > leaf4'] -> cross-connects by optical switch. `what` is named in refusals."""
    board = _Board(joined, what)
    parsed = [_parsed(str(text), what) for text in texts]
    # Those that leave the port open take what others have not asked for.
    for circuit in sorted(parsed, key=lambda circuit: (circuit.port is None) + (circuit.peer_port is None)):
        board.put(circuit)
    return {ocs: dict(its) for ocs, its in board.cross_connects.items()}


def texts_of(circuits: Mapping[str, CrossConnects], joined: Uplinks) -> list[str]:
    """The inverse: each circuit once, by the names of switches and ports."""
    at = {(u.ocs, u.ocs_port): f"{u.switch}:{u.port}" for its in joined.of for u in its}
    return [
        f"{at[ocs, i]} {'-' if its.get(o) == i else '>'} {at[ocs, o]}"
        for ocs, its in sorted(circuits.items())
        for i, o in sorted(its.items())
        if its.get(o) != i or i < o
    ]


@dataclass(frozen=True)
class _Circuit:
    text: str
    tor: str
    port: int | None
    peer: str
    peer_port: int | None
    both_ways: bool


def _parsed(text: str, what: str) -> _Circuit:
    found = _CIRCUIT.match(text)
    if not found:
        raise Refused(
            f"{what}: {text!r} is not a circuit: write it like 'leaf1:5 - leaf2:5', or 'leaf1 > leaf2' for one way"
        )
    tor, port, one_way, peer, peer_port = found.groups()
    return _Circuit(
        text.strip(), tor, int(port) if port else None, peer, int(peer_port) if peer_port else None, not one_way
    )


@dataclass
class _Board:
    """Circuits so far: which uplinks send, which receive, and for which circuit."""

    joined: Uplinks
    what: str
    cross_connects: dict[str, dict[int, int]] = field(default_factory=dict)
    _sends: dict[Uplink, str] = field(default_factory=dict)
    _receives: dict[Uplink, str] = field(default_factory=dict)

    def put(self, circuit: _Circuit) -> None:
        self._check_ends(circuit)
        here, there = self._uplinks(circuit)
        for source, target in ((here, there), (there, here)) if circuit.both_ways else ((here, there),):
            for uplink, taken in ((source, self._sends), (target, self._receives)):
                if uplink in taken:
                    raise Refused(
                        f"{self.what}: {uplink} is used twice, by {taken[uplink]!r} and {circuit.text!r}: a port has one "
                        "circuit each way"
                    )
                taken[uplink] = circuit.text
            self.cross_connects.setdefault(source.ocs, {})[source.ocs_port] = target.ocs_port

    def _check_ends(self, circuit: _Circuit) -> None:
        tors = {uplink.switch for its in self.joined.of for uplink in its}
        for tor in (circuit.tor, circuit.peer):
            if tor not in tors:
                raise Refused(f"{self.what}: {circuit.text!r}: {unknown('ToR', tor, tors)}")
        if circuit.tor == circuit.peer:
            raise Refused(f"{self.what}: {circuit.text!r} joins {circuit.tor} to itself: a circuit joins two ToRs")

    def _uplinks(self, circuit: _Circuit) -> tuple[Uplink, Uplink]:
        pairs = [
            (here, there)
            for here in self._candidates(circuit, circuit.tor, circuit.port)
            for there in self._candidates(circuit, circuit.peer, circuit.peer_port)
        ]
        same = [(here, there) for here, there in pairs if here.ocs == there.ocs]
        if not same:
            here, there = pairs[0]
            raise Refused(
                f"{self.what}: {circuit.text!r}: {here} ends in {here.ocs} and {there} in {there.ocs}: a circuit joins two "
                "ports of one optical switch"
            )
        free = [pair for pair in same if self._is_free(*pair, circuit)]
        if not free and (circuit.port is None or circuit.peer_port is None):
            raise Refused(
                f"{self.what}: {circuit.text!r}: no optical switch has a port of {circuit.tor} and one of {circuit.peer} left"
            )
        # Where both ports are given and one is taken, `put` says by which circuit.
        return (free or same)[0]

    def _candidates(self, circuit: _Circuit, tor: str, port: int | None) -> list[Uplink]:
        at = self.joined.at(tor)
        if port is None:
            return list(at.values())
        if port not in at:
            known = ", ".join(map(str, sorted(at)))
            raise Refused(
                f"{self.what}: {circuit.text!r}: {tor} port {port} does not lead to an optical switch: choose from {known}"
            )
        return [at[port]]

    def _is_free(self, here: Uplink, there: Uplink, circuit: _Circuit) -> bool:
        one_way = here not in self._sends and there not in self._receives
        return one_way and (not circuit.both_ways or (there not in self._sends and here not in self._receives))
