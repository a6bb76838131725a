"""The impairment hop as its owner sees it: started, asked how it did, ended."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from topologies.delay_line import Report
from topologies.errors import EmulationError

_REPOSITORY = Path(__file__).resolve().parent.parent


class HopProcess:
    """cables: (one end, other end, delay_us, jitter_us) of interfaces in the namespace. It ends with its owner."""

    def __init__(self, namespace: str, cables: Sequence[tuple[str, str, float, float]], mtu: int, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "topologies.hop"],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C at the prompt is for the command there.
            start_new_session=True,
        )
        settings = {"namespace": namespace, "cables": cables, "mtu": mtu, "seed": seed}
        if self._ask(json.dumps(settings)) != "ready":
            self.close()
            raise EmulationError("the impairment hop did not start: its error stands above")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def report(self) -> Report:
        """Since the last one."""
        text = self._ask("")
        if not text:
            raise EmulationError(f"the impairment hop ended with status {self._process.wait()}")
        return Report(*json.loads(text))

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, line: str) -> str:
        assert self._process.stdin and self._process.stdout
        try:
            print(line, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            return ""
        return self._process.stdout.readline().strip()
