"""One thread for steps that are not worth sharing, and then as many as before."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch
from torch import nn

from benchmarks.threads import measured
from covlearn.data import Augmentation, Split
from covlearn.engine import Machine, Plan
from covlearn.methods.ce import CrossEntropy
from covlearn.run import LocalRun
from covlearn.threads import WORTH_SHARING, operations, threads_for
from tests.runs import blobs

PLAN = Plan(epochs=1, batch_size=16, lr=0.05)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_small_steps_have_one_thread() -> None:
    model = nn.Linear(100, 100, bias=False)
    enough = int(WORTH_SHARING // operations(model, 1))
    for batch_size, number in ((enough - 1, 1), (enough + 1, 2)):
        with threads_for(model, batch_size):
            assert torch.get_num_threads() == number
        assert torch.get_num_threads() == 2


def test_of_fits_side_by_side_the_last_restores_the_number() -> None:
    small, first, second = nn.Linear(1, 1), ExitStack(), ExitStack()
    first.enter_context(threads_for(small, 1))
    second.enter_context(threads_for(small, 1))
    first.close()
    assert torch.get_num_threads() == 1
    second.close()
    assert torch.get_num_threads() == 2


def test_what_is_not_lowered_is_not_restored() -> None:
    with threads_for(nn.Conv2d(3, 8, 3), 1):
        torch.set_num_threads(1)
    assert torch.get_num_threads() == 1


def test_an_error_leaves_as_many_as_there_were() -> None:
    with pytest.raises(KeyError), threads_for(nn.Linear(1, 1), 1):
        raise KeyError
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("images", [False, True])
def test_features_are_trained_with_one_and_images_with_all(images: bool) -> None:
    split, net = blobs(32, seed=0), {"hidden": [4]}
    if images:
        x = torch.zeros(32, 8, 8, 3, dtype=torch.uint8)
        split, net = Split(x, split.y, 3, Augmentation((0.5,) * 3, (0.5,) * 3)), {"widths": [4]}
    seen = []

    def look(*_: object) -> dict[str, float]:
        seen.append(torch.get_num_threads())
        return {}

    run = LocalRun(
        split,
        net_name="cnn" if images else "mlp",
        net_options=net,
        machine=Machine(),
        after_epoch=look,
    )
    run.train("ce", run.net("ce"), CrossEntropy(), PLAN)
    assert seen == [2 if images else 1]
    assert torch.get_num_threads() == 2


def test_the_benchmark_measures_both(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def look(*_: object) -> dict[str, float]:
        seen.add(torch.get_num_threads())
        return {}

    monkeypatch.setattr("covlearn.threads.WORTH_SHARING", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    row = measured((64, 3, 4), rounds=1, after_epoch=look)
    assert seen == {1, 2}
    assert row["operations a step"] == 6 * 16 * (4 * 256 + 256 + 256 * 257 + 256 * 3 + 3 + 4 * 3)
