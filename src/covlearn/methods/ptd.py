"""PTD-R-V (Xia et al. 2020): the transition of an instance as a mixture of those of its parts."""

import copy
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.nn import functional

from covlearn.checks import check_probs, check_scores
from covlearn.data import Batch, counter
from covlearn.engine import Objective, Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.losses import pick
from covlearn.methods.base import Run
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.forward import check_anchors
from covlearn.transition import project_rows

Correction = Literal["reweight", "forward"]
MOST = 1_000_000  # parts, and anchor points a class


@dataclass(frozen=True)
class PTD:
    """T(x) = Σ_k h_k(x) P^k, with h(x) how far x consists of part k and P^k the part's matrix.

    Parts are those of a non-negative factorisation of a CE network's features, their matrices are
    fitted at anchor points. A new network is then trained with T(x), and at last revised together
    with a slack ΔT. The labels of a tenth teach nothing: by them the network from before or from
    after the revision is chosen. The authors' code trains on with the network that T(x) was
    estimated with and takes the epochs of both that fit these labels best (``warm_start``,
    ``best_epoch``), and the last one of the revision. Nor does it shuffle: here every stage does.
    """

    estimation_plan: Plan = Plan(epochs=20, weight_decay=5e-4)
    """Of the network that T(x) is estimated with."""
    parts: int = 20
    """How many parts an instance is made of."""
    anchors: int = 20
    """Anchor points a class; at least as many as parts, for the parts to be told apart."""
    percentiles: tuple[float, float] = (97.0, 99.0)
    """Anchors of class i are spread evenly between these percentiles of P(ỹ = i | x): they must lie
    among the examples of the class, above 99 where there are a hundred."""
    ridge: float = 0.01
    """Pull of a part's row to the mean of the class's anchors; the paper has none. The anchors of
    one class consist of few parts: without a pull the rows of all others are extrapolated, entries
    T_yy(x) come out at zero, and importance weights are unbounded there."""
    correction: Correction = "reweight"
    """Importance weights, or predictions sent through T(x)."""
    constant_weight: bool = True
    """Let the network see importance weights as numbers, else it can learn to lower them (see
    :func:`covlearn.losses.reweighted`); the slack has a gradient in any case."""
    plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    """Of the training with T(x)."""
    revision_plan: Plan = Plan(epochs=50, optimizer="adam", lr=5e-7)
    """Of the revision; ``epochs=0`` leaves it out."""
    selection_share: float = 0.1
    """The share of the noisy labels that teaches nothing and chooses; 0: none, and the revised
    network is taken."""
    warm_start: bool = False
    """Train with T(x) from the weights that it was estimated with, not from new ones."""
    best_epoch: bool = False
    """End the estimation and the training with T(x) as after the epoch that fits the labels that
    choose best, not as after the last; it takes a selection_share."""

    def __post_init__(self) -> None:
        check_fields(self)
        low, high = self.percentiles
        counts_fit = all(1 <= count <= MOST for count in (self.parts, self.anchors))
        if not (counts_fit and self.ridge >= 0):
            raise ValueError(
                f"expected parts and anchors from 1 to {MOST:,} and ridge ≥ 0, got "
                f"parts={self.parts}, anchors={self.anchors}, ridge={self.ridge}"
            )
        if not 0 <= low <= high <= 100:
            raise ValueError(
                f"percentiles must be two, 0 ≤ low ≤ high ≤ 100, got {self.percentiles}"
            )
        if not 0 <= self.selection_share < 1:
            raise ValueError(f"selection_share must lie in [0, 1), got {self.selection_share}")
        if self.best_epoch and self.selection_share == 0:
            raise ValueError(
                "best_epoch=true chooses by labels that teach nothing, got selection_share=0; set "
                "it to 0.1, or best_epoch to false"
            )

    def fit(self, run: Run) -> nn.Module:
        """Three stages: cross-entropy, from which T(x) is estimated; training with it; revision."""
        choosing = self.choosing(run)
        labels = run.split.y.index_fill(0, choosing, -1) if len(choosing) else None
        network, mixture_NR, parts_RKK = self.estimate(run, labels, choosing)

        def objective(*, revise: bool) -> PartDependent:
            return PartDependent(
                mixture_NR,
                parts_RKK,
                correction=self.correction,
                constant_weight=self.constant_weight,
                revise=revise,
            )

        model = network if self.warm_start else run.net("ptd")
        training, revision = objective(revise=False), objective(revise=True)
        fits_best = partial(training.noisy_accuracy, run, at=choosing) if self.best_epoch else False
        run.train("ptd", model, training, self.plan, labels=labels, keep_best=fits_best)
        unrevised = copy.deepcopy(model)
        run.train("revision", model, revision, self.revision_plan, labels=labels)
        run.note(largest_revision=float(revision.slack.detach().abs().max()))
        if not len(choosing):
            return model
        before = training.noisy_accuracy(run, unrevised, at=choosing)
        after = revision.noisy_accuracy(run, model, at=choosing)
        run.note(
            selection_accuracy=[before, after], selected="ptd" if before > after else "revision"
        )
        # With as many right either way, the revised one is the method's.
        return unrevised if before > after else model

    def choosing(self, run: Run) -> Tensor:
        """The positions of the examples whose labels choose; a function of the seed."""
        order = counter.permutation(counter.key(run.seed, 0), len(run.split))
        choosing = order[: round(self.selection_share * len(run.split))]
        if self.selection_share and not len(choosing):
            raise ValueError(
                f"selection_share={self.selection_share:g} of {len(run.split)} examples is none to "
                "choose by; raise it, or set it to 0"
            )
        return choosing

    def estimate(
        self, run: Run, labels: Tensor | None, choosing: Tensor
    ) -> tuple[nn.Module, Tensor, Tensor]:
        """The network, h (N, R) and P (R, K, K). The noise rate they imply is recorded."""
        share = 100 / run.split.num_classes
        remedy = f"percentiles=({100 - share:.4g},{100 - share / 10:.5g})"
        check_anchors(self.percentiles[0], run.split.num_classes, remedy=remedy)
        network = run.net("estimation")

        def agreement(network: nn.Module) -> float:
            predicted = run.predict(network)[0][choosing].argmax(dim=1)
            return float((predicted == run.split.y[choosing]).double().mean())

        run.train(
            "estimation",
            network,
            CrossEntropy(),
            self.estimation_plan,
            labels=labels,
            keep_best=agreement if self.best_epoch else False,
        )
        logits, features = run.predict(network, features=True)
        assert features is not None
        mixture_NR = part_mixture(features, self.parts, seed=run.seed)
        probs_NK = logits.double().softmax(dim=1)
        anchors_KA = anchor_points(probs_NK, np.linspace(*self.percentiles, self.anchors))
        parts_RKK = fit_parts(mixture_NR[anchors_KA], probs_NK[anchors_KA], ridge=self.ridge)
        # T_ii(x) of the likeliest class i: that of the true one, wherever it is the likeliest.
        stay_NK = mixture_NR @ parts_RKK.diagonal(dim1=1, dim2=2)
        run.note(
            estimated_rate=1 - float(pick(stay_NK, logits.argmax(dim=1)).mean()),
            negative_features=float((features < 0).float().mean()),
        )
        return network, mixture_NR, parts_RKK


class PartDependent(Objective):
    """Forward or importance-weighted cross-entropy with T(x) = Σ_k h_k(x) (P^k + ΔT).

    h (N, R) and P (R, K, K) are kept, never N matrices. ΔT is one slack for all, 0 and fixed unless
    ``revise``; each P^k + ΔT is projected on valid rows, so that every mixture of them is valid.
    """

    mixture: Tensor
    parts: Tensor
    slack: Tensor

    def __init__(
        self,
        mixture_NR: Tensor,
        parts_RKK: Tensor,
        *,
        correction: Correction = "reweight",
        constant_weight: bool = True,
        revise: bool = False,
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.correction = correction
        self.constant_weight = constant_weight
        self.revise = revise
        self.eps = eps
        self.register_buffer("mixture", mixture_NR.float())
        self.register_buffer("parts", parts_RKK.float())
        slack = torch.zeros(parts_RKK.shape[1:])
        if revise:
            self.slack = nn.Parameter(slack)
        else:
            self.register_buffer("slack", slack)

    def part_matrices(self) -> Tensor:
        """The valid matrices (R, K, K) of the parts, revised if they are being revised."""
        if not self.revise:
            return self.parts
        return project_rows((self.parts + self.slack).flatten(0, 1)).view_as(self.parts)

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,)."""
        probs = check_scores(outputs.logits).softmax(dim=1)
        mixture, parts = self.mixture[batch.idx], self.part_matrices()
        if self.correction == "forward":
            return -(noisy_prob(probs, batch.y, mixture, parts) + self.eps).log(), None
        weighing = probs.detach() if self.constant_weight else probs
        weight = (pick(weighing, batch.y) + self.eps) / (
            noisy_prob(weighing, batch.y, mixture, parts) + self.eps
        )
        return -weight * (pick(probs, batch.y) + self.eps).log(), None

    def noisy_accuracy(self, run: Run, model: nn.Module, *, at: Tensor) -> float:
        """How often the likeliest noisy label, by pᵀT(x), is the one that the example has."""
        logits, _ = run.predict(model)
        by_part = torch.einsum(
            "ni,rij->nrj", logits[at].softmax(dim=1), self.part_matrices().detach().cpu()
        )
        noisy_NK = (self.mixture[at.to(self.mixture.device)].cpu().unsqueeze(2) * by_part).sum(
            dim=1
        )
        return float((noisy_NK.argmax(dim=1) == run.split.y[at]).double().mean())


def noisy_prob(probs_BK: Tensor, y: Tensor, mixture_BR: Tensor, parts_RKK: Tensor) -> Tensor:
    """(pᵀT(x))_y = Σ_k h_k(x) (pᵀP^k)_y, in O(B·R·K)."""
    num_parts, num_classes, _ = parts_RKK.shape
    # Only the columns that are asked for. The gradient of an embedding, unlike that of an index,
    # is summed in a fixed order on every device.
    columns = parts_RKK.to(probs_BK.dtype).permute(2, 0, 1).reshape(num_classes, -1)
    column_BRK = functional.embedding(y, columns).view(-1, num_parts, num_classes)
    by_part_BR = (column_BRK @ probs_BK.unsqueeze(2)).squeeze(2)
    return (mixture_BR * by_part_BR).sum(dim=1)


def part_mixture(features_ND: Tensor, num_parts: int, *, seed: int) -> Tensor:
    """h (N, R): the share of each part in each example, rows on the simplex.

    Features ≈ W H with W, H ≥ 0; a part's row of H is scaled to sum one, so that W_nk is how much
    of the features' mass is part k, and h_n = W_n / Σ_k W_nk. An example without any features is
    of all parts alike. Negative features, which no network with a ReLU last has, count as zero.
    """
    num_examples, width = features_ND.shape
    if num_parts > min(num_examples, width):
        raise ValueError(
            f"there can be at most min(examples, features) = {min(num_examples, width)} parts, got "
            f"parts={num_parts}; ask for fewer, or for a wider network"
        )
    factors = NMF(num_parts, init="nndsvda", random_state=seed)
    with warnings.catch_warnings():
        # A factorisation that could still be improved a little serves as well.
        warnings.simplefilter("ignore", ConvergenceWarning)
        amount_NR = factors.fit_transform(features_ND.detach().cpu().double().clamp(min=0).numpy())
    amount_NR = torch.from_numpy(amount_NR * factors.components_.sum(axis=1))
    mass_N1 = amount_NR.sum(dim=1, keepdim=True)
    return torch.where(mass_N1 > 0, amount_NR / mass_N1.clamp(min=1e-300), 1 / num_parts)


def anchor_points(probs_NK: Tensor, percentiles: np.typing.NDArray[np.float64]) -> Tensor:
    """(K, A): for each class i the examples at the given percentiles of p_i, without interpolation.

    >>> anchor_points(torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([50.0, 100.0]))
    tensor([[2, 0],
            [2, 1]])
    """
    probs_NK = check_probs(probs_NK)
    rank_A = torch.from_numpy((percentiles * (len(probs_NK) - 1) / 100).astype(np.int64))
    return probs_NK.argsort(dim=0, stable=True)[rank_A].t()


def fit_parts(
    mixture_KAR: Tensor, posterior_KAK: Tensor, *, ridge: float = 0.0, steps: int = 500
) -> Tensor:
    """P (R, K, K) with, for each class i, the rows P^1_i … P^R_i on the simplex that minimise::

        mean_a ‖Σ_k h_k(x_ia) P^k_i − P̂(ỹ = · | x_ia)‖² + ridge Σ_k ‖P^k_i − m_i‖²

    x_ia is anchor a of class i, whose noisy posterior is row i of T(x_ia); m_i is the mean of these
    posteriors. By accelerated projected gradient (Beck & Teboulle 2009) from m_i, so that without
    a ridge, too, parts that no anchor tells apart get the same row.
    """
    mixture, posterior = mixture_KAR.double(), posterior_KAK.double()
    num_anchors, num_parts = mixture.shape[1:]
    mean_K1K = posterior.mean(dim=1, keepdim=True)
    pull_RR = ridge * torch.eye(num_parts).to(mixture)
    gram_KRR = mixture.mT @ mixture / num_anchors + pull_RR
    cross_KRK = mixture.mT @ posterior / num_anchors + ridge * mean_K1K
    curvature_K11 = torch.linalg.eigvalsh(gram_KRR)[:, -1].view(-1, 1, 1)
    rows_KRK = ahead = mean_K1K.expand(-1, num_parts, -1)
    momentum = 1.0
    for _ in range(steps):
        descended = ahead - (gram_KRR @ ahead - cross_KRK) / curvature_K11
        next_rows = project_rows(descended.flatten(0, 1)).view_as(rows_KRK)
        next_momentum = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = next_rows + (momentum - 1) / next_momentum * (next_rows - rows_KRK)
        rows_KRK, momentum = next_rows, next_momentum
    return rows_KRK.transpose(0, 1).contiguous()
