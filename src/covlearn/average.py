"""Networks beside the one that is trained: its average over the steps, and its best epoch.

Averaging reads and writes every weight, which a step on a GPU feels. Over the thousand steps that a
decay of 0.999 spans it makes no difference whether each of them is looked at or every eighth.

Averaged weights have statistics of their own: their maps vary less than those of any step, so that
with the average of the steps' statistics each batch norm makes them smaller. At a high learning
rate nothing is left of them after thirty layers (docs/log.md), hence ``measure``.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Average(nn.Module):
    """An exponential average of a model's weights and batch-norm statistics over its steps.

    With decay d it spans 1/(1 − d) steps, and looks at 64 or more of them, every eighth at most.
    The weights before the first step have no part in it, so that it means something after a few
    steps, too.
    """

    share: Tensor
    """1 − dᵗ after t steps: what the steps would weigh beside a start from zero."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        self.decay = decay
        self.every = max(1, min(8, round(1 / (64 * (1 - decay)))))
        device = next(model.parameters()).device
        self.register_buffer("share", torch.zeros((), dtype=torch.float64, device=device))
        self.follow(model)

    @torch.no_grad()
    def follow(self, model: nn.Module, flat: Sequence[Tensor] = ()) -> None:
        """Takes the tensors that the model has now for those to average.

        Parameters that are views of a ``flat`` tensor, each one starting where its storage does,
        are averaged in one pass over that tensor: ours become views of one, too.
        """
        flats = {theirs.untyped_storage().data_ptr(): theirs for theirs in flat}
        copies = {place: torch.zeros_like(theirs) for place, theirs in flats.items()}
        self._flat_pairs = [(copies[place], theirs) for place, theirs in flats.items()]
        self._pairs = []
        for ours, theirs in zip(_tensors(self.model), _tensors(model), strict=True):
            if (whole := copies.get(theirs.untyped_storage().data_ptr())) is not None:
                view = whole.as_strided(theirs.shape, theirs.stride(), theirs.storage_offset())
                ours.data = view.copy_(ours)
            else:
                self._pairs.append((ours.detach(), theirs.detach()))

    @torch.no_grad()
    def update(self, steps: int = 1) -> None:
        """ours ← ours + w · (theirs − ours) for n steps; counters are copied.

        w = (1 − dⁿ) / (1 − dᵗ) makes ours the mean of theirs so far, weighted by d.
        """
        new = 1 - self.decay**steps
        self.share.mul_(1 - new).add_(new)
        weight = (new / self.share).float()
        for ours, theirs in self._flat_pairs:
            ours.lerp_(theirs, weight)
        if floats := [pair for pair in self._pairs if pair[0].is_floating_point()]:
            all_ours, all_theirs = zip(*floats, strict=True)
            change = torch._foreach_sub(all_theirs, all_ours)
            torch._foreach_mul_(change, weight)
            torch._foreach_add_(all_ours, change)
        for counter_, value in self._pairs:
            if not counter_.is_floating_point():
                counter_.copy_(value)

    @torch.no_grad()
    def measure(self, inputs: Callable[[], Iterable[Tensor]]) -> None:
        """The statistics of batch norm as the averaged weights have them, over some inputs."""
        norms = [
            module
            for module in self.model.modules()
            if isinstance(module, _BatchNorm) and module.track_running_stats
        ]
        if not norms:
            return
        momenta = [norm.momentum for norm in norms]
        self.model.train()
        for number, x in enumerate(inputs(), start=1):
            for norm in norms:
                norm.momentum = 1 / number  # each input counts as much as another
            self.model(x)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


Judge = Callable[[nn.Module], float]
"""How good a network is after an epoch, by what a method may see; higher is better."""


class Best(nn.Module):
    """The model as it was after the epoch whose record is highest in one entry, the first if equal.

    That entry must come from labels that are neither trained on nor tested with.
    """

    value: Tensor

    def __init__(self, model: nn.Module, entry: str) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        self.entry = entry
        self.register_buffer("value", torch.tensor(-torch.inf, dtype=torch.float64))

    def look(self, model: nn.Module, record: Mapping[str, float]) -> None:
        """Copies the model if there was none as good."""
        if not math.isfinite(record[self.entry]):
            raise ValueError(
                f"the best epoch is that of the highest {self.entry}, which must be a number, got "
                f"{record[self.entry]}; end with the last epoch, or choose by more labels"
            )
        if record[self.entry] > float(self.value):
            self.value.fill_(record[self.entry])
            self.model.load_state_dict(model.state_dict())
