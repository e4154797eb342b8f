"""Methods that train for a few epochs only, all that is timed in epochs shortened alike."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from covlearn.engine import Plan
from covlearn.kinds import checked, shown
from covlearn.schedules import Ramp

M = TypeVar("M")

EPOCH_FIELDS = ("_epochs", "_from", "_every")
"""How the name of a whole number that counts epochs ends."""


@checked
def shortened(
    method: M,
    *,
    epochs: int = 3,
    batch_size: int = 32,
    lr: float | None = None,
    average: float | None = None,
) -> M:
    """A copy of a method, or of any dataclass, that trains for at most ``epochs`` a stage.

    Every :class:`~covlearn.engine.Plan` in it, however deep, gets the epochs and the batch size,
    and ``lr`` and ``average`` (of weights and of predictions) if they are given. What counts epochs
    beside it shrinks in proportion to the longest plan: milestones, start and end of a
    :class:`~covlearn.schedules.Ramp`, and whole numbers in fields named ``…_epochs``, ``…_from`` or
    ``…_every``, which stay at least 1 unless they are 0.

    >>> from covlearn.methods import CORES
    >>> short = shortened(CORES(), epochs=10)
    >>> short.plan.epochs, short.beta, short.sieve_from
    (10, Ramp(value=2.0, start=1, end=4), 3)
    """
    if not is_dataclass(method) or isinstance(method, type):
        raise ValueError(f"method must be an instance of a dataclass, got {shown(method)}")
    longest = max((plan.epochs for plan in _plans(method)), default=0)
    change = _Shorter(min(1.0, epochs / max(longest, 1)), epochs, batch_size, lr, average)
    return cast("M", change.of(method))


def _plans(value: Any) -> Iterator[Plan]:
    if isinstance(value, Plan):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _plans(getattr(value, field.name))


@dataclass(frozen=True)
class _Shorter:
    scale: float
    epochs: int
    batch_size: int
    lr: float | None
    average: float | None

    def of(self, value: Any) -> Any:
        if isinstance(value, Plan):
            return replace(
                value,
                epochs=min(value.epochs, self.epochs),
                batch_size=self.batch_size,
                lr=value.lr if self.lr is None else self.lr,
                average=value.average if self.average is None else self.average,
                average_predictions=(
                    value.average_predictions if self.average is None else self.average
                ),
                lr_milestones=tuple(round(epoch * self.scale) for epoch in value.lr_milestones),
            )
        if isinstance(value, Ramp):
            start, end = round(value.start * self.scale), round(value.end * self.scale)
            return replace(value, start=start, end=end)
        changes = {}
        for field in fields(value):
            item = getattr(value, field.name)
            if is_dataclass(item):
                changes[field.name] = self.of(item)
            elif type(item) is int and item > 0 and field.name.endswith(EPOCH_FIELDS):
                changes[field.name] = max(1, round(item * self.scale))
        return replace(value, **changes)
