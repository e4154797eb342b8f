"""What can be done with a run of ``covlearn fit``: ``python -m examples.after_a_fit``.

cleanlab's Datalab, ONNX, TensorBoard and a table of runs. Needs pip install
'covlearn[cleanlab,onnx,tensorboard]'.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
from sklearn.datasets import load_wine

import covlearn
from covlearn.cli import main
from covlearn.inputs import read_examples
from covlearn.integrations.datalab import to_datalab
from covlearn.integrations.onnx import to_onnx
from covlearn.integrations.tensorboard import write_tensorboard


def wrong_wine(folder: Path) -> pd.DataFrame:
    """A table of wines, of which 30 labels of 178 were drawn anew, as a CSV file."""
    table = load_wine(as_frame=True).frame.rename(columns={"target": "label"})
    draw = np.random.default_rng(0)
    rows = draw.choice(len(table), 30, replace=False)
    table.loc[rows, "label"] = draw.integers(3, size=30)
    table.to_csv(folder / "wine.csv", index=False)
    return table


def run(folder: Path) -> float:
    """All of it in a folder; the largest difference between onnxruntime and the run itself."""
    table, run = wrong_wine(folder), folder / "run"
    main(["fit", str(folder / "wine.csv"), "--label", "label", "--out", str(run)])

    lab = to_datalab(run)
    print(lab.get_issue_summary())

    difference = to_onnx(run, folder / "model.onnx")  # refused if onnxruntime disagrees
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    columns = json.loads(session.get_modelmeta().custom_metadata_map["columns"])
    probabilities, _ = session.run(None, {"x": table[columns].to_numpy(dtype=np.float64)})
    print(f"{probabilities.shape} probabilities, within {difference:.1g} on random inputs")

    write_tensorboard(run, folder / "board")

    runs = covlearn.read_runs(folder)
    print(runs[["run", "method", "noise_rate", "relabel", "review", "drop"]])
    fitted = covlearn.load(run)
    expected = fitted.probabilities(read_examples(table, recipe=fitted.recipe).x)
    return float(np.abs(expected - probabilities).max())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        run(Path(place))
