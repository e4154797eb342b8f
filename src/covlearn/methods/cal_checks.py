"""What CAL's settings must be, and which of them do not go together."""

from typing import TYPE_CHECKING

from covlearn.checks import check_eps
from covlearn.kinds import check_fields

if TYPE_CHECKING:
    from covlearn.methods.cal import CAL


def check_settings(cal: "CAL") -> None:
    """Raises a ValueError that says what is wrong, if anything is."""
    check_fields(cal)
    _check_numbers(cal)
    _check_refinement(cal)
    _check_second_stage(cal)


def _check_numbers(cal: "CAL") -> None:
    if not 0 < cal.kept <= 1:
        raise ValueError(f"kept must lie in (0, 1], got {cal.kept}; 61.54 % is written 0.6154")
    if cal.prior_scale < 0:
        raise ValueError(f"prior_scale must be finite and ≥ 0, got {cal.prior_scale}")
    check_eps(cal.sieve_regularizer_eps, name="sieve_regularizer_eps")
    if cal.neighbours < 0:
        raise ValueError(f"neighbours must not be negative, got {cal.neighbours}; 0 means none")
    if cal.rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {cal.rounds}")
    if not 0 <= cal.rounds_stop <= 1:
        raise ValueError(
            f"rounds_stop must lie in [0, 1], got {cal.rounds_stop}; 1 % is written 0.01"
        )
    for name in ("balanced_subset", "balanced_batches", "sieve_balanced_batches"):
        count = getattr(cal, name)
        if count is not None and count < 1:
            raise ValueError(f"{name} must be positive, got {count}")


def _check_refinement(cal: "CAL") -> None:
    needing = {
        "look_for_evidence": cal.look_for_evidence,
        f"target={cal.target!r}": cal.target.startswith("posterior"),
        "judges='both'": cal.judges == "both",
        "neighbours": cal.neighbours > 0,
    }
    for name, needs_posterior in needing.items():
        if needs_posterior and (cal.labels is not None or cal.scores == "training"):
            raise ValueError(
                f"{name} needs the probabilities that D̂ was made of; set scores to evaluation or "
                "averaged, and labels to none"
            )
    if cal.judges == "both" and (cal.threshold != "argmax" or not cal.needs_refined):
        raise ValueError(
            "judges='both' makes a D̂ of its own by the most probable class; set threshold=argmax, "
            "and leave covariance as it is"
        )
    if cal.upper is not None and cal.threshold != "fixed":
        raise ValueError(
            f"upper goes with threshold='fixed', got upper={cal.upper} and "
            f"threshold={cal.threshold!r}; leave upper out, or give lower as well"
        )
    if cal.upper is not None and not cal.lower <= cal.upper:
        raise ValueError(f"expected lower ≤ upper, got lower={cal.lower}, upper={cal.upper}")
    if cal.sieve_best and cal.scores != "evaluation":
        raise ValueError(
            f"the best epoch's network must be asked with scores='evaluation', got "
            f"{cal.scores!r}, which are of the last; set either of them"
        )
    if cal.labels is not None and cal.probs is not None:
        raise ValueError("D̂ can come from labels or from probs, got both; set one of them")
    from_file = cal.labels is not None or cal.probs is not None
    if cal.asks_again and (from_file or not cal.needs_refined):
        raise ValueError(
            "neighbours and scores='both' ask a sieve, and there is none; leave labels and probs "
            "out, and covariance as it is"
        )
    if cal.warm_start and from_file:
        raise ValueError(
            "warm_start goes on from the sieve's network, but with labels or probs from a file "
            "there is none; leave one of them out"
        )


def _check_second_stage(cal: "CAL") -> None:
    if cal.relabel and cal.base != "ce":
        raise ValueError(
            f"relabel is cross-entropy on D̂, which base={cal.base!r} would not change; for GCE on "
            "D̂ set target=refined, base=gce and peer=false"
        )
    if cal.target != "noisy" and (cal.relabel or not cal.covariance):
        raise ValueError(
            f"target={cal.target!r} stands for noisy labels and their covariance; leave relabel "
            "and covariance as they are"
        )
    if cal.target != "noisy" and cal.base not in ("ce", "gce"):
        raise ValueError(
            f"a target of its own has no noise left that base={cal.base!r} could correct; set base "
            "to ce or gce, or target=noisy"
        )
    if cal.target != "noisy" and cal.balanced_subset is not None:
        raise ValueError(f"target={cal.target!r} takes all examples; leave balanced_subset out")
    if cal.mixup and (cal.target == "noisy" or cal.rounds > 1):
        raise ValueError(
            "mixup mixes the targets of two examples, and inputs are then seen mixed alone; set "
            "target=refined (or another that is not noisy), relabel=false and rounds=1"
        )
    if not cal.needs_refined:
        _check_without_refined(cal)
    if cal.rounds > 1 and not cal.needs_refined:
        raise ValueError(
            f"rounds={cal.rounds} renew D̂, which nothing here looks at; set rounds=1, or leave "
            "covariance as it is"
        )
    # An example may come twice, and in another process meet another average, or never come.
    if cal.rounds > 1 and cal.balanced:
        raise ValueError(
            f"rounds={cal.rounds} takes every example once an epoch; leave balanced_subset and "
            "balanced_batches out"
        )


def _check_without_refined(cal: "CAL") -> None:
    unused = {
        "labels": cal.labels is not None,
        "probs": cal.probs is not None,
        "look_for_evidence": cal.look_for_evidence,
        "balanced_subset": cal.balanced_subset is not None,
    }
    if names := [name for name, is_set in unused.items() if is_set]:
        raise ValueError(
            f"{' and '.join(names)} would change nothing, since no part of the loss looks at D̂; "
            "leave covariance as it is, or leave the others out"
        )
