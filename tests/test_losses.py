from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covlearn import losses
from tests.reference import losses as reference

DTYPES = {torch.float64: 1e-9, torch.float32: 3e-5, torch.bfloat16: 3e-5, torch.float16: 3e-5}


def draw(
    seed: int, size: int, num_classes: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(size, num_classes, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(num_classes, (size,), generator=generator)


def draw_transition(seed: int, num_classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(num_classes, num_classes, generator=generator, dtype=torch.float64)
    rows = rows + num_classes * torch.eye(num_classes)
    return rows / rows.sum(dim=1, keepdim=True)


def pointwise(num_classes: int, seed: int = 5) -> dict[str, tuple[Any, Any]]:
    """Every loss of one logits tensor, with its reference, options bound."""
    transition = draw_transition(seed, num_classes)
    prior = transition[0]
    T, π = transition.numpy(), prior.numpy()
    return {
        "cross_entropy": (losses.cross_entropy, reference.cross_entropy),
        "gce": (losses.generalized_cross_entropy, reference.generalized_cross_entropy),
        "truncated": (
            losses.truncated_generalized_cross_entropy,
            reference.truncated_generalized_cross_entropy,
        ),
        "forward": (
            partial(losses.forward_corrected, transition=transition),
            partial(reference.forward_corrected, transition=T),
        ),
        "reweighted": (
            partial(losses.reweighted, transition=transition),
            partial(reference.reweighted, transition=T),
        ),
        "cores": (
            partial(losses.cores, prior=prior, beta=1.5),
            lambda z, y: reference.cross_entropy(z, y) - 1.5 * reference.confidence(z, π),
        ),
    }


NAMES = list(pointwise(2))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_options_may_be_numbers_of_numpy(kind: Any) -> None:
    logits, y = draw(0, 6, 3)
    logits.requires_grad_(True)
    half = kind(0.5)
    calls: list[Callable[[Any], Tensor]] = [
        lambda number: losses.generalized_cross_entropy(logits, y, q=number),
        lambda number: losses.truncated_generalized_cross_entropy(logits, y, q=number, k=number),
        lambda number: losses.joint(logits, 2 * logits, y, weight=number),
    ]
    for call in calls:
        torch.testing.assert_close(call(half), call(0.5))
        (gradient,) = torch.autograd.grad(call(half).sum(), logits)
        assert gradient.isfinite().all()
        with pytest.raises(ValueError, match=r"must lie in .*got np.float"):
            call(kind(1.5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_loop(name: str, dtype: torch.dtype) -> None:
    for num_classes in (2, 7):
        ours, theirs = pointwise(num_classes)[name]
        logits, y = draw(0, 13, num_classes, dtype)
        value = ours(logits, y)
        assert value.shape == (13,)
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        expected = theirs(logits.double().numpy(), y.numpy())
        np.testing.assert_allclose(value, expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize("name", NAMES)
@given(size=st.integers(1, 9), num_classes=st.integers(2, 6), seed=st.integers(0, 999))
def test_all_classes_at_once_are_the_classes_one_by_one(
    name: str, size: int, num_classes: int, seed: int
) -> None:
    loss: Callable[..., Tensor] = pointwise(num_classes)[name][0]
    logits, y = draw(seed, size, num_classes)
    table = losses.per_class(loss, logits)
    assert table.shape == (size, num_classes)
    torch.testing.assert_close(table.gather(1, y[:, None]).squeeze(1), loss(logits, y))
    torch.testing.assert_close(table, losses.per_class(losses.one_class_at_a_time(loss), logits))


@pytest.mark.parametrize("name", NAMES)
def test_gradient(name: str) -> None:
    loss = pointwise(4)[name][0]
    logits, y = draw(1, 6, 4)
    assert torch.autograd.gradcheck(lambda z: loss(z, y), logits.requires_grad_())


@pytest.mark.parametrize("name", NAMES)
def test_extreme_logits_have_finite_values_and_gradients(name: str) -> None:
    # In float32 the smaller probability underflows to exactly zero.
    logits = torch.tensor([[500.0, -500.0], [-500.0, 500.0]], requires_grad=True)
    loss = pointwise(2)[name][0]
    value = loss(logits, torch.tensor([0, 0]))
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_losses_of_two_inputs(dtype: torch.dtype) -> None:
    logits_1, y = draw(2, 11, 5, dtype)
    logits_2, peer_y = draw(3, 11, 5, dtype)
    a, b = logits_1.double().numpy(), logits_2.double().numpy()
    agree = partial(np.testing.assert_allclose, rtol=DTYPES[dtype], atol=DTYPES[dtype])
    agree(
        losses.joint(logits_1, logits_2, y, weight=0.3),
        reference.joint(a, b, y.numpy(), weight=0.3),
    )
    agree(
        losses.peer(logits_1, y, logits_2, peer_y, alpha=0.6),
        reference.cross_entropy(a, y.numpy())
        - 0.6 * reference.cross_entropy(b, peer_y.numpy(), eps=1e-5),
    )
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.0], dtype=torch.float64)
    agree(
        losses.confidence(logits_1, prior=prior),
        reference.confidence(a, prior.numpy()),
    )


def test_gradients_of_losses_of_two_inputs() -> None:
    logits_1, y = draw(2, 5, 3)
    logits_2, peer_y = draw(3, 5, 3)
    logits_1.requires_grad_()
    logits_2.requires_grad_()
    check = torch.autograd.gradcheck
    assert check(lambda a, b: losses.joint(a, b, y, weight=0.3), (logits_1, logits_2))
    assert check(lambda a, b: losses.peer(a, y, b, peer_y, alpha=0.6), (logits_1, logits_2))


@given(size=st.integers(1, 9), num_classes=st.integers(2, 6), seed=st.integers(0, 999))
def test_identities(size: int, num_classes: int, seed: int) -> None:
    logits, y = draw(seed, size, num_classes)
    peer_logits, peer_y = draw(seed + 1, size, num_classes)
    identity = torch.eye(num_classes, dtype=torch.float64)
    ce = losses.cross_entropy(logits, y)
    same = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
    same(losses.forward_corrected(logits, y, transition=identity), ce)
    same(losses.reweighted(logits, y, transition=identity), ce)
    same(losses.peer(logits, y, peer_logits, peer_y, alpha=0.0), ce)
    same(losses.cores(logits, y, prior=identity[0], beta=0.0), ce)
    same(losses.joint(logits, logits, y, weight=0.25), 0.75 * 2 * ce)
    exact = losses.cross_entropy(logits, y, eps=0.0)
    same(exact, torch.nn.functional.cross_entropy(logits, y, reduction="none"))
    same(losses.generalized_cross_entropy(logits, y, q=1e-10), exact, rtol=1e-6, atol=1e-6)
    one_hot = torch.nn.functional.one_hot(y, num_classes)
    mae = (logits.softmax(dim=1) - one_hot).abs().sum(dim=1)
    same(losses.generalized_cross_entropy(logits, y, q=1.0), mae / 2)


def test_forward_with_a_known_transition() -> None:
    # p = (0.8, 0.2) and T = [[0.9, 0.1], [0.3, 0.7]] give P(noisy = 0) = 0.72 + 0.06.
    logits = torch.tensor([[0.8, 0.2]], dtype=torch.float64).log()
    transition = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    loss = losses.forward_corrected(logits, torch.tensor([0]), transition=transition)
    assert loss.item() == pytest.approx(-np.log(0.78), abs=1e-7)


def test_truncation_has_no_gradient_below_k() -> None:
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0]], requires_grad=True)
    losses.truncated_generalized_cross_entropy(logits, torch.tensor([0, 0])).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[0] == 0).all()
    assert (logits.grad[1] != 0).all()


def test_reweighted_is_differentiable_in_the_transition() -> None:
    logits, y = draw(4, 6, 3)
    transition = draw_transition(4, 3)
    slack = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    for constant_weight in (False, True):
        slack.grad = None
        loss = losses.reweighted(
            logits, y, transition=transition + slack, constant_weight=constant_weight
        )
        loss.sum().backward()
        assert slack.grad is not None
        assert (slack.grad.abs() > 0).any()
    # Along directions that keep the rows valid, the gradient is the numerical one.
    shift = torch.tensor([[1.0, -1.0, 0.0]] * 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda t: losses.reweighted(logits, y, transition=transition + t * shift),
        torch.zeros(3, 1, dtype=torch.float64, requires_grad=True),
    )


def test_constant_weight_leaves_the_value_and_scales_the_gradient_of_ce() -> None:
    logits, y = draw(4, 6, 3)
    transition = draw_transition(4, 3)
    logits.requires_grad_()
    loss = partial(losses.reweighted, transition=transition)
    value = loss(logits, y, constant_weight=True)
    torch.testing.assert_close(value, loss(logits, y))
    ce = losses.cross_entropy(logits, y)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    (gradient_ce,) = torch.autograd.grad(ce.sum(), logits)
    torch.testing.assert_close(gradient, (value / ce).detach()[:, None] * gradient_ce)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dmi_agrees_with_the_loop(dtype: torch.dtype) -> None:
    logits, y = draw(5, 40, 4, dtype)
    value = losses.dmi(logits, y)
    assert value.shape == ()
    expected = reference.dmi(logits.double().numpy(), y.numpy())
    assert value.item() == pytest.approx(expected, rel=1e-5)


def test_dmi_gradient() -> None:
    logits, y = draw(6, 12, 3)
    assert torch.autograd.gradcheck(lambda z: losses.dmi(z, y), logits.requires_grad_())


def test_dmi_of_a_batch_that_misses_a_class_has_zero_gradient() -> None:
    logits, y = draw(7, 128, 100, torch.float32)
    assert len(y.unique()) < 100
    logits.requires_grad_()
    value = losses.dmi(logits, y)
    value.backward()
    assert value.item() == pytest.approx(-np.log(1e-3), rel=1e-6)
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_dmi_has_a_gradient_when_all_hundred_classes_are_there() -> None:
    logits, _ = draw(8, 128, 100, torch.float32)
    y = torch.arange(128) % 100
    logits = (logits + 8 * torch.nn.functional.one_hot(y, 100)).requires_grad_()
    value = losses.dmi(logits, y)
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().max() > 0


def test_half_precision_is_computed_in_float32() -> None:
    # In bfloat16 itself ln(p + 1e-8) would lose all but two digits.
    logits = torch.tensor([[0.0, 9.0]], dtype=torch.bfloat16)
    loss = losses.cross_entropy(logits, torch.tensor([0]))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(np.log1p(np.exp(9.0)), abs=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_does_not_reach_the_losses(name: str) -> None:
    logits, y = draw(10, 8, 5, torch.float32)
    loss = pointwise(5)[name][0]
    for labels in (y, torch.arange(5).expand(8, 5)):
        expected = loss(logits, labels)
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(logits, labels)
        assert value.dtype == expected.dtype
        assert torch.equal(value, expected)


@pytest.mark.parametrize("name", NAMES)
def test_losses_work_inside_vmap(name: str) -> None:
    loss = pointwise(3)[name][0]
    logits, y = draw(11, 6, 3)
    trials = torch.stack([logits, 2 * logits])
    together = torch.func.vmap(lambda z: loss(z, y))(trials)
    torch.testing.assert_close(together, torch.stack([loss(z, y) for z in trials]))


def test_confidence_gradient() -> None:
    logits, _ = draw(12, 5, 4)
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    check = torch.autograd.gradcheck
    assert check(lambda z: losses.confidence(z, prior=prior), logits.requires_grad_())


def test_the_step_can_be_traced_without_reading_values() -> None:
    # Data-dependent checks must step aside, or no step could be compiled into one graph.
    prior = torch.full((4,), 0.25)

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return losses.cores(logits, y, prior=prior, beta=1.0)

    logits, y = draw(9, 6, 4, torch.float32)
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits, y), loss(logits, y))


BAD_CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "label too large": (lambda: losses.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 3])), "0…2.*3 at position 1"),
    "negative label": (lambda: losses.cross_entropy(torch.zeros(2, 3), torch.tensor([-1, 0])), "-1 at position 0"),
    "float label": (lambda: losses.cross_entropy(torch.zeros(1, 3), torch.tensor([0.0])), "integer class numbers"),
    "length": (lambda: losses.cross_entropy(torch.zeros(2, 3), torch.tensor([0])), "one entry an example, 2, got 1"),
    "table length": (lambda: losses.cross_entropy(torch.zeros(2, 3), torch.zeros(3, 3, dtype=torch.long)), "2 rows"),
    "nan": (lambda: losses.cross_entropy(torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), torch.tensor([0, 1])), "finite.*row 1"),
    "infinity": (lambda: losses.confidence(torch.tensor([[torch.inf, 0.0]]), prior=torch.ones(2)), "finite.*row 0"),
    "integer logits": (lambda: losses.cross_entropy(torch.zeros(2, 3, dtype=torch.long), torch.tensor([0, 1])), "floating point"),
    "one class": (lambda: losses.cross_entropy(torch.zeros(2, 1), torch.tensor([0, 0])), "at least 2 classes"),
    "empty": (lambda: losses.cross_entropy(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)), "at least one example"),
    "rows": (lambda: losses.forward_corrected(torch.zeros(1, 2), torch.tensor([0]), transition=torch.tensor([[0.9, 0.2], [0.1, 0.8]])), "sum to 1, row 0 sums to 1.1"),
    "negative entry": (lambda: losses.reweighted(torch.zeros(1, 2), torch.tensor([0]), transition=torch.tensor([[1.0, 0.0], [-0.2, 1.2]])), "negative.*row 1"),
    "not square": (lambda: losses.forward_corrected(torch.zeros(1, 2), torch.tensor([0]), transition=torch.ones(2, 3) / 3), "square"),
    "other K": (lambda: losses.forward_corrected(torch.zeros(1, 2), torch.tensor([0]), transition=torch.eye(3)), "2 columns"),
    "prior shape": (lambda: losses.confidence(torch.zeros(1, 2), prior=torch.ones(3)), "2 floating-point"),
    "negative prior": (lambda: losses.confidence(torch.zeros(1, 2), prior=torch.tensor([1.5, -0.5])), "not negative"),
    "nan prior": (lambda: losses.confidence(torch.zeros(1, 2), prior=torch.tensor([1.0, torch.nan])), "finite"),
    "q": (lambda: losses.generalized_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), q=0.0), r"q must lie in \(0, 1\]"),
    "k": (lambda: losses.truncated_generalized_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), k=1.0), "k must lie"),
    "joint weight": (lambda: losses.joint(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([0]), weight=1.5), "weight must lie"),
    "eps": (lambda: losses.cross_entropy(torch.zeros(1, 2), torch.tensor([0]), eps=-1e-8), "eps must lie in"),
    "beta vector": (lambda: losses.cores(torch.zeros(2, 2), torch.tensor([0, 1]), prior=torch.ones(2), beta=torch.ones(2)), "beta must be one number"),
    "negative beta": (lambda: losses.cores(torch.zeros(2, 2), torch.tensor([0, 1]), prior=torch.ones(2), beta=-1.0), "beta must lie in"),
    "alpha": (lambda: losses.peer(torch.zeros(1, 2), torch.tensor([0]), torch.zeros(1, 2), torch.tensor([0]), alpha=float("nan")), "alpha must lie in"),
    "peers of another batch": (lambda: losses.peer(torch.zeros(2, 2), torch.tensor([0, 1]), torch.zeros(1, 2), torch.tensor([0]), alpha=1.0), "peer_logits must have the shape"),
    "networks of another K": (lambda: losses.joint(torch.zeros(1, 2), torch.zeros(1, 3), torch.tensor([0]), weight=0.5), "logits_2 must have the shape"),
    "words": (lambda: losses.cross_entropy(torch.zeros(1, 2), np.array(["cat"])), "must be numbers"),  # type: ignore[arg-type]
    "dmi eps": (lambda: losses.dmi(torch.zeros(1, 2), torch.tensor([0]), eps=0.0), "eps must be positive"),
    "dmi table": (lambda: losses.dmi(torch.zeros(1, 2), torch.tensor([[0, 1]])), "one label an example"),
    "one label only": (lambda: losses.per_class(lambda z, y: z.sum(dim=1), torch.zeros(2, 3)), "one_class_at_a_time"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_refused_with_a_reason(case: str) -> None:
    call, message = BAD_CALLS[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_large_finite_logits_are_not_taken_for_infinite() -> None:
    logits = torch.full((4, 3), 3e38)
    assert losses.cross_entropy(logits, torch.tensor([0, 1, 2, 0])).isfinite().all()


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_value_and_gradient_in_blocks_are_those_of_the_formula(
    size: int, with_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CACHED_VALUES", 3 * 5)  # blocks of three examples
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(size, 5, generator=generator, dtype=torch.float64).requires_grad_()
    y, row = torch.randint(5, (2, size), generator=generator)
    matrix = torch.rand(5, 5, generator=generator)
    share = torch.rand(size, generator=generator, dtype=torch.float64)
    factor = torch.rand(5, generator=generator, dtype=torch.float64)
    rows = losses.Rows(matrix, row, share) if with_rows else None

    def loss(values: Tensor) -> Tensor:
        return losses.weighted_logs(values, y, factor, eps=1e-8, all_eps=1e-5, rows=rows)

    value = loss(logits)
    assert "InBlocks" in str(value.grad_fn)
    formula = losses._weighted_logs(logits, y, factor, 1e-8, 1e-5, rows)
    torch.testing.assert_close(value, formula)
    outer = torch.rand(size, generator=generator, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad(each, logits, outer)[0] for each in (value, formula))
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(loss, logits)
    assert torch.autograd.gradgradcheck(loss, logits)


def test_what_else_needs_a_gradient_gets_one() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    prior = torch.full((3,), 1 / 3, requires_grad=True)
    losses.cores(logits, torch.tensor([0, 1, 2, 0]), prior=prior, beta=2.0).sum().backward()
    assert prior.grad is not None
    assert bool((prior.grad != 0).all())


def test_a_loss_of_one_label_an_example_is_told_how_to_be_asked() -> None:
    def plain(logits: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, y, reduction="none")

    logits = torch.zeros(2, 3)
    with pytest.raises(RuntimeError) as caught:
        losses.per_class(plain, logits)
    assert any("wrap the loss in one_class_at_a_time" in note for note in caught.value.__notes__)
    assert losses.per_class(losses.one_class_at_a_time(plain), logits).shape == (2, 3)


@pytest.mark.parametrize("classes", [(2,), (2, 3)])
def test_a_loss_that_is_reduced_is_told_so(classes: tuple[int, ...]) -> None:
    labels = torch.zeros(classes, dtype=torch.long)
    reduced = losses.one_class_at_a_time(torch.nn.functional.cross_entropy)
    says = r"one value per example, shape \(2,\), got a Tensor of shape \(\); .*reduction=.none"
    with pytest.raises(ValueError, match=says) as caught:
        reduced(torch.zeros(2, 3), labels)
    assert not getattr(caught.value, "__notes__", [])
    whole = losses.one_class_at_a_time(torch.nn.functional.cross_entropy)
    assert whole(torch.zeros(2, 3), labels, reduction="none").shape == classes
