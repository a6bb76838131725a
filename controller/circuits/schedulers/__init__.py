"""One scheduler per file, a pure function `(demand, parameters) -> slices`.

To add one: a file with the function, and a line in SCHEDULERS. The command line, the help and the registry-wide tests pick it
up from here.
"""

from controller.circuits.scheduler import Scheduler, parse_scheduler, slices_of
from controller.circuits.schedulers.birkhoff_von_neumann import birkhoff_von_neumann
from controller.circuits.schedulers.edmonds import edmonds
from controller.circuits.schedulers.hotspot import hotspot
from controller.circuits.schedulers.hungarian import hungarian
from controller.circuits.schedulers.multi_uplink import multi_uplink
from controller.circuits.schedulers.opera import opera
from controller.circuits.schedulers.ring_permutations import ring_permutations
from controller.circuits.schedulers.round_robin import round_robin
from controller.circuits.schedulers.solstice import solstice
from controller.circuits.schedulers.static import static

SCHEDULERS: dict[str, Scheduler] = {
    "static": static,
    "round-robin": round_robin,
    "hungarian": hungarian,
    "edmonds": edmonds,
    "birkhoff-von-neumann": birkhoff_von_neumann,
    "solstice": solstice,
    "hotspot": hotspot,
    "ring-permutations": ring_permutations,
    "multi-uplink": multi_uplink,
    "opera": opera,
}


def scheduler(spec: str) -> Scheduler:
    """'solstice' or './mine.py:SCHEDULER' -> the scheduler."""
    return parse_scheduler(spec, SCHEDULERS)


__all__ = ["SCHEDULERS", "Scheduler", "scheduler", "slices_of"]
