"""All the demand, in as many slices as it takes: the demand stuffed and taken apart into permutations, each held for as long as
its weight takes. Of the dark times between them it knows nothing, which is why Solstice exists."""

from controller.circuits.serving import Unserved
from controller.circuits.slices import DemandMatrix, Parameters, Slice
from controller.circuits.stuffing import decompose, quick_stuff


def birkhoff_von_neumann(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    """The longest slices first. A circuit that only stuffing would go over is left out."""
    unserved, slices = Unserved(demand), []
    for columns, weight in sorted(decompose(quick_stuff(demand)), key=lambda term: -term[1]):
        matching = unserved.serve(columns, weight)
        if any(j is not None for j in matching):
            slices.append(parameters.slice_for(matching, weight))
    return tuple(slices)
