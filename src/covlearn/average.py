"""An average of a network over the steps of its training.

Averaging reads and writes every weight, which a step on a GPU feels. Over the thousand steps that a
decay of 0.999 spans it makes no difference whether each of them is looked at or every eighth.
"""

import copy

import torch
from torch import nn


class Average(nn.Module):
    """An exponential average of a model's weights and batch-norm statistics over its steps.

    With decay d it spans 1/(1 − d) steps, and looks at 64 or more of them, every eighth at most.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        self.decay = decay
        self.every = max(1, min(8, round(1 / (64 * (1 - decay)))))
        self.follow(model)

    def follow(self, model: nn.Module) -> None:
        """Takes the tensors that the model has now for those to average."""
        pairs = zip(
            [*self.model.parameters(), *self.model.buffers()],
            [*model.parameters(), *model.buffers()],
            strict=True,
        )
        self._pairs = [(ours.detach(), theirs.detach()) for ours, theirs in pairs]

    @torch.no_grad()
    def update(self, steps: int = 1) -> None:
        """ours ← dⁿ · ours + (1 − dⁿ) · theirs for n steps; counters are copied."""
        floats = [pair for pair in self._pairs if pair[0].is_floating_point()]
        ours, theirs = zip(*floats, strict=True)
        torch._foreach_lerp_(ours, theirs, 1 - self.decay**steps)
        for counter_, value in self._pairs:
            if not counter_.is_floating_point():
                counter_.copy_(value)
