"""Training on some of the examples, with shapes as they are for all of them."""

from torch import Tensor

from covlearn.data import Batch
from covlearn.engine import Objective, Outputs
from covlearn.ledger import Ledger


class Kept(Objective):
    """An objective over some of the examples; the others get no weight."""

    def __init__(self, inner: Objective, keep: Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.capturable = inner.capturable
        self.needs_features = inner.needs_features
        self.needs_plain = inner.needs_plain
        self.register_buffer("keep", keep.float())

    keep: Tensor

    def strength(self, epoch: int) -> float:
        """That of the inner objective."""
        return self.inner.strength(epoch)

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        """That of the inner objective."""
        self.inner.begin_epoch(epoch, ledger)

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
        """The inner losses with their weights times 0 or 1."""
        result = self.inner(outputs, batch)
        if isinstance(result, Tensor):
            raise ValueError("an objective that is one number a batch cannot leave examples out")
        loss, weight = result
        keep = self.keep[batch.idx]
        if batch.mix is not None:
            keep = keep * self.keep[batch.mix.idx]
        return loss, (keep if weight is None else weight * keep).expand_as(loss)
