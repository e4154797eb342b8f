"""L_DMI: its joint, and batches without a gradient."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from covlearn import distributed
from covlearn.data import Batch, Split
from covlearn.engine import Outputs, Plan
from covlearn.losses import dmi_from_joint
from covlearn.methods.dmi import DMI, Determinant
from covlearn.run import LocalRun
from tests.methods.loss_cases import batch_of, toy
from tests.methods.toy import weights
from tests.reference import losses as reference


def dmi_batch(seed: int, size: int) -> tuple[Outputs, Batch]:
    """With all three classes."""
    outputs, batch = batch_of(seed, size, 3)
    return outputs, batch._replace(y=torch.arange(size) % 3)


def test_dmi_agrees_with_the_loop() -> None:
    outputs, batch = dmi_batch(0, 12)
    objective = Determinant(3, 12, eps=1e-2)
    expected = reference.dmi(outputs.logits.detach().double().numpy(), batch.y.numpy(), 1e-2)
    assert objective(outputs, batch).item() == pytest.approx(expected, rel=1e-5)
    assert [int(count) for count in objective.buffers()] == [1, 0, 0]


def misses_a_class(outputs: Outputs, batch: Batch) -> tuple[Outputs, Batch]:
    return outputs, batch._replace(y=batch.y.clamp(max=1))


def falls_short(outputs: Outputs, batch: Batch) -> tuple[Outputs, Batch]:
    return Outputs(outputs.logits[:11]), Batch(batch.x, batch.y[:11], batch.idx[:11])


@pytest.mark.parametrize(
    ("spoil", "counts"),
    [
        (misses_a_class, [1, 0, 1]),
        (falls_short, [1, 1, 0]),
        (lambda *whole: falls_short(*misses_a_class(*whole)), [1, 1, 0]),
    ],
)
def test_dmi_batches_without_a_gradient_are_counted(
    spoil: Callable[[Outputs, Batch], tuple[Outputs, Batch]], counts: list[int]
) -> None:
    outputs, batch = dmi_batch(1, 12)
    objective = Determinant(3, 12)
    loss = objective(*spoil(outputs, batch))
    loss.backward()
    assert loss.item() == pytest.approx(-np.log(1e-3))
    assert outputs.logits.grad is not None
    assert not outputs.logits.grad.any()
    assert [int(objective.batches), int(objective.incomplete), int(objective.singular)] == counts


def test_dmi_does_not_take_nan_for_a_singular_batch() -> None:
    # Where values are not looked at, on an accelerator, the loss itself must tell.
    assert dmi_from_joint(torch.full((3, 3), torch.nan)).isnan()


def test_dmi_adds_up_the_joint_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, batch = dmi_batch(2, 12)
    whole = Determinant(3, 12)(outputs, batch)
    whole.backward()
    assert outputs.logits.grad is not None
    for process in range(2):
        shares = [slice(p, None, 2) for p in (process, 1 - process)]
        logits, others = (outputs.logits.detach()[share] for share in shares)
        joint = torch.zeros(3, 3, dtype=torch.float64)
        joint.index_add_(0, batch.y[shares[1]], others.softmax(dim=1).double())
        monkeypatch.setattr(distributed, "sum_of", lambda own, joint=joint: own + joint)
        logits.requires_grad_()
        objective = Determinant(3, 12)
        loss = objective(Outputs(logits), Batch(batch.x, batch.y[shares[0]], batch.idx[shares[0]]))
        loss.backward()
        assert int(objective.incomplete) == 0
        torch.testing.assert_close(loss, whole)
        torch.testing.assert_close(logits.grad, outputs.logits.grad[shares[0]])


def test_a_dmi_run_records_the_batches_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = toy(100, seed=0)
    split = Split(x, torch.tensor([0] * 48 + [1] * 48 + [2] * 4), 3)
    plan = Plan(epochs=3, batch_size=16, lr=1e-4)
    shown: list[Tensor] = []
    forward = Determinant.forward

    def watched(self: Determinant, outputs: Outputs, batch: Batch) -> Tensor:
        shown.append(batch.y)
        return forward(self, outputs, batch)

    run = LocalRun(split, net_options={"hidden": [8]})
    with monkeypatch.context() as patched:
        patched.setattr(Determinant, "forward", watched)
        DMI(plan, plan).fit(run)
    singular = sum(len(y) == 16 and len(y.unique()) < 3 for y in shown)
    assert 0 < singular < 18
    assert run.facts == {"batches": 21, "incomplete_batches": 3, "singular_batches": singular}

    balanced = LocalRun(split, net_options={"hidden": [8]})
    DMI(plan, plan, balanced_batches=5).fit(balanced)
    assert balanced.facts == {"batches": 15, "incomplete_batches": 0, "singular_batches": 0}


def test_dmi_learns_from_a_hundred_classes_when_batches_are_large_enough() -> None:
    generator = torch.Generator().manual_seed(0)
    split = Split(torch.randn(1000, 4, generator=generator), torch.arange(1000) % 100, 100)
    for size, singular in ((128, 7), (1000, 0)):
        run = LocalRun(split, net_name="linear")
        start = weights(run.net("dmi"))
        model = DMI(Plan(epochs=0), Plan(epochs=1, batch_size=size, lr=1e-6), eps=1e-300).fit(run)
        assert run.facts["singular_batches"] == singular
        assert torch.equal(weights(model), start) == (singular > 0)
