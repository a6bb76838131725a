"""What `describe` prints: one fabric, from its graph, or several side by side, by formula."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from lab.errors import LabError
from lab.planning.experiment import SETTINGS, Experiment
from lab.planning.site import fabric_of
from topologies import drawing, graphml, infragraph
from topologies.comparison import Terms, compare, compare_text
from topologies.describe import describe, describe_text
from topologies.prices import DEFAULT_PRICES, Prices, parse_prices
from topologies.sizing import Want

# Options that only mean something with --compare, and those of a run that mean something with it.
_OF_SEVERAL = ("accelerators", "radix", "hb_domain", "miniature")
_OF_BOTH = ("link_rate",)


def one(experiment: Experiment, arguments: argparse.Namespace) -> None:
    """The experiment's own fabric."""
    for name in _OF_SEVERAL:
        if getattr(arguments, name) is not None:
            raise LabError(
                f"--{name.replace('_', '-')} belongs to --compare NAME ...: leave it out, or compare fabrics"
            )
    fabric = fabric_of(experiment)
    description = describe(fabric, prices=_prices(arguments.prices), optics=arguments.optics)
    if arguments.svg:
        write(arguments.svg, drawing.svg(fabric))
    if arguments.graphml:
        write(arguments.graphml, graphml.to_graphml(fabric))
    if arguments.infragraph:
        as_json = arguments.infragraph.endswith(".json")
        write(arguments.infragraph, infragraph.to_infragraph(fabric, as_json=as_json))
    print(json.dumps(description) if arguments.json else describe_text(description))


def several(experiment: Experiment, arguments: argparse.Namespace) -> None:
    """The fabrics of --compare, each as small as it can be."""
    given = [SETTINGS[key].option for key in SETTINGS if key not in _OF_BOTH and getattr(arguments, key) is not None]
    written = [f"--{name}" for name in ("svg", "graphml", "infragraph") if getattr(arguments, name)]
    for option in written + given:
        raise LabError(f"{option} is of one fabric, and --compare chooses each one's size: leave one of them out")
    if arguments.accelerators is None or arguments.radix is None:
        raise LabError("--compare needs --accelerators N and --radix K, for example --accelerators 2048 --radix 64")
    want = Want(
        arguments.accelerators, arguments.radix, Want.hb_domain if arguments.hb_domain is None else arguments.hb_domain
    )
    terms = Terms(want, optics=arguments.optics, prices=_prices(arguments.prices), miniature=arguments.miniature)
    if experiment.link_rate_mbps is not None:
        terms = replace(terms, rate_gbps=experiment.link_rate_mbps / 1e3)
    rows = compare(arguments.compare, terms)
    print(json.dumps(rows) if arguments.json else compare_text(rows, terms))


def _prices(file: str | None) -> Prices:
    if file is None:
        return DEFAULT_PRICES
    try:
        return parse_prices(Path(file).read_text(), file)
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"--prices {file!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def write(file: str, text: str) -> None:
    """Raises LabError."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"{file!r} cannot be written: {error.strerror}: choose another file") from None
