"""Circuits for the largest pairs, the packet network for all others (c-Through; Wang et al., SIGCOMM 2010; Helios; Farrington et
al., SIGCOMM 2010).

A pair counts for what the circuit would carry for it in a day, as in Helios, and only if that is more than what the packet
network would: its share of an end's rate in the whole slice.
"""

import numpy as np

from controller.circuits.schedulers.edmonds import both_ways
from controller.circuits.slices import DemandMatrix, Parameters, Slice
from topologies.errors import Refused


def hotspot(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    """Raises Refused where there is no packet network."""
    if not parameters.packet_mbps:
        raise Refused(
            "hotspot leaves most pairs to a packet network: use a fabric that has one, such as ocs-leaf:spines=2"
        )
    peers = np.maximum((demand > 0).sum(axis=1, keepdims=True), 1)
    by_packets = parameters.packet_mbps * parameters.slice_us / 8 / peers
    by_circuit = np.minimum(demand, parameters.day_bytes * parameters.uplinks)
    gain = np.where(by_circuit > by_packets, by_circuit, 0)
    return (Slice((both_ways(gain),), parameters.slice_us),)
