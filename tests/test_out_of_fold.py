"""The benchmark of detection beside cleanlab on out-of-fold probabilities, on few digits."""

import json
from pathlib import Path

import pytest

from benchmarks import out_of_fold
from covlearn import cli, records
from covlearn.npz import read_arrays

TABLE = """
title = "digits"
preset = "recommended"
trials = 1
figure = "last"
holdout = 0.0
settings = ["sieve_plan.epochs=4", "plan.epochs=2"]

[[rows]]
name = "recommended"
method = "cal"

[[rows]]
name = "published"
method = "cal"
settings = ["threshold=fixed"]

[[columns]]
name = "digits/symmetric 0.4"
data = "digits"
noise = "symmetric:0.4"
rate = 0.4
"""


def test_the_same_labels_are_judged_by_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, runs, out = tmp_path / "t.toml", tmp_path / "runs", tmp_path / "made.json"
    table.write_text(TABLE, encoding="utf-8")
    options = ["--folder", str(tmp_path / "probs"), "--table", str(table), "--records", str(runs)]
    options += ["--out", str(out)]
    with pytest.raises(SystemExit, match="is not there"):
        out_of_fold.main(["judge", *options])
    only = ["--only", "row=recommended", "--keep-models"]
    assert cli.main(["bench", str(table), "--folder", str(runs), *only]) == 0
    out_of_fold.main(["train", *options])
    (kept,) = (tmp_path / "probs").iterdir()
    written = kept.stat().st_mtime_ns
    out_of_fold.main(["train", *options])
    assert kept.stat().st_mtime_ns == written
    capsys.readouterr()
    out_of_fold.main(["judge", *options])
    (column,) = json.loads(out.read_text(encoding="utf-8"))["columns"].values()
    assert column["published"] is None  # was not run
    assert column["cleanlab"]["wrong"] == pytest.approx(0.4, abs=0.05)
    for judge in ("cleanlab", "recommended"):
        # Beyond chance, which is a ranking as precise as labels are wrong.
        assert column[judge]["average_precision"] > column["cleanlab"]["wrong"] + 0.2
    assert column["cleanlab"]["predicted_right"] > 0.6
    result = records.read(runs / "digits/symmetric 0.4/recommended/0").result
    assert result is not None
    assert result.labels is not None
    assert result.labels["quality"]["recall"] > 0
    labels = records.read(runs / "digits/symmetric 0.4/recommended/0").labels
    assert labels is not None
    assert read_arrays(kept)["given"].tolist() == labels["given"]
    assert column["recommended"]["f1"] == result.labels["quality"]["f1"]
