"""CAL: where D̂ comes from, what each switch does, and what the objectives compute."""

import dataclasses
import io
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covlearn import records
from covlearn.covariance import SecondOrder, cal, covariance_term, with_covariance
from covlearn.data import Batch
from covlearn.data.batches import Mix
from covlearn.engine import Objective, Outputs, Plan, reduced
from covlearn.ledger import Ledger
from covlearn.losses import (
    confidence,
    cores,
    cross_entropy,
    forward_corrected,
    generalized_cross_entropy,
    per_class,
    reweighted,
)
from covlearn.methods.base import noisy_prior, root_prior
from covlearn.methods.cal import CAL, CovarianceAssisted
from covlearn.methods.ce import CE, CrossEntropy
from covlearn.methods.cores import Confident
from covlearn.reweight import kernel_mean_matching
from covlearn.run import LocalRun
from covlearn.schedules import Ramp
from covlearn.sieve import Refined, adjusted_loss, auto_threshold, quantile_threshold
from tests.methods.toy import NUM_CLASSES, accuracy, clouds, noisy_run, weights

NOTHING = Plan(epochs=0)
BRIEF = Plan(epochs=3, batch_size=32, lr=0.05)
TINY = CAL(sieve_plan=BRIEF, sieve_beta=Ramp(1.0), plan=NOTHING, beta=Ramp(0.5), lower=0.0)
SIZE = 120


@dataclass
class Watched(LocalRun):
    """A run that keeps what the method handed over."""

    nets: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)

    def net(self, name: str) -> nn.Module:
        model = super().net(name)
        self.nets[name] = weights(model)
        return model

    def train(
        self, stage: str, model: nn.Module, objective: Objective, plan: Plan, **options: Any
    ) -> Ledger:
        start = weights(model)
        ledger = super().train(stage, model, objective, plan, **options)
        self.calls[stage] = {
            "objective": objective,
            "plan": plan,
            "start": start,
            "end": weights(model),
            "model": model,
            "ledger": ledger,
            **options,
        }
        return ledger


def watched(num_examples: int = SIZE) -> Watched:
    return Watched(noisy_run(num_examples).split, net_options={"hidden": [16]})


def fitted(method: CAL) -> Watched:
    run = watched()
    method.fit(run)
    return run


def refined_of(run: LocalRun) -> Tensor:
    assert run.refined is not None
    return run.refined[0]


def probs_of(num_examples: int = SIZE) -> Tensor:
    """Another model's probabilities: mostly right, unsure at times."""
    x, _ = clouds(num_examples, seed=1)
    return (0.7 * x[:, :NUM_CLASSES]).double().softmax(dim=1).where(x[:, 4:5] < 2, 1 / 3)


@pytest.fixture
def probs_file(tmp_path: Path) -> str:
    np.save(tmp_path / "probs.npy", probs_of().numpy())
    return str(tmp_path / "probs.npy")


# ---- The whole method -------------------------------------------------------------------------

LONG = Plan(epochs=12, batch_size=32, lr=0.05, divide_lr=True)
WHOLE = CAL(sieve_plan=LONG, sieve_beta=Ramp(2.0, 1, 5), plan=LONG, beta=Ramp(1.0, 1, 5))


@cache
def accuracy_of_cross_entropy() -> float:
    return accuracy(CE(dataclasses.replace(LONG, epochs=30)).fit(noisy_run(400)))


@pytest.mark.parametrize("changes", [{}, {"relabel": True}, {"base": "gce"}], ids=str)
def test_recovers_a_toy_where_cross_entropy_learns_the_noise(changes: dict[str, Any]) -> None:
    method = dataclasses.replace(WHOLE, threshold="argmax", **changes)
    run = noisy_run(400)
    assert accuracy(method.fit(run)) > accuracy_of_cross_entropy() + 0.05
    clean = clouds(400, seed=1)[1]
    assert float((refined_of(run) == clean).float().mean()) > 0.9  # 0.6 of the labels are


def test_two_stages_and_what_is_noted() -> None:
    run = fitted(TINY)
    assert list(run.calls) == ["sieve", "cal"]
    assert list(run.nets) == ["sieve", "cal"]
    assert (run.calls["sieve"]["plan"], run.calls["cal"]["plan"]) == (BRIEF, NOTHING)
    noisy = run.split.y
    assert run.facts == {
        "refined_from": "sieve",
        "scores": "evaluation",
        "threshold": 0.0,
        "kept_share": float((refined_of(run) == noisy).float().mean()),
        "dropped": 0,
    }
    assert run.refined is not None
    assert run.refined[2] == "sieve score above the threshold"


def test_stage_2_starts_from_a_new_network_or_from_the_sieves() -> None:
    new = fitted(TINY)
    assert torch.equal(new.calls["cal"]["start"], new.nets["cal"])
    warm = fitted(dataclasses.replace(TINY, warm_start=True))
    assert list(warm.nets) == ["sieve"]
    assert torch.equal(warm.calls["cal"]["start"], warm.calls["sieve"]["end"])
    assert not torch.equal(warm.calls["cal"]["start"], warm.nets["sieve"])


def test_scores_are_of_the_training_pass_or_of_an_evaluation_pass() -> None:
    training, evaluation = (
        fitted(dataclasses.replace(TINY, scores=scores)) for scores in ("training", "evaluation")
    )
    ledger = training.calls["sieve"]["ledger"]
    logits, _ = evaluation.predict(evaluation.calls["sieve"]["model"])
    expected = adjusted_loss(logits.double().softmax(dim=1), evaluation.split.y)
    assert training.refined is not None
    assert evaluation.refined is not None
    assert torch.equal(training.refined[1], ledger.score)
    torch.testing.assert_close(evaluation.refined[1].double(), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(training.refined[1], evaluation.refined[1], atol=1e-3)
    assert (training.facts["scores"], evaluation.facts["scores"]) == ("training", "evaluation")


def test_training_scores_need_a_pass_over_every_example() -> None:
    method = dataclasses.replace(TINY, scores="training", sieve_balanced_batches=1)
    with pytest.raises(ValueError, match=r"got \d+ of 120 without one; set scores=evaluation"):
        method.fit(watched())


def test_mixup_and_balanced_batches_reach_the_stages_they_are_for() -> None:
    run = fitted(
        dataclasses.replace(TINY, sieve_mixup=True, sieve_balanced_batches=2, balanced_batches=3)
    )
    sieve, second = run.calls["sieve"], run.calls["cal"]
    assert (sieve["mixup"], sieve["balanced_batches"]) == (True, 2)
    assert ("mixup" in second, second["balanced_batches"]) == (False, 3)
    relabelled = fitted(dataclasses.replace(TINY, relabel=True, balanced_batches=3))
    assert relabelled.calls["relabel"]["balanced_batches"] == 3


def test_relabel_is_plain_cross_entropy_on_the_refined_labels(tmp_path: Path) -> None:
    labels = torch.arange(SIZE) % 4 - 1
    np.save(tmp_path / "labels.npy", labels.numpy())
    run = fitted(CAL(labels=str(tmp_path / "labels.npy"), plan=NOTHING, relabel=True))
    assert list(run.calls) == ["relabel"]
    assert isinstance(run.calls["relabel"]["objective"], CrossEntropy)
    assert torch.equal(run.calls["relabel"]["labels"], labels)


# ---- Thresholds -------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", ["fixed", "quantile", "auto", "argmax"])
def test_thresholds(threshold: str, probs_file: str) -> None:
    method = CAL(
        probs=probs_file, plan=NOTHING, threshold=threshold, lower=0.3, kept=0.4  # type: ignore[arg-type]
    )  # fmt: skip
    run = fitted(method)
    probs, noisy = probs_of(), run.split.y
    score = adjusted_loss(probs, noisy)
    at = {
        "fixed": 0.3,
        "quantile": quantile_threshold(score, 0.4),
        "auto": auto_threshold(score),
        "argmax": -torch.inf,
    }
    assert len(set(at.values())) == 4
    expected = torch.where(score <= at[threshold], noisy, probs.argmax(dim=1))
    assert run.refined is not None
    assert torch.equal(run.refined[0], expected)
    torch.testing.assert_close(run.refined[1], score)
    assert run.facts["threshold"] == at[threshold]
    assert run.facts["refined_from"] == probs_file
    assert list(run.nets) == ["cal"]  # no sieve was trained


def test_what_lies_between_the_bounds_is_dropped_and_the_rest_weighs_for_it(
    probs_file: str,
) -> None:
    method = CAL(probs=probs_file, plan=NOTHING, lower=-1.0, upper=0.5)
    run = fitted(method)
    score = adjusted_loss(probs_of(), run.split.y)
    dropped = (score > -1.0) & (score <= 0.5)
    assert 5 < int(dropped.sum()) < SIZE - 5
    assert torch.equal(refined_of(run) == -1, dropped)
    assert run.facts["dropped"] == int(dropped.sum())
    objective = run.calls["cal"]["objective"]
    gamma = kernel_mean_matching(run.split.x, ~dropped).gamma.float()  # no sieve, so the inputs
    assert torch.equal(objective.weight, gamma)
    assert float(gamma[~dropped].std()) > 0.01
    stats = SecondOrder.from_labels(
        run.split.y, refined_of(run), NUM_CLASSES, weight=gamma, empty_class="identity"
    )
    assert torch.equal(objective.transition, stats.transition)
    assert objective.kept_share == stats.kept_share

    alike = fitted(dataclasses.replace(method, match_dropped=False)).calls["cal"]["objective"]
    assert torch.equal(alike.weight, torch.ones(SIZE))
    assert not torch.equal(alike.transition, objective.transition)
    assert alike.kept_share == pytest.approx(1 - float(dropped.float().mean()))


def test_dropped_examples_are_weighed_by_the_sieves_features() -> None:
    run = watched()
    logits = nn.Linear(10, 3)(run.split.x)
    score = adjusted_loss(logits.detach().softmax(dim=1), run.split.y)
    refined = Refined(run.split.y.where(score < 0, -1), score < 0, score)
    sieve = run.net("sieve")
    _, features = run.predict(sieve, features=True)
    assert features is not None
    weight = TINY.example_weight(run, sieve, refined)
    assert weight is not None
    assert torch.equal(weight, kernel_mean_matching(features, score < 0).gamma.float())
    kept = dataclasses.replace(refined, label=run.split.y)
    assert TINY.example_weight(run, sieve, kept) is None


def test_dropping_everything_is_refused(probs_file: str) -> None:
    method = CAL(probs=probs_file, plan=NOTHING, lower=-99.0, upper=99.0, relabel=True)
    with pytest.raises(ValueError, match="must keep some example, got none"):
        method.fit(watched())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lower": 1.0, "upper": 0.0}, "expected lower ≤ upper, got lower=1.0, upper=0.0"),
        ({"threshold": "auto", "upper": 0.0}, "upper goes with threshold='fixed'"),
    ],
)
def test_bounds_are_refused_before_the_sieve_is_trained(
    settings: dict[str, Any], message: str
) -> None:
    run = watched()
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **settings).fit(run)
    assert not run.nets


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": "fixd"}, "threshold must be one of .* got 'fixd'; did you mean 'fixed'"),
        ({"scores": "both"}, "scores must be one of training, evaluation, got 'both'"),
        ({"sieve_prior": "rot"}, "sieve_prior must be one of .*'root'"),
        ({"base": "mse"}, "base must be one of ce, gce, forward, reweight, got 'mse'"),
        ({"weighting": "none"}, "weighting must be one of class, sample"),
        ({"kept": 61.54}, r"kept must lie in \(0, 1\], got 61.54"),
        ({"prior_scale": -1.0}, "prior_scale must be finite and ≥ 0, got -1"),
        ({"labels": "a.npy", "probs": "b.npy"}, "labels or from probs, got both"),
        ({"labels": "a.npy", "warm_start": True}, "warm_start goes on from the sieve"),
        ({"probs": "a.npy", "warm_start": True}, "warm_start goes on from the sieve"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CAL(**settings)


# ---- Files ------------------------------------------------------------------------------------

LABELS = torch.randint(-1, NUM_CLASSES, (SIZE,), generator=torch.Generator().manual_seed(0)).numpy()


def write(path: Path, content: Any) -> str:
    """An array, several by name, or text, in the way that the file's name asks for."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, content)
    return str(path)


def lines(*columns: Any, header: str = "") -> str:
    rows = (",".join(map(str, row)) for row in zip(*columns, strict=True))
    return "\n".join([*([header] if header else []), *rows]) + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", LABELS),
        ("a.npy", LABELS.astype(np.int8)),
        ("a.npz", {"anything": LABELS}),
        ("a.npz", {"labels": LABELS, "other": LABELS[:3]}),
        ("a.txt", lines(LABELS)),
        ("a.csv", lines(LABELS)),
        ("a.CSV", lines(LABELS, header="label")),
        ("a.csv", "\ufeff" + lines(LABELS, header="label").replace("\n", "\r\n")),
        ("a.csv", lines(range(SIZE), LABELS, LABELS * 0, header="idx,suggested,clean")),
    ],
)
def test_labels_from_a_file(name: str, content: Any, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    run = fitted(CAL(labels=path, plan=NOTHING))
    assert refined_of(run).tolist() == LABELS.tolist()
    assert list(run.nets) == ["cal"]
    assert run.facts["refined_from"] == path
    assert run.facts["dropped"] == int((LABELS < 0).sum())
    assert run.facts["kept_share"] == pytest.approx(float((run.split.y.numpy() == LABELS).mean()))
    assert run.refined is not None
    assert torch.equal(run.refined[1] > 0, run.refined[0] != run.split.y)
    assert run.calls["cal"]["objective"].refined.tolist() == LABELS.tolist()


def test_labels_of_a_run_are_read_as_they_are_written(tmp_path: Path) -> None:
    columns = {"idx": list(range(SIZE)), "given": [0] * SIZE, "suggested": list(LABELS)}
    records.write_table(tmp_path / "labels.csv", columns)
    run = fitted(CAL(labels=str(tmp_path / "labels.csv"), plan=NOTHING))
    assert refined_of(run).tolist() == LABELS.tolist()


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", LABELS[:-1], "one entry an example, 120, got 119; .*; what is held out is no"),
        ("a.npy", LABELS + 1, "must lie in 0…2 .or −1 for a dropped example., got 3 at position"),
        ("a.npy", LABELS - 1, "got -2 at position"),
        ("a.npy", LABELS.astype(float), "must be integer class numbers, got torch.float64"),
        ("a.npy", LABELS[:, None], "must be a non-empty vector, got shape"),
        ("a.npy", np.array(1), "one entry an example, 120, got 1"),
        ("a.npy", b"no array", "a.npy cannot be read as labels"),
        ("a.npy", b"", "a.npy cannot be read as labels"),
        ("a.npy", pickled(), "cannot be read as labels: .*allow_pickle=False"),
        ("a.npz", b"PK\x03\x04", "a.npz cannot be read as labels"),
        ("a.npz", {"a": LABELS, "b": LABELS}, "one array, or one named labels, got a, b"),
        ("a.txt", "", "labels must be a non-empty vector"),
        ("a.txt", "0\n1.5\n", "expected a class number, got '1.5' for example 1"),
        ("a.txt", "9" * 30, "a.txt cannot be read as labels"),
        ("a.csv", b"\xff\n", "a.csv cannot be read as labels"),
        ("a.csv", "0,1\n", "expected one label a line, got 2 values"),
        ("a.csv", "a,b\n0,1\n", "one column, or one named suggested, got a, b"),
        ("a.csv", "idx,suggested\n0\n", "expected a class number, got '' for example 0"),
        ("a.pkl", b"", "labels must be a file that ends in .npy, .npz, .txt, .csv, got"),
    ],
)
def test_bad_files_of_labels_are_refused(
    name: str, content: Any, message: str, tmp_path: Path
) -> None:
    run = watched()
    with pytest.raises(ValueError, match=message):
        CAL(labels=write(tmp_path / name, content)).fit(run)
    assert not run.nets


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", probs_of()[:-1].numpy(), "one row an example, 120, got 119; what is held out"),
        ("a.npy", probs_of()[:, :2].numpy(), "probs must have 3 columns, one a class, got 2"),
        ("a.npy", 2 * probs_of().numpy(), "rows of probs must sum to 1, row"),
        ("a.npy", LABELS, "probs must be floating point, got torch.int64"),
        ("a.npz", {"a": LABELS, "b": LABELS}, "one array, or one named probs, got a, b"),
        ("a.npy", pickled(), "cannot be read as probs: .*allow_pickle=False"),
        ("a.csv", "0.5,0.5\n", "probs must be a file that ends in .npy, .npz, got"),
    ],
)
def test_bad_files_of_probabilities_are_refused(
    name: str, content: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        CAL(probs=write(tmp_path / name, content)).fit(watched())


@pytest.mark.parametrize("kind", ["labels", "probs"])
def test_a_file_that_is_not_there_is_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{kind} must be a file, and '.*no\.npy' is none"):
        CAL(**{kind: str(tmp_path / "no.npy")}).fit(watched())  # type: ignore[arg-type]


# ---- The objectives ---------------------------------------------------------------------------

K = 4
GENERATOR = torch.Generator().manual_seed(3)
NOISY = torch.randint(K, (60,), generator=GENERATOR)
REFINED = torch.where(torch.rand(60, generator=GENERATOR) < 0.6, NOISY, (NOISY + 1) % K)
REFINED[::7] = -1
WEIGHT = torch.rand(60, generator=GENERATOR) + 0.5
STATS = SecondOrder.from_labels(NOISY, REFINED, K, weight=WEIGHT)
PRIOR = torch.tensor([0.1, 0.2, 0.3, 0.4])
IDX = torch.randperm(60, generator=GENERATOR)[:20]
LOGITS = 2 * torch.randn(20, K, generator=GENERATOR)
BATCH = Batch(torch.zeros(20, 1), NOISY[IDX], IDX)
BASES: dict[str, Any] = {
    "ce": cross_entropy,
    "gce": generalized_cross_entropy,
    "forward": partial(forward_corrected, transition=STATS.transition),
    "reweight": partial(reweighted, transition=STATS.transition),
}


def own_expectation(base: str) -> Tensor:
    """Σ_k π_k ℓ(f(x), k) of the base loss itself, class by class; CE's has an ε of its own."""
    options = {"eps": 1e-5} if base == "ce" else {}
    classes = [torch.full((len(IDX),), k) for k in range(K)]
    return sum(PRIOR[k] * BASES[base](LOGITS, classes[k], **options) for k in range(K))  # type: ignore[no-any-return]


def losses_of(objective: Objective, epoch: int = 0) -> Tensor:
    objective.begin_epoch(epoch, Ledger(60))
    loss, weight = objective(Outputs(LOGITS), BATCH)
    assert weight is None
    return loss  # type: ignore[no-any-return]


@pytest.mark.parametrize("weighting", ["class", "sample"])
@pytest.mark.parametrize("base", BASES)
def test_the_objective_is_the_loss_of_the_covariance_module(base: Any, weighting: Any) -> None:
    objective = CovarianceAssisted(
        REFINED, STATS, WEIGHT, prior=PRIOR, beta=Ramp(0.7), base=base, weighting=weighting
    )
    options = {"weighting": weighting, "weight": WEIGHT[IDX]}
    if base != "ce":
        corrected = with_covariance(BASES[base])
        losses = corrected(LOGITS, NOISY[IDX], REFINED[IDX], STATS, **options)
        expected = losses - 0.7 * own_expectation(base)
        torch.testing.assert_close(losses_of(objective), expected)
        return
    # Here the covariance has ε = 1e-5, as published, where a general loss has its own 1e-8.
    whole = cal(LOGITS, NOISY[IDX], REFINED[IDX], STATS, prior=PRIOR, beta=0.7, **options)
    torch.testing.assert_close(losses_of(objective), whole)
    term = covariance_term(LOGITS, NOISY[IDX], REFINED[IDX], STATS, **options)
    mean = cores(LOGITS, NOISY[IDX], prior=PRIOR, beta=0.7).mean() - term
    torch.testing.assert_close(losses_of(objective).mean(), mean)


def test_the_papers_form_is_cross_entropy_against_the_row_of_the_transition() -> None:
    refined = REFINED.clamp(min=0)
    stats = SecondOrder.from_labels(NOISY, refined, K)
    objective = CovarianceAssisted(
        refined, stats, None, prior=PRIOR, beta=Ramp(0.0), weighting="sample"
    )
    expected = (stats.transition[refined[IDX]] * per_class(cross_entropy, LOGITS)).sum(dim=1)
    torch.testing.assert_close(losses_of(objective), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("base", BASES)
def test_without_the_covariance_the_base_loss_is_left(base: Any) -> None:
    objective = CovarianceAssisted(
        REFINED, STATS, WEIGHT, prior=PRIOR, beta=Ramp(0.7), covariance=False, base=base
    )
    expected = BASES[base](LOGITS, NOISY[IDX]) - 0.7 * own_expectation(base)
    torch.testing.assert_close(losses_of(objective), expected)


def test_beta_follows_its_schedule() -> None:
    objective = CovarianceAssisted(REFINED, STATS, None, prior=PRIOR, beta=Ramp(2.0, 1, 5))
    regulariser = confidence(LOGITS, prior=PRIOR)
    start = losses_of(objective, 0)
    for epoch, beta in [(1, 0.0), (3, 1.0), (5, 2.0), (9, 2.0)]:
        torch.testing.assert_close(losses_of(objective, epoch), start - beta * regulariser)
        assert objective.strength(epoch) == beta


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("ce", Ramp(2.0, 1, 5)),
        ("gce", Ramp(2.0)),
        ("forward", Ramp(0.0)),
        ("reweight", Ramp(2.0, 1, 5)),
    ],
)
def test_beta_depends_on_what_it_multiplies(base: Any, expected: Ramp) -> None:
    method = CAL(base=base, beta=Ramp(2.0, 1, 5))
    assert method.peer_strength() == expected
    assert dataclasses.replace(method, peer=False).peer_strength() == Ramp(0.0)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("covariance", [True, False])
def test_a_step_reads_no_values(base: Any, covariance: bool) -> None:
    objective = CovarianceAssisted(
        REFINED, STATS, WEIGHT, prior=PRIOR, beta=Ramp(0.7), covariance=covariance, base=base
    )
    compiled = torch.compile(objective, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        reduced(compiled(Outputs(LOGITS), BATCH)), reduced(objective(Outputs(LOGITS), BATCH))
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"peer": False},
        {"covariance": False},
        {"peer": False, "covariance": False},
        {"base": "forward", "weighting": "sample"},
        {"prior_scale": 10.0},
    ],
    ids=str,
)
def test_the_fields_are_those_of_the_objective(changes: dict[str, Any], tmp_path: Path) -> None:
    labels = write(tmp_path / "labels.npy", LABELS)
    method = CAL(labels=labels, plan=NOTHING, beta=Ramp(0.5), match_dropped=False, **changes)
    run = fitted(method)
    objective = run.calls["cal"]["objective"]
    refined = torch.from_numpy(LABELS)
    stats = SecondOrder.from_labels(run.split.y, refined, NUM_CLASSES)
    idx = torch.arange(0, SIZE, 3)
    logits = torch.randn(len(idx), NUM_CLASSES, generator=torch.Generator().manual_seed(0))
    objective.begin_epoch(0, Ledger(SIZE))
    loss, _ = objective(Outputs(logits), Batch(logits, run.split.y[idx], idx))

    # Forward is corrected for class-dependent noise already, and has no peer term.
    y, beta = run.split.y[idx], 0.5 if method.peer and method.base != "forward" else 0.0
    base: Any = cross_entropy
    if method.base == "forward":
        base = partial(forward_corrected, transition=stats.transition)
    expected = base(logits, y)
    if method.covariance:
        expected = with_covariance(base)(logits, y, refined[idx], stats, weighting=method.weighting)
    prior = method.prior_scale * noisy_prior(run.split)
    expected = expected - beta * confidence(logits, prior=prior)
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("prior", ["root", "plain"])
def test_the_sieve_minimises_the_regularised_loss(prior: Any) -> None:
    method = dataclasses.replace(
        TINY, sieve_prior=prior, prior_scale=3.0, sieve_regularizer_eps=1e-2
    )
    run = fitted(method)
    objective = run.calls["sieve"]["objective"]
    assert isinstance(objective, Confident)
    logits = 5 * torch.randn(SIZE, NUM_CLASSES, generator=torch.Generator().manual_seed(0))
    batch = Batch(logits, run.split.y, torch.arange(SIZE))
    loss, weight = objective(Outputs(logits), batch)
    assert weight.tolist() == [1.0] * SIZE  # every example stays in
    prior_K = root_prior(run.split) if prior == "root" else noisy_prior(run.split)
    expected = cores(logits, run.split.y, prior=3 * prior_K, beta=1.0, confidence_eps=1e-2)
    torch.testing.assert_close(loss, expected)


def test_with_mixup_the_regulariser_is_that_of_the_inputs_themselves() -> None:
    objective = Confident(NOISY, PRIOR, Ramp(0.7))
    objective.begin_epoch(0, Ledger(60))
    mixed, partner = LOGITS.flip(0), NOISY[IDX].flip(0)
    batch = BATCH._replace(mix=Mix(BATCH.x, partner, torch.tensor(0.8)))
    loss, _ = objective(Outputs(mixed, plain=LOGITS), batch)
    expected = 0.8 * cross_entropy(mixed, NOISY[IDX]) + 0.2 * cross_entropy(mixed, partner)
    torch.testing.assert_close(loss, expected - 0.7 * confidence(LOGITS, prior=PRIOR))
