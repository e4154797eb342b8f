"""Every generator against its loop."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covlearn import noise
from covlearn.noise import calibration, instance
from tests.noise.examples import HALF_SWAP, PUBLISHED, generate, toy
from tests.reference import noise as reference


@pytest.mark.parametrize("variant", PUBLISHED)
@pytest.mark.parametrize(("num_classes", "rate"), [(2, 0.3), (5, 0.45)])
def test_published_variants_equal_the_loop(variant: str, num_classes: int, rate: float) -> None:
    x, y = toy(150, num_classes)
    given_x = x.reshape(150, 2, 3)  # flattened in the order given
    result = noise.instance_dependent(
        given_x, y, rate=rate, num_classes=num_classes, variant=variant, std=0.2, seed=7
    )
    label, flip_rate = reference.published(
        given_x, y, rate=rate, num_classes=num_classes, variant=variant, std=0.2, seed=7
    )
    np.testing.assert_array_equal(result.label, label)
    np.testing.assert_allclose(result.flip_rate, flip_rate, rtol=1e-12)
    assert result.label.dtype == np.int64
    assert result.flip_rate.dtype == np.float64


@pytest.mark.parametrize(("cap", "above"), [("paper", 0.9), ("published", 1.0), ("none", None)])
@pytest.mark.parametrize("scale", [0.3, 30.0])
def test_cap_equals_the_loop(cap: instance.Cap, above: float | None, scale: float) -> None:
    x, y = toy(300, 5)
    settings: dict[str, Any] = {"rate": 0.65, "num_classes": 5, "variant": "cal", "seed": 1}
    result = noise.instance_dependent(scale * x, y, cap=cap, bounds=(0.1, 0.95), **settings)
    label, flip_rate = reference.published(
        scale * x, y, above=above, bounds=(0.1, 0.95), **settings
    )
    np.testing.assert_array_equal(result.label, label)
    np.testing.assert_allclose(result.flip_rate, flip_rate, rtol=1e-12)


def test_the_cap_is_on_above_half_and_off_below() -> None:
    x, y = toy(400, 5)
    settings: dict[str, Any] = {"num_classes": 5, "variant": "cal", "seed": 1}
    high = noise.instance_dependent(9 * x, y, rate=0.6, **settings)
    explicit = noise.instance_dependent(9 * x, y, rate=0.6, cap="paper", **settings)
    np.testing.assert_array_equal(high.label, explicit.label)
    assert "cap 'paper'" in str(high.card)
    low = noise.instance_dependent(9 * x, y, rate=0.5, **settings)
    without = noise.instance_dependent(9 * x, y, rate=0.5, cap="none", **settings)
    np.testing.assert_array_equal(low.label, without.label)
    assert "cap" not in str(low.card)


@pytest.mark.parametrize(("num_classes", "rate"), [(3, 0.3), (4, 0.6), (6, 0.75)])
def test_calibrated_takes_the_lowest_harmless_temperature(num_classes: int, rate: float) -> None:
    x, y = toy(400, num_classes)
    x += 100.0 * np.arange(6)  # raw projections would have one class win everywhere
    settings: dict[str, Any] = {"rate": rate, "num_classes": num_classes, "seed": 2}
    result = noise.instance_dependent(x, y, variant="calibrated", **settings)
    text = next(note for note in result.card.notes if note.startswith("temperature"))
    chosen = min(calibration.TEMPERATURES, key=lambda t: abs(t - float(text.split()[1])))
    label, flip_rate, expected = reference.calibrated(x, y, temperature=chosen, **settings)
    np.testing.assert_array_equal(result.label, label)
    np.testing.assert_allclose(result.flip_rate, flip_rate, rtol=1e-12)
    assert reference.is_harmless(expected)
    if chosen > calibration.TEMPERATURES[-1]:
        lower = calibration.TEMPERATURES[list(calibration.TEMPERATURES).index(chosen) + 1]
        _, _, expected = reference.calibrated(x, y, temperature=lower, **settings)
        assert not reference.is_harmless(expected)


@given(
    num_classes=st.integers(2, 8),
    kept=st.floats(0.2, 1),
    favour=st.floats(0, 1.5),
    seed=st.integers(0, 10_000),
)
def test_harmless_counts_as_the_loop_does(
    num_classes: int, kept: float, favour: float, seed: int
) -> None:
    count = np.random.default_rng(seed).uniform(0.8, 1, size=(num_classes, num_classes))
    count[:, 0] += favour
    np.fill_diagonal(count, kept * num_classes)
    assert calibration._harmless(count) == reference.is_harmless(count)


@pytest.mark.parametrize("name", ["symmetric", "pair", "class_dependent", "part_dependent"])
def test_table_generators_equal_the_loop(name: str) -> None:
    _, y = toy()
    symmetric = np.full((4, 4), 0.4 / 3) + (0.6 - 0.4 / 3) * np.eye(4)
    shifted = np.zeros((4, 4))
    for i in range(4):
        shifted[i, i], shifted[i, (i + 1) % 4] = 0.6, 0.4
    table, row, clean = {
        "symmetric": (symmetric, y, y),
        "pair": (shifted, y, y),
        "class_dependent": (HALF_SWAP, y % 3, y % 3),
        "part_dependent": (np.concatenate([HALF_SWAP, np.eye(3)]), 3 * (y % 2) + y % 3, y % 3),
    }[name]
    result = generate(name, seed=3)
    np.testing.assert_array_equal(result.label, reference.draw_from_table(table, row, 3))
    right = [table[r, c] for r, c in zip(row, clean, strict=True)]
    np.testing.assert_allclose(result.flip_rate, 1 - np.array(right), atol=1e-15)


def test_binary_reads_each_rate_where_its_class_is() -> None:
    y = np.arange(40_000) % 2
    e_plus, e_minus = np.linspace(0, 0.8, len(y)), np.linspace(0.5, 0.1, len(y))
    result = noise.instance_dependent_binary(y, e_plus=e_plus, e_minus=e_minus, seed=0)
    expected = [e_plus[n] if y[n] == 1 else e_minus[n] for n in range(len(y))]
    np.testing.assert_array_equal(result.flip_rate, expected)
    flipped = result.label != y
    for part in np.array_split(np.arange(len(y)), 4):
        for value in (0, 1):
            here = part[y[part] == value]
            assert flipped[here].mean() == pytest.approx(result.flip_rate[here].mean(), abs=0.03)
