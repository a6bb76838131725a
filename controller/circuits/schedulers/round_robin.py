"""Every pair in turn, whatever the demand: rotors that know n - 1 matchings between them (RotorNet; Mellette et al., "RotorNet:
A Scalable, Low-complexity, Optical Datacenter Network", SIGCOMM 2017)."""

from controller.circuits.rotation import rotations
from controller.circuits.slices import DemandMatrix, Parameters, Slice


def round_robin(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    """A cycle: (n - 1) / uplinks slices, rounded up. Each uplink turns through its share of the matchings; where they are
    not a multiple of the uplinks, some matchings come twice in the last slice."""
    every = rotations(len(demand))
    n_slices = -(-len(every) // parameters.uplinks)
    return tuple(
        Slice(
            tuple(every[(turn + uplink * n_slices) % len(every)] for uplink in range(parameters.uplinks)),
            parameters.slice_us,
        )
        for turn in range(n_slices)
    )
