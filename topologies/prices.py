"""What a part of a fabric costs, draws and how often it fails: list-price orders of magnitude, to compare, not to buy.

US dollars and watts are those of 400 Gbit/s and taken in proportion to the rate, but for a switch as a whole, optical
switches and fibre, which do not depend on it; failures do not either.

[1] A. Grattafiori et al., "The Llama 3 Herd of Models", 2024, table 5: in 54 days 16 384 GPUs saw 7 failures of NICs and
    35 of switches and cables. The failure rates below give back both on a three-tier fabric of 64-port switches.
[2] R. Singh et al., "Surviving Switch Failures in Cloud Datacenters", CCR 51(2), 2021: 98 % of 180 000 switches ran for
    three months without a failure.
[3] H. Liu et al., "Lightwave Fabrics", SIGCOMM 2023: an optical switch of 136 ports draws 108 W at most.
[4] NVIDIA's product specifications: single-mode MMS4X00-NS400 9 W, multimode MMA4Z00-NS400 8 W, passive copper about 0.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from topologies.errors import TopologyError, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REFERENCE_GBPS = 400.0


@dataclass(frozen=True)
class Price:
    """usd; watts; failures_per_year: expected, of one such part."""

    usd: float = 0.0
    watts: float = 0.0
    failures_per_year: float = 0.0


@dataclass(frozen=True)
class Prices:
    """Parts by name. A switch's dollars and watts are those of its ports in use; an AOC's are with both ends. dsp, lpo and
    cpo are one end of a fibre: retimed pluggable, linear pluggable, co-packaged engine with its share of the laser."""

    nic: Price = Price(1200, 25, 0.003)  # round figures; failures [1]
    switch: Price = Price(failures_per_year=0.08)  # [2]
    switch_port: Price = Price(400, 20)  # round figures, a port's share of a chassis with fans and supplies
    ocs: Price = Price(failures_per_year=0.08)  # round figure: as a packet switch
    ocs_port: Price = Price(500, 0.8)  # round figure; [3]
    dac: Price = Price(100, 0, 0.0002)  # round figures; [4]
    aoc: Price = Price(800, 16, 0.004)  # round figure; two ends of [4]; as two transceivers
    fibre: Price = Price(50, 0, 0.0001)  # round figures
    dsp: Price = Price(500, 9, 0.002)  # round figure; [4]; [1]
    lpo: Price = Price(450, 4.3, 0.002)  # round figures: half of a DSP's power
    cpo: Price = Price(350, 2.8, 0.001)  # round figures: a third of a DSP's power, half of its failures
    coherent: Price = Price(4000, 19, 0.004)  # round figures; 400ZR modules draw 15 to 20 W
    source: str = "built-in round figures (topologies/prices.py)"


DEFAULT_PRICES = Prices()
PARTS = tuple(f.name for f in fields(Prices) if f.name != "source")
_FIGURES = tuple(f.name for f in fields(Price))


def parse_prices(text: str, source: str) -> Prices:
    """The default prices with those of a TOML document laid over them; source: its name, for refusals and the output.

    [dsp]
    usd = 700
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(f"prices {source}: not TOML: {error}") from None
    changed: dict[str, Any] = {}
    for part, figures in document.items():
        if part not in PARTS:
            raise TopologyError(f"prices {source}: {unknown('part', part, PARTS)}")
        changed[part] = _price(getattr(DEFAULT_PRICES, part), figures, f"prices {source}: [{part}]")
    return replace(DEFAULT_PRICES, source=source, **changed)


def _price(default: Price, figures: object, where: str) -> Price:
    if not isinstance(figures, Mapping):
        raise TopologyError(f"{where} must be a table of {', '.join(_FIGURES)}")
    for key, value in figures.items():
        if key not in _FIGURES:
            raise TopologyError(f"{where}: {unknown('key', key, _FIGURES)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise TopologyError(f"{where} {key} = {value!r} must be a number, 0 or more")
    return Price(**{**asdict(default), **figures})
