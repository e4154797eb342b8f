"""Fitting many small images on a GPU: the settings of CIFAR, and images that move."""

import pytest
import torch

from covlearn import fitting
from covlearn.calibration import label_posterior, surest_transition, wrong_by_sureness
from covlearn.data import Augmentation, Split
from covlearn.engine import Machine
from covlearn.fitting import COUNTED, SCALE_SPREAD, Setup, fit_split, set_up
from covlearn.methods import CAL
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.methods.scaled import Choice
from covlearn.nets import choice
from covlearn.schedules import Ramp
from covlearn.testing import make_toy, shortened

STILL = Augmentation(mean=(0.5,), std=(0.25,))


def images(size: int = 120) -> Split:
    """Three classes that differ in the row that is bright; a fifth of the labels is wrong."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.arange(size) % 3
    x = torch.randint(60, (size, 8, 8, 1), generator=generator, dtype=torch.uint8)
    x[torch.arange(size), 2 * clean + 1] += 150
    wrong = torch.rand(size, generator=generator) < 0.2
    return Split(x, torch.where(wrong, (clean + 1) % 3, clean), 3, STILL)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "resolve_device", lambda device: "cuda")
    monkeypatch.setattr(choice, "FEWEST", 100)
    monkeypatch.setattr(choice, "SMALLEST_SIDE", 8)


@pytest.mark.usefixtures("on_gpu")
def test_many_images_and_a_gpu_get_a_network_from_scratch() -> None:
    made = set_up("cal", split=images())
    assert made.choice.net == "resnet34"
    assert type(made.choice.method) is CAL
    assert made.choice.method.scores == "averaged"
    assert made.augmentation == Augmentation(mean=(0.5,), std=(0.25,), crop=1, flip=True)


@pytest.mark.usefixtures("on_gpu")
def test_settings_go_over_it() -> None:
    made = set_up("cal", split=images(), settings=["augmentation.flip=false", "plan.epochs=7"])
    assert made.augmentation is not None
    assert not made.augmentation.flip
    assert isinstance(made.choice.method, CAL)
    assert made.choice.method.plan.epochs == 7


def test_few_images_or_no_gpu_stay_as_they_were() -> None:
    made = set_up("cal", split=images(), device="cpu")
    assert isinstance(made.choice.method, CrossFittedCAL)
    assert made.augmentation == STILL
    features = Split(torch.randn(40, 5), torch.arange(40) % 2, 2)
    with pytest.raises(ValueError, match="augmentation is for uint8 images"):
        set_up("cal", split=features, settings=["augmentation.flip=false"], device="cpu")


def test_verdicts_come_from_averaged_predictions_and_images_move() -> None:
    split = images(300)
    method = shortened(
        CAL(
            scores="averaged",
            threshold="argmax",
            look_for_evidence=True,
            sieve_beta=Ramp(0.0),
            beta=Ramp(0.0),
        ),
        epochs=6,  # more, and it knows three hundred labels by heart
        lr=0.05,
    )
    moved = Augmentation(mean=(0.5,), std=(0.25,), flip=True)
    setup = Setup(Choice(method, "cnn", {}), Machine(), moved)
    fit = fit_split(split, setup, seed=0)
    assert set(fit.history) == {"sieve", "cal"}, "no other sieves are trained for the verdicts"
    clean = torch.arange(300) % 3
    flagged = torch.from_numpy(fit.verdicts.decision != "keep")
    wrong = split.y != clean
    assert fit.evidence.found
    assert int((flagged & wrong).sum()) > 0.8 * int(wrong.sum())
    assert int((flagged & ~wrong).sum()) < 0.05 * int((~wrong).sum())


def test_few_images_are_learned_with_the_recommended_settings() -> None:
    """With the weight decay that features get, the average of a batch-normed net was at chance."""
    split, clean = images(300), torch.arange(300) % 3
    setup = set_up("cal", split=split, settings=["folds=2", "net.widths=[8,16]"], device="cpu")
    fit = fit_split(split, setup, seed=0)
    assert float((fit.own_logits.argmax(dim=1) == clean).float().mean()) > 0.9
    flagged, wrong = torch.from_numpy(fit.verdicts.decision != "keep"), split.y != clean
    assert int((flagged & wrong).sum()) > 0.7 * int(wrong.sum())
    assert int((flagged & ~wrong).sum()) < 0.02 * len(clean)
    quarter, most = (
        surest_transition(fit.crossed, split.y, surest=share) for share in (0.25, COUNTED)
    )
    assert not torch.allclose(quarter, most)  # else what follows would see nothing
    times = wrong_by_sureness(fit.crossed, split.y, quarter)
    assert fit.heard is not None
    expected = label_posterior(
        fit.own_logits, split.y, quarter,
        times=times, spread=SCALE_SPREAD, heard=fit.heard,
    )  # fmt: skip
    torch.testing.assert_close(fit.logits, expected)


def test_verdicts_of_averaged_predictions_are_those_predictions() -> None:
    """They have seen the given labels: Bayes' rule would count those twice."""
    method = CAL(scores="averaged", threshold="argmax", look_for_evidence=True)
    chosen = Choice(shortened(method, epochs=4), "mlp", {"hidden": [16]})
    split = make_toy().split
    fit = fit_split(split, Setup(chosen, Machine()), seed=0)
    assert torch.equal(fit.logits, fit.crossed)
    own = fit.logits.softmax(dim=1).gather(1, split.y.unsqueeze(1)).squeeze(1)
    assert fit.verdicts.quality == pytest.approx(own.double().numpy(), abs=1e-6)
