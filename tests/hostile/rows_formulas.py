"""Wrong values for losses, noise and theory: a call, and words of its refusal."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from covlearn import covariance, losses, metrics, noise, reweight, sieve
from covlearn import theory as th
from covlearn.covariance import CALLoss, SecondOrder
from covlearn.data import sources
from covlearn.noise import files, registry
from covlearn.schedules import Ramp
from covlearn.theory import examples as th_examples
from covlearn.theory import objectives

NAN = float("nan")
WRONG_WORD: Any = "x"
NO_RUN: Any = SimpleNamespace()
LOGITS, LABELS = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])
KEPT = sieve.Refined(LABELS, LABELS >= 0, LOGITS[:, 0])
EVEN = torch.full((4, 3), 1 / 3)
STATS = SecondOrder.from_labels(LABELS, LABELS, num_classes=3)
HOW: dict[str, Any] = {"prior": torch.full((3,), 1 / 3), "beta": 1.0}
EMPTY = Path("nothing-here")
DIGITS = sources.digits()
PROBLEM = th_examples.noisier_class()

Row = tuple[Callable[[], Any], str]

FORMULAS: dict[str, list[Row]] = {
    # Losses and terms
    "covariance.CALLoss": [
        (lambda: CALLoss(LABELS, None, num_classes=3), "needs refined labels"),
        (lambda: CALLoss(LABELS, LABELS, num_classes=3, reduction=WRONG_WORD), "reduction must be"),
        (lambda: CALLoss(LABELS, LABELS, num_classes=2), "must lie in"),
    ],
    "covariance.SecondOrder": [
        (lambda: SecondOrder.from_labels(LABELS, LABELS - 1, num_classes=3), "class"),
    ],
    "covariance.batch_mass": [
        (lambda: covariance.batch_mass(LABELS + 1, 3), r"refined must lie in 0…2 \(or −1"),
        (lambda: covariance.batch_mass(LABELS.float(), 3), "integer class numbers"),
        (lambda: covariance.batch_mass(LABELS, 3, weight=torch.ones(3)), "weight must hold 4"),
    ],
    "covariance.cal": [
        (lambda: covariance.cal(LOGITS, LABELS + 1, LABELS, STATS, **HOW), "must lie in"),
        (lambda: covariance.cal(LOGITS[:2], LABELS, LABELS, STATS, **HOW), "must"),
        (
            lambda: covariance.cal(LOGITS, LABELS, LABELS, STATS, weighting=WRONG_WORD, **HOW),
            "weighting must be",
        ),
    ],
    "covariance.covariance_term": [
        (lambda: covariance.covariance_term(LOGITS, LABELS, LABELS[:3], STATS), "must"),
        (lambda: covariance.covariance_term(LOGITS * NAN, LABELS, LABELS + 9, STATS), "must"),
    ],
    "covariance.covariance_table": [
        (lambda: covariance.covariance_table(LOGITS, LABELS + 1, LABELS, STATS), "must lie in"),
    ],
    "covariance.class_mean_loss": [
        (
            lambda: covariance.class_mean_loss(LOGITS, LABELS, LABELS, STATS, block_size=0),
            "block_size must be positive",
        ),
    ],
    "covariance.with_covariance": [
        (
            lambda: covariance.with_covariance(losses.cross_entropy)(
                LOGITS, LABELS + 1, LABELS, STATS
            ),
            "must lie in",
        ),
    ],
    "losses.one_class_at_a_time": [
        (
            lambda: covariance.with_covariance(
                losses.one_class_at_a_time(torch.nn.functional.cross_entropy)
            )(LOGITS, LABELS, LABELS, STATS),
            'losses of PyTorch do with reduction="none"',
        ),
    ],
    "losses.peer": [
        (lambda: losses.peer(LOGITS, LABELS, LOGITS[:2], LABELS, alpha=1.0), "must"),
        (lambda: losses.peer(LOGITS, LABELS + 1, LOGITS, LABELS, alpha=1.0), "must lie in"),
    ],
    "losses.joint": [
        (lambda: losses.joint(LOGITS, LOGITS, LABELS, weight=2.0), r"weight must lie in \[0, 1\]"),
        (lambda: losses.joint(LOGITS, LOGITS[:2], LABELS, weight=0.5), "shape of the logits"),
    ],
    "losses.dmi_from_joint": [
        (lambda: losses.dmi_from_joint(torch.eye(3), eps=0.0), "eps must be positive"),
    ],
    "losses.per_class": [
        (lambda: losses.per_class(lambda logits, y: logits.sum(), LOGITS), "one value per example"),
    ],
    "losses.generalized_cross_entropy": [
        (
            lambda: losses.generalized_cross_entropy(LOGITS, LABELS, q=2.0),
            r"q must lie in \(0, 1\]",
        ),
        (lambda: losses.generalized_cross_entropy(LOGITS.long(), LABELS), "floating point"),
    ],
    "sieve.rival_margin": [
        (lambda: sieve.rival_margin(LOGITS.softmax(dim=1), LABELS + 9), "must lie in"),
    ],
    "sieve.refine_by_argmax": [
        (lambda: sieve.refine_by_argmax(LOGITS.softmax(dim=1), LABELS + 9), "must lie in"),
    ],
    "sieve.hold_fixed": [
        (lambda: sieve.hold_fixed(KEPT, LABELS - 1, LABELS > 0), "noisy must lie in"),
        (lambda: sieve.hold_fixed(KEPT, LABELS[:3], LABELS > 0), "one entry an example, 4"),
        (lambda: sieve.hold_fixed(KEPT, LABELS, LABELS), "trusted must hold 4 times True or False"),
        (lambda: sieve.hold_fixed(KEPT, LABELS, LABELS[:3] > 0), "trusted must hold 4 times"),
    ],
    "metrics.reliability": [
        (lambda: metrics.reliability(LOGITS[:, 0] + 9, LABELS), "between 0 and 1"),
    ],
    "sieve.refine_scores": [
        (
            lambda: sieve.refine_scores(LOGITS[:, 0], LABELS, LABELS, lower=1.0, upper=0.0),
            "expected lower ≤ upper",
        ),
        (
            lambda: sieve.refine_scores(LOGITS[:, 0], LABELS, LABELS[:2], lower=0.0),
            "vectors of one length",
        ),
    ],
    "sieve.SieveRecorder": [
        (
            lambda: sieve.SieveRecorder(LABELS, num_classes=3).refine(),
            "every example must have been",
        ),
    ],
    "reweight.kernel_mean_matching": [
        (
            lambda: reweight.kernel_mean_matching(LOGITS, LABELS == 0, lower=2.0),
            "bounds must satisfy",
        ),
        (lambda: reweight.kernel_mean_matching(LOGITS, LABELS > 5), "at least one example"),
        (
            lambda: reweight.kernel_mean_matching(LOGITS * NAN, LABELS == 0),
            "features must be finite",
        ),
    ],
    "schedules.Ramp": [
        (lambda: Ramp(1.0, 5, 2), "expected 0 ≤ start ≤ end"),
        (lambda: Ramp(-1), r"value must lie in \[0, 1,000,000\], got -1; 0 is off"),
        (lambda: Ramp(1e300), r"value must lie in \[0, 1,000,000\], got 1e\+300"),
    ],
    "metrics.accuracy": [(lambda: metrics.accuracy(LABELS, LABELS[:2]), "same length")],
    # Noise
    "noise.symmetric": [
        (lambda: noise.symmetric(LABELS, rate=1.5, num_classes=3, seed=0), "rate must"),
        (lambda: noise.symmetric(LABELS, rate=NAN, num_classes=3, seed=0), "rate must"),
        (lambda: noise.symmetric(LABELS, rate=0.2, num_classes=2, seed=0), "must lie in"),
        (lambda: noise.symmetric(LABELS, rate=0.2, num_classes=3, seed=-1), "seed must"),
        (lambda: noise.symmetric(LABELS[:0], rate=0.2, num_classes=3, seed=0), "must"),
    ],
    "noise.confused": [
        (lambda: noise.confused(LABELS, probs=LOGITS, rate=0.2, seed=0), "each row with the sum"),
        (lambda: noise.confused(LABELS, probs=LOGITS[0], rate=0.2, seed=0), "must have shape"),
        (lambda: noise.confused(LABELS, probs=EVEN[:2], rate=0.2, seed=0), "y must have one entry"),
        (lambda: noise.confused(LABELS, probs=EVEN * NAN, rate=0.2, seed=0), "must hold prob"),
        (lambda: noise.confused(LABELS, probs=EVEN, rate=1.0, seed=0), "rate must"),
        (lambda: noise.confused(LABELS, probs=EVEN, rate=0.2, seed=-1), "seed must"),
        (lambda: noise.confused(LABELS + 1, probs=EVEN, rate=0.2, seed=0), "must lie in"),
    ],
    "noise.instance_dependent": [
        (
            lambda: noise.instance_dependent(
                LOGITS, LABELS, rate=0.2, num_classes=3, variant="x", seed=0
            ),
            "variant must be",
        ),
        (
            lambda: noise.instance_dependent(
                LOGITS * NAN, LABELS, rate=0.2, num_classes=3, variant="cal", seed=0
            ),
            "finite",
        ),
    ],
    "noise.part_dependent": [
        (
            lambda: noise.part_dependent(LABELS, LABELS, transitions=[torch.eye(3)] * 2, seed=0),
            "part",
        ),
    ],
    "noise.NoiseCard": [(lambda: noise.NoiseCard.from_dict({}), "a noise card must be an object")],
    "noise.files.read_label_file": [
        (lambda: files.read_label_file(EMPTY), "does not exist"),
        (lambda: files.read_label_file(Path(__file__)), "must end in .pt or .npz"),
    ],
    "noise.files.write_labels": [
        (
            lambda: files.write_labels(
                Path("a.txt"),
                noise.symmetric(LABELS, rate=0.2, num_classes=3, seed=0),
                LABELS.numpy(),
            ),
            "ends in .npz",
        ),
    ],
    "noise.files.labels_from_file": [
        (
            lambda: files.labels_from_file("nope.npz#x", LABELS.numpy(), num_classes=3, data="d"),
            "does not exist",
        ),
    ],
    "noise.registry.published_entry": [
        (lambda: registry.published_entry("cifar10", 0.3), "are published with the rates"),
    ],
    "noise.registry.regenerated": [
        (
            lambda: registry.regenerated(
                next(entry for entry in registry.PUBLISHED.values() if not entry.bit_for_bit),
                LOGITS,
                LABELS.numpy(),
            ),
            "cannot be drawn again",
        ),
    ],
    # Theory
    "theory.Problem": [
        (
            lambda: th.Problem([], np.zeros(0, int), np.zeros((0, 2, 2))),
            "mass must be a non-empty vector",
        ),
        (lambda: th.Problem([2.0], [0], [np.eye(2)]), "masses must sum to 1"),
        (lambda: th.Problem([1.0], [5], [np.eye(2)]), "labels must lie in"),
        (lambda: th.Problem([1.0], [0], [np.ones((2, 2))]), "rows of transition"),
    ],
    "theory.one_hot_coefficients": [
        (th.one_hot_coefficients, "got none"),
        (lambda: th.one_hot_coefficients(WRONG_WORD), "a term must be"),
    ],
    "metrics.calibration_error": [(lambda: metrics.calibration_error([]), "must hold an example")],
    "theory.objectives.check_refined": [
        (lambda: objectives.check_refined(PROBLEM, np.ones((1, 9))), "refined must be"),
    ],
    "theory.objectives.check_joint": [
        (lambda: objectives.check_joint(PROBLEM, np.ones((1, 9))), "joint must be"),
    ],
    "theory.risk": [
        (lambda: th.risk(PROBLEM, PROBLEM.noisy, np.ones((1, 9))), "one row a point"),
        (lambda: th.risk(PROBLEM, PROBLEM.noisy, PROBLEM.noisy * NAN), "must be finite"),
    ],
}
