"""Import what a run needs; on failure one line names the pair that does not fit, and the exit status is 1."""

import importlib
import importlib.metadata
import platform
import sys
import warnings
from pathlib import Path

# module -> the packages that have to fit together for it
MODULES = {
    "mininet.net": ("setuptools",),
    "matplotlib.figure": ("matplotlib", "numpy", "contourpy", "pillow"),
    "pandas": ("pandas", "numpy"),
    "pyarrow.parquet": ("pyarrow", "numpy"),
    "pyroute2": ("pyroute2",),
    "networkx": ("networkx",),
    "scapy.layers.inet": ("scapy",),
    "scipy.optimize": ("scipy", "numpy"),
    "controller.ryu_compat": ("ryu", "eventlet", "WebOb", "tinyrpc", "msgpack", "netaddr"),
}


def main() -> int:
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    problems = [p for p in map(problem, MODULES) if p]
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


def problem(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        parts = [f"{name} {version(name)}" for name in MODULES[module]]
        return f"{module} does not import with {', '.join(parts)} on Python {platform.python_version()}: {error!r}"
    return None


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
