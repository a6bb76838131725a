"""What stock Mininet's `--topo` refuses: one line and status 2, where `mn` would show an exception."""

from typing import Any

import pytest

pytest.importorskip("mininet.topo")
from topologies.stock_mininet import topos


@pytest.mark.parametrize(
    ("values", "parameters", "said"),
    [
        ((2, 4), {}, "--topo spine-leaf,2,4: each value needs its name"),
        ((), {"spinez": 2}, "unknown parameter 'spinez'"),
        ((), {"mtu": "big"}, "mtu='big' must be a whole number"),
        ((), {"rate": 5}, "rate '5'"),
        ((), {"addressing": 9}, "unknown addressing '9'"),
    ],
)
def test_one_line(
    capsys: pytest.CaptureFixture[str], values: tuple[Any, ...], parameters: dict[str, Any], said: str
) -> None:
    with pytest.raises(SystemExit) as left:
        topos["spine-leaf"](*values, **parameters)
    assert left.value.code == 2
    refusals = [line for line in capsys.readouterr().err.splitlines() if line.startswith("*** refused: ")]
    assert len(refusals) == 1 and said in refusals[0]
