"""What holds for all generators, and what they promise about T."""

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from covlearn import noise
from covlearn.noise import calibration, instance
from tests.noise.examples import GENERATORS, HALF_SWAP, PUBLISHED, generate, toy
from tests.reference import noise as reference


@pytest.mark.parametrize("name", GENERATORS)
def test_same_seed_same_labels_and_global_state_untouched(name: str) -> None:
    before = np.random.get_state(legacy=False), torch.get_rng_state()  # noqa: NPY002
    first, again, other = generate(name), generate(name), generate(name, seed=4)
    after = np.random.get_state(legacy=False), torch.get_rng_state()  # noqa: NPY002
    np.testing.assert_array_equal(first.label, again.label)
    assert first.card.to_dict() == again.card.to_dict()
    assert (first.label != other.label).any()
    np.testing.assert_array_equal(before[0]["state"]["key"], after[0]["state"]["key"])
    assert before[0]["state"]["pos"] == after[0]["state"]["pos"]
    assert torch.equal(before[1], after[1])


@pytest.mark.parametrize("name", GENERATORS)
def test_flip_rate_is_the_probability_of_a_wrong_label(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "DRAWS", 1000)  # quicker
    results = [generate(name, seed=seed) for seed in range(40)]
    clean = toy()[1] % results[0].card.num_classes
    wrong = np.concatenate([r.label != clean for r in results])
    rate = np.concatenate([r.flip_rate for r in results])
    for group in np.array_split(np.argsort(rate, kind="stable"), 3):
        deviation = np.sqrt((rate[group] * (1 - rate[group])).sum()) / len(group)
        assert abs(wrong[group].mean() - rate[group].mean()) <= 4.5 * deviation
    assert results[0].card.expected_rate == pytest.approx(results[0].flip_rate.mean())


@pytest.mark.parametrize("variant", noise.VARIANTS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float32, np.float64])
def test_inputs_of_any_dtype_layout_and_library(
    variant: str, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "DRAWS", 1000)  # quicker
    x, y = toy()
    pixels = (np.abs(x) * 40).astype(np.uint8).reshape(120, 2, 3)
    settings: dict[str, Any] = {"rate": 0.3, "num_classes": 4, "variant": variant, "seed": 1}
    expected = noise.instance_dependent(pixels.astype(np.float64), y, **settings).label
    kept: NDArray[Any] = pixels.astype(dtype)
    copy, y_copy = kept.copy(), y.copy()
    strided = np.asfortranarray(kept)
    strided.setflags(write=False)
    y.setflags(write=False)
    for features in (kept, torch.from_numpy(copy), strided):
        result = noise.instance_dependent(features, y, **settings)
        np.testing.assert_array_equal(result.label, expected)
    tensor_label = torch.from_numpy(y_copy).to(torch.uint8)
    result = noise.instance_dependent(kept, tensor_label, **settings)
    np.testing.assert_array_equal(result.label, expected)
    np.testing.assert_array_equal(kept, copy)
    np.testing.assert_array_equal(y, y_copy)
    assert not np.shares_memory(result.label, y)


def test_bfloat16_and_gradients_are_accepted() -> None:
    x, y = toy()
    tensor = torch.from_numpy(x).bfloat16().requires_grad_()
    settings: dict[str, Any] = {"rate": 0.3, "num_classes": 4, "variant": "cal", "seed": 1}
    result = noise.instance_dependent(tensor, torch.from_numpy(y), **settings)
    same = noise.instance_dependent(tensor.detach().double().numpy(), y, **settings)
    np.testing.assert_array_equal(result.label, same.label)


@pytest.mark.parametrize("variant", noise.VARIANTS)
def test_blocks_do_not_change_the_labels(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = generate(variant)
    monkeypatch.setattr(instance, "BLOCK_ROWS", 7)
    np.testing.assert_array_equal(generate(variant).label, whole.label)


@pytest.mark.parametrize("variant", noise.VARIANTS)
def test_scale_divides_the_features(variant: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=(300, 3, 4), dtype=np.uint8)
    before = pixels.copy()
    options: dict[str, Any] = {"rate": 0.4, "num_classes": 5, "variant": variant, "seed": 1}
    y = np.arange(300) % 5
    scaled = noise.instance_dependent(pixels, y, scale=2550.0, **options)
    divided = noise.instance_dependent(pixels / 2550.0, y, **options)
    np.testing.assert_array_equal(scaled.label, divided.label)
    np.testing.assert_array_equal(pixels, before)
    if variant != "calibrated":  # which standardises them anyway
        assert (scaled.label != noise.instance_dependent(pixels, y, **options).label).any()


def test_more_examples_than_one_round_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "DRAWS", 50)
    x, y = toy()
    result = noise.instance_dependent(x, y, rate=0.1, num_classes=4, variant="cal", seed=0)
    rng = np.random.RandomState(0)
    draws = rng.normal(0.1, 0.1, size=200)
    np.testing.assert_array_equal(result.flip_rate, draws[(draws > 0) & (draws < 1)][:120])


@pytest.mark.parametrize("variant", noise.VARIANTS)
def test_memory_stays_far_below_a_float_copy_and_below_k_n_k(variant: str) -> None:
    count, size, num_classes = 40_000, 800, 20  # as float64: x 256 MB, K×N×K 128 MB
    x = np.zeros((count, size), dtype=np.uint8)
    x[:, :9] = np.random.default_rng(0).integers(0, 255, size=(count, 9))
    y = np.arange(count) % num_classes
    tracemalloc.start()
    noise.instance_dependent(x, y, rate=0.3, num_classes=num_classes, variant=variant, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


def test_a_class_without_examples_still_draws_its_weights() -> None:
    x, y = toy(60, 4)
    y[y == 1] = 2
    for variant in PUBLISHED:
        settings: dict[str, Any] = {"rate": 0.3, "num_classes": 4, "variant": variant, "seed": 1}
        result = noise.instance_dependent(x, y, **settings)
        np.testing.assert_array_equal(result.label, reference.published(x, y, **settings)[0])


@given(
    num_classes=st.integers(2, 7),
    rate=st.floats(0, 0.95),
    std=st.floats(0, 0.5),
    variant=st.sampled_from(noise.VARIANTS),
    count=st.integers(1, 40),
    scale=st.sampled_from([0.0, 1.0, 1e3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_request_is_met_or_refused(
    num_classes: int, rate: float, std: float, variant: str, count: int, scale: float, seed: int
) -> None:
    x, y = toy(count, num_classes, seed=seed)
    try:
        result = noise.instance_dependent(
            scale * x, y, rate=rate, num_classes=num_classes, variant=variant, std=std, seed=seed
        )
    except ValueError as error:
        assert "rate" in str(error)  # noqa: PT017 - which requests are refused is tested below
        return
    assert result.label.shape == (count,)
    assert ((result.label >= 0) & (result.label < num_classes)).all()
    assert ((result.flip_rate >= 0) & (result.flip_rate <= 1)).all()
    json.dumps(result.card.to_dict(), allow_nan=False)


@given(
    num_classes=st.integers(2, 12),
    above=st.sampled_from([0.9, 1.0]),
    sharpness=st.floats(0, 50),
    seed=st.integers(0, 10_000),
)
def test_capped_rows_are_distributions_below_the_cap(
    num_classes: int, above: float, sharpness: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    clean = rng.integers(0, num_classes, size=30)
    flip_rate = rng.uniform(0.001, 0.999, size=30)
    asked = flip_rate.copy()
    score = sharpness * rng.normal(size=(30, num_classes))
    wrong = instance._wrong_probability(score, clean, flip_rate)
    lowered = instance._cap(wrong, score, flip_rate, above=above)
    np.testing.assert_allclose(wrong.sum(axis=1), flip_rate, rtol=1e-9)
    np.testing.assert_allclose(wrong[np.arange(30), clean], 0, atol=1e-12)
    assert (wrong >= 0).all()
    assert (wrong.max(axis=1) <= above * (1 - flip_rate) + 1e-12).all()
    assert lowered == (flip_rate < asked).sum()
    possible = asked <= 0.9 * (num_classes - 1) * (1 - asked)
    np.testing.assert_array_equal(flip_rate[possible], asked[possible])


@pytest.mark.parametrize("num_classes", [2, 10])
def test_rates_of_symmetric_and_pair(num_classes: int) -> None:
    y = np.arange(60_000) % num_classes
    for generator in (noise.symmetric, noise.pair):
        card = generator(y, rate=0.3, num_classes=num_classes, seed=0).card
        assert card.actual_rate == pytest.approx(0.3, abs=0.01)
        assert card.requested_rate == 0.3
        assert np.diag(card.transition) == pytest.approx(0.7, abs=0.03)
        assert not card.warnings
    after = np.roll(np.arange(num_classes), -1)
    assert card.transition[np.arange(num_classes), after] == pytest.approx(0.3, abs=0.03)


def test_part_dependent_is_class_dependent_within_each_part() -> None:
    y = np.arange(90_000) % 3
    part = np.arange(90_000) // 45_000
    second = HALF_SWAP[:, [1, 2, 0]]
    result = noise.part_dependent(y, part, transitions=np.stack([HALF_SWAP, second]), seed=0)
    for p, transition in enumerate([HALF_SWAP, second]):
        here = part == p
        counted = reference.card(y[here].tolist(), result.label[here].tolist(), 3)["transition"]
        np.testing.assert_allclose(counted, transition, atol=0.02)
        rate = (result.label[here] != y[here]).mean()
        assert f"part {p}: 45000 examples, actual rate {rate:.4f}" in result.card.notes


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
def test_confused_errs_where_the_classifier_does(rate: float) -> None:
    """By its definition: one factor on the odds of the right class, the others as they were."""
    rng = np.random.default_rng(0)
    y, probs = rng.integers(0, 5, size=20_000), rng.dirichlet(np.full(5, 0.5), size=20_000)
    result = noise.confused(y, probs=probs, rate=rate, seed=1)
    at = np.arange(len(y))
    right = probs[at, y].clip(1e-9)
    factor = (1 - result.flip_rate) / result.flip_rate * (1 - right) / right
    surely = (right > 1e-3) & (right < 1 - 1e-3)
    np.testing.assert_allclose(factor[surely], np.median(factor), rtol=1e-3)
    assert result.flip_rate.mean() == pytest.approx(rate, abs=1e-6)
    assert result.card.actual_rate == pytest.approx(rate, abs=0.015)
    wrong = result.label != y
    others = probs.copy()
    others[at, y] = 0
    others /= others.sum(axis=1, keepdims=True)
    share = np.bincount(result.label[wrong], minlength=5) / wrong.sum()
    np.testing.assert_allclose(share, others[wrong].mean(axis=0), atol=0.02)


def test_confused_by_a_classifier_that_is_sure() -> None:
    y = np.arange(1000) % 2
    certain = np.eye(2)[y]
    assert noise.confused(y, probs=certain, rate=0.3, seed=0).card.actual_rate == pytest.approx(
        0.3, abs=0.05
    )
    np.testing.assert_array_equal(noise.confused(y, probs=certain, rate=0.0, seed=0).label, y)


def test_truncation_moves_the_rate_and_the_card_shows_it() -> None:
    x, y = toy(20_000, 100)
    settings: dict[str, Any] = {"num_classes": 100, "seed": 0}
    # Mean of a normal folded at its centre: σ·√(2/π).
    card = noise.instance_dependent(x, y, rate=0.0, variant="cal", **settings).card
    assert card.requested_rate == 0.0
    assert card.expected_rate == pytest.approx(0.1 * np.sqrt(2 / np.pi), abs=0.002)
    card = noise.instance_dependent(x, y, rate=0.95, variant="ptd", **settings).card
    assert card.expected_rate == pytest.approx(0.899, abs=0.002)
    result = noise.instance_dependent(x, y, rate=0.6, variant="bltm", **settings)
    assert result.flip_rate.max() <= 0.6
    assert result.card.expected_rate == pytest.approx(0.6 - 0.1 * np.sqrt(2 / np.pi), abs=0.002)
    assert result.card.actual_rate == pytest.approx(result.card.expected_rate, abs=0.015)


def test_std_zero_gives_every_example_the_same_rate() -> None:
    x, y = toy()
    for variant in noise.VARIANTS:
        result = noise.instance_dependent(
            x, y, rate=0.25, num_classes=4, variant=variant, std=0, seed=0
        )
        np.testing.assert_array_equal(result.flip_rate, 0.25)


def test_calibrated_has_no_sink_where_the_published_noise_has_one() -> None:
    rng = np.random.default_rng(0)
    x = 128 + 40 * rng.normal(size=(10_000, 30)) + 30 * rng.normal(size=(10_000, 1))
    y = np.arange(10_000) % 10
    settings: dict[str, Any] = {"rate": 0.65, "num_classes": 10, "seed": 0}
    raw = noise.instance_dependent(x, y, variant="cal", cap="none", **settings).card
    ours = noise.instance_dependent(x, y, variant="calibrated", **settings).card
    assert raw.warnings
    assert raw.num_dominant < 10
    assert not ours.warnings
    assert ours.num_dominant == 10
    assert ours.dominance > 0.05
    assert ours.largest_share < 0.15


def test_calibrated_with_constant_features_is_even() -> None:
    y = np.arange(30_000) % 3
    result = noise.instance_dependent(
        np.full((30_000, 4), 7.7), y, rate=0.4, num_classes=3, variant="calibrated", seed=0
    )
    off_diagonal = result.card.transition[~np.eye(3, dtype=bool)]
    assert off_diagonal == pytest.approx(0.2, abs=0.02)
    rounded = np.array([[1.0, 2.0, 3.0]] * 9)
    rounded[4] += [1e-15, 0, -1e-15]  # not a feature: a product in another order
    score, _ = calibration.calibrated(rounded, y[:9], result.flip_rate[:9])
    np.testing.assert_array_equal(score, 0)


@pytest.mark.parametrize(("variant", "whole"), [("cal", 0.5), ("ptd", 1.5), ("calibrated", 2.5)])
def test_memory_is_what_the_docstring_says(variant: str, whole: float) -> None:
    size, num_classes = 10_000, 200
    x, y = np.random.default_rng(0).normal(size=(size, 2)), np.arange(size) % num_classes
    tracemalloc.start()
    settings: dict[str, Any] = {"rate": 0.6, "std": 0.0, "variant": variant, "seed": 0}
    noise.instance_dependent(x, y, num_classes=num_classes, **settings)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < whole * 8 * size * num_classes


def test_inputs_are_left_as_they_were() -> None:
    clean = np.arange(60) % 3
    x = np.random.default_rng(0).normal(size=(60, 4))
    transition = np.full((3, 3), 0.1) + 0.70001 * np.eye(3)  # off by what the check lets pass
    before = clean.copy(), x.copy(), transition.copy()
    noise.class_dependent(clean, transition=transition, seed=0)
    noise.part_dependent(clean, clean % 2, transitions=[transition, transition], seed=0)
    for variant in noise.VARIANTS:
        noise.instance_dependent(x, clean, rate=0.55, num_classes=3, variant=variant, seed=0)
    for array, copy in zip((clean, x, transition), before, strict=True):
        np.testing.assert_array_equal(array, copy)
