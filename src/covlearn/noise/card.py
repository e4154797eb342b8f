"""What a generator returns: labels, flip rates and a card that says what kind of noise it is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

SINK_FACTOR = 2.0
MISSED = 0.02  # a rate that is expected to be off by more is worth a warning
LISTED = 8  # a sentence names at most so many classes
MOST_CLASSES = 10_000  # of a card that is read: T has the square of it
PRINTED_CLASSES = 12  # a wider transition does not fit a line


_NUMBER, _INTEGER, _TEXT = (int, float), (int,), (str,)
CARD_TYPES: dict[str, tuple[type, ...]] = {
    "variant": _TEXT,
    "version": _INTEGER,
    "seed": (*_INTEGER, type(None)),
    "num_examples": _INTEGER,
    "requested_rate": (*_NUMBER, type(None)),
    "expected_rate": _NUMBER,
    "actual_rate": _NUMBER,
    "dominance": _NUMBER,
    "num_dominant": _INTEGER,
    "largest_class": _INTEGER,
    "largest_share": _NUMBER,
    "warnings": _TEXT,
    "notes": _TEXT,
}


@dataclass(frozen=True, eq=False)
class NoiseCard:
    """What was done to the labels, in numbers counted on the result.

    ``transition[i, j]`` is the share of class i's examples that ended as j; the row of a class
    without examples is NaN (``None`` in ``to_dict``) and takes no part in the dominance.

    A class is a **sink** when it ends with more than twice the labels it had, and wrong labels
    reach it more than twice as often as if every class spread its own evenly over the others.
    """

    variant: str
    version: int
    seed: int | None
    """None where labels were read and not drawn."""
    num_examples: int
    num_classes: int
    requested_rate: float | None
    """The rate asked for; None where probabilities were given instead."""
    expected_rate: float
    """Mean of the flip rates: what the draw aimed at."""
    actual_rate: float
    """Share of labels that are wrong."""
    transition: NDArray[np.float64]
    dominance: float
    """The smallest T_ii − max_{j≠i} T_ij: above zero, every class keeps most of its examples."""
    num_dominant: int
    """For how many classes that difference is positive."""
    largest_class: int
    largest_share: float
    """Share of all noisy labels that name ``largest_class``."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for ``json.dumps(…, allow_nan=False)``."""
        rows = [None if np.isnan(row).any() else row.tolist() for row in self.transition]
        lists = {"warnings": list(self.warnings), "notes": list(self.notes)}
        return asdict(self) | {"transition": rows} | lists

    @classmethod
    def from_dict(cls, value: Any) -> "NoiseCard":
        """The inverse of ``to_dict``."""
        names = {each.name for each in fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            raise ValueError(f"a noise card must be an object of {', '.join(sorted(names))}")
        num_classes = value["num_classes"]
        if type(num_classes) is not int or not 1 < num_classes <= MOST_CLASSES:
            raise ValueError(f"a noise card must be of 2…{MOST_CLASSES:,} classes")
        if not isinstance(value["transition"], list) or len(value["transition"]) != num_classes:
            raise ValueError("a noise card must have a K×K transition")
        rows = [[np.nan] * num_classes if row is None else row for row in value["transition"]]
        transition = np.array(rows, dtype=np.float64)
        if transition.shape != (num_classes, num_classes):
            raise ValueError(f"a noise card must have a K×K transition, got {transition.shape}")
        for name, kinds in CARD_TYPES.items():
            items = value[name] if name in ("warnings", "notes") else [value[name]]
            if not isinstance(items, list) or not all(isinstance(item, kinds) for item in items):
                raise ValueError(f"a noise card must have {name} as it was made")
        lists = {"warnings": tuple(value["warnings"]), "notes": tuple(value["notes"])}
        return cls(**value | {"transition": transition} | lists)

    def __str__(self) -> str:
        drawn = "no seed" if self.seed is None else f"seed {self.seed}"
        asked = "none asked" if self.requested_rate is None else f"asked {self.requested_rate:g}"
        lines = [
            f"noise card: {self.variant} (version {self.version}), {drawn}",
            f"  {self.num_examples:,} examples, {self.num_classes} classes",
            f"  rate: {asked}, expected {self.expected_rate:.4f}, actual {self.actual_rate:.4f}",
            f"  T dominated by its diagonal for {self.num_dominant} of {self.num_classes} classes, "
            f"smallest T_ii − max T_ij: {self.dominance:.4f}",
            f"  largest noisy class: {self.largest_class} with {self.largest_share:.1%} of labels",
        ]
        lines += [f"  warning: {text}" for text in self.warnings]
        lines += [f"  note: {text}" for text in self.notes]
        if self.num_classes <= PRINTED_CLASSES:
            lines.append("  T, one row per clean class:")
            lines += ["   " + "".join(f" {p:.3f}" for p in row) for row in self.transition]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels (int64), the probability of each to be wrong, and the card."""

    label: NDArray[np.int64]
    flip_rate: NDArray[np.float64]
    card: NoiseCard


def with_card(
    clean: NDArray[np.int64],
    noisy: NDArray[np.int64],
    flip_rate: NDArray[np.float64],
    *,
    num_classes: int,
    variant: str,
    version: int,
    seed: int | None,
    requested_rate: float | None,
    notes: Sequence[str] = (),
) -> NoisyLabels:
    """Count what happened and write it down."""
    count_KK = np.bincount(clean * num_classes + noisy, minlength=num_classes**2)
    count_KK = count_KK.reshape(num_classes, num_classes)
    total_K = count_KK.sum(axis=1)
    transition = np.full((num_classes, num_classes), np.nan)
    np.divide(count_KK, total_K[:, None], out=transition, where=total_K[:, None] > 0)

    margin_K = _margin(transition[total_K > 0], np.flatnonzero(total_K > 0))
    share_K = count_KK.sum(axis=0) / len(clean)
    empty = np.flatnonzero(total_K == 0)
    if len(empty):
        notes = [*notes, f"without examples, so that their rows of T are NaN: {_named(empty)}"]
    warnings = []
    sinks = _sinks(count_KK)
    if len(sinks):
        warnings.append(
            f"sink: {_named(sinks)}, over twice the clean size and twice an even share of wrong "
            "labels"
        )
    expected_rate = float(flip_rate.mean())
    if requested_rate is not None and abs(expected_rate - requested_rate) > MISSED:
        warnings.append(
            f"rate: asked {requested_rate:g}, but the flip rates drawn have the mean "
            f"{expected_rate:.4f}, since they are truncated"
        )
    card = NoiseCard(
        variant=variant,
        version=version,
        seed=seed,
        num_examples=len(clean),
        num_classes=num_classes,
        requested_rate=requested_rate,
        expected_rate=expected_rate,
        actual_rate=float((clean != noisy).mean()),
        transition=transition,
        dominance=float(margin_K.min()),
        num_dominant=int((margin_K > 0).sum()),
        largest_class=int(share_K.argmax()),
        largest_share=float(share_K.max()),
        warnings=tuple(warnings),
        notes=tuple(notes),
    )
    return NoisyLabels(label=noisy, flip_rate=flip_rate, card=card)


def even_share(wrong_K: NDArray[Any]) -> NDArray[np.float64]:
    """Wrong labels each class would get if class i spread its ``wrong_K[i]`` over the others."""
    even: NDArray[np.float64] = (wrong_K.sum() - wrong_K) / (len(wrong_K) - 1)
    return even


def _margin(rows: NDArray[np.float64], classes: NDArray[np.int64]) -> NDArray[np.float64]:
    """T_ii − max_{j≠i} T_ij for the given rows i."""
    at = (np.arange(len(rows)), classes)
    others = rows.copy()
    others[at] = -np.inf
    margin: NDArray[np.float64] = rows[at] - others.max(axis=1)
    return margin


def _sinks(count_KK: NDArray[np.int64]) -> NDArray[np.int64]:
    right_K = count_KK.diagonal()
    received_K = count_KK.sum(axis=0) - right_K
    grown = count_KK.sum(axis=0) > SINK_FACTOR * count_KK.sum(axis=1)
    favoured = received_K > SINK_FACTOR * even_share(count_KK.sum(axis=1) - right_K)
    return np.flatnonzero(grown & favoured)


def _named(classes: NDArray[np.int64]) -> str:
    more = f" and {len(classes) - LISTED} more" if len(classes) > LISTED else ""
    word = "class" if len(classes) == 1 else "classes"
    return f"{word} {', '.join(str(k) for k in classes[:LISTED])}{more}"
