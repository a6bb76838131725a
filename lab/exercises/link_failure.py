"""Lab 8: a link fails while traffic runs. 2 spines, 2 leaves of 2 hosts, all sending to the other leaf."""

from collections.abc import Sequence

import pandas as pd

from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Wrong

_FAILED, _ITS_OTHER_SIDE, _LEFT = "leaf1->spine1", "leaf2->spine1", ("leaf1->spine2", "leaf2->spine2")


def _share_after(answers: Answers) -> str:
    return answers.number(
        "share_after",
        0.5,
        "two hosts share the one uplink that is left",
        "how many uplinks has leaf1 left, and for how many hosts?",
        {0.75: "leaf2 may still send to spine1, but spine1 no longer reaches leaf1", 1.0: "two NICs, and one uplink"},
    )


def _told_by(answers: Answers) -> str:
    return answers.choice(
        "leaf2_is_told_by",
        "the controller",
        {
            "its own port": "leaf2's port to spine1 has its carrier: the link that failed is between spine1 and leaf1",
            "spine1": "an OpenFlow switch tells its neighbours nothing: it tells the controller",
            "nobody": "then half of leaf2's flows would end in spine1 for good: look at its counters",
        },
        "its own port is up, so it cannot know; leaf1, whose port went down, moves its flows by itself",
    )


def _ring(answers: Answers) -> str:
    return answers.choice(
        "ring_is_slower",
        "no",
        {"yes": "a ring in order leaves each leaf with one flow: how many uplinks does one flow need?"},
        "one flow leaves each leaf, and one uplink is left for it: it moves, and is as fast as before",
    )


def _run(answers: Answers) -> str:
    """Counters only: the failure itself makes a row invalid, and rightly."""
    run = answers.run("run")
    last = run.samples.index[-1]
    ended = {link: _last_sent_s(run.samples, link) for link in (_FAILED, _ITS_OTHER_SIDE, *_LEFT)}
    if ended[_FAILED] > last - _margin_s(run.samples):
        raise Wrong(
            f"{run.folder}: {_FAILED} carried traffic to the end: set its interface down while the iterations run"
        )
    if min(ended[link] for link in _LEFT) < ended[_FAILED]:
        raise Wrong(f"{run.folder}: spine2 was given up as well: set down one link only")
    if ended[_ITS_OTHER_SIDE] > last - _margin_s(run.samples):
        raise Wrong(f"{run.folder}: leaf2 went on sending to spine1: it was not told; is the controller ours?")
    return (
        f"{_FAILED} carried nothing from {ended[_FAILED]:.1f} s on, {_ITS_OTHER_SIDE} from {ended[_ITS_OTHER_SIDE]:.1f} s on, "
        f"the rest of {last:.1f} s went by spine2, and no value is wrong"
    )


def _margin_s(samples: pd.DataFrame) -> float:
    """A tenth of the run: what a link that works is never without traffic for."""
    times: Sequence[float] = list(samples.index)
    return (times[-1] - times[0]) / 10


def _last_sent_s(samples: pd.DataFrame, link: str) -> float:
    """When the link's counter moved for the last time, by more than 1 % of all that it counted."""
    sent = samples[link]
    enough = sent >= sent.iloc[-1] - 0.01 * (sent.iloc[-1] - sent.iloc[0])
    return float(sent.index[enough][0])


QUESTIONS: dict[str, Judge] = {
    "share_after": _share_after,
    "leaf2_is_told_by": _told_by,
    "ring_is_slower": _ring,
    "run": _run,
}
