"""A number as a function of the epoch, counted from zero."""

from dataclasses import dataclass

from covlearn.kinds import LARGEST, check_fields


@dataclass(frozen=True)
class Ramp:
    """Zero up to ``start``, then linear to ``value`` at ``end``, then constant.

    The published β: ``Ramp(2.0, start=10, end=40)``. ``start = end = 0`` is a constant.

    >>> [Ramp(2.0, start=10, end=40)(epoch) for epoch in (0, 10, 25, 40, 99)]
    [0.0, 0.0, 1.0, 2.0, 2.0]
    """

    value: float
    """What it ends at."""
    start: int = 0
    """The last epoch in which it is zero."""
    end: int = 0
    """The first epoch in which it is ``value``; with ``start = end = 0`` it always is."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.start <= self.end:
            raise ValueError(f"expected 0 ≤ start ≤ end, got start={self.start}, end={self.end}")
        if not 0 <= self.value <= LARGEST:
            raise ValueError(f"value must lie in [0, {LARGEST:,}], got {self.value}; 0 is off")

    def __call__(self, epoch: int) -> float:
        """The value in an epoch."""
        if epoch >= self.end:
            return self.value
        if epoch <= self.start:
            return 0.0
        return self.value * (epoch - self.start) / (self.end - self.start)


@dataclass(frozen=True)
class Steps:
    """``value`` times ``factor`` for every milestone that the epoch has reached.

    >>> [Steps(1.0, milestones=(60,))(epoch) for epoch in (0, 59, 60)]
    [1.0, 1.0, 0.1]
    """

    value: float
    milestones: tuple[int, ...] = ()
    factor: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, epoch: int) -> float:
        """The value in an epoch."""
        return float(self.value * self.factor ** sum(epoch >= m for m in self.milestones))
