from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covlearn import engine
from covlearn.average import Average
from covlearn.checkpoint import Checkpoint, copied
from covlearn.data import Batch, Resident, Split
from covlearn.engine import (
    Machine,
    Objective,
    Outputs,
    Plan,
    _State,
    predict,
    reduced,
    train,
)
from covlearn.ledger import Ledger
from covlearn.losses import cross_entropy
from covlearn.nets import build_net
from covlearn.objective import Committee
from tests.reference import losses as reference
from tests.reference import sieve


def draw_split(size: int = 150) -> Split:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(size) % 3
    x = torch.randn(size, 6, generator=generator)
    x[torch.arange(size), y] += 3
    return Split(x, y, 3)


class Plain(Objective):
    """Cross-entropy with a buffer that must survive a checkpoint."""

    steps: Tensor

    def __init__(self, beta: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.beta = beta

    def strength(self, epoch: int) -> float:
        return self.beta * epoch

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        self.steps += 1
        return cross_entropy(outputs.logits, batch.y), None


def make(dropout: bool = False) -> nn.Module:
    net = build_net("mlp", num_classes=3, input_shape=(6,), seed=0, options={"hidden": [8]})
    return nn.Sequential(nn.Dropout(0.2), net) if dropout else net


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def run(
    plan: Plan,
    *,
    objective: Objective | None = None,
    model: nn.Module | None = None,
    checkpoint: Checkpoint | None = None,
    stop: int | None = None,
    ledger: Ledger | None = None,
) -> tuple[nn.Module, list[dict[str, float]]]:
    model = model if model is not None else make()

    def after_epoch(epoch: int, shown: nn.Module, ledger: Ledger) -> dict[str, float]:
        if epoch == stop:
            raise KeyboardInterrupt
        return {"seen": float((ledger.prediction >= 0).sum())}

    data = Resident(draw_split(), batch_size=plan.batch_size, seed=5)
    history = train(
        model,
        objective or Plain(),
        data,
        plan,
        Machine(),
        seed=7,
        checkpoint=checkpoint,
        after_epoch=after_epoch,
        ledger=ledger,
    )
    return model, history


PLAN = Plan(epochs=4, batch_size=32, lr=0.1, lr_milestones=(2,), weight_decay=1e-3)


def test_the_engine_is_a_plain_loop() -> None:
    """The same bits as a loop written out by hand over the same batches."""
    model, history = run(PLAN)
    mine = make()
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    data = Resident(draw_split(), batch_size=32, seed=5)
    for epoch in range(4):
        optimizer.param_groups[0]["lr"] = 0.1 * (0.1 if epoch >= 2 else 1)
        losses = []
        for batch in data.epoch(epoch):
            loss = cross_entropy(mine(batch.x), batch.y).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert history[epoch]["loss"] == pytest.approx(np.mean(losses), rel=1e-6)
        assert history[epoch]["seen"] == 150
    torch.testing.assert_close(weights(model), weights(mine), rtol=1e-6, atol=1e-7)


def test_the_learning_rate_is_divided_by_one_plus_beta() -> None:
    plan = Plan(epochs=3, batch_size=50, lr=0.1, divide_lr=True)
    _, history = run(plan, objective=Plain(beta=1.0))
    assert [record["lr"] for record in history] == pytest.approx([0.1, 0.05, 0.1 / 3])
    assert [record["beta"] for record in history] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("average", [None, 0.9])
@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_that_was_cut_off_ends_with_the_same_bits(
    optimizer: str, average: float | None, stop: int, tmp_path: Path
) -> None:
    plan = Plan(epochs=5, batch_size=32, optimizer=optimizer, lr=0.01, average=average)  # type: ignore[arg-type]

    def checkpoint() -> Checkpoint:
        return Checkpoint(tmp_path / "stage.pt", "this", seconds_between=0)

    ledgers = [Ledger(150), Ledger(150)]
    objectives = [Plain(), Plain()]
    whole, history = run(plan, model=make(dropout=True), ledger=ledgers[0], objective=objectives[0])
    with pytest.raises(KeyboardInterrupt):
        run(plan, model=make(dropout=True), checkpoint=checkpoint(), stop=stop)
    resumed, again = run(
        plan,
        model=make(dropout=True),
        checkpoint=checkpoint(),
        ledger=ledgers[1],
        objective=objectives[1],
    )
    assert torch.equal(weights(whole), weights(resumed))
    for mine, theirs in zip(ledgers[0].buffers(), ledgers[1].buffers(), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(objectives[0].steps, objectives[1].steps)
    assert [r["loss"] for r in history] == [r["loss"] for r in again]


def test_a_finished_stage_is_read_back(tmp_path: Path) -> None:
    first, _ = run(PLAN, checkpoint=Checkpoint(tmp_path / "s.pt", "this"))
    second, history = run(PLAN, checkpoint=Checkpoint(tmp_path / "s.pt", "this"), stop=0)
    assert torch.equal(weights(first), weights(second))
    assert len(history) == 4


def test_checkpoints_of_others_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.pt"
    run(PLAN, checkpoint=Checkpoint(path, "this"))
    with pytest.raises(ValueError, match="another configuration"):
        run(PLAN, checkpoint=Checkpoint(path, "that"))
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="delete it to start this stage again"):
            run(PLAN, checkpoint=Checkpoint(path, "this"))
    assert list(tmp_path.iterdir()) == [path]


def test_the_global_random_state_is_left_alone() -> None:
    state = torch.get_rng_state()
    run(PLAN, model=make(dropout=True))
    assert torch.equal(torch.get_rng_state(), state)


class Poisoned(Objective):
    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        return cross_entropy(outputs.logits, batch.y) * torch.where(
            batch.idx == 149, torch.nan, 1
        ), None


def test_a_loss_that_is_not_finite_stops_the_run_and_says_where(tmp_path: Path) -> None:
    order = Resident(draw_split(), batch_size=32, seed=5).order(0)
    step = int((order == 149).nonzero()) // 32
    with pytest.raises(
        ValueError,
        match=rf"epoch 0, step {step}: the loss must be finite|epoch 0, step {step + 1}: logits must be finite",
    ):
        run(PLAN, objective=Poisoned(), checkpoint=Checkpoint(tmp_path / "s.pt", "this"))


def test_weights_are_reduced_in_one_place() -> None:
    loss = torch.tensor([1.0, 2.0, 4.0])
    assert reduced((loss, None)).item() == pytest.approx(7 / 3)
    assert reduced((loss, torch.tensor([1.0, 0.0, 3.0]))).item() == pytest.approx(13 / 4)
    assert reduced((loss, torch.zeros(3))).item() == 0.0
    committee = torch.stack([loss, 2 * loss])
    keep = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    assert reduced((committee, keep)).item() == pytest.approx(1 + 4)
    assert reduced(torch.tensor(3.0)).item() == 3.0


class Shaped(Objective):
    """Cross-entropy that comes back in a shape of the test's."""

    def __init__(self, shape: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, outputs: Outputs, batch: Batch) -> Any:
        first = outputs.logits[0] if outputs.logits.ndim == 3 else outputs.logits
        return self.shape(cross_entropy(first, batch.y))


WRONG_RESULTS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "some examples": (
        lambda loss: (loss[:5], None),
        r"loss must have .* shape \(32,\), got a Tensor",
    ),
    "a mean with None": (lambda loss: (loss.mean(), None), "do not reduce it"),
    "one a class": (lambda loss: (loss.expand(3, -1), None), r"of shape \(3, 32\)"),
    "a column of weights": (
        lambda loss: (loss, torch.ones(len(loss), 1)),
        r"weight must be None or have .* shape \(32,\), got a Tensor of shape \(32, 1\)",
    ),
    "one weight": (lambda loss: (loss, torch.tensor(2.0)), "weight must be None"),
    "weights of Python": (lambda loss: (loss, [1.0] * len(loss)), "weight must be None"),
    "losses alone": (lambda loss: loss, r"return \(loss, None\) for one loss an example"),
    "three things": (
        lambda loss: (loss, None, None),
        r"must return \(loss, weight\), or one number",
    ),
    "nothing": (lambda loss: None, "got None"),
}


@pytest.mark.parametrize("case", WRONG_RESULTS)
def test_what_an_objective_returns_must_be_of_the_batch(case: str) -> None:
    shape, message = WRONG_RESULTS[case]
    with pytest.raises(ValueError, match=rf"epoch 0, step 0: an objective.*{message}") as caught:
        run(PLAN, objective=Shaped(shape))
    assert "\n" not in str(caught.value)


def test_a_committee_may_have_a_row_of_losses_for_each_member() -> None:
    def twice(loss: Tensor) -> Tensor:
        return torch.stack([loss, 2 * loss])

    good: list[Callable[[Tensor], Any]] = [
        lambda loss: (loss, None),
        lambda loss: (twice(loss), torch.ones(2, len(loss))),
        lambda loss: (twice(loss), torch.ones(len(loss))),
        lambda loss: loss.mean(),
    ]
    for shape in good:
        run(PLAN, objective=Shaped(shape), model=Committee([make(), make()]))
    bad: list[Callable[[Tensor], Any]] = [
        lambda loss: (twice(loss).t(), None),
        lambda loss: (loss, torch.ones(2, len(loss))),
    ]
    for shape in bad:
        with pytest.raises(ValueError, match="an objective's"):
            run(PLAN, objective=Shaped(shape), model=Committee([make(), make()]))


def test_average_is_the_exponential_average_of_weights_and_statistics() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = Average(model, 0.75)
    seen: list[dict[str, Tensor]] = []
    for _ in range(3):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        model(torch.randn(8, 3))
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        average.update()
    weight = [0.75**2 * 0.25, 0.75 * 0.25, 0.25]  # and nothing of the weights before the first step
    for name, value in average.model.state_dict().items():
        if value.is_floating_point():
            mean = sum(w * step[name] for w, step in zip(weight, seen, strict=True)) / sum(weight)
            torch.testing.assert_close(value, mean)
        else:
            assert torch.equal(value, seen[-1][name])


def test_steps_that_are_averaged_together_weigh_as_much_as_they_are() -> None:
    model, values = nn.Linear(1, 1), [2.0, 5.0]
    average = Average(model, 0.9)
    for value, steps in zip(values, (3, 2), strict=True):
        nn.init.constant_(model.weight, value)
        average.update(steps)
    first, second = 0.9**2 * (1 - 0.9**3), 1 - 0.9**2
    expected = (first * values[0] + second * values[1]) / (first + second)
    assert average.model.state_dict()["weight"].item() == pytest.approx(expected)


def test_predict_leaves_the_model_as_it_was_and_averages_a_committee() -> None:
    split = draw_split()
    data = Resident(split, batch_size=64, shuffle=False)
    model = make()
    model.train()
    logits, features = predict(model, data, Machine(), features=True)
    assert model.training
    torch.testing.assert_close(logits, model(split.x))
    assert features is not None
    torch.testing.assert_close(model.fc(features), logits)  # type: ignore[operator]
    other = build_net("linear", num_classes=3, input_shape=(6,), seed=1)
    mean, _ = predict(Committee([model, other]), data, Machine())
    expected = (model(split.x).softmax(1) + other(split.x).softmax(1)) / 2
    torch.testing.assert_close(mean.softmax(dim=1), expected)


def test_ledger_holds_what_the_loops_say() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(20, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (20,), generator=generator)
    ledger = Ledger(25)
    idx = torch.randperm(25, generator=generator)[:20]
    ledger.write(idx, logits, y)
    ledger.write(idx, logits, y)
    probs = reference.softmax(logits.numpy())
    np.testing.assert_allclose(
        ledger.loss[idx], reference.cross_entropy(logits.numpy(), y.numpy()), atol=1e-4
    )
    np.testing.assert_allclose(ledger.score[idx], sieve.adjusted_loss(probs, y.numpy()), atol=1e-4)
    assert ledger.prediction[idx].tolist() == probs.argmax(axis=1).tolist()
    assert ledger.learned[idx].tolist() == (2 * (probs.argmax(axis=1) == y.numpy())).tolist()
    assert int((ledger.prediction < 0).sum()) == 5


BAD_PLANS: dict[str, tuple[Callable[[], Plan], str]] = {
    "epochs": (lambda: Plan(epochs=-1), "epochs from 0 to"),
    "lr": (lambda: Plan(epochs=1, lr=0.0), "lr > 0"),
    "optimizer": (lambda: Plan(epochs=1, optimizer="lion"), "one of sgd, adam"),  # type: ignore[arg-type]
    "average": (lambda: Plan(epochs=1, average=1.0), "average must lie"),
    "weight decay": (lambda: Plan(epochs=1, weight_decay=-1.0), "weight_decay ≥ 0"),
}


@pytest.mark.parametrize("case", BAD_PLANS)
def test_bad_plans_are_refused(case: str) -> None:
    call, message = BAD_PLANS[case]
    with pytest.raises(ValueError, match=message):
        call()


class Explosive(Objective):
    """Finite losses whose last gradient of the epoch ruins the weights."""

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        loss = cross_entropy(outputs.logits, batch.y)
        return loss + (1e38 * (outputs.logits - outputs.logits.detach())).sum(dim=1) * 1e3, None


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    plan = Plan(epochs=2, batch_size=150, lr=10.0)
    with pytest.raises(ValueError, match=r"epoch 0: the weights must be finite"):
        run(plan, objective=Explosive(), checkpoint=Checkpoint(tmp_path / "s.pt", "this"))
    assert not list(tmp_path.iterdir())


def test_restoring_keeps_the_learning_rate_that_a_captured_step_reads() -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)
    state = _State(model, Plain(), optimizer, Ledger(3), None)
    rate = optimizer.param_groups[0]["lr"]
    state.restore(copied(state.whole([])))
    assert optimizer.param_groups[0]["lr"] is rate


def test_averaged_weights_have_statistics_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHUNK", 40)  # of 150 examples
    split = draw_split()
    data = Resident(split, batch_size=32, seed=1)
    seen: list[int] = []

    def look(epoch: int, shown: nn.Module, ledger: Ledger) -> dict[str, Any]:
        assert isinstance(shown, nn.Sequential)
        first, norm = shown[0], shown[1]
        # After the last epoch in chunks, without the smaller one that is left.
        chunks = data.order(epoch)[:120].split(40) if epoch else data.order(epoch)[:32].split(40)
        hidden = [first(split.x[idx]) for idx in chunks]
        mean = torch.stack([each.mean(dim=0) for each in hidden]).mean(dim=0)
        var = torch.stack([each.var(dim=0) for each in hidden]).mean(dim=0)
        torch.testing.assert_close(norm.running_mean, mean)
        torch.testing.assert_close(norm.running_var, var)
        assert norm.momentum == 0.1
        seen.append(epoch)
        return {}

    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    plan = Plan(epochs=2, batch_size=32, lr=0.5, average=0.9)
    train(model, Plain(), data, plan, Machine(), seed=1, after_epoch=look)
    assert seen == [0, 1]
