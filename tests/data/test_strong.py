"""The strong view: what it does to an image, and that it is the same whoever makes it."""

from dataclasses import replace
from math import cos, exp, floor, log, radians, sin
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from covlearn.data import Augmentation, Resident, Split, batches, counter
from covlearn.data.augment import augment
from covlearn.data.strong import STRENGTH, Strength, _chosen, strong_view
from covlearn.engine import Machine, Plan, train
from covlearn.methods.ce import CrossEntropy
from covlearn.nets import build_net
from tests.reference import augment as reference
from tests.test_data import draw_split, loaded

HOW = Augmentation(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), crop=2, flip=True)
NONE = Strength(rotate=0, shear=0, scale=1, colour=0, solarise=0, cut=0, together=True)
KEY = counter.key(1, 2)
OWN = counter.strong(KEY)
IDX = torch.arange(100, 145)


def drawn(low: float, high: float, stream: int) -> NDArray[np.float64]:
    return (low + (high - low) * counter.uniform(OWN, IDX, stream)).double().numpy()


def pixels(view: Tensor) -> NDArray[np.float64]:
    """(B, H, W, C) at scale 0–255 again."""
    mean, std = torch.tensor(HOW.mean), torch.tensor(HOW.std)
    return (255 * (view.permute(0, 2, 3, 1) * std + mean)).double().numpy()


# ---- Its parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [HOW, replace(HOW, crop=0, flip=False), replace(HOW, crop=0, window=5)], ids=str
)
def test_without_strength_it_is_another_draw_of_the_weak_view(how: Augmentation) -> None:
    image = draw_split().x
    found = strong_view(image, IDX, KEY, how, NONE)
    assert torch.equal(found, augment(image, IDX, OWN, how))
    if how.moves:
        assert not torch.equal(found, augment(image, IDX, KEY, how))


def test_its_rotation_alone_is_that_of_the_weak_view() -> None:
    image, how = draw_split().x, replace(HOW, rotate=20.0)
    found = strong_view(image, IDX, KEY, HOW, replace(NONE, rotate=20.0))
    assert torch.equal(found, augment(image, IDX, OWN, how))


def test_the_deformation_agrees_with_the_loop() -> None:
    image = draw_split().x.numpy()
    strength = replace(NONE, rotate=30.0, shear=0.3, scale=4 / 3)
    how = replace(HOW, crop=0, flip=False)
    found = strong_view(torch.from_numpy(image), IDX, KEY, how, strength)
    turn, slope = drawn(-30, 30, counter.ROTATE), drawn(-0.3, 0.3, counter.SHEAR)
    factor = drawn(-log(4 / 3), log(4 / 3), counter.SCALE)
    assert np.abs(turn).max() > 25
    assert np.abs(slope).max() > 0.25
    assert np.abs(factor).max() > 0.25
    wrong = 0
    for n in range(len(image)):
        expected = np.zeros_like(image[n])
        for row in range(8):
            for col in range(8):
                y, x = row + 0.5 - 4, col + 0.5 - 4
                x += slope[n] * y
                angle, size = radians(turn[n]), exp(factor[n])
                source_row = floor(size * (cos(angle) * y + sin(angle) * x) + 4)
                source_col = floor(size * (cos(angle) * x - sin(angle) * y) + 4)
                if 0 <= source_row < 8 and 0 <= source_col < 8:
                    expected[row, col] = image[n, source_row, source_col]
        there = reference.normalise(expected, HOW.mean, HOW.std)
        wrong += int((np.abs(found[n].numpy() - there).max(axis=0) > 1e-5).sum())
    assert wrong <= 3, "of 2,880 pixels, a few may lie on a border, where rounding decides"


def test_colours_agree_with_the_loop() -> None:
    image = draw_split().x
    how = replace(HOW, crop=0, flip=False)
    found = pixels(strong_view(image, IDX, KEY, how, replace(NONE, colour=0.6, solarise=0.4)))
    b, c, s = (
        drawn(0.4, 1.6, stream)
        for stream in (counter.BRIGHTNESS, counter.CONTRAST, counter.SATURATION)
    )
    solarised = counter.uniform(OWN, IDX, counter.SOLARISE) < 0.4
    assert 5 < int(solarised.sum()) < 40
    for n, original in enumerate(image.double().numpy()):
        grey = original.mean(axis=2, keepdims=True)
        coloured = grey + s[n] * (original - grey)
        coloured = coloured.mean() + c[n] * (coloured - coloured.mean())
        coloured = np.clip(b[n] * coloured, 0, 255)
        expected = coloured
        if solarised[n]:
            expected = np.where(coloured >= 128, 255 - coloured, coloured)
        decided = np.abs(coloured - 128) > 1e-3
        np.testing.assert_allclose(found[n][decided], expected[decided], atol=2e-3)


def test_a_square_of_half_the_side_is_cut_out_anywhere() -> None:
    image = torch.full((45, 8, 10, 3), 255, dtype=torch.uint8)
    view = strong_view(image, IDX, KEY, replace(HOW, crop=0, flip=False), replace(NONE, cut=0.5))
    down = counter.below(8, OWN, IDX, counter.CUT_DOWN).tolist()
    right = counter.below(10, OWN, IDX, counter.CUT_RIGHT).tolist()
    assert (set(down), set(right)) == (set(range(8)), set(range(10)))
    for each, row, col in zip(view, down, right, strict=True):
        expected = torch.zeros(8, 10, dtype=torch.bool)
        expected[max(0, row - 2) : row + 2, max(0, col - 2) : col + 2] = True
        assert torch.equal((each == 0).all(dim=0), expected)
        assert torch.equal((each == 0).any(dim=0), expected)


# ---- All of it ----------------------------------------------------------------------------------


def test_it_is_bounded_normalised_and_laid_out_as_the_weak_view() -> None:
    image = draw_split().x
    view = strong_view(image, IDX, KEY, HOW)
    assert view.shape == (45, 3, 8, 8)
    assert view.is_contiguous(memory_format=torch.channels_last)
    value = pixels(view)
    assert value.min() > -1e-3
    assert value.max() < 255 + 1e-3
    assert bool(((view == 0).all(dim=1).flatten(1).sum(dim=1) >= 4).all()), "all are cut"
    assert Strength(30.0, 0.3, 4 / 3, 0.6, 0.5, 0.5, together=False) == STRENGTH


def test_each_view_has_two_of_the_changes() -> None:
    idx = torch.arange(7000)
    chosen = torch.stack([each for part in _chosen(idx, OWN, STRENGTH) for each in part])
    assert torch.equal(chosen.sum(dim=0), torch.full((7000,), 2.0))
    # Of 7,000 views 2,000 have each, give or take five standard deviations.
    assert bool(((chosen.sum(dim=1) - 2000).abs() < 190).all())
    pairs = chosen @ chosen.T
    assert bool(((pairs - 7000 / 21).abs() < 90)[~torch.eye(7, dtype=torch.bool)].all())


def test_the_changes_of_a_view_are_those_of_all_together() -> None:
    image, strength = draw_split().x, replace(STRENGTH, cut=0)
    found = strong_view(image, IDX, KEY, HOW, strength)
    deforming, colouring = _chosen(IDX, OWN, strength)
    seen = 0
    for n in range(45):
        rotated, sheared, scaled, *coloured = (bool(each[n]) for each in (*deforming, *colouring))
        if any(coloured[:3]):
            continue  # one strength has all three of them
        alone = replace(
            NONE,
            rotate=30.0 * rotated,
            shear=0.3 * sheared,
            scale=4 / 3 if scaled else 1,
            solarise=0.5 * coloured[3],
        )
        assert torch.equal(found[n], strong_view(image, IDX, KEY, HOW, alone)[n])
        seen += 1
    assert seen > 5
    still = strong_view(image, IDX, KEY, HOW, replace(strength, colour=0, solarise=0))
    changed = (found != still).flatten(1).any(dim=1)
    # Colours change where one was chosen, and the views that were turned into their negatives.
    one_of_three = torch.stack(colouring[:3]).any(dim=0)
    assert torch.equal(changed | colouring[3].bool(), one_of_three | colouring[3].bool())


@pytest.mark.parametrize("num_workers", [0, 2])
def test_both_implementations_give_the_same_strong_views(num_workers: int) -> None:
    split = draw_split()
    options: dict[str, Any] = {"batch_size": 16, "seed": 3, "strong": True}
    resident, other = Resident(split, **options), loaded(split, num_workers=num_workers, **options)
    weak = Resident(split, batch_size=16, seed=3)
    key = resident.key(5)
    for ours, theirs, plain, idx in zip(
        resident.epoch(5), other.epoch(5), weak.epoch(5), resident.order(5).split(16), strict=True
    ):
        assert ours.strong is not None
        assert theirs.strong is not None
        assert plain.strong is None
        assert torch.equal(ours.strong, theirs.strong)
        alone = resident.gather(idx, key).strong
        assert alone is not None
        assert torch.equal(ours.strong, alone)
        assert torch.equal(ours.x, plain.x), "the weak view is what it was"
        assert float((ours.strong != ours.x).float().mean()) > 0.5
    first, again, later = (next(resident.epoch(epoch)) for epoch in (1, 1, 2))
    for batch, same in ((again, True), (later, False)):
        assert first.strong is not None
        assert batch.strong is not None
        assert torch.equal(first.strong, batch.strong) is same


def test_two_processes_share_the_strong_views_of_one() -> None:
    split = draw_split(44)
    options: dict[str, Any] = {"batch_size": 16, "seed": 3, "strong": True}
    one = Resident(split, **options)
    halves = [Resident(split, process=p, num_processes=2, **options) for p in (0, 1)]
    for whole, *parts in zip(one.epoch(0), *(half.epoch(0) for half in halves), strict=True):
        for p, part in enumerate(parts):
            assert whole.strong is not None
            assert part.strong is not None
            assert torch.equal(whole.strong[p::2], part.strong)


def test_none_are_made_to_measure_averaged_weights_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Tensor] = []

    def counted(image: Tensor, idx: Tensor, *options: Any) -> Tensor:
        made.append(idx)
        return strong_view(image, idx, *options)

    monkeypatch.setattr(batches, "strong_view", counted)
    data = Resident(draw_split(), batch_size=16, seed=3, strong=True)
    net = build_net("cnn", num_classes=3, input_shape=(3, 8, 8), seed=0, options={"widths": [4]})
    train(net, CrossEntropy(), data, Plan(epochs=2, average=0.9), Machine(), seed=0)
    seen = torch.cat(made).tolist()
    assert sorted(seen) == sorted([*range(len(data))] * 2), "each image once an epoch, for its step"


def test_grey_images_have_strong_views_too() -> None:
    how = Augmentation(mean=(0.5,), std=(0.25,), crop=1)
    view = strong_view(draw_split().x[..., :1], IDX, KEY, how)
    assert view.shape == (45, 1, 8, 8)
    assert bool(view.isfinite().all())


def test_features_and_mixtures_are_refused() -> None:
    features = Split(torch.randn(20, 4), torch.arange(20) % 2, 2)
    with pytest.raises(ValueError, match=r"made of uint8 images .* features have none; train with"):
        Resident(features, batch_size=4, strong=True)
    with pytest.raises(ValueError, match="mixtures or strong views, got both"):
        Resident(draw_split(), batch_size=16, strong=True, mixup=True)
