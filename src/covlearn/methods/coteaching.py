"""Co-teaching (Han et al. 2018) and Co-teaching+ (Yu et al. 2019): two networks, small losses."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from covlearn import distributed
from covlearn.checks import check_rate
from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.ledger import Ledger
from covlearn.methods.base import Run
from covlearn.methods.ce import CrossEntropy, supervised
from covlearn.objective import Committee
from covlearn.schedules import Ramp
from covlearn.transition import confident_joint


@dataclass(frozen=True)
class SmallLosses:
    """Two networks that learn from the small losses of a batch; the first of them predicts."""

    plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    """Of the two networks."""
    rate: float | None = None
    """τ; None: estimated with ``rate_plan``."""
    rate_plan: Plan = Plan(epochs=20, weight_decay=5e-4)
    """Of the network that τ is estimated with; not trained where ``rate`` is given."""
    forget_epochs: int = 10
    """The epoch in which R has come to τ; 9 in the published code, whose ramp has ten values."""

    stage: ClassVar[str]

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rate is not None:
            check_rate(self.rate)
        if self.forget_epochs < 0:
            raise ValueError(f"forget_epochs must not be negative, got {self.forget_epochs}")

    def fit(self, run: Run) -> nn.Module:
        """One stage, after one for the rate if it is unknown."""
        rate = estimate_rate(run, self.rate_plan) if self.rate is None else self.rate
        pair = Committee([run.net("a"), run.net("b")])
        run.train(self.stage, pair, self.objective(Ramp(rate, end=self.forget_epochs)), self.plan)
        return pair.members[0]

    def objective(self, forget: Ramp) -> "Forgetting":
        """What the two minimise together when a share of each batch is left out."""
        raise NotImplementedError


@dataclass(frozen=True)
class CoTeaching(SmallLosses):
    """Each network picks the (1 − R) B smallest losses of a batch of B for the other to learn from.

    R(e) = τ min(e / ``forget_epochs``, 1) with τ the noise rate. The network that predicts is the
    first of the two, as the published numbers are those of one network. The authors' code also
    lowers its learning rate linearly to zero from epoch 80 of 200 on, with Adam's β₁ at 0.1 there;
    a :class:`~covlearn.engine.Plan` has no such schedule, and the preset ``published`` keeps both
    as they start, here and in Co-teaching+.
    """

    divide_twice: bool = False
    """Divide the mean over the picked examples by their number again, as the published code does;
    Adam hardly notices, SGD learns that many times slower."""

    stage = "coteaching"

    def objective(self, forget: Ramp) -> "Exchange":
        """Each network's losses over what the other picked."""
        return Exchange(forget, divide_twice=self.divide_twice)


@dataclass(frozen=True)
class CoTeachingPlus(CoTeaching):
    """Co-teaching; after ``warm_up_epochs``, only among examples on which the networks disagree.

    Of D examples on which the two predictions differ, each network picks the (1 − R) D smallest
    losses for the other; a batch without such an example is taught as in Co-teaching. D shrinks as
    the two come together, until a step rests on a few examples: a high learning rate then throws
    SGD about, where the authors' Adam at 1e-3 is steady. The network that predicts is the first.
    """

    warm_up_epochs: int = 20
    """20 for CIFAR-10, 5 for CIFAR-100."""
    softmax_twice: bool = False
    """After the warm-up take probabilities for logits, as the published code does."""

    stage = "coteaching_plus"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warm_up_epochs < 0:
            raise ValueError(f"warm_up_epochs must not be negative, got {self.warm_up_epochs}")

    def objective(self, forget: Ramp) -> "Exchange":
        """The same, from the end of the warm-up on among examples told apart."""
        return Exchange(
            forget,
            disagree_from=self.warm_up_epochs,
            divide_twice=self.divide_twice,
            softmax_twice=self.softmax_twice,
        )


class Forgetting(Objective):
    """What a loss over the small-loss examples alone keeps: the share 1 − R(e) of this epoch."""

    keep_share: Tensor

    def __init__(self, forget: Ramp) -> None:
        super().__init__()
        self.forget = forget
        # In float64, so that (1 − R) B is a whole number where it should be.
        self.register_buffer("keep_share", torch.ones((), dtype=torch.float64))

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:  # noqa: ARG002
        """Sets the share that is kept."""
        self.keep_share.fill_(1 - self.forget(epoch))


class Exchange(Forgetting):
    """Cross-entropy of two networks, each over the examples that the other picked."""

    disagreeing: Tensor

    def __init__(
        self,
        forget: Ramp,
        *,
        disagree_from: int | None = None,
        divide_twice: bool = False,
        softmax_twice: bool = False,
    ) -> None:
        super().__init__(forget)
        self.disagree_from = disagree_from
        self.divide_twice = divide_twice
        self.softmax_twice = softmax_twice
        self.register_buffer("disagreeing", torch.zeros((), dtype=torch.bool))

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        """Sets the share that is kept, and whether agreement leaves an example out."""
        super().begin_epoch(epoch, ledger)
        self.disagreeing.fill_(self.disagree_from is not None and epoch >= self.disagree_from)

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
        """(2, B) and as many weights, 0 or 1."""
        logits = outputs.logits
        if self.softmax_twice:
            logits = torch.where(self.disagreeing, logits.softmax(dim=-1), logits)
        loss_MB = supervised(outputs._replace(logits=logits), batch)
        first_B, second_B = logits.argmax(dim=-1)
        rows = torch.cat([loss_MB, (first_B != second_B).to(loss_MB).unsqueeze(0)])
        whole = distributed.gathered(rows.t()).t()
        differ = whole[2] > 0
        candidate = differ | ~(self.disagreeing & differ.any())
        picked = smallest(whole[:2], self.keep_share, candidate)
        if self.divide_twice:
            loss_MB = loss_MB / picked.sum(dim=1, keepdim=True)
        # The flip is the exchange: a network's weights are what the other one picked.
        return loss_MB, own_part(picked.flip(0))


def smallest(loss: Tensor, share: Tensor | float, candidate: Tensor | None = None) -> Tensor:
    """1 for the ⌈share · C⌉ smallest losses of the C candidates (default: all), else 0.

    Each row of ``loss`` (…, B) is ranked for itself, equals by position. ``loss`` is that of the
    whole batch, whichever process holds an example; ``own_part`` cuts the result.

    >>> smallest(torch.tensor([0.3, 0.1, 0.2, 0.1]), 0.5)
    tensor([0., 1., 0., 1.])
    >>> smallest(torch.tensor([0.3, 0.1, 0.2, 0.1]), 0.5, torch.tensor([True, False, True, False]))
    tensor([0., 0., 1., 0.])
    """
    loss = loss.detach()
    if candidate is None:
        candidate = torch.ones(loss.shape[-1], dtype=torch.bool, device=loss.device)
    count = (share * candidate.sum().double() - 1e-9).ceil()  # 0.3 · 10 may come out above 3
    ranked = torch.where(candidate, loss, torch.inf).argsort(dim=-1, stable=True)
    return (ranked.argsort(dim=-1) < count).to(loss.dtype)


def own_part(values: Tensor) -> Tensor:
    """This process's examples out of (…, B) values of the whole batch."""
    return values[..., distributed.process() :: distributed.num_processes()]


def estimate_rate(run: Run, plan: Plan) -> float:
    """1 − Σ_i P_i T_ii, with P and T from the confident joint of a network trained with CE.

    The joint Q counts (inferred true class, noisy class), Northcutt et al. 2021, and P_i T_ii is
    the share Q_ii / N. The plan is a short one: a network that has fitted its wrong labels finds
    none. The rate is recorded as ``estimated_rate``.
    """
    model = run.net("rate")
    run.train("rate", model, CrossEntropy(), plan)
    logits, _ = run.predict(model)
    joint_KK = confident_joint(
        logits.softmax(dim=1), run.split.y.to(logits.device), num_classes=run.split.num_classes
    )
    # Rounding may leave a perfect diagonal a hair above the sum.
    rate = max(0.0, 1 - float(joint_KK.trace() / joint_KK.sum()))
    run.note(estimated_rate=rate)
    return rate
