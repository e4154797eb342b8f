"""The test of T(x) = T: its parts against plain loops, its size, its power, and what is advised."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

from covlearn.data.sources import still
from covlearn.diagnose import advice, dependence, runs
from covlearn.diagnose.dependence import Finding, Smoother, instance_dependence_test
from covlearn.estimator import NoisyLabelClassifier
from covlearn.evidence import Evidence
from covlearn.nets import build_net
from covlearn.noise import class_dependent, instance_dependent, symmetric

UNEVEN = np.array([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.25, 0.0, 0.75]])


def clouds(count: int = 210, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds in four dimensions that hardly overlap."""
    y = np.arange(count) % 3
    return np.random.default_rng(seed).normal(size=(count, 4)) + 3 * np.eye(4)[y], y


@pytest.fixture(scope="module")
def smoother() -> Smoother:
    return Smoother(clouds()[0])


def find(x: Any, given: Any, **options: Any) -> Finding:
    return instance_dependence_test(x, given, num_classes=3, **{"draws": 19, **options})


def test_left_out_predictions_are_those_of_a_fit_without_the_example() -> None:
    x, y = clouds(24)
    smoother = Smoother(x)
    target = np.eye(3)[y]
    kernel = smoother.kernel_NN + 1
    predicted = smoother.leave_one_out(target, 0.5)
    for n in range(24):
        others = np.arange(24) != n
        fitted = np.linalg.solve(kernel[np.ix_(others, others)] + 0.5 * np.eye(23), target[others])
        np.testing.assert_allclose(predicted[n], kernel[n, others] @ fitted, atol=1e-10)
    errors = [
        ((target - smoother.leave_one_out(target, r)) ** 2).sum() for r in dependence.STRENGTHS
    ]
    assert smoother.strength(target) == dependence.STRENGTHS[int(np.argmin(errors))]


def test_the_statistic_is_its_double_sum() -> None:
    x, y = clouds(90)
    noisy = class_dependent(y, transition=UNEVEN, seed=0).label
    score = np.eye(3)[y] * np.where(np.arange(90) % 5 == 0, 0.4, 0.9)[:, None]  # a fifth is unsure
    kernel = Smoother(x).kernel_NN
    found = dependence.class_statistics(kernel, noisy, score)
    for i in range(3):
        rows = [n for n in range(90) if y[n] == i and n % 5]
        size = len(rows)
        share = [sum(noisy[n] == j for n in rows) / size for j in range(3)]
        seen = [j for j in range(3) if share[j] * size >= 2]
        total = square = 0.0
        flip = {
            n: np.array([((noisy[n] == j) - share[j]) / share[j] ** 0.5 for j in seen])
            for n in rows
        }
        mean = {n: np.mean([kernel[n, m] for m in rows]) for n in rows}
        middle = np.mean(list(mean.values()))
        for n in rows:
            for m in rows:
                if n != m:
                    near = kernel[n, m] - mean[n] - mean[m] + middle
                    total += near * float(flip[n] @ flip[m])
                    square += near**2
        spread = np.mean([np.outer(flip[n], flip[n]) for n in rows], axis=0)
        assert found[i] == pytest.approx(total / np.sqrt(2 * square * (spread**2).sum()))


def test_a_class_that_nothing_is_known_of_is_not_tested() -> None:
    x, y = clouds(90)
    kernel = Smoother(x).kernel_NN
    unsure = np.full((90, 3), 1 / 3)
    assert np.isnan(dependence.class_statistics(kernel, y, unsure)).all()
    assert np.isnan(dependence.class_statistics(kernel, y, np.eye(3)[y])).all()  # no flip
    assert dependence.pooled(np.full(3, np.nan)) is None
    assert dependence.pooled(np.array([3.0, np.nan, 1.0])) == pytest.approx(4 / 2**0.5)
    found = find(x, y)  # clean labels: the sieve contradicts too few of them
    assert found.statistic is None
    assert found.p_value is None
    assert found.noise_rate == 0


def test_draws_follow_the_transition_matrix() -> None:
    refined = np.repeat([0, 1, 2], 1000)
    drawn = dependence.renoised(refined, UNEVEN, 20, np.random.default_rng(0))
    for i in range(3):
        counts = np.bincount(drawn[:, refined == i].ravel(), minlength=3)
        np.testing.assert_allclose(counts / counts.sum(), UNEVEN[i], atol=0.015)
        assert (counts[UNEVEN[i] == 0] == 0).all()


def test_the_transition_is_that_of_the_sure_examples() -> None:
    refined, noisy = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 0])
    sure = np.array([True, True, False, False, False])
    expected = [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]  # none sure of 1: all of it; none of 2 at all
    np.testing.assert_array_equal(dependence.transition_of(refined, noisy, sure, 3), expected)


def test_pair_noise_of_two_fifths_is_seen_through() -> None:
    x, y = clouds()
    noisy = class_dependent(y, transition=0.6 * np.eye(3) + 0.4 * np.roll(np.eye(3), 1, 1), seed=1)
    found = find(x, noisy.label)
    assert (noisy.label == y).mean() < 0.7
    assert (found.refined == y).mean() > 0.9


def test_the_statistic_does_not_depend_on_order_units_or_names_of_classes() -> None:
    x, y = clouds()
    noisy = symmetric(y, rate=0.3, num_classes=3, seed=0).label
    found = find(x, noisy)
    assert found.statistic is not None
    order = np.random.default_rng(1).permutation(len(y))
    shuffled = find(x[order], noisy[order])
    assert shuffled.statistic == pytest.approx(found.statistic)
    np.testing.assert_array_equal(shuffled.refined, found.refined[order])
    assert find(x * [1, 1e3, 1e-3, 7] + 5, noisy).statistic == pytest.approx(found.statistic)
    renamed = find(x, (noisy + 1) % 3)
    assert renamed.statistic == pytest.approx(found.statistic)
    assert renamed.by_class == pytest.approx(np.roll(np.array(found.by_class), 1))


def test_the_seed_decides_and_blocks_do_not(
    smoother: Smoother, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = clouds()
    noisy = symmetric(y, rate=0.3, num_classes=3, seed=0).label
    shown: list[tuple[int, int]] = []
    found = find(x, noisy, seed=4, smoother=smoother)
    monkeypatch.setattr(dependence, "ENTRIES", 5 * 630)
    again = find(x, noisy, seed=4, progress=lambda *done: shown.append(done))
    assert again.null_mean == pytest.approx(found.null_mean, abs=1e-9)
    assert again.p_value == found.p_value
    assert shown == [(0, 19), (5, 19), (10, 19), (15, 19), (19, 19)]
    assert find(x, noisy, seed=5, smoother=smoother).null_mean != found.null_mean


def test_noise_of_the_same_seed_does_not_come_again(smoother: Smoother) -> None:
    # Both are uniform draws from a seed; were they the same, a draw would repeat the observed flips.
    _, y = clouds()
    noisy = class_dependent(y, transition=UNEVEN, seed=7).label
    stream = np.random.default_rng([7, dependence.STREAM])
    drawn = dependence.renoised(y, UNEVEN, 1, stream)[0]
    assert 0.4 < (drawn == noisy).mean() < 0.8
    assert (dependence.renoised(y, UNEVEN, 1, np.random.default_rng(7))[0] == noisy).all()


def test_of_many_examples_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependence, "MOST", 150)
    x, y = clouds()
    noisy = symmetric(y, rate=0.3, num_classes=3, seed=0).label
    found = find(x, noisy)
    assert found.examples == len(found.refined) == len(set(found.chosen.tolist())) == 150
    assert (found.refined == y[found.chosen]).mean() > 0.9


def test_false_alarms_are_one_in_twenty(smoother: Smoother) -> None:
    x, y = clouds()
    p_values = []
    for seed in range(60):
        transition = UNEVEN if seed % 2 else 0.7 * np.eye(3) + 0.3 * np.roll(np.eye(3), 1, 1)
        noisy = class_dependent(y, transition=transition, seed=seed).label
        found = find(x, noisy, draws=39, seed=seed, smoother=smoother)
        assert found.p_value is not None
        p_values.append(found.p_value)
    alarms = sum(p <= 0.05 for p in p_values)
    assert alarms <= binom.ppf(0.999, 60, 0.05)
    small = sum(p <= 0.5 for p in p_values)  # nor does it hold its tongue
    assert binom.ppf(0.0005, 60, 0.5) <= small <= binom.ppf(0.9995, 60, 0.5)


@pytest.mark.parametrize("variant", ["cal", "calibrated"])
def test_instance_dependent_noise_is_found(variant: str) -> None:
    x, y = clouds(600)
    smoother = Smoother(x)
    alarms = 0
    for seed in range(10):
        noisy = instance_dependent(x, y, rate=0.4, num_classes=3, variant=variant, seed=seed).label
        found = find(x, noisy, draws=39, seed=seed, smoother=smoother)
        assert found.p_value is not None
        alarms += found.p_value <= 0.05
    assert alarms > binom.ppf(0.9999, 10, 0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": 18}, "draws must be an integer of 19 at least"),
        ({"draws": True}, "draws must be"),
        ({"seed": -1}, "seed must be"),
        ({"features": np.zeros((210, 2, 2))}, r"features must have shape \(examples, columns\)"),
        ({"features": np.full((210, 2), np.nan)}, "NaN or infinity first in row 0"),
        ({"features": np.ones((210, 2))}, "features must differ"),
        ({"features": np.zeros((5, 2))}, "given must have one entry an example, 5"),
        ({"given": np.full(210, 3)}, "given must lie in"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    x, y = clouds()
    arguments: dict[str, Any] = {"features": x, "given": y, "num_classes": 3, **change}
    with pytest.raises(ValueError, match=message):
        instance_dependence_test(**arguments)


def test_a_smoother_of_other_features_is_refused(smoother: Smoother) -> None:
    x, y = clouds(90)
    with pytest.raises(ValueError, match="smoother must be that of the 90 features"):
        find(x, y, smoother=smoother)


SEEN = Evidence(100, 30, 0.02, 1e-9, 0.7, 0.3, learned=True, contradictory=True, found=True)
FOUND = Finding(
    statistic=0.1,
    p_value=0.4,
    draws=19,
    null_mean=0.0,
    by_class=[0.1, 0.2, None],
    examples=90,
    sure=80,
    fewest_sure=20,
    noise_rate=0.2,
    transition=UNEVEN.tolist(),
    refined=np.zeros(90, dtype=np.int64),
    chosen=np.arange(90),
    seed=0,
)
SINGULAR = 0.07 * np.eye(3) + 0.31


@pytest.mark.parametrize(
    ("method", "number", "change"),
    [
        ("ce", "2 (2.0%)", {"evidence": replace(SEEN, contradicted=2, found=False)}),
        ("cores", "30.0%", {"evidence": replace(SEEN, agreement=0.3, learned=False, found=False)}),
        ("cores", "80", {"finding": replace(FOUND, p_value=None, statistic=None)}),
        ("cores", "9 refined", {"size": np.array([30, 9, 30])}),
        ("cores", "45%", {"transition": [[0.45, 0.55, 0], [0, 1, 0], [0, 0, 1]]}),
        ("cores", "0.070", {"transition": SINGULAR}),
        ("forward", "p = 0.4", {}),
        ("cal", "p = 0.05", {"finding": replace(FOUND, p_value=0.05)}),
    ],
)
def test_each_method_has_its_case_and_its_number(
    method: str, number: str, change: dict[str, Any]
) -> None:
    said = advice.advise(
        change.get("evidence", SEEN),
        change.get("finding", FOUND),
        np.array(change.get("transition", UNEVEN)),
        change.get("size", np.array([30, 30, 30])),
        ["a", "b", "c"],
    )
    assert [item.method for item in said] == ["ce", "forward", "cores", "cal"]
    supported = [item for item in said if item.supported]
    assert [item.method for item in supported] == [method]
    assert number in supported[0].sentence
    assert all(any(sign.isdigit() for sign in item.sentence) for item in said)
    verdict = {"ce": "suffices: ", "cores": "cannot be judged: "}
    assert said[0].sentence.startswith(verdict.get(method, "learns wrong labels as if they were "))


def test_cautions_say_what_the_test_cannot() -> None:
    unseen = replace(SEEN, found=False)
    said = " ".join(runs.cautions(FOUND, unseen, 0.5, 5000, ["a", "b", "c"]))
    for part in ("no evidence of wrong labels", "90 of 5,000", "'c' first", "50%"):
        assert part in said
    assert "90 examples are few" in said
    two = replace(FOUND, by_class=[0.1, 0.2], examples=200)
    assert runs.cautions(two, SEEN, 0.95, 200, ["a", "b"]) == [
        "with two classes a flip has one place to go: only its rate can depend on x"
    ]


def test_a_classifier_is_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clouds(240)
    noisy = np.array(["ash", "birch", "cedar"])[symmetric(y, rate=0.3, num_classes=3, seed=0).label]
    model = NoisyLabelClassifier(
        random_state=0, device="cpu", settings={"folds": 2, "net.hidden": [16]}
    )
    with pytest.raises(ValueError, match="must be fitted"):
        runs.diagnose_classifier(model, x)
    model.fit(x, noisy)
    found = runs.diagnose_classifier(model, x, draws=19)
    assert found.classes == ["ash", "birch", "cedar"]
    assert found.features == "4 features of the source, standardised"
    assert found.agreement > 0.9
    np.testing.assert_allclose(found.covariance, model.covariance_)
    assert model.standardizer_ is not None
    same = find(model.standardizer_(x), np.unique(noisy, return_inverse=True)[1])
    assert same.p_value is not None
    assert found.test.p_value == same.p_value
    assert found.recommended == ("cal" if same.p_value <= 0.05 else "forward")
    monkeypatch.setattr(dependence, "MOST", 200)
    part = runs.diagnose_classifier(model, x, draws=19)
    assert "200 of 240 examples were drawn for the test" in part.cautions
    assert part.agreement > 0.9
    with pytest.raises(ValueError, match="what the classifier was fitted to, 240 examples, got 10"):
        runs.diagnose_classifier(model, x[:10])


def test_images_are_looked_at_through_a_network_that_does_not_know_their_labels() -> None:
    pixels = torch.arange(6 * 4 * 4 * 3).remainder(256).to(torch.uint8).reshape(6, 4, 4, 3)
    images = runs.Images(pixels, still(pixels.numpy()))
    net = build_net("cnn", num_classes=2, input_shape=(3, 4, 4), seed=0, options={"widths": [5]})
    hidden = runs.features_of_images(images, np.arange(6), net, cross_fitted=True)
    assert hidden.values.shape == (6, 5)
    assert hidden.what == "5 penultimate features of the run's network"
    raw = runs.features_of_images(images, np.arange(6), net, cross_fitted=False)
    np.testing.assert_array_equal(raw.values, pixels.flatten(1).numpy())
    assert raw.what.startswith("48 pixel values")
