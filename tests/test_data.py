import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import Dataset

from covlearn import data
from covlearn.data import Augmentation, Batch, Loaded, Resident, Split, counter
from covlearn.data.augment import augment
from tests.reference import augment as reference

AUGMENTATION = Augmentation(
    mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), crop=2, flip=True, rotate=20.0
)


class Images(Dataset[Tensor]):
    """A map-style dataset over a tensor, as a reader of files would be."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Tensor:
        return self.x[index]


def draw_split(size: int = 45, num_classes: int = 3) -> Split:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (size, 8, 8, 3), generator=generator, dtype=torch.uint8)
    y = torch.arange(size) % num_classes
    return Split(x, y, num_classes, AUGMENTATION)


def loaded(split: Split, **options: Any) -> Loaded:
    return Loaded(
        Images(split.x), split.y, split.num_classes, augmentation=split.augmentation, **options
    )


def assert_same(a: Batch, b: Batch) -> None:
    assert torch.equal(a.idx, b.idx)
    assert torch.equal(a.y, b.y)
    assert torch.equal(a.x, b.x)
    assert (a.mix is None) == (b.mix is None)
    if a.mix is not None and b.mix is not None:
        for ours, theirs in zip(a.mix, b.mix, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("mixup", [False, True])
def test_both_implementations_give_the_same_batches(mixup: bool, num_workers: int) -> None:
    split = draw_split()
    options: dict[str, Any] = {"batch_size": 16, "seed": 3, "mixup": mixup}
    resident, other = Resident(split, **options), loaded(split, num_workers=num_workers, **options)
    for epoch in (0, 5):
        batches = list(resident.epoch(epoch))
        assert [len(batch.x) for batch in batches] == [16, 16, 13]
        for a, b in zip(batches, other.epoch(epoch), strict=True):
            assert_same(a, b)


def test_a_batch_can_be_gathered_on_its_own() -> None:
    resident = Resident(draw_split(), batch_size=16, seed=3, mixup=True)
    key = resident.key(2)
    for idx, batch in zip(resident.order(2).split(16), resident.epoch(2), strict=True):
        assert_same(resident.gather(idx, key), batch)


def test_epochs_repeat_exactly_and_differ_from_each_other() -> None:
    resident = Resident(draw_split(), batch_size=45, seed=3)
    first, again = next(resident.epoch(1)), next(resident.epoch(1))
    assert_same(first, again)
    assert not torch.equal(first.idx, next(resident.epoch(2)).idx)
    other_seed = Resident(draw_split(), batch_size=45, seed=4)
    assert not torch.equal(first.idx, next(other_seed.epoch(1)).idx)


def test_augmentation_of_an_example_does_not_depend_on_its_batch() -> None:
    split = draw_split()
    small, large = (Resident(split, batch_size=size, seed=3) for size in (7, 45))
    by_idx = {
        int(i): x for batch in small.epoch(4) for i, x in zip(batch.idx, batch.x, strict=True)
    }
    whole = next(large.epoch(4))
    for i, x in zip(whole.idx.tolist(), whole.x, strict=True):
        assert torch.equal(x, by_idx[i])


@pytest.mark.parametrize("mixup", [False, True])
def test_two_processes_share_the_batches_of_one(mixup: bool) -> None:
    split = draw_split(44)
    options: dict[str, Any] = {"batch_size": 16, "seed": 3, "mixup": mixup}
    one = Resident(split, **options)
    halves = [Resident(split, process=p, num_processes=2, **options) for p in (0, 1)]
    for whole, left, right in zip(one.epoch(0), *(h.epoch(0) for h in halves), strict=True):
        for p, part in enumerate((left, right)):
            mix = None
            if whole.mix is not None:
                mix = data.Mix(
                    whole.mix.x[p::2], whole.mix.y[p::2], whole.mix.share, whole.mix.idx[p::2]
                )
            assert_same(Batch(whole.x[p::2], whole.y[p::2], whole.idx[p::2], mix), part)


@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 10**6), size=st.integers(1, 300))
def test_an_epoch_is_a_permutation(seed: int, epoch: int, size: int) -> None:
    order = counter.permutation(counter.key(seed, epoch), size)
    assert order.sort().values.tolist() == list(range(size))


def test_the_hash_is_a_bijection_with_even_bits() -> None:
    idx = torch.arange(2**18)
    for stream in range(3):
        values = counter.bits(counter.key(7, 1), idx, stream)
        assert len(values.unique()) == len(idx)
        for bit in range(32):
            share = ((values >> bit) & 1).float().mean().item()
            assert share == pytest.approx(0.5, abs=0.005)
    # Streams, seeds, epochs and neighbouring positions are unrelated.
    a = counter.uniform(counter.key(7, 1), idx, 0)
    for b in (
        counter.uniform(counter.key(7, 1), idx, 1),
        counter.uniform(counter.key(7, 2), idx, 0),
        counter.uniform(counter.key(8, 1), idx, 0),
        a.roll(1),
    ):
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.01


def test_movements_are_evenly_spread() -> None:
    idx = torch.arange(100_000)
    counts = torch.bincount(counter.below(9, counter.key(0, 0), idx, counter.CROP_DOWN))
    assert len(counts) == 9
    assert (counts / len(idx) - 1 / 9).abs().max() < 0.005


@pytest.mark.parametrize(
    "how",
    [
        Augmentation(AUGMENTATION.mean, AUGMENTATION.std),
        dataclasses.replace(AUGMENTATION, rotate=0.0),
        dataclasses.replace(AUGMENTATION, crop=0, flip=False),
        AUGMENTATION,
    ],
)
def test_augmentation_agrees_with_the_loop(how: Augmentation) -> None:
    image = draw_split().x
    idx, key = torch.arange(100, 145), counter.key(1, 2)
    result = augment(image, idx, key, how)
    assert result.shape == (45, 3, 8, 8)
    assert result.is_contiguous(memory_format=torch.channels_last)
    down = counter.below(5, key, idx, counter.CROP_DOWN)
    right = counter.below(5, key, idx, counter.CROP_RIGHT)
    flip = counter.below(2, key, idx, counter.FLIP)
    turn = (2 * counter.uniform(key, idx, counter.ROTATE) - 1) * how.rotate
    for n in range(45):
        expected = image[n].numpy()
        if how.crop:
            expected = reference.crop(expected, int(down[n]), int(right[n]), how.crop)
        if how.flip and flip[n]:
            expected = expected[:, ::-1]
        if how.rotate:
            expected = reference.rotate(expected, float(turn[n]))
        np.testing.assert_allclose(
            result[n], reference.normalise(expected, how.mean, how.std), atol=2e-6
        )


@pytest.mark.parametrize("rotate", [0.0, 20.0])
def test_a_window_is_taken_anywhere_and_in_evaluation_in_the_middle(rotate: float) -> None:
    how = dataclasses.replace(AUGMENTATION, crop=0, window=5, rotate=rotate)
    image, idx, key = draw_split().x, torch.arange(100, 145), counter.key(1, 2)
    result = augment(image, idx, key, how)
    assert result.shape == (45, 3, 5, 5)
    down, right, flip = (
        counter.below(bound, key, idx, stream).tolist()
        for bound, stream in ((4, counter.CROP_DOWN), (4, counter.CROP_RIGHT), (2, counter.FLIP))
    )
    assert set(down) == set(right) == {0, 1, 2, 3}
    turn = ((2 * counter.uniform(key, idx, counter.ROTATE) - 1) * rotate).tolist()
    still = augment(image, idx, key, how.still)
    for n in range(45):
        whole = image[n].numpy()
        expected = whole[down[n] : down[n] + 5, right[n] : right[n] + 5]
        expected = expected[:, ::-1] if flip[n] else expected
        expected = reference.rotate(expected, turn[n]) if rotate else expected
        for ours, theirs in ((result[n], expected), (still[n], whole[1:6, 1:6])):
            np.testing.assert_allclose(
                ours, reference.normalise(theirs, how.mean, how.std), atol=2e-6
            )


def test_evaluation_neither_moves_nor_shuffles() -> None:
    split = draw_split()
    batch = next(Resident(split, batch_size=45, shuffle=False).epoch(9))
    assert batch.idx.tolist() == list(range(45))
    expected = reference.normalise(split.x[7].numpy(), AUGMENTATION.mean, AUGMENTATION.std)
    np.testing.assert_allclose(batch.x[7], expected, atol=2e-6)


def test_features_pass_unchanged() -> None:
    split = Split(torch.randn(20, 4), torch.arange(20) % 2, 2)
    batch = next(Resident(split, batch_size=8, seed=1).epoch(0))
    assert torch.equal(batch.x, split.x[batch.idx])


def test_mixup_is_what_it_says() -> None:
    split = Split(torch.randn(64, 4, dtype=torch.float64), torch.arange(64) % 2, 2)
    shares = []
    for epoch in range(200):
        batch = next(Resident(split, batch_size=64, seed=1, mixup=True).epoch(epoch))
        assert batch.mix is not None
        share = batch.mix.share.item()
        shares.append(share)
        partner = (batch.mix.x - share * batch.x) / (1 - share) if share < 0.9 else None
        if partner is not None:
            distance = torch.cdist(partner, batch.x)
            position = distance.argmin(dim=1)
            assert distance.min(dim=1).values.max() < 1e-4
            assert len(position.unique()) == 64
            assert torch.equal(batch.y[position], batch.mix.y)
            assert torch.equal(batch.idx[position], batch.mix.idx)
    # The larger of λ and 1 − λ for λ from Beta(½, ½) has the mean ½ + 1/π and lies in [½, 1].
    assert min(shares) >= 0.5
    assert np.mean(shares) == pytest.approx(0.5 + 1 / np.pi, abs=0.03)


def test_balanced_batches() -> None:
    y = torch.tensor([0] * 50 + [1] * 10 + [2] * 3)
    split = Split(torch.randn(63, 2), y, 3)
    batches = Resident(split, batch_size=12, seed=0, balanced_batches=5)
    drawn = list(batches.epoch(0))
    assert [len(batch.x) for batch in drawn] == [12] * 5
    labels = torch.cat([batch.y for batch in drawn])
    assert torch.bincount(labels).tolist() == [20, 20, 20]
    assert len(torch.cat([b.idx for b in drawn])[labels == 0].unique()) == 20
    assert not torch.equal(drawn[0].idx, next(batches.epoch(1)).idx)
    assert len(labels[:12].unique()) == 3


def test_global_random_state_is_left_alone() -> None:
    state = torch.get_rng_state()
    list(Resident(draw_split(), batch_size=16, mixup=True).epoch(0))
    list(loaded(draw_split(), batch_size=16, num_workers=1).epoch(0))
    assert torch.equal(torch.get_rng_state(), state)


def test_no_training_type_has_room_for_a_clean_label() -> None:
    for kind in (Split, Batch, data.Mix, Resident, Loaded):
        names = set(inspect.signature(kind).parameters) | set(vars(kind))
        assert not [name for name in names if "clean" in name or "true" in name]


def test_bad_input_is_refused_with_a_reason() -> None:
    split = draw_split()
    float_x = torch.randn(4, 2)
    labels = torch.tensor([0, 1, 0, 1])
    cases: list[tuple[Any, str]] = [
        (lambda: Split(split.x, split.y, 3), "augmentation that holds at least mean and std"),
        (lambda: Split(split.x, split.y, 2, AUGMENTATION), "0…1"),
        (lambda: Split(split.x, split.y[:-1], 3, AUGMENTATION), "one entry an example"),
        (lambda: Split(float_x, labels, 2, AUGMENTATION), "float features without"),
        (lambda: Split(labels[:, None], labels, 2), "uint8 images with"),
        (lambda: Split(split.x[..., :1], split.y, 3, AUGMENTATION), "each of 1 channels"),
        (lambda: Resident(split, batch_size=0), "batch_size must be positive"),
        (lambda: Resident(split, batch_size=7, num_processes=2), "divide by the number"),
        (lambda: Resident(split, batch_size=8, balanced_batches=0), "balanced_batches must"),
        (lambda: Resident(split, batch_size=22, num_processes=2), "example for each of 2"),
        (lambda: loaded(dataclasses.replace(split), batch_size=4, num_processes=3), "divide"),
        (lambda: dataclasses.replace(AUGMENTATION, window=4), "either a window .* or a crop"),
        (
            lambda: dataclasses.replace(
                split, augmentation=dataclasses.replace(AUGMENTATION, crop=0, window=9)
            ),
            "window must fit into images of 8 × 8, got 9",
        ),
        (lambda: Loaded(Images(split.x), labels, 2, batch_size=4), "one entry an example"),
        (
            lambda: Resident(Split(float_x, labels, 3), batch_size=4, balanced_batches=1).order(0),
            "class 2 has none",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
