"""An average of a network over the steps of its training."""

import copy

import torch
from torch import nn


class Average(nn.Module):
    """An exponential average of a model's weights and batch-norm statistics, a step at a time."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        self.decay = decay
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
    def update(self) -> None:
        """ours ← decay · ours + (1 − decay) · theirs; counters are copied."""
        floats = [pair for pair in self._pairs if pair[0].is_floating_point()]
        ours, theirs = zip(*floats, strict=True)
        torch._foreach_lerp_(ours, theirs, 1 - self.decay)
        for counter_, value in self._pairs:
            if not counter_.is_floating_point():
                counter_.copy_(value)
