"""Verdicts: the documented rules, their numbers, and when labels are left alone."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from covlearn.evidence import FEWEST, fits_by_chance, noise_evidence
from covlearn.verdicts import DECISIONS, RELABEL_BELOW, judge


def logs(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("probs", "decision", "quality", "confidence"),
    [
        ([0.5, 0.3, 0.2], "keep", 0.5, 0.5),
        ([0.42, 0.3, 0.28], "review", 0.42, 0.42),  # likely wrong, but nothing is better
        ([0.32, 0.5, 0.18], "review", 0.32, 0.5),
        ([0.28, 0.5, 0.22], "relabel", 0.28, 0.5),
        ([0.1, 0.5, 0.4], "relabel", 0.1, 0.5),
        ([0.1, 0.46, 0.44], "drop", 0.1, 0.46),
    ],
)
def test_the_rules(probs: list[float], decision: str, quality: float, confidence: float) -> None:
    verdicts = judge(torch.tensor([0]), logs(probs), evidence=True)
    assert verdicts.decision[0] == decision
    assert verdicts.quality[0] == pytest.approx(quality)
    assert verdicts.confidence[0] == pytest.approx(confidence)
    assert verdicts.suggested[0] == np.argmax(probs)
    assert verdicts.refined[0] == (1 if decision == "relabel" else 0)


def test_every_reason_has_its_numbers() -> None:
    probs = logs([0.9, 0.05, 0.05], [0.32, 0.5, 0.18], [0.05, 0.9, 0.05], [0.1, 0.46, 0.44])
    verdicts = judge(torch.zeros(4).long(), probs, evidence=True, classes=["ash", "elm", "oak"])
    assert verdicts.reason == [
        "given ash has 90.0 % against 5.0 % for elm: quality 0.900 is at least 0.5",
        "given ash has 32.0 % against 50.0 % for elm: quality 0.320 is below 0.5, but not below 0.3",
        "given ash has 5.0 % against 90.0 % for elm: quality 0.050 is below 0.3",
        "given ash has 10.0 % against 46.0 % for elm: quality 0.100 is below 0.3, and no class "
        "reaches 50 %",
    ]


def test_without_evidence_nothing_is_changed_and_few_are_shown() -> None:
    probs = logs(*([[0.01, 0.99]] * 60 + [[0.3, 0.7]] * 40 + [[0.9, 0.1]] * 200))
    verdicts = judge(torch.zeros(300).long(), probs, evidence=False)
    assert verdicts.count("review") == 6  # a fiftieth of all, though sixty are as bad
    assert verdicts.count("keep") == 294
    assert (verdicts.refined == 0).all()
    assert "labels are right on the whole" in verdicts.reason[0]
    assert "too little evidence" in verdicts.reason[70]
    mild = judge(torch.zeros(300).long(), logs(*[[0.3, 0.7]] * 300), evidence=False)
    assert mild.count("review") == 6
    right = judge(torch.zeros(300).long(), logs(*[[0.6, 0.4]] * 300), evidence=False)
    assert right.count("keep") == 300


def test_probabilities_that_round_to_zero_keep_their_order() -> None:
    logits = torch.tensor([[0.0, 200.0], [0.0, 300.0], [0.0, 250.0]])
    quality = judge(torch.zeros(3).long(), logits, evidence=True).quality
    assert 0 < quality[1] < quality[2] < quality[0] < 1e-80


@given(
    st.integers(2, 6).flatmap(
        lambda k: st.lists(
            st.tuples(st.lists(st.floats(-30, 30), min_size=k, max_size=k), st.integers(0, k - 1)),
            min_size=1,
            max_size=20,
        )
    ),
    st.booleans(),
)
def test_what_holds_for_all(rows: list[tuple[list[float], int]], evidence: bool) -> None:
    logits = torch.tensor([row for row, _ in rows])
    labels = torch.tensor([label for _, label in rows])
    verdicts = judge(labels, logits, evidence=evidence)
    assert ((verdicts.quality >= 0) & (verdicts.quality <= 1)).all()
    assert ((verdicts.confidence >= 0) & (verdicts.confidence <= 1)).all()
    assert set(verdicts.decision) <= set(DECISIONS)
    assert len(verdicts.reason) == len(rows)
    changed = verdicts.refined != labels.numpy()
    assert (verdicts.decision[changed] == "relabel").all()
    assert (verdicts.quality[changed] < RELABEL_BELOW).all()
    # Names of classes are only names: another order gives the same verdicts.
    flipped = judge(logits.shape[1] - 1 - labels, logits.flip(1), evidence=evidence)
    np.testing.assert_allclose(flipped.quality, verdicts.quality)


def sure_and_unsure(wrong_sure: int, wrong_unsure: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A hundred sure and three hundred unsure predictions of two classes, some contradicted."""
    predicted = torch.arange(400) % 2
    gap = torch.where(torch.arange(400) < 100, 9.0, 1.0) + torch.arange(400) / 1e4
    labels = predicted.clone()
    labels[:wrong_sure] = 1 - labels[:wrong_sure]
    labels[100 : 100 + wrong_unsure] = 1 - labels[100 : 100 + wrong_unsure]
    return torch.nn.functional.one_hot(predicted, 2) * gap[:, None], labels


def test_only_the_surest_are_evidence() -> None:
    few = noise_evidence(*sure_and_unsure(2, 150))
    assert (few.surest, few.contradicted, few.found) == (100, 2, False)
    assert "no evidence" in few.sentence
    many = noise_evidence(*sure_and_unsure(10, 0))
    assert (many.surest, many.contradicted, many.found) == (100, 10, True)
    # 1 − Σ_{k<10} C(100, k) 0.02^k 0.98^(100−k)
    exact = 1 - sum(math.comb(100, k) * 0.02**k * 0.98 ** (100 - k) for k in range(10))
    assert many.p_value == pytest.approx(exact)
    assert "100 examples that the model is surest of, 10 (10.0%)" in many.sentence


@pytest.mark.parametrize("count", [FEWEST - 2, FEWEST])
def test_few_examples_are_no_evidence(count: int) -> None:
    logits = torch.eye(2).repeat(count // 2, 1) * 5
    labels = torch.arange(count) % 2
    labels[:6] = 1 - labels[:6]
    evidence = noise_evidence(logits, labels)
    assert (evidence.surest, evidence.contradicted, evidence.learned) == (count, 6, True)
    assert evidence.p_value < 0.001
    assert evidence.found == (count == FEWEST)
    assert evidence.found != ("too few" in evidence.sentence)


def test_a_model_that_is_right_where_it_is_sure_has_learned() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (400,), generator=generator)
    # A hundred predictions are sure and right for 80 %, three hundred are worth nothing.
    right = torch.rand(400, generator=generator) < torch.where(torch.arange(400) < 100, 0.8, 0.5)
    sure = torch.where(torch.arange(400) < 100, 3.0, 0.2)
    logits = torch.nn.functional.one_hot(torch.where(right, labels, 1 - labels), 2) * sure[:, None]
    assert noise_evidence(logits, labels).found
    assert fits_by_chance(logits, labels) < 1e-6
    shuffled = labels[torch.randperm(400, generator=generator)]
    evidence = noise_evidence(logits, shuffled)
    assert evidence.contradictory
    assert not evidence.found


def test_the_chance_of_a_fit_is_that_of_permutations() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(200, 3, generator=generator) + torch.tensor([1.0, 0.0, -1.0])
    labels = torch.multinomial((0.3 * logits).softmax(1), 1, generator=generator).flatten()
    probs = logits.double().softmax(1)
    fit = probs.gather(1, labels[:, None]).sum()
    orders = [torch.randperm(200, generator=generator) for _ in range(4000)]
    as_good = [float(probs.gather(1, labels[order][:, None]).sum() >= fit) for order in orders]
    expected = np.mean(as_good)
    assert 0.001 < expected < 0.5  # the comparison below can fail
    assert fits_by_chance(logits, labels) == pytest.approx(expected, abs=0.02)


def test_guesses_are_evidence_of_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    found = 0
    for _ in range(100):
        logits = torch.randn(300, 3, generator=generator)
        labels = torch.randint(3, (300,), generator=generator)
        evidence = noise_evidence(logits, labels)
        assert evidence.contradicted > 30  # and yet
        found += evidence.found
    assert found <= 5
    evidence = noise_evidence(torch.eye(3).repeat(40, 1), torch.arange(120) // 40)
    assert not evidence.found
    assert evidence.sentence == (
        "the model predicts 35.0% of the labels, and guesses would 33.3%: it has learned too "
        "little to tell which are wrong"
    )


def test_right_labels_are_evidence_of_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    found = 0
    for _ in range(200):
        logits = 2 * torch.randn(300, 3, generator=generator)
        # Labels drawn from the model's own probabilities: it errs as often as it says.
        labels = torch.multinomial(logits.softmax(1), 1, generator=generator).flatten()
        found += noise_evidence(logits, labels, surest=0.1).found
    assert found <= 20


@pytest.mark.parametrize("name", ["surest", "tolerated", "significance"])
def test_shares_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        noise_evidence(torch.eye(2), torch.tensor([0, 1]), **{name: 0.0})


def test_a_model_that_contradicts_nearly_all_labels_is_no_evidence() -> None:
    generator = torch.Generator().manual_seed(0)
    given = torch.randint(50, (2_000,), generator=generator)
    # It agrees with a tenth of the labels, far more than guesses would, and is sure of all it says.
    said = torch.where(torch.rand(2_000, generator=generator) < 0.1, given, (given + 7) % 50)
    logits = 9 * torch.eye(50)[said] + 0.01 * torch.rand(2_000, 50, generator=generator)
    evidence = noise_evidence(logits, given)
    assert evidence.share > 0.8
    assert not evidence.learned
    assert not evidence.contradictory
    assert not evidence.found
    assert "learned too little" in evidence.sentence


def test_classes_may_be_an_array() -> None:
    logits = torch.tensor([[4.0, 0.0], [4.0, 0.0]])
    labels = torch.tensor([0, 1])
    verdicts = judge(labels, logits, evidence=True, classes=np.array(["cat", "dog"]))
    named = judge(labels, logits, evidence=True, classes=["cat", "dog"])
    assert verdicts.reason == named.reason
