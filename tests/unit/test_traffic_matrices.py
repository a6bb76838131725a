"""Uneven all-to-alls: sums and shares by hand, and what a plan makes of them."""

import numpy as np
import pytest

from lab import cli
from lab.planning.experiment import load
from lab.planning.plan import plan
from lab.planning.scale import Scale
from traffic.matrices import hot_pairs


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 64])
@pytest.mark.parametrize("share", [0.1, 0.7, 1.0])
def test_all_send_and_receive_equally_much_and_the_hot_pair_its_share(n: int, share: float) -> None:
    m = np.array(hot_pairs(n, share))
    assert {*m.sum(axis=0)} == {*m.sum(axis=1)} == {4_000_000}
    sent = m - np.diag(np.diag(m))
    hot = sent[0, n // 2] / sent[0].sum()
    assert hot == pytest.approx(share if n > 2 else 1.0, abs=1e-3)
    rest = np.delete(sent[0], [0, n // 2])
    assert len({*rest}) <= 1


def test_a_plan_sends_the_shares_of_its_size() -> None:
    """8 ranks, S = 64 MB: 7/8 S leave each rank; 70 % of them, 39.2 MB, go to the rank four further."""
    planned = plan(
        load(
            None,
            {"collective": "all_to_all_v", "hot_share": "0.7", "min_bytes": "64MB", "max_bytes": "64MB", "ranks": "8"},
        )
    )
    size = planned.sizes(Scale())[0]
    s = planned.schedule
    sent = np.zeros((8, 8))
    np.add.at(sent, (s.src, s.dst), planned.message_bytes(size.count))
    assert sent.sum(axis=1) == pytest.approx(np.full(8, 56e6), rel=1e-3)
    assert sent[np.arange(8), (np.arange(8) + 4) % 8] == pytest.approx(np.full(8, 39.2e6), rel=1e-3)


def test_a_hot_share_belongs_to_the_uneven_all_to_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", "--collective", "all_to_all", "--hot-share", "0.7"]) == 2
    assert "--hot-share is not for all_to_all: use --collective all_to_all_v" in capsys.readouterr().err
    assert cli.main(["predict", "--collective", "all_to_all_v", "--hot-share", "1.7"]) == 2
    assert "is not a share" in capsys.readouterr().err
