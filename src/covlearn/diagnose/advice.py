"""Which of CE, Forward, CORES² and CAL the evidence speaks for, each with the number that decides.

- No wrong labels to be seen: CE. The others correct what is not there.
- T̂ or D̂ not to be relied on: CORES². It needs neither; Forward and CAL are built on them.
- Wrong labels, T(x) = T not rejected: Forward. One T̂ says all there is to know of the noise.
- Wrong labels, T(x) = T rejected: CAL. Its covariance term is what one T̂ leaves out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covlearn.diagnose.dependence import FEWEST as FEWEST_SURE
from covlearn.diagnose.dependence import Finding
from covlearn.evidence import FEWEST, Evidence

LEVEL = 0.05
FEWEST_OF_CLASS = 10  # refined examples: a row of T̂ of fewer is a guess
SINGULAR = 0.1  # the smallest singular value at which T̂ can still be undone


@dataclass(frozen=True)
class Advice:
    """Whether the evidence speaks for a method, and why."""

    method: str
    supported: bool
    sentence: str


def advise(
    evidence: Evidence,
    finding: Finding,
    transition: NDArray[np.float64],
    class_size: NDArray[np.int64],
    classes: list[str],
) -> list[Advice]:
    """One piece of advice a method; one method is supported.

    ``transition`` is T̂ of the refined labels (K, K), ``class_size`` how many each class has.
    """
    weak = weakness(evidence, finding, transition, class_size, classes)
    clean = not evidence.found and weak is None
    sound = (
        f"T̂ can be used: its smallest diagonal entry is {np.diag(transition).min():.2f}, and the "
        f"smallest refined class has {class_size.min():,} examples"
    )
    depends = finding.p_value is not None and finding.p_value <= LEVEL
    test = tested(finding)
    if clean:
        chosen = "ce"
    elif weak is not None:
        chosen = "cores"
    else:
        chosen = "cal" if depends else "forward"
    unneeded = f"nothing to correct: {evidence.sentence}"
    reasons = {
        "ce": f"learns wrong labels as if they were right: {evidence.sentence}",
        "forward": f"one T̂ for all examples {'leaves this out' if depends else 'suffices'}: {test}",
        "cores": f"neither T̂ nor D̂ is asked for: {weak}" if weak else f"not needed: {sound}",
        "cal": f"flips {'depend' if depends else 'need not depend'} on features: {test}",
    }
    if clean:
        reasons |= dict.fromkeys(("forward", "cores", "cal"), unneeded)
        reasons["ce"] = f"suffices: {evidence.sentence}"
    elif weak is not None:
        reasons |= dict.fromkeys(("forward", "cal"), f"built on T̂, and {weak}")
        reasons["ce"] = f"cannot be judged: {weak}"
    return [Advice(name, name == chosen, sentence) for name, sentence in reasons.items()]


def weakness(
    evidence: Evidence,
    finding: Finding,
    transition: NDArray[np.float64],
    class_size: NDArray[np.int64],
    classes: list[str],
) -> str | None:
    """Why T̂ and D̂ cannot be relied on; None where they can, or where nothing is to be corrected."""
    if not evidence.learned or evidence.surest < FEWEST:
        return evidence.sentence
    if not evidence.found:
        return None
    if finding.p_value is None:
        return (
            f"of {finding.examples:,} examples the class of {finding.sure:,} is sure, and no "
            f"class has {FEWEST_SURE} such examples, some of them flipped"
        )
    return weakness_of(transition, class_size, classes)


def weakness_of(
    transition: NDArray[np.float64], class_size: NDArray[np.int64], classes: list[str]
) -> str | None:
    """What is wrong with T̂: a class of a few examples, another label more frequent, no inverse."""
    fewest = int(class_size.argmin())
    if class_size[fewest] < FEWEST_OF_CLASS:
        return (
            f"class {classes[fewest]!r} has {class_size[fewest]} refined examples, fewer than "
            f"{FEWEST_OF_CLASS}"
        )
    others = transition - np.diag(np.diag(transition)) * 2
    i = int((np.diag(transition) - others.max(axis=1)).argmin())
    j = int(others[i].argmax())
    if transition[i, i] <= transition[i, j]:
        return (
            f"of what is refined to {classes[i]!r}, {transition[i, i]:.0%} are labelled so and "
            f"{transition[i, j]:.0%} {classes[j]!r}"
        )
    smallest = float(np.linalg.svd(transition, compute_uv=False)[-1])
    if smallest < SINGULAR:
        return f"T̂ is nearly singular: its smallest singular value is {smallest:.3f}"
    return None


def tested(finding: Finding) -> str:
    """The outcome of the test, in words."""
    if finding.p_value is None or finding.statistic is None:
        return "no class could be tested"
    return (
        f"p = {finding.p_value:.3g} (statistic {finding.statistic:.2f}, {finding.draws} draws of "
        f"class-dependent noise)"
    )
