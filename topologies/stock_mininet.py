"""The topologies as stock Mininet's: a `Topo` whose nodes and links bring their own classes, for `mn --custom`.

`mn` builds and starts in its own order; what it makes are descriptions, and the fabric itself is built in one go when it
starts its switches. Classes come by each node's and link's `cls`, not by options: mn 2.3.0 ignores a custom file's
`links` (a comma is missing in its source), and its own hosts would ask for addresses that no switch floods.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mininet.topo import Topo

from topologies import TOPOLOGIES, ovs_daemons
from topologies.emulation import Emulation
from topologies.errors import EmulationError, Refused, TopologyError
from topologies.fabric import Fabric
from topologies.mininet_nodes import FabricHost, FabricSwitch, link_options
from topologies.topology import build, make, parse_parameters
from topologies.units import parse_rate_mbps

DEFAULT_RATE = "50Mbit"


class StockSwitch(FabricSwitch):
    """Collects what `mn` starts one by one, and starts and stops the whole fabric at once."""

    def start(self, controllers: Sequence[Any]) -> None:
        """`mn` starts every switch before `batchStartup`; later this is `switch leaf1 start` at the prompt."""
        if self.emulation.is_up:
            super().start(controllers)
            return
        self.emulation.controllers = tuple(f"{c.protocol}:{c.IP()}:{c.port}" for c in controllers)

    @classmethod
    def batchStartup(cls, switches: Sequence["StockSwitch"], **_: Any) -> Sequence["StockSwitch"]:
        _or_exit(switches[0].emulation.start)
        return switches

    @classmethod
    def batchShutdown(cls, switches: Sequence["StockSwitch"], **_: Any) -> Sequence["StockSwitch"]:
        switches[0].emulation.stop()
        return switches


class FabricTopo(Topo):  # type: ignore[misc]
    """A fabric as Mininet's graph."""

    def build(self, emulation: Emulation) -> None:
        fabric = emulation.fabric
        for host in fabric.hosts:
            port = fabric.scale_out_port(host.name)
            self.addHost(host.name, cls=FabricHost, emulation=emulation, ip=f"{port.ip}/32", mac=port.mac)
        for switch in fabric.switches:
            self.addSwitch(switch.name, cls=StockSwitch, emulation=emulation, dpid=f"{switch.dpid:x}")
        for link in fabric.links:
            self.addLink(link.a.node, link.b.node, **link_options(link))


def keep_hands_off() -> None:
    """In the place of mn's `cleanup` after an exception, which ends every ping on the machine and deletes every bridge.

    A fabric that fails to start takes itself back.
    """


def _topo(name: str, *values: object, **parameters: Any) -> Topo:
    """What `--topo NAME,key=value,...` builds; mn has turned values into numbers where it could."""
    return _or_exit(lambda: FabricTopo(emulation=_emulation(name, values, **parameters)))


def _emulation(
    name: str,
    values: Sequence[object],
    *,
    rate: object = DEFAULT_RATE,
    mtu: object = 9000,
    addressing: object = "l3",
    **parameters: Any,
) -> Emulation:
    if values:
        given = ",".join(map(str, values))
        raise TopologyError(f"--topo {name},{given}: each value needs its name, as in --topo {name},rate=50Mbit")
    if not isinstance(mtu, int):
        raise TopologyError(f"mtu={mtu!r} must be a whole number")
    text = ",".join(f"{key}={value}" for key, value in parameters.items())
    what = f"topology {name!r}"
    made = make(TOPOLOGIES[name], what, parse_parameters(TOPOLOGIES[name], text, what))
    fabric = _at_rate(build(made), parse_rate_mbps(str(rate)))
    datapath = ovs_daemons.find_datapath()
    print(f"*** {datapath} datapath; links of {rate}, MTU {mtu}", file=sys.stderr)
    return Emulation(fabric, mtu=mtu, addressing=str(addressing), datapath=datapath, controllers=(), progress=_say)


def _at_rate(fabric: Fabric, rate_mbps: float) -> Fabric:
    """The fabric with its fastest scale-out link at `rate_mbps`, the others in proportion, delays as they are."""
    fastest = max(link.rate_mbps for link in fabric.links if link.kind != "scale-up")
    return fabric.scaled(rate_scale=fastest / rate_mbps, time_dilation=1.0)


def _say(text: str) -> None:
    print(f"*** {text}", file=sys.stderr)


def _or_exit(work: Callable[[], Any]) -> Any:
    """One line and an exit status, where mn would show an exception."""
    try:
        return work()
    except Refused as error:
        print(f"*** refused: {error}", file=sys.stderr)
        sys.exit(2)
    except EmulationError as error:
        print(f"*** failed: {error}", file=sys.stderr)
        sys.exit(3)


topos: dict[str, Callable[..., Topo]] = {name: partial(_topo, name) for name in TOPOLOGIES}
