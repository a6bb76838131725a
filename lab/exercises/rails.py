"""Lab 5: rails without spines. s = 4 servers of g = 4 accelerators."""

from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Wrong

_S, _G = 4, 4
_N = _S * _G


def _unjoined_pairs(answers: Answers) -> str:
    return answers.number(
        "unjoined_pairs",
        _N * (_S - 1) * (_G - 1),
        "s g (s - 1) (g - 1): another server and another rail; neither a leaf nor an HB domain has both",
        "fix one accelerator: how many others are in another server and on another rail? Ordered pairs, so do not halve",
        {
            _N * (_S - 1) * (_G - 1) // 2: "ordered pairs: a sends to b, and b to a",
            _N * (_N - 1): "those are all pairs",
        },
    )


def _nic_share(answers: Answers) -> str:
    return answers.number(
        "nic_share",
        (_S - 1) / _S,
        "(s - 1) / s: what is for other servers crosses a NIC once, whichever way it is brought there",
        "of the S bytes a rank sends, n-th parts to each rank, what part is for other servers?",
        {_N - 1: "as a share of S, not in parts", 15 / 16: "three of those are in the server itself"},
    )


def _hb_share(answers: Answers) -> str:
    own, forwarded = (_G - 1) / _N, (_S - 1) * (_G - 1) / _N
    return answers.number(
        "hb_share",
        own + forwarded,
        "(g - 1) / g: what is for the own server, and what a peer on the right rail sends on",
        "two parts: what is for the g - 1 peers, and what is for other rails of other servers, which a peer takes first",
        {
            own: "and what a peer on the right rail has to send on?",
            forwarded: "and what is for the peers themselves?",
        },
    )


def _rail_only(answers: Answers) -> str:
    run = answers.run("run").trusted()
    return f"measured: {run.number('jct_ratio'):.2f} times the roofline, without a spine"


def _measured_ratio(answers: Answers) -> str:
    by_kind = answers.run("run").sent_by_kind()
    measured = by_kind["scale-up"] / by_kind["scale-out"]
    if abs(measured - 1) > 0.1:
        raise Wrong("this run's counters do not show the plan's bytes: repeat it")
    return answers.number(
        "measured_ratio",
        measured,
        "hb_share over nic_share, as the counters have it",
        "from links.parquet or the report: bytes of all scale-up links over bytes of all scale-out links",
        within=0.05,
    )


def _hot_leaf(answers: Answers) -> str:
    # In rank order s1g4 is followed by s2g1: a ring's ways between servers begin on the last rail and end on the first.
    inside = "in rank order, which accelerator of a server is followed by one of the next server?"
    others = {"leaf1": "that is where they arrive: where do they leave from?", "leaf2": inside, "leaf3": inside}
    return answers.choice(
        "hot_leaf",
        "leaf4",
        others,
        "s1g4 -> s2g1, s2g4 -> s3g1 and so on: all cross from the last rail to the first",
    )


def _saving(answers: Answers) -> str:
    flat, hierarchical = 2 * (_N - 1) / _N, 2 * (_S - 1) / _S / _G
    return answers.number(
        "saving",
        flat / hierarchical,
        "2 (n - 1) / n of S against 2 (s - 1) / s of S / g: the HB domain reduces before the NIC sends",
        "in a flat ring the last rank of a server sends 2 (n - 1) / n of S; by hierarchical it takes part in an all-reduce of a "
        "g-th part among s ranks",
        {4.0: "close: 2 (n - 1) / n is not 2 (s - 1) / s"},
    )


QUESTIONS: dict[str, Judge] = {
    "unjoined_pairs": _unjoined_pairs,
    "nic_share": _nic_share,
    "hb_share": _hb_share,
    "run": _rail_only,
    "measured_ratio": _measured_ratio,
    "hot_leaf": _hot_leaf,
    "saving": _saving,
}
