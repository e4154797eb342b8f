"""What a method is, and all that it may see and do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from covlearn.average import Judge
from covlearn.data import Split
from covlearn.engine import Objective, Plan
from covlearn.ledger import Ledger
from covlearn.schedules import Ramp


class Run(Protocol):
    """A method's only access to data, networks and the disk. No clean label is behind any of it."""

    split: Split
    """The training examples with their noisy labels."""
    seed: int

    def net(self, name: str) -> nn.Module:
        """A new network; its weights are a function of the run's seed and the name."""
        ...

    def train(
        self,
        stage: str,
        model: nn.Module,
        objective: Objective,
        plan: Plan,
        *,
        labels: Tensor | None = None,
        mixup: bool = False,
        balanced_batches: int | None = None,
        keep_best: bool | Judge = False,
    ) -> Ledger:
        """Trains the model in place and returns what its last passes said of each example.

        ``labels`` stand in for the noisy ones as the targets of this stage; examples with −1 take
        no part. With ``keep_best`` the model ends as it was after the epoch that is best on the
        validation part of the data or, without one, on held-out noisy labels, or after that of
        which the given judge thinks highest. A stage that is finished is read back from the disk,
        not trained again.
        """
        ...

    def predict(self, model: nn.Module, *, features: bool = False) -> tuple[Tensor, Tensor | None]:
        """Logits, and features if asked for, of the training examples in evaluation mode."""
        ...

    def note(self, **facts: Any) -> None:
        """Records what the method found out, an estimated noise rate for one."""
        ...

    def keep_labels(
        self, label: Tensor, score: Tensor, *, reason: str, logits: Tensor | None = None
    ) -> None:
        """Records D̂ (−1: dropped) with a score each, higher for a label that is likelier wrong.

        ``logits`` (N, K) are what D̂ was made of, where they say more than the returned network's.
        """
        ...


RUN_MEMBERS = ("split", "seed", "net", "train", "predict", "note", "keep_labels")
"""All that a method may use of a run."""


@dataclass(frozen=True, slots=True, eq=False)
class MethodView:
    """A run as a method is handed it: the members of :class:`Run`, and no way to any other."""

    split: Split
    seed: int
    net: Callable[[str], nn.Module]
    train: Callable[..., Ledger]
    predict: Callable[..., tuple[Tensor, Tensor | None]]
    note: Callable[..., None]
    keep_labels: Callable[..., None]

    def __getattr__(self, name: str) -> NoReturn:
        """What is not there is asked for by mistake, or to look at clean labels."""
        raise AttributeError(
            f"a method may use {', '.join(RUN_MEMBERS)} of a run and nothing else, got {name!r}"
        )


def view_of(run: Run) -> Run:
    """The run without what knows clean labels, so that a method cannot come by them."""
    members = {name: getattr(run, name) for name in RUN_MEMBERS}
    alone = {name: _alone(member) for name, member in members.items() if callable(member)}
    return cast("Run", MethodView(**(members | alone)))


def _alone(member: Callable[..., Any]) -> Callable[..., Any]:
    def alone(*arguments: Any, **options: Any) -> Any:
        # The bound method itself would carry the whole run along, as its __self__.
        return member(*arguments, **options)

    return alone


@runtime_checkable
class Method(Protocol):
    """A method is its hyper-parameters (a frozen dataclass) plus one function."""

    def fit(self, run: Run) -> nn.Module:
        """Trains on the run's noisy labels and returns the network to predict with."""
        ...


class Regularised(Objective):
    """An objective with a term of strength β, which follows a schedule."""

    beta: Tensor

    def __init__(self, beta: Ramp) -> None:
        super().__init__()
        self.schedule = beta
        self.register_buffer("beta", torch.zeros(()))

    def strength(self, epoch: int) -> float:
        """β of the epoch."""
        return self.schedule(epoch)

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:  # noqa: ARG002
        """Sets β."""
        self.beta.fill_(self.schedule(epoch))


def noisy_prior(split: Split) -> Tensor:
    """π_k = P(ỹ = k), shape (K,)."""
    return class_shares(split.y, split.num_classes)


def class_shares(labels: Tensor, num_classes: int) -> Tensor:
    """How often each class is among the labels, as shares (K,)."""
    return torch.bincount(labels, minlength=num_classes) / len(labels)


def root_prior(split: Split) -> Tensor:
    """√π_k / Σ_j √π_j, the prior of the paper's sieve."""
    root = noisy_prior(split).sqrt()
    return root / root.sum()
