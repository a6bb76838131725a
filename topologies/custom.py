"""Every topology of the testbed for stock Mininet, and all that it needs with it: no further flags.

    sudo mn --custom topologies/custom.py --topo spine-leaf,spines=2,leaves=4 --controller remote

Parameters beside the topology's own: rate=50Mbit (the fastest scale-out link; the others keep their ratio), mtu=9000,
addressing=l3. The controller, in another terminal, first:

    python3 run_topo.py describe --topology spine-leaf:spines=2,leaves=4 --json > fabric.json
    .venv/bin/python -m controller --fabric fabric.json --policy ecmp
"""

# `mn` runs this text with exec, under the interpreter of its own first line, and takes over every name it leaves behind.
import sys
from pathlib import Path


def _make_importable() -> None:
    """The repository, and pyroute2 from its virtual environment where the system has none."""
    root = Path(sys._getframe().f_code.co_filename).resolve().parents[1]
    sys.path.insert(0, str(root))
    sys.path.extend(map(str, root.glob(".venv/lib/python3.*/site-packages")))
    try:
        import pyroute2  # noqa: F401
    except ImportError:
        sys.exit(f"{root.name} is not set up: run {root}/scripts/setup.sh once, then this again")


_make_importable()

# `mn` looks these three up by name: the topologies, the network class, and what it calls after an exception.
from topologies.mininet_adapter import WorkingIperf as Mininet  # noqa: E402
from topologies.stock_mininet import keep_hands_off as cleanup  # noqa: E402
from topologies.stock_mininet import topos  # noqa: E402

__all__ = ["Mininet", "cleanup", "topos"]
