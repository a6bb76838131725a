"""Lab 1: what an all-reduce sends, and what algbw and busbw say of it. n = 4 ranks, S = 256 MiB, 400 Gbit/s."""

from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Wrong

_RANKS, _SIZE_BYTES, _NIC_MBPS = 4, 2**28, 400_000.0
# Of nccl-tests, and what a ring's rank sends: every chunk of S / n but one twice.
_BUS_FACTOR = 2 * (_RANKS - 1) / _RANKS
# Of the run that the question describes, 8400 us, in GB/s.
_ALGBW = _SIZE_BYTES / 8400e-6 / 1e9


def _bus_factor(answers: Answers) -> str:
    return answers.number(
        "bus_factor",
        _BUS_FACTOR,
        "2 (n - 1) / n: n - 1 steps of reduce-scatter and n - 1 of all-gather, S / n each",
        "count the chunks of S / n that one rank sends: n - 1 in the reduce-scatter, as many in the all-gather",
        {
            0.75: "that is one of the two halves: reduce-scatter is followed by all-gather",
            2.0: "only for very many ranks",
        },
    )


def _ideal_us(answers: Answers) -> str:
    ideal_us = _BUS_FACTOR * _SIZE_BYTES * 8 / _NIC_MBPS
    return answers.number(
        "ideal_us",
        ideal_us,
        "2 (n - 1) / n x S / the NIC's rate: what the run calls the roofline",
        "divide what a rank sends, in bits, by the rate of its NIC",
        {
            ideal_us / 8: "bytes were divided by a rate in bits",
            ideal_us / _BUS_FACTOR: "that is the time of S: a rank sends more",
            ideal_us / 1.048576: "MiB are 2^20 bytes",
        },
        within=0.005,
    )


def _run(answers: Answers) -> str:
    run = answers.run("run").trusted()
    busbw, limit = run.number("busbw_gbytes_s"), _NIC_MBPS / 8000
    if busbw > limit * 1.02:
        raise Wrong(f"{run.folder}: {busbw:.1f} GB/s over a NIC of {limit:g}: that must not happen, please report it")
    return f"measured: busbw {busbw:.2f} of {limit:g} GB/s, jct_ratio {run.number('jct_ratio'):.3f}"


def _busbw(answers: Answers) -> str:
    return answers.number(
        "busbw",
        _BUS_FACTOR * _ALGBW,
        "S / time, times the bus factor: comparable with the NIC's rate whatever the number of ranks",
        "busbw = S / time x the bus factor, in GB/s of 1e9 bytes",
        {
            _ALGBW: "that is algbw, S / time: it says how fast a buffer was reduced, not how busy the links were",
            _BUS_FACTOR * _ALGBW / 1.073741824: "GB are 1e9 bytes here, as in nccl-tests",
        },
    )


def _algbw_of_16(answers: Answers) -> str:
    # The ring keeps every NIC as busy at 16 ranks as at 4; each of them sends 2 x 15/16 of S.
    return answers.number(
        "algbw_of_16",
        _BUS_FACTOR * _ALGBW / (2 * 15 / 16),
        "busbw stays, since the same NICs are as busy; algbw falls towards half of it",
        "which of the two stays the same when the links stay as busy? divide it by the bus factor of 16 ranks",
        {_BUS_FACTOR * _ALGBW: "that is busbw: algbw is what S / time would be", _ALGBW: "that is algbw of 4 ranks"},
    )


QUESTIONS: dict[str, Judge] = {
    "bus_factor": _bus_factor,
    "ideal_us": _ideal_us,
    "run": _run,
    "busbw": _busbw,
    "algbw_of_16": _algbw_of_16,
}
