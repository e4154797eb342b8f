"""A run from end to end on a small problem: what is recorded, what is lost (nothing), who knows."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from covlearn import records
from covlearn.config import typed
from covlearn.data import Batch, Split
from covlearn.engine import Outputs
from covlearn.methods import CAL, CE, METHODS, Run
from covlearn.methods.ce import CrossEntropy
from covlearn.run import LocalRun, held_out
from tests.reference import metrics as reference
from tests.runs import CLEAN, FILES, METHOD, NOISE, NOISY, PLAN, TEST, fit


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    fit(folder)
    return folder


# What is recorded


def test_the_folder_holds_all_of_it_in_plain_files(finished: Path) -> None:
    assert sorted(os.listdir(finished)) == FILES
    record = records.read(finished)
    config = record.config
    assert typed(CAL, {k: v for k, v in config["method"].items() if k != "name"}) == METHOD
    assert config["method"]["name"] == "cal"
    assert config["net"] == {"name": "mlp", "hidden": [8]}
    assert (config["seed"], config["holdout"], config["format"]) == (3, 0.1, 1)
    assert config["noise"]["actual_rate"] == NOISE.card.actual_rate
    assert config["data"]["examples"] == 90
    assert config["machine"]["device"] == "cpu"
    assert record.environment["torch"] == torch.__version__
    assert record.environment["gpu"] is None
    steps = [(line["stage"], line["epoch"]) for line in record.metrics]
    assert steps == [(stage, epoch) for stage in ("sieve", "cal") for epoch in range(4)]


def test_the_figures_are_those_of_the_final_stage(finished: Path) -> None:
    record = records.read(finished)
    result = record.result
    assert result is not None
    for stage in ("sieve", "cal"):
        lines = [line for line in record.metrics if line["stage"] == stage]
        expected = reference.figures(lines)
        found = result.stages[stage].test_accuracy
        for name, (value, epoch) in expected.items():
            figure = getattr(found, name)
            assert (figure.value, figure.epoch) == (pytest.approx(value), epoch)
        assert result.stages[stage].epochs == 4
        assert result.stages[stage].memorisation == lines[-1]["memorisation"]
        assert result.stages[stage].seconds == sum(line["seconds"] for line in lines)
    assert result.final_stage == "cal"
    assert result.test_accuracy == result.stages["cal"].test_accuracy
    assert result.memorisation == result.stages["cal"].memorisation
    assert result.seconds == sum(line["seconds"] for line in record.metrics)
    assert result.facts["scores"] == "evaluation"


def test_the_weights_are_those_that_were_evaluated(finished: Path) -> None:
    result = records.read(finished).result
    assert result is not None
    run = LocalRun(NOISY, net_options={"hidden": [8]})
    model = run.net("any")
    model.load_state_dict(load_file(finished / "model.safetensors"))
    prediction = model(TEST.x).argmax(dim=1)
    share = reference.accuracy(prediction.tolist(), TEST.y.tolist())
    assert result.returned.value == share
    assert result.test_accuracy.last is not None
    assert result.test_accuracy.last.value == share


def test_the_table_has_a_line_for_each_example_that_was_trained_on(finished: Path) -> None:
    record = records.read(finished)
    table, result = record.labels, record.result
    assert table is not None
    assert result is not None
    assert result.labels is not None
    idx = torch.tensor(table["idx"])
    assert len(idx) == 81
    assert table["given"] == NOISY.y[idx].tolist()
    assert table["clean"] == CLEAN.y[idx].tolist()
    refined, noisy, clean = (table[name] for name in ("suggested", "given", "clean"))
    assert result.labels["quality"] == pytest.approx(
        reference.label_quality(refined, noisy, clean, 3)
    )
    changed = sum(new != old for new, old in zip(refined, noisy, strict=True))
    assert result.labels["changed"] == changed / 81 > 0
    assert result.labels["dropped"] == 0
    assert result.labels["reason"]
    # The ledger's last row, of the last pass, is what the last record was counted on.
    fitted = reference.memorisation(table["prediction"], noisy, clean)
    assert record.metrics[-1]["memorisation"] == fitted
    for n, score in enumerate(table["score"]):
        assert (refined[n] == noisy[n]) or score > METHOD.lower


def test_loss_and_how_often_learned_are_of_given_labels_alone(tmp_path: Path) -> None:
    """A stage that is trained on D̂ says nothing of a label that D̂ does not have."""
    fit(tmp_path, replace(METHOD, relabel=True, lower=-1.0, upper=1.0))
    table = records.read(tmp_path).labels
    assert table is not None
    same = [new == old for new, old in zip(table["suggested"], table["given"], strict=True)]
    assert {-1, 0, 1, 2} >= set(table["suggested"]) > {-1}
    assert 0 < sum(same) < len(same)
    for name in ("loss", "learned"):
        assert [value is not None for value in table[name]] == same


def test_what_people_decided_tells_runs_apart(tmp_path: Path) -> None:
    """Labels that are held fixed are another run than labels that are not."""
    free = replace(METHOD, threshold="argmax")
    assert fit(tmp_path / "a", free).labels["changed"] > 0  # type: ignore[index]
    fixed = replace(NOISY, trusted=torch.ones(len(NOISY), dtype=torch.bool))
    with pytest.raises(ValueError, match="examples that a person decided on"):
        fit(tmp_path / "a", free, split=fixed)
    assert fit(tmp_path / "b", free, split=fixed).labels["changed"] == 0  # type: ignore[index]


@pytest.mark.parametrize("scores", ["training", "evaluation", "averaged"])
def test_a_label_is_kept_where_the_most_probable_class_is_it(scores: Any, tmp_path: Path) -> None:
    result = fit(tmp_path, replace(METHOD, threshold="argmax", scores=scores))
    assert result.labels is not None
    assert result.facts["kept_share"] == pytest.approx(1 - result.labels["changed"], abs=1e-6)
    assert 0 < result.facts["kept_share"] < 1


def test_the_spread_of_the_scores_and_t_are_kept(finished: Path) -> None:
    table = records.read(finished).labels
    assert table is not None
    kept = json.loads((finished / records.REFINEMENT).read_text())
    given, clean, suggested = (np.array(table[name]) for name in ("given", "clean", "suggested"))
    groups = {"all": given >= 0, "right": given == clean, "wrong": given != clean}
    edges = np.array(kept["score_edges"])
    for name, group in groups.items():
        assert sum(kept["scores"][name]) == group.sum()
    middle = np.array(table["score"])[groups["wrong"]]
    below = sum(kept["scores"]["wrong"][: len(edges) // 2])
    assert below == (middle < edges[len(edges) // 2]).sum()
    for name, true in (("estimated", suggested), ("true", clean)):
        for i in range(3):
            row = [float(((true == i) & (given == j)).sum() / (true == i).sum()) for j in range(3)]
            assert kept["transition"][name][i] == pytest.approx(row, abs=1e-4)


def test_what_is_unknown_is_null(tmp_path: Path) -> None:
    fit(tmp_path, CE(PLAN), clean=None, noise_card=None, holdout=0.0)
    record = records.read(tmp_path)
    raw = json.loads((tmp_path / "result.json").read_text())
    assert raw["test_accuracy"]["selected"] is None
    assert raw["memorisation"] is None
    assert raw["labels"] is None
    assert record.config["noise"] is None
    assert {line["memorisation"] for line in record.metrics} == {None}
    assert {line["holdout_accuracy"] for line in record.metrics} == {None}
    assert record.labels is not None
    assert set(record.labels["suggested"]) == set(record.labels["clean"]) == {None}
    assert len(record.labels["idx"]) == 90


def test_refined_labels_are_kept_where_no_one_knows_the_clean_ones(tmp_path: Path) -> None:
    result = fit(tmp_path, clean=None)
    assert result.labels is not None
    assert result.labels["quality"] is None
    assert result.labels["changed"] > 0


def test_no_wrong_label_can_be_memorised_where_there_is_none(tmp_path: Path) -> None:
    assert fit(tmp_path, CE(PLAN), clean=NOISY.y).memorisation is None


@dataclass(frozen=True)
class Untrained:
    """Trains nothing, notes a number that JSON does not have."""

    def fit(self, run: Run) -> nn.Module:
        run.note(threshold=-torch.inf, matrix=torch.eye(2))
        return run.net("net")


def test_a_method_without_a_stage_has_no_epoch_to_show(tmp_path: Path) -> None:
    result = fit(tmp_path, Untrained())
    assert result.final_stage is None
    assert result.test_accuracy.best is None
    assert result.returned.value >= 0
    assert result.facts == {"threshold": "-inf", "matrix": [[1, 0], [0, 1]]}
    assert result.method.endswith(":Untrained")
    assert records.read(tmp_path).result == result


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_recorded_under_their_name(name: str) -> None:
    from covlearn.run import method_name  # noqa: PLC0415

    assert method_name(METHODS[name]()) == name


# Held-out labels


def test_held_out_examples_are_a_function_of_the_seed_and_leave_training(tmp_path: Path) -> None:
    kept, held = held_out(90, 0.1, seed=3)
    assert len(held) == 9
    assert torch.equal(torch.cat([kept, held]).sort().values, torch.arange(90))
    assert torch.equal(held, held_out(90, 0.1, seed=3)[1])
    assert torch.equal(held, held_out(90, 0.1, seed=np.int64(3))[1])  # type: ignore[arg-type]
    assert not torch.equal(held, held_out(90, 0.1, seed=4)[1])
    assert len(held_out(90, 0.0, seed=3)[1]) == 0

    seen: list[Split] = []

    @dataclass(frozen=True)
    class Spy:
        def fit(self, run: Run) -> nn.Module:
            seen.append(run.split)
            model = run.net("a")
            run.train("a", model, CrossEntropy(), PLAN)
            return model

    fit(tmp_path, Spy())
    assert torch.equal(seen[0].x, NOISY.x[kept])
    assert torch.equal(seen[0].y, NOISY.y[kept])
    table = records.read(tmp_path).labels
    assert table is not None
    assert table["idx"] == kept.tolist()


def test_held_out_accuracy_is_on_noisy_labels(tmp_path: Path) -> None:
    # A network that never moves: its accuracy can be counted from outside.
    plan = replace(PLAN, epochs=1, lr=1e-30)
    fit(tmp_path, CE(plan), holdout=0.5)
    model = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3).net("ce")
    _, held = held_out(90, 0.5, seed=3)
    prediction = model(NOISY.x[held]).argmax(dim=1)
    line = records.read(tmp_path).metrics[0]
    assert line["holdout_accuracy"] == reference.accuracy(
        prediction.tolist(), NOISY.y[held].tolist()
    )
    assert line["holdout_accuracy"] != reference.accuracy(
        prediction.tolist(), CLEAN.y[held].tolist()
    )


# Clean labels stay with the evaluator


def test_permuted_clean_labels_change_no_bit_of_training(tmp_path: Path, finished: Path) -> None:
    order = torch.randperm(90, generator=torch.Generator().manual_seed(5))
    result = fit(tmp_path, clean=CLEAN.y[order])
    model = "model.safetensors"
    assert (tmp_path / model).read_bytes() == (finished / model).read_bytes()
    ours, theirs = records.read(tmp_path), records.read(finished)
    assert ours.labels is not None
    assert theirs.labels is not None
    assert theirs.result is not None
    for name in ("idx", "given", "suggested", "score", "prediction", "loss", "learned"):
        assert ours.labels[name] == theirs.labels[name]
    for name in ("clean",):
        assert ours.labels[name] != theirs.labels[name]
    assert result.memorisation != theirs.result.memorisation
    assert result.test_accuracy == theirs.result.test_accuracy


def test_the_global_random_state_stays_as_it_was(tmp_path: Path) -> None:
    before = torch.get_rng_state(), torch.initial_seed()
    fit(tmp_path)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == torch.initial_seed()


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"holdout": 1.0}, r"holdout must lie in \[0, 1\), got 1.0"),
        ({"holdout": float("nan")}, "holdout must lie in"),
        ({"holdout": 0.001}, "leaves nothing on one side"),
        ({"clean": CLEAN.y[:-1]}, "clean must have one entry an example, 90, got 89"),
        ({"clean": CLEAN.y + 1}, "clean must lie in 0…2"),
        ({"test": replace(TEST, x=TEST.x[:, :4])}, r"shape \(5,\) and 3 classes, got \(4,\)"),
        ({"test": replace(TEST, num_classes=4)}, "3 classes, got .* and 4"),
        ({"net": "mpl"}, "unknown net 'mpl'; did you mean mlp"),
        ({"net_options": {"hiden": [8]}}, "unexpected keyword argument 'hiden'"),
    ],
)
def test_bad_input_leaves_no_folder(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_stage_needs_a_name_of_its_own() -> None:
    run = LocalRun(NOISY)
    run.train("a", run.net("a"), CrossEntropy(), PLAN)
    with pytest.raises(ValueError, match="'a' came twice"):
        run.train("a", run.net("a"), CrossEntropy(), PLAN)


def test_a_fact_that_cannot_be_written_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="JSON can hold"):
        LocalRun(NOISY).note(network=nn.Linear(1, 1))


def test_examples_that_were_dropped_do_not_teach() -> None:
    """Whatever the inputs of dropped examples are, the weights are the same."""
    labels = NOISY.y.clone()
    labels[::2] = -1
    other = NOISY.x.clone()
    other[::2] += 100
    weights = []
    for x in (NOISY.x, other):
        run = LocalRun(replace(NOISY, x=x), net_options={"hidden": [8]})
        model = run.net("a")
        run.train("a", model, CrossEntropy(), PLAN, labels=labels)
        weights.append(torch.cat([p.flatten() for p in model.parameters()]).detach().numpy())
    np.testing.assert_array_equal(weights[0], weights[1])


class Seen(CrossEntropy):
    """Cross-entropy that remembers which examples it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.idx: list[Tensor] = []

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        self.idx.append(batch.idx)
        return super().forward(outputs, batch)


def test_balanced_batches_are_of_the_examples_that_are_left() -> None:
    labels = NOISY.y.clone()
    labels[::2] = -1
    run = LocalRun(NOISY, net_options={"hidden": [8]})
    seen = Seen()
    run.train("balanced", run.net("a"), seen, replace(PLAN, epochs=1, batch_size=15),
              labels=labels, balanced_batches=4)  # fmt: skip
    assert torch.bincount(labels[torch.cat(seen.idx)] + 1, minlength=4).tolist() == [0, 20, 20, 20]

    labels[labels == 2] = -1
    with pytest.raises(ValueError, match=r"class 2 has none among the \d+ that take part"):
        run.train("none", run.net("a"), seen, PLAN, labels=labels, balanced_batches=4)
