"""Several networks that are trained as one."""

import torch
from torch import Tensor, nn


class Committee(nn.Module):
    """Several networks trained together; logits have a leading axis."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """(M, B, K)."""
        return torch.stack([member(x) for member in self.members])
