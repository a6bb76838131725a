"""Lab 6: when a reconfiguration pays. 4 leaves of 2 hosts, 2 uplinks each; all send to the opposite leaf; 2 ms of dark."""

from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Wrong
from topologies.units import format_size

_NIC_BYTES_PER_S = 400e9 / 8
_DARK_S = 2e-3
# For B bytes a host, evenly spread. Ring: each of a leaf's two uplinks carries half of its own 2 B and half of a neighbour's 2 B.
# Opposite leaves joined: half of its own 2 B.
_RING_LOAD, _DIRECT_LOAD = 2, 1
_SMALL_BYTES, _LARGE_BYTES = 2**26, 2**28


def _ring_load(answers: Answers) -> str:
    return answers.number(
        "ring_load",
        _RING_LOAD,
        "half of the leaf's own 2 B, and half of the 2 B of a neighbour's that pass through",
        "an uplink of the ring carries the leaf's own traffic, and a neighbour's that passes through",
        {1: "that is without what passes through: the opposite leaf is two circuits away", 4: "a leaf has two uplinks"},
    )


def _break_even(answers: Answers) -> str:
    saved_s_per_byte = (_RING_LOAD - _DIRECT_LOAD) / _NIC_BYTES_PER_S
    return answers.number(
        "break_even_mb",
        _DARK_S / saved_s_per_byte / 1e6,
        "dark / (1 / slow rate - 1 / fast rate): below it the dark costs more than the circuits save",
        "a change saves the difference of the two times per byte, and costs the dark: from how many bytes left is it worth it? "
        "In MB of 1e6 bytes",
        {200: "what is saved is the difference between both times, not all of the slow one"},
        within=0.03,
    )


def _stay(answers: Answers) -> str:
    run = answers.run("stay", circuits=_plan(answers, "stay")).trusted()
    return (
        f"measured: {_ms(run.number('time_s', _SMALL_BYTES))} and {_ms(run.number('time_s', _LARGE_BYTES))} on the ring"
    )


def _change_64m(answers: Answers) -> str:
    stayed_s, changed_s = _times(answers, "change_64m", _SMALL_BYTES)
    if changed_s <= stayed_s:
        raise Wrong("64 MiB were faster with the change than on the ring: that is not what the dark gives: repeat both")
    return f"measured: {_ms(changed_s)} with the change, {_ms(stayed_s)} without"


def _change_256m(answers: Answers) -> str:
    stayed_s, changed_s = _times(answers, "change_256m", _LARGE_BYTES)
    if changed_s >= stayed_s:
        raise Wrong(
            "256 MiB were slower with the change than on the ring: that is not what the circuits give: repeat both"
        )
    return f"measured: {_ms(changed_s)} with the change, {_ms(stayed_s)} without"


def _times(answers: Answers, key: str, size_bytes: int) -> tuple[float, float]:
    """Without the change, and with it."""
    size, plan = format_size(size_bytes), _plan(answers, "change")
    changed = answers.run(key, circuits=plan, min_bytes=size, max_bytes=size).trusted()
    stayed = answers.run("stay", circuits=_plan(answers, "stay"))
    return stayed.number("time_s", size_bytes), changed.number("time_s", size_bytes)


def _plan(answers: Answers, name: str) -> str:
    return f"docs/labs/{answers.lab}/{name}.toml"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _pays_at_64m(answers: Answers) -> str:
    # At the most 3 of 64 MiB's least 2.7 ms on the ring are over when the change comes.
    return answers.choice(
        "pays_at_64m",
        "no",
        {"yes": "after 3 ms on the ring hardly anything of the 64 MiB is left, far below the break-even"},
        "what is left after 3 ms on the ring is far below the break-even",
    )


def _pays_at_256m(answers: Answers) -> str:
    return answers.choice(
        "pays_at_256m",
        "yes",
        {"no": "in 3 ms at half of the NIC's rate 75 MB are sent: what is left of 268 MB is above the break-even"},
        "in 3 ms at half of the NIC's rate 75 of 268 MB are sent: the rest is above the break-even",
    )


def _duty_cycle(answers: Answers) -> str:
    return answers.number(
        "duty_cycle",
        0.9,
        "(200 - 20) / 200: the slice begins with the dark",
        "a slice of 200 us begins with 20 us of dark: what share of it is light?",
        {200 / 220: "the slice's length here includes its dark", 0.1: "that is the dark share"},
        within=0.005,
    )


def _slice_us(answers: Answers) -> str:
    return answers.number(
        "slice_us",
        2000,
        "dark / (1 - 0.99): longer slices waste less, but everybody waits longer for the circuit they need",
        "the dark is to be 1 % of the slice",
        {1980: "the slice's length here includes its dark"},
        within=0.005,
    )


QUESTIONS: dict[str, Judge] = {
    "ring_load": _ring_load,
    "break_even_mb": _break_even,
    "pays_at_64m": _pays_at_64m,
    "pays_at_256m": _pays_at_256m,
    "stay": _stay,
    "change_64m": _change_64m,
    "change_256m": _change_256m,
    "duty_cycle": _duty_cycle,
    "slice_us": _slice_us,
}
