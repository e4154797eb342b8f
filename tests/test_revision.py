"""T-revision's slack: projection on valid rows, and its gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covlearn.transition import (
    project_rows,
    revised_transition,
)
from tests.reference import transition as reference


@given(
    st.integers(1, 4).flatmap(
        lambda rows: st.integers(2, 7).flatmap(
            lambda columns: st.lists(
                st.lists(st.floats(-3, 3, width=32), min_size=columns, max_size=columns),
                min_size=rows,
                max_size=rows,
            )
        )
    )
)
def test_projection_equals_bisection_and_meets_its_kkt_conditions(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    got = project_rows(matrix).numpy()
    np.testing.assert_allclose(got, [reference.project_row(v) for v in matrix], atol=1e-12)
    assert (got >= 0).all()
    np.testing.assert_allclose(got.sum(axis=1), 1)
    for v, w in zip(matrix, got, strict=True):
        multiplier = v - w  # one value where w > 0, no larger elsewhere
        theta = multiplier[w > 0]
        np.testing.assert_allclose(theta, theta[0], atol=1e-12)
        assert (multiplier[w == 0] <= theta[0] + 1e-12).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_projection_keeps_valid_rows_and_the_dtype(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    valid = rng.dirichlet(np.full(1000, 0.1), size=20)
    valid[:, ::3] = 0
    valid /= valid.sum(axis=1, keepdims=True)
    got = project_rows(torch.tensor(valid, dtype=dtype))
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert bool((got >= 0).all())
    tolerance = {torch.float16: 1e-3, torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    np.testing.assert_allclose(got, valid, atol=tolerance)


def test_revision_has_the_right_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    transition = torch.softmax(torch.randn(4, 4, generator=generator, dtype=torch.float64), dim=1)
    slack = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    revised = revised_transition(transition, slack)
    assert bool((revised == 0).any())  # some entries are cut off, none is near the kink
    torch.autograd.gradcheck(
        lambda s: revised_transition(transition, s), slack.requires_grad_(), eps=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_slack_gets_a_gradient_even_from_an_identity_transition(dtype: torch.dtype) -> None:
    slack = torch.zeros(3, 3, dtype=dtype, requires_grad=True)
    revised = revised_transition(torch.eye(3, dtype=torch.float64), slack)
    assert revised.dtype == dtype
    assert torch.equal(revised, torch.eye(3, dtype=dtype))
    (gradient,) = torch.autograd.grad(revised[0, 1], slack)
    torch.testing.assert_close(gradient[0], torch.tensor([-1, 2, -1], dtype=dtype) / 3)
    assert not gradient[1:].any()


def test_rows_whose_sum_rounds_leave_the_zeros_free() -> None:
    # 0.1 ten times sums to a hair below or above one, as the order of summing has it.
    row = torch.cat([torch.full((10,), 0.1, dtype=torch.float64), torch.zeros(2)])
    slack = torch.zeros(12, 12, dtype=torch.float64, requires_grad=True)
    revised = revised_transition(row.expand(12, 12), slack)
    assert bool((revised >= 0).all())
    (gradient,) = torch.autograd.grad(revised[0, 10], slack)
    assert float(gradient[0, 10]) == pytest.approx(11 / 12)


def test_an_entry_clearly_outside_is_cut_off_without_a_gradient() -> None:
    row = torch.tensor([[0.6, 0.4, -1e-5]], requires_grad=True)
    projected = project_rows(row)
    torch.testing.assert_close(
        projected[0].detach(), torch.tensor([0.6, 0.4, 0.0]), atol=2e-7, rtol=0
    )
    (gradient,) = torch.autograd.grad(projected[0, 0], row)
    assert gradient.tolist() == [[0.5, -0.5, 0]]


def test_revision_refuses_what_does_not_fit() -> None:
    eye = torch.eye(3)
    with pytest.raises(ValueError, match=r"slack must have the shape of the transition, \(3, 3\)"):
        revised_transition(eye, torch.zeros(2, 2))
    with pytest.raises(ValueError, match="slack must be finite"):
        revised_transition(eye, torch.full((3, 3), float("nan")))
    with pytest.raises(ValueError, match="rows of transition must sum to 1"):
        revised_transition(eye * 0.5, torch.zeros(3, 3))
    with pytest.raises(ValueError, match="matrix must be floating point"):
        project_rows(torch.eye(3, dtype=torch.int64))
