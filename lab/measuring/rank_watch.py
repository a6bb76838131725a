"""Watches a program's processes while they run: how much of the time each computes, and is stopped. Reads /proc."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from lab.measuring.cpu import Process, process
from lab.measuring.diagnosis import RankUse

_INTERVAL_S = 0.1
_STOPPED = ("T", "t")


class RankWatch:
    """hosts: of the ranks. Between `watch`, which is told the ranks' processes, and `close`."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._last: dict[int, Process] = {}
        self._seen: dict[int, int] = {}
        self._stopped: dict[int, int] = {}
        self._ended_s: dict[int, float] = {}

    def watch(self, pids: Sequence[int]) -> None:
        """pids: rank by rank; of another number, as MPI's one launcher, they are not the ranks' and none is watched."""
        if len(pids) == len(self._hosts):
            self._began_s = time.monotonic()
            self._thread = threading.Thread(target=self._run, args=(list(pids),), name="rank watch", daemon=True)
            self._thread.start()

    def close(self) -> list[RankUse]:
        self._over.set()
        if self._thread is None:
            return []
        self._thread.join()
        return [
            RankUse(
                rank=rank,
                host=self._hosts[rank],
                busy_share=p.cpu_s / max(self._ended_s[rank] - self._began_s, _INTERVAL_S),
                stopped_share=self._stopped.get(rank, 0) / self._seen[rank],
            )
            for rank, p in sorted(self._last.items())
        ]

    def _run(self, pids: list[int]) -> None:
        while not self._over.wait(_INTERVAL_S):
            for rank, pid in enumerate(pids):
                with suppress(OSError):
                    self._last[rank] = p = process(pid)
                    self._seen[rank] = self._seen.get(rank, 0) + 1
                    self._stopped[rank] = self._stopped.get(rank, 0) + (p.state in _STOPPED)
                    self._ended_s[rank] = time.monotonic()
