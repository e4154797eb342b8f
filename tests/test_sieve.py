import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covlearn.sieve import (
    SieveRecorder,
    adjusted_loss,
    auto_threshold,
    keep_share,
    quantile_threshold,
    refine,
    refine_by_argmax,
    refine_by_confidence,
    refine_by_likelihood,
    refine_by_small_loss,
)
from tests.reference import sieve as reference


def draw(seed: int, size: int, num_classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(size, num_classes, generator=generator, dtype=torch.float64)
    return logits.softmax(dim=1), torch.randint(num_classes, (size,), generator=generator)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@given(seed=st.integers(0, 999), num_classes=st.integers(2, 6), size=st.integers(1, 20))
def test_algorithm_1_agrees_with_the_loop(
    dtype: torch.dtype, seed: int, num_classes: int, size: int
) -> None:
    probs, noisy = draw(seed, size, num_classes)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    scores = adjusted_loss(probs.to(dtype), noisy)
    expected = reference.adjusted_loss(probs.numpy(), noisy.numpy())
    np.testing.assert_allclose(scores, expected, atol=tolerance)
    for lower, upper in ((-2.0, None), (-1.0, 1.0), (0.0, 0.0)):
        refined = refine(probs, noisy, lower=lower, upper=upper)
        labels = reference.refine(
            probs.numpy(), noisy.numpy(), lower, lower if upper is None else upper
        )
        assert refined.label.tolist() == labels.tolist()
        assert refined.keep.tolist() == (expected <= lower).tolist()
        assert refined.dropped.tolist() == (labels == -1).tolist()
        if upper is None:
            assert not refined.dropped.any()


def test_boundaries_are_those_of_the_algorithm() -> None:
    # Score exactly at L_min keeps the label; exactly at L_max is dropped, not relabelled.
    probs = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    noisy = torch.tensor([0, 1])
    high = adjusted_loss(probs, noisy)[1].item()
    assert refine(probs, noisy, lower=0.0).label.tolist() == [0, 0]
    assert refine(probs, noisy, lower=-1.0, upper=high).label.tolist() == [-1, -1]
    assert refine(probs, noisy, lower=high).label.tolist() == [0, 1]


def test_lower_minus_infinity_believes_the_model_everywhere() -> None:
    probs, noisy = draw(1, 12, 4)
    refined = refine(probs, noisy, lower=-math.inf)
    assert refined.label.tolist() == probs.argmax(dim=1).tolist()
    assert not refined.keep.any()


def test_numpy_in_is_the_same_as_tensors_in() -> None:
    probs, noisy = draw(0, 12, 4)
    ours = refine(probs.numpy(), noisy.numpy().astype(np.int32), lower=-1.0)
    assert ours.label.tolist() == refine(probs, noisy, lower=-1.0).label.tolist()


@given(seed=st.integers(0, 999), num_classes=st.integers(2, 6), size=st.integers(1, 30))
def test_a_perfect_model_and_threshold_zero_give_the_bayes_optimal_labels(
    seed: int, num_classes: int, size: int
) -> None:
    """The ideal case of the paper: ε = 0, L_min = L_max = 0, then D̂ = D* whatever the noise."""
    _, best = draw(seed, size, num_classes)
    _, noisy = draw(seed + 1, size, num_classes)
    probs = torch.nn.functional.one_hot(best, num_classes).double()
    refined = refine(probs, noisy, lower=0.0, eps=0.0)
    assert refined.label.tolist() == best.tolist()
    assert refined.keep.tolist() == (noisy == best).tolist()
    assert refined.score.isinf().all()
    # With its cut-off ε it agrees: s is then −18.4 (K−1)/K or 18.4/K.
    assert refine(probs, noisy, lower=0.0).label.tolist() == best.tolist()


def test_range_of_the_score_that_ties_minus_eight_to_k_and_eps() -> None:
    for num_classes in (2, 10, 100):
        probs = torch.nn.functional.one_hot(torch.tensor([0, 0]), num_classes).double()
        given, other = adjusted_loss(probs, torch.tensor([0, 1])).tolist()
        most = -np.log(1e-8)
        assert given == pytest.approx(-most * (num_classes - 1) / num_classes, abs=1e-6)
        assert other == pytest.approx(most / num_classes, abs=1e-6)


@given(
    scores=st.lists(st.floats(-20, 20), min_size=1, max_size=60),
    kept=st.floats(0.01, 1.0),
)
def test_quantile_threshold_keeps_the_share_asked_for(scores: list[float], kept: float) -> None:
    values = torch.tensor(scores, dtype=torch.float64)
    threshold = quantile_threshold(values, kept)
    share = float((values <= threshold).double().mean())
    below = float((values < threshold).double().mean())
    assert share >= kept - 1e-6
    assert below < kept


def test_quantile_threshold_on_clothing1m_share() -> None:
    values = torch.randperm(10_000, generator=torch.Generator().manual_seed(0)).double()
    assert float((values <= quantile_threshold(values, 0.6154)).double().mean()) == 0.6154


@given(
    low=st.lists(st.floats(-12, -8), min_size=40, max_size=80),
    high=st.lists(st.floats(2, 6), min_size=10, max_size=80),
)
def test_auto_threshold_cuts_between_two_groups(low: list[float], high: list[float]) -> None:
    threshold = auto_threshold(torch.tensor(low + high, dtype=torch.float64))
    assert threshold == pytest.approx((max(low) + min(high)) / 2)


@given(seed=st.integers(0, 999), wrong=st.floats(0.1, 0.5), apart=st.floats(8, 12))
def test_auto_threshold_is_the_exact_two_means_split(seed: int, wrong: float, apart: float) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=200) + apart * (np.arange(200) < 200 * wrong)
    threshold = auto_threshold(scores)
    groups = scores[scores <= threshold], scores[scores > threshold]
    cost = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    assert cost == pytest.approx(reference.two_means_cost(scores.tolist()), rel=1e-9)


@pytest.mark.parametrize("shape", ["standard_normal", "random", "standard_exponential"])
@pytest.mark.parametrize("size", [60, 200, 5000])
def test_auto_threshold_refuses_one_group(shape: str, size: int) -> None:
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(100):
        with contextlib.suppress(ValueError):
            auto_threshold(getattr(rng, shape)(size))
            continue
        refused += 1
    assert refused >= 97


@pytest.mark.parametrize("wrong", [0.05, 0.1, 0.3, 0.5])
def test_auto_threshold_sees_groups_of_unequal_size(wrong: float) -> None:
    rng = np.random.default_rng(0)
    is_wrong = rng.random(2000) < wrong
    scores = np.where(is_wrong, rng.normal(2, 2, 2000), rng.normal(-10, 2, 2000))
    right = (scores > auto_threshold(scores)) == is_wrong
    assert right.mean() > 0.99


def test_one_outlier_is_no_group() -> None:
    scores = np.append(np.random.default_rng(0).normal(size=1000), 1000.0)
    with pytest.raises(ValueError, match=r"1000 and 1 scores"):
        auto_threshold(scores)


@given(seed=st.integers(0, 999), bound=st.floats(0.0, 0.6), num_classes=st.integers(2, 5))
def test_confidence_above_half_plus_half_the_bound_is_bayes_optimal(
    seed: int, bound: float, num_classes: int
) -> None:
    """Distillation's guarantee, for random clean posteriors and bounded noise T_ij(x) ≤ ρ."""
    rng = np.random.default_rng(seed)
    clean = rng.dirichlet(np.full(num_classes, 0.3), size=40)
    noisy_posterior = np.empty_like(clean)
    for n in range(40):
        off = rng.uniform(0, min(bound, 1 / (num_classes - 1)), (num_classes, num_classes))
        np.fill_diagonal(off, 0)
        T = off + np.diag(1 - off.sum(axis=1))
        noisy_posterior[n] = clean[n] @ T
    given = torch.zeros(40, dtype=torch.long)
    refined = refine_by_confidence(
        noisy_posterior, given, confidence=min((1 + bound) / 2, 1 - 1e-9)
    )
    sure = ~refined.dropped.numpy()
    assert (refined.label.numpy()[sure] == clean.argmax(axis=1)[sure]).all()
    assert (refined.keep == (refined.label == given)).all()


def test_likelihood_and_small_loss() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    noisy = torch.tensor([0, 0, 1, 1])
    likely = refine_by_likelihood(probs, noisy, threshold=0.4)
    assert likely.label.tolist() == [0, 1, 1, 1]
    assert likely.keep.tolist() == [True, False, True, True]
    np.testing.assert_allclose(likely.score, -np.log([0.9, 0.2, 0.4, 0.7]), rtol=1e-6)
    small = refine_by_small_loss(probs, noisy, kept=0.5)
    assert small.label.tolist() == [0, -1, -1, 1]
    assert small.keep.tolist() == [True, False, False, True]


def test_keep_schedule() -> None:
    shares = [keep_share(epoch, rate=0.4) for epoch in (0, 5, 10, 99)]
    assert shares == pytest.approx([1.0, 0.8, 0.6, 0.6])


def test_recorder_gives_what_refine_gives_and_keeps_the_last_pass() -> None:
    probs, noisy = draw(3, 50, 4)
    recorder = SieveRecorder(noisy, num_classes=4)
    logits = probs.log()
    recorder.update(torch.arange(50), -logits)  # an earlier epoch, to be overwritten
    for idx in torch.randperm(50, generator=torch.Generator().manual_seed(0)).split(7):
        recorder.update(idx, logits[idx])
    for lower, upper in ((-1.0, None), (-2.0, 1.0)):
        ours = recorder.refine(lower=lower, upper=upper)
        expected = refine(probs, noisy, lower=lower, upper=upper)
        assert ours.label.tolist() == expected.label.tolist()
        torch.testing.assert_close(ours.score, expected.score.float(), atol=1e-4, rtol=0)


def test_recorder_finds_a_threshold_and_shares_no_memory() -> None:
    noisy = torch.arange(60) % 2
    given = noisy.clone()
    recorder = SieveRecorder(noisy, num_classes=2)
    sure = torch.tensor([[9.0, -9.0], [-9.0, 9.0]])
    wrong = torch.arange(60) < 15
    recorder.update(torch.arange(60), sure[torch.where(wrong, 1 - given, given)])
    noisy.zero_()
    refined = recorder.refine()
    assert refined.label.tolist() == torch.where(wrong, 1 - given, given).tolist()
    before = refined.score.clone()
    recorder.update(torch.arange(60), torch.zeros(60, 2))
    assert torch.equal(refined.score, before)


def test_refined_labels_keep_no_graph() -> None:
    probs, noisy = draw(5, 30, 3)
    probs.requires_grad_()
    for made in (
        refine(probs, noisy, lower=-1.0),
        refine_by_argmax(probs, noisy),
        refine_by_confidence(probs, noisy, confidence=0.6),
        refine_by_likelihood(probs, noisy, threshold=0.3),
        refine_by_small_loss(probs, noisy, kept=0.5),
    ):
        assert not made.score.requires_grad
    assert adjusted_loss(probs, noisy).requires_grad  # a score may be a loss


def test_a_recorder_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    probs, noisy = draw(3, 20, 4)
    whole, half = SieveRecorder(noisy, 4), SieveRecorder(noisy, 4)
    for recorder in (whole, half):
        recorder.update(torch.arange(10), probs[:10].log())
    torch.save({"recorder": half.state_dict()}, tmp_path / "half.pt")
    before = half.state_dict()
    again = SieveRecorder(noisy.numpy(), 4)
    again.load_state_dict(torch.load(tmp_path / "half.pt", weights_only=True)["recorder"])
    for recorder in (whole, half, again):
        recorder.update(torch.arange(10, 20), probs[10:].log())
    assert before["score"].isnan().sum() == 10  # what was kept is a copy
    for name, value in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    assert torch.equal(again.refine(lower=0.0).label, whole.refine(lower=0.0).label)


def test_a_recorder_takes_no_state_of_other_labels() -> None:
    state = SieveRecorder(NOISY, 2).state_dict()
    for labels in (1 - NOISY, torch.tensor([0, 1, 1])):
        with pytest.raises(ValueError, match="noisy labels, got others"):
            SieveRecorder(labels, 2).load_state_dict(state)
    with pytest.raises(ValueError, match="gave, with noisy, score, prediction"):
        SieveRecorder(NOISY, 2).load_state_dict({"score": state["score"]})


def test_a_recorder_is_registered_with_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    recorder = recorded()
    accelerator.register_for_checkpointing(recorder)
    accelerator.save_state(str(tmp_path))
    expected = recorder.state_dict()
    recorder.update(torch.arange(2), PROBS.flip(1).log())
    accelerator.load_state(str(tmp_path))
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    assert torch.equal(recorder.score, expected["score"])


def test_other_constructions_agree_with_loops_over_dtypes() -> None:
    probs, noisy = draw(4, 40, 5)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        given = probs.to(dtype)
        likelihood = [float(given[n, noisy[n]]) for n in range(40)]
        best = [int(np.argmax(row)) for row in given.double().numpy()]
        sure = refine_by_confidence(given, noisy, confidence=0.7).label.tolist()
        assert sure == [b if float(given[n, b]) > 0.7 else -1 for n, b in enumerate(best)]
        likely = refine_by_likelihood(given, noisy, threshold=0.2).label.tolist()
        assert likely == [int(noisy[n]) if likelihood[n] >= 0.2 else best[n] for n in range(40)]
        small = refine_by_small_loss(given, noisy, kept=0.25).label.tolist()
        least = sorted(likelihood)[-10]
        assert small == [int(noisy[n]) if likelihood[n] >= least else -1 for n in range(40)]
        rows = given.double()
        margin = refine_by_argmax(given, noisy).score  # rows may sum to one as closely as they can
        others = rows.scatter(1, noisy.unsqueeze(1), 0).amax(dim=1)
        own = rows.gather(1, noisy.unsqueeze(1)).squeeze(1)
        np.testing.assert_allclose(margin, (others / own).log(), atol=2e-4)
        scores = adjusted_loss(given, noisy)
        expected = reference.adjusted_loss(given.double().numpy(), noisy.numpy())
        np.testing.assert_allclose(scores, expected, atol=2e-4)


PROBS, NOISY = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([0, 1])
BAD_CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "logits for probs": (lambda: refine(PROBS * 3, NOISY, lower=0.0), "sum to 1.*softmax"),
    "negative": (lambda: adjusted_loss(torch.tensor([[1.5, -0.5]]), NOISY[:1]), "not be negative"),
    "nan": (lambda: adjusted_loss(torch.tensor([[torch.nan, 1.0]]), NOISY[:1]), "finite"),
    "labels": (lambda: refine(PROBS, NOISY + 1, lower=0.0), "0…1"),
    "length": (lambda: refine(PROBS, NOISY[:1], lower=0.0), "one entry an example"),
    "order": (lambda: refine(PROBS, NOISY, lower=1.0, upper=0.0), "lower ≤ upper"),
    "nan threshold": (lambda: refine(PROBS, NOISY, lower=float("nan")), "lower ≤ upper"),
    "share": (lambda: quantile_threshold(torch.zeros(3), 61.54), r"\(0, 1\].*0.6154"),
    "no scores": (lambda: quantile_threshold(torch.zeros(0), 0.5), "non-empty"),
    "infinite score": (lambda: auto_threshold(torch.tensor([0.0, -torch.inf])), "finite"),
    "words": (lambda: refine(PROBS, np.array(["cat", "dog"]), lower=0.0), "np.unique"),
    "equal scores": (lambda: auto_threshold(torch.zeros(99)), "two groups"),
    "few scores": (lambda: auto_threshold(torch.arange(49.0)), "at least 50 scores, got 49"),
    "eps": (lambda: adjusted_loss(PROBS, NOISY, eps=-1.0), "eps must lie in"),
    "confidence": (lambda: refine_by_confidence(PROBS, NOISY, confidence=1.0), "confidence must lie"),
    "threshold": (lambda: refine_by_likelihood(PROBS, NOISY, threshold=-8.0), "threshold must lie"),
    "rate": (lambda: keep_share(3, rate=1.0), r"\[0, 1\)"),
    "epoch": (lambda: keep_share(-1, rate=0.2), "epoch ≥ 0"),
    "not recorded": (
        lambda: SieveRecorder(NOISY, 2).refine(lower=0.0),
        "2 of 2 without a score: .* with replacement, drops its last .* processes .* once in order",
    ),
    "no threshold": (lambda: recorded().refine(), r"at least 50 scores.*lower=-math.inf\) needs none"),
    "upper alone": (lambda: recorded().refine(upper=0.0), "needs a lower"),
    "idx": (lambda: SieveRecorder(NOISY, 2).update(torch.tensor([0, 2]), torch.zeros(2, 2)), "0…1"),
}  # fmt: skip


def recorded() -> SieveRecorder:
    recorder = SieveRecorder(NOISY, 2)
    recorder.update(torch.arange(2), PROBS.log())
    return recorder


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_refused_with_a_reason(case: str) -> None:
    call, message = BAD_CALLS[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_read_only_arrays_are_taken() -> None:
    probs, noisy = (array.numpy() for array in draw(2, 12, 4))
    probs.setflags(write=False)
    noisy.setflags(write=False)
    assert len(refine(probs, noisy, lower=-1.0).label) == 12
    scores = np.tile([-9.0, 5.0], 30)
    scores.setflags(write=False)
    assert auto_threshold(scores) == -2.0
    # Reversed views, foreign byte order and lists of numbers are numbers too.
    odd = refine(probs[::-1], noisy[::-1].astype(">i4"), lower=-1.0)
    assert odd.label.flip(0).tolist() == refine(probs, noisy.tolist(), lower=-1.0).label.tolist()


def test_probabilities_are_not_taken_for_logits() -> None:
    recorder = SieveRecorder(torch.arange(4) % 2, num_classes=2)
    logits, idx = torch.tensor([[3.0, -3.0], [-1.0, 2.0], [0.5, 0.2], [0.3, 0.7]]), torch.arange(4)
    for probs in (logits.softmax(dim=1), logits.softmax(dim=1).bfloat16()):
        with pytest.raises(ValueError, match="before softmax, got rows of probabilities"):
            recorder.update(idx, probs)
    recorder.update(idx, logits)
    expected = recorder.score.clone()
    recorder.update(idx, (logits.softmax(dim=1) + 1e-8).log())
    torch.testing.assert_close(recorder.score, expected)
    for other in (logits.relu(), torch.zeros(4, 2), torch.eye(2).repeat(2, 1), logits[3:]):
        recorder.update(idx[: len(other)], other)  # one row, or one-hot ones, may be logits
