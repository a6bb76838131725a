"""Open vSwitch's database, spoken to directly: JSON-RPC over its unix socket (RFC 7047).

For 48 bridges and 1536 ports `ovs-vsctl` spends 1.4 s before it sends the same transaction, and its command line has a
limit.
"""

import json
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.errors import EmulationError

_LISTEN_DEADLINE_S = 1.0


def socket_path(run_dir: Path) -> Path:
    return run_dir / "db.sock"


class Database:
    """A connection to the ovsdb-server of `run_dir`. Raises EmulationError for what the server refuses."""

    def __init__(self, run_dir: Path) -> None:
        path = socket_path(run_dir)
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

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *exc: object) -> None:
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


def select(table: str, where: Sequence[Any], *columns: str) -> dict[str, Any]:
    return {"op": "select", "table": table, "where": where, "columns": columns}
