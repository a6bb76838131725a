"""In which order a pipeline's stages run the forward and backward passes of the microbatches."""

from collections.abc import Callable, Iterator

from traffic.errors import TrafficError

# (whether forward, microbatch)
Pass = tuple[bool, int]


def gpipe(stage: int, stages: int, microbatches: int) -> list[Pass]:
    """All forward, then all backward, last first (Huang et al. 2019, arXiv:1811.06965, figure 2): a stage holds the
    activations of every microbatch."""
    forward = [(True, i) for i in range(microbatches)]
    return forward + [(False, i) for i in reversed(range(microbatches))]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[Pass]:
    """1F1B (PipeDream-Flush; Narayanan et al. 2021, arXiv:2104.04473, figure 4): a stage runs ahead of the one after it by
    one microbatch, and holds the activations of at most stages - stage."""
    ahead = min(stages - 1 - stage, microbatches)
    order = [(True, i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        order += [(True, ahead + i), (False, i)]
    return order + [(False, i) for i in range(microbatches - ahead, microbatches)]


ORDERS: dict[str, Callable[[int, int, int], list[Pass]]] = {
    "1f1b": one_forward_one_backward,
    "gpipe": gpipe,
}


def bubble_fraction(stages: int, microbatches: int) -> float:
    """Share of a step in which a stage waits, of both orders, if all stages take the same time and messages none:
    (p - 1) / (m + p - 1)."""
    return (stages - 1) / (microbatches + stages - 1)


def interleaved(order: str, stages: int, microbatches: int) -> Iterator[tuple[int, Pass]]:
    """(stage, pass) of all stages, each after what it needs from its neighbours: forward from the stage before, backward
    from the stage after."""
    left = [list(reversed(ORDERS[order](s, stages, microbatches))) for s in range(stages)]
    done: set[tuple[int, Pass]] = set()
    while any(left):
        before = len(done)
        for stage, passes in enumerate(left):
            while passes:
                forward, microbatch = passes[-1]
                neighbour = stage - 1 if forward else stage + 1
                if 0 <= neighbour < stages and (neighbour, passes[-1]) not in done:
                    break
                done.add((stage, passes.pop()))
                yield stage, (forward, microbatch)
        if len(done) == before:
            raise TrafficError(f"pipeline order {order}: its stages wait for each other")
