"""One experiment in a process of its own, for those that have another thread, or many experiments: the Python interface and
sweeps. Both sides: `run` starts the process, on this machine or on a Dask worker's; `python -m lab.commands.cell` is it.
"""

import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from lab.paths import REPOSITORY
from lab.planning.experiment import Experiment
from topologies import Refused, syscalls

REFUSED = 2
_OURS = "run_topo.py: "


@dataclass(frozen=True)
class Outcome:
    """status: as the command line's; said: what stood on standard error; folder: the results, a zip file's bytes, b'' = none."""

    status: int
    said: str
    folder: bytes

    @property
    def reason(self) -> str:
        """Why it failed, if it did: the last that was said."""
        said = [line for line in self.said.splitlines() if line.strip()]
        ours = [line for line in said if line.startswith(_OURS)]
        last = [*said, *ours][-1:]
        return last[0].removeprefix(_OURS) if last else f"ended with status {self.status}, without a word"

    def unpack(self, folder: Path) -> None:
        with zipfile.ZipFile(io.BytesIO(self.folder)) as packed:
            packed.extractall(folder)


def run(experiment: Experiment) -> Outcome:
    """Runs it in a sandbox of its own and brings the results folder back. Needs root, there where it runs."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="cell-") as scratch:
        folder = Path(scratch) / "results"
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        try:
            _, said = process.communicate(pickle.dumps(experiment))
        except BaseException:
            process.terminate()
            process.wait()
            raise
        return Outcome(process.returncode, said.decode(errors="replace"), packed(folder))


def packed(folder: Path) -> bytes:
    """A folder as a zip file's bytes; b'' where there is none."""
    if not folder.is_dir():
        return b""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.rglob("*")):
            packed.write(file, file.relative_to(folder))
    return buffer.getvalue()


def main(folder: str) -> int:
    from lab.commands import launch
    from lab.machine import probes

    syscalls.die_with_parent(signal.SIGTERM)
    probes.complete_path()
    experiment: Experiment = pickle.load(sys.stdin.buffer)
    try:
        return launch.run(experiment, out=folder, output="nothing", publish=None)
    except Refused as refusal:
        print(f"{_OURS}{refusal}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
