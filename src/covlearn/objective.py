"""What a stage minimises, what it is told of a batch, and several networks as one."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from covlearn import distributed
from covlearn.data import Batch
from covlearn.kinds import shown
from covlearn.ledger import Ledger

Record = dict[str, float]
"""What is noted of an epoch, by name."""


class Outputs(NamedTuple):
    """What a network says of a batch."""

    logits: Tensor
    """(B, K), or (M, B, K) of a committee; with mixup those of the mixed inputs."""
    features: Tensor | None = None
    """What the last layer sees (B, D), where the objective asks for it."""
    plain: Tensor | None = None
    """With mixup, the logits of the inputs themselves."""


class Objective(nn.Module):
    """What one stage minimises. Tensors it keeps are buffers, what it learns are parameters."""

    capturable = True
    """False where a step needs the host to look at values."""
    needs_features = False
    needs_plain = True
    """Whether inputs that are mixed are also to be seen as they are, a second pass."""

    def strength(self, epoch: int) -> float:  # noqa: ARG002
        """β of an epoch, by which a plan may divide the learning rate."""
        return 0.0

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        """Called before each epoch; the place to set schedules in buffers."""

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor | None] | Tensor:
        """One loss an example with a weight each (None: all one), or one number for the batch."""
        raise NotImplementedError


class Committee(nn.Module):
    """Several networks trained together; logits have a leading axis."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """(M, B, K)."""
        return torch.stack([member(x) for member in self.members])


def forward(model: nn.Module, x: Tensor, *, features: bool = False) -> Outputs:
    """Logits of a batch, and the penultimate features if asked for."""
    if not features:
        return Outputs(model(x))
    hidden = model.features(x)  # type: ignore[operator]
    return Outputs(model.fc(hidden), hidden)  # type: ignore[operator]


def check_result(result: Any, outputs: Outputs, batch: Batch) -> None:
    """What an objective returned must be of this batch, since other shapes would broadcast.

    Shapes alone are looked at: nothing waits for a GPU, and a captured step runs none of this.
    """
    size = len(batch.y)
    committee = outputs.logits.ndim == 3
    allowed = [(size,), (len(outputs.logits), size)] if committee else [(size,)]
    if isinstance(result, Tensor):
        if result.ndim:
            raise ValueError(
                f"an objective must return (loss, weight), or one number for the batch, got "
                f"{shown(result)} alone; return (loss, None) for one loss an example"
            )
        return
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ValueError(
            f"an objective must return (loss, weight), or one number for the batch, got "
            f"{shown(result)}; weight is None where all examples count alike"
        )
    loss, weight = result
    in_words = " or ".join(map(str, allowed))
    if not isinstance(loss, Tensor) or loss.shape not in allowed:
        raise ValueError(
            f"an objective's loss must have one value per example of the batch, shape {in_words}, "
            f"got {shown(loss)}; do not reduce it, and leave an example out by a weight of 0"
        )
    weights = [shape for shape in allowed if len(shape) <= loss.ndim]
    if weight is not None and (not isinstance(weight, Tensor) or weight.shape not in weights):
        raise ValueError(
            f"an objective's weight must be None or have one value per example of the batch, shape "
            f"{' or '.join(map(str, weights))}, got {shown(weight)}"
            "; .squeeze(1) makes a column flat"
        )


def reduced(result: tuple[Tensor, Tensor | None] | Tensor) -> Tensor:
    """The one place where losses become a number: Σ w ℓ / Σ w over all processes.

    Of a committee (M, B), the sum of its members'. A scalar is taken as it is.
    """
    if isinstance(result, Tensor):
        # The same on all processes, whose gradients are summed: each contributes its own part.
        return result
    loss, weight = result
    if weight is None and not distributed.active():
        return loss.mean() if loss.ndim == 1 else loss.mean(dim=-1).sum()
    weight = torch.ones_like(loss) if weight is None else weight.to(loss.dtype)
    total = distributed.sum_of(weight.sum(dim=-1).detach())
    # A batch without weight has no gradient; the bound keeps 0/0 out.
    return ((weight * loss).sum(dim=-1) / total.clamp(min=1e-30)).sum()


def mean_loss(losses: Tensor, epoch: int) -> float:
    """The mean of an epoch's losses, which must be finite."""
    values = losses.double().cpu()
    if not bool(values.isfinite().all()):
        first = int((~values.isfinite()).nonzero()[0])
        raise ValueError(
            f"epoch {epoch}, step {first}: the loss must be finite, got {float(values[first])}; "
            "lower the learning rate or β; the last checkpoint is from before this epoch"
        )
    return float(values.mean())
