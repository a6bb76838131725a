"""Lab 9: lost packets, go-back-N and ECN. Two links that lose 1 % each; then an incast of four with DCQCN and without."""

from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Run, Wrong

_LOSS = 0.01
_PATH_LOSS = 1 - (1 - _LOSS) ** 2
# Packets that one loss makes go-back-N send again, in the question.
_SENT_AGAIN = 20
_INCAST = "incast.toml"


def _path_loss(answers: Answers) -> str:
    return answers.number(
        "path_loss",
        _PATH_LOSS,
        "1 - 0.99^2: a packet has to survive both links",
        "a packet crosses two links, and each lets 99 % through",
        {0.01: "that is one link's"},
        within=0.006,
    )


def _go_back_n(answers: Answers) -> str:
    run = answers.run("go_back_n", reliability="go-back-N").trusted()
    return _measured(run)


def _selective(answers: Answers) -> str:
    run = answers.run("selective", reliability="selective").trusted()
    if run.number("retransmits") >= answers.run("go_back_n", reliability="go-back-N").number("retransmits"):
        raise Wrong(f"{run.folder} sent no fewer packets again than go-back-N: repeat both")
    return _measured(run)


def _measured(run: Run) -> str:
    lost, again = run.number("dropped_fabric"), run.number("retransmits")
    return (
        f"measured: {run.number('jct_ratio'):.2f} times the roofline, {again:.0f} packets sent again for {lost:.0f} lost, "
        "acknowledgements among them"
    )


def _useful_go_back_n(answers: Answers) -> str:
    return answers.number(
        "useful_go_back_n",
        1 - _SENT_AGAIN * _PATH_LOSS,
        "1 - 20 p: of all packets sent, p are lost, and each of those costs 20 more",
        "say T packets are sent in all: p T of them are lost, 20 p T are sent again, and the rest is what was needed",
        {
            1 / (1 + _SENT_AGAIN * _PATH_LOSS): "packets that are sent again are lost, too, and cost as much",
            1 - _PATH_LOSS: "that is without what is sent again after a loss",
            1 - _SENT_AGAIN * _LOSS: "a packet crosses two links",
        },
        within=0.005,
    )


def _useful_selective(answers: Answers) -> str:
    return answers.number(
        "useful_selective",
        1 - _PATH_LOSS,
        "1 - p: each lost packet costs one more",
        "now each lost packet costs one",
        within=0.005,
    )


def _why(answers: Answers) -> str:
    return answers.choice(
        "go_back_n_resends",
        "all since the lost one",
        {
            "the lost one": "that is selective repeat: it keeps what came after the gap",
            "all of the message": "what was acknowledged before the gap is done",
        },
        "the receiver drops whatever comes out of order, so one loss costs a round trip's worth of packets",
    )


def _mark_first(answers: Answers) -> str:
    return answers.choice(
        "ecn_threshold",
        "below the queue's limit",
        {
            "at the queue's limit": "then the first mark comes with the first drop: a round trip too late",
            "zero": "then every packet that waits at all is marked, and links run empty",
        },
        "the sender must hear of the queue a round trip before it is full",
    )


def _dcqcn(answers: Answers) -> str:
    run = answers.run("dcqcn", _INCAST).trusted()
    if not run.number("cnps"):
        raise Wrong(f"{run.folder}: no notification (CNP) came: was the ECN threshold left out?")
    return f"measured: {_drops(run)} frames dropped, {run.number('cnps'):.0f} notifications"


def _none(answers: Answers) -> str:
    run = answers.run("no_congestion_control", _INCAST, congestion_control="none").trusted()
    if _drops(run) <= _drops(answers.run("dcqcn", _INCAST)):
        raise Wrong(f"{run.folder} dropped no more than with DCQCN: repeat both")
    return f"measured: {_drops(run)} frames dropped, {run.number('retransmits'):.0f} packets sent again"


def _drops(run: Run) -> int:
    return int(run.number("dropped_fabric") + run.number("dropped_host"))


QUESTIONS: dict[str, Judge] = {
    "path_loss": _path_loss,
    "go_back_n_resends": _why,
    "go_back_n": _go_back_n,
    "useful_go_back_n": _useful_go_back_n,
    "selective": _selective,
    "useful_selective": _useful_selective,
    "ecn_threshold": _mark_first,
    "dcqcn": _dcqcn,
    "no_congestion_control": _none,
}
