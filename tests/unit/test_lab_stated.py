"""What a run states before its first packet."""

import hashlib
import json
from pathlib import Path

from lab.planning.experiment import load
from lab.planning.forecast import forecast_of, stated
from lab.planning.plan import plan
from lab.planning.scale import Scale
from lab.reporting import results

SCALE = Scale(8000, 64)


def test_the_file_has_every_sizes_prediction_and_its_model_and_the_hash_is_the_files(tmp_path: Path) -> None:
    planned = plan(load(None, {"topology": "spine-leaf", "min_bytes": 2**20, "max_bytes": 2**22, "step_factor": 2}))
    expected = forecast_of(planned, SCALE)
    digest = results.write_prediction(tmp_path / "new", stated(expected, SCALE))
    file = tmp_path / "new" / "prediction.json"
    assert digest == hashlib.sha256(file.read_bytes()).hexdigest()
    written = json.loads(file.read_text())
    assert [row["size_bytes"] for row in written["rows"]] == [size.size_bytes for size in planned.sizes(SCALE)]
    for row, size in zip(written["rows"], planned.sizes(SCALE), strict=True):
        found = expected.prediction(size, SCALE)
        assert found is not None
        assert row["predicted_s"] == SCALE.hardware_s(found.seconds)
        assert (row["model"], row["bottleneck"]) == ("fluid", found.bottleneck)
    assert written["latency"]["end_s"] > written["latency"]["per_hop_s"] > 0


def test_what_is_unknown_is_stated_as_such(tmp_path: Path) -> None:
    expected = forecast_of(plan(load(None, {"topology": "spine-leaf", "routing": "ecmp-group"})), SCALE)
    written = stated(expected, SCALE)
    assert "hash that cannot be computed" in written["unknown"]
    assert {row["predicted_s"] for row in written["rows"]} == {None}
