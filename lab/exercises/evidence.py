"""A results folder as evidence: it is of the experiment that was asked for, and its counters say what happened.

Reads files only.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lab.planning.experiment import Experiment
from topologies.errors import one_line

# What a student may choose: how large the emulated fabric is, and how often it is measured.
_FREE = {"scale", "seed", "time_limit_s", "iterations", "warmup_iterations"}


class Wrong(Exception):
    """An answer that is not right, or evidence that shows nothing: the text, one line, says why."""


@dataclass(frozen=True)
class Run:
    """rows: of results.csv; sent: bytes by the direction of a link, as 'leaf1->spine2'; kind: of each; samples: sent so far, by
    time (s) and direction."""

    folder: str
    rows: Sequence[Mapping[str, str]]
    sent: Mapping[str, int]
    kind: Mapping[str, str]
    samples: pd.DataFrame

    def number(self, column: str, size_bytes: int | None = None) -> float:
        """Of the row of that size, or of the only one."""
        found = [row for row in self.rows if size_bytes is None or int(row["size_bytes"]) == size_bytes]
        if not found:
            raise Wrong(f"{self.folder} has no row of {size_bytes} bytes")
        if not found[0].get(column):
            raise Wrong(f"{self.folder} has no {column}: the run ended before it had measured it")
        return float(found[0][column])

    def sent_by_kind(self) -> Mapping[str, int]:
        """Bytes over all links of a kind, as 'scale-out'."""
        total: dict[str, int] = defaultdict(int)
        for link, n_bytes in self.sent.items():
            total[self.kind[link]] += n_bytes
        return total

    def trusted(self) -> "Run":
        """The run, if its times are the network's."""
        for row in self.rows:
            if row["wrong"] != "0":
                raise Wrong(f"{self.folder}: {row['wrong']} values are wrong: that must not happen, please report it")
            if row["verdict"] == "invalid":
                raise Wrong(
                    f"{self.folder} is invalid, the emulator was in the way: {row['reason']}: run it again, into another "
                    "folder, when the machine does nothing else"
                )
        return self


def read_run(folder: str, asked: Experiment) -> Run:
    """Raises Wrong where there is no such folder, or where it is of another experiment."""
    path = Path(folder)
    if not (path / "results.csv").is_file():
        raise Wrong(f"{folder}: no results there: run the experiment with --out {folder}")
    try:
        ran = json.loads((path / "manifest.json").read_text())["experiment"]
        with (path / "results.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        links = pd.read_parquet(path / "links.parquet")
    except (OSError, ValueError, KeyError) as error:
        raise Wrong(f"{folder} cannot be read ({one_line(str(error))}): run it again, into another folder") from None
    _check_same(folder, ran, asked)
    if not rows:
        raise Wrong(f"{folder}: the run ended before it had measured anything")
    samples = links.pivot_table(index="at_s", columns="link", values="bytes_sent", aggfunc="sum")
    sent = {str(link): int(n) for link, n in (samples.max() - samples.min()).items()}
    return Run(folder, rows, sent, dict(zip(links["link"], links["kind"], strict=True)), samples)


def _check_same(folder: str, ran: Mapping[str, Any], asked: Experiment) -> None:
    """What the experiment leaves to the program may be anything. Over circuits routing is theirs."""
    free = _FREE | ({"routing"} if asked.circuits else set())
    for field, value in json.loads(json.dumps(asdict(asked), default=str)).items():
        if field not in free and value is not None and ran.get(field) != value:
            raise Wrong(f"{folder} is a run with {field} = {ran.get(field)}, the lab asks for {value}")
