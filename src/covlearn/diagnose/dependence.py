"""Do features predict the flips within a class? A test with a p-value.

Null hypothesis: T(x) = T, that is, given the true class the noisy label does not depend on x. The
true class is unknown, and what a sieve takes for it errs more often in some places than in others.
So the null is not looked up but made: the refined labels are made noisy again by T̂, and the same
sieve is run on them (a parametric bootstrap). The sieve is a kernel ridge regression whose
leave-one-out predictions have a closed form, so that a bootstrap draw costs two matrix products.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covlearn.checks import Array, as_tensor, check_labels
from covlearn.kinds import checked
from covlearn.preparation import Standardizer

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Progress = Callable[[int, int], None]
"""How many bootstrap draws are done, and of how many."""

MOST = 3000  # examples: the kernel has as many rows and columns
STRENGTHS = tuple(10.0**power for power in range(-2, 4))  # of the ridge
SURE = 0.5  # the least lead of the predicted class over the next, of scores that sum to about one
FEWEST = 8  # sure examples of a class that is tested
STREAM = 2021  # of random numbers that no noise generator draws from
ENTRIES = 4_000_000  # scores of bootstrap draws that are held at a time


@dataclass(frozen=True)
class Finding:
    """Whether features predict flips within a class, beyond chance."""

    statistic: float | None
    """Sum of the classes' standardised statistics over √(their number); None: none was tested."""
    p_value: float | None
    """(1 + draws with as large a statistic) / (1 + draws)."""
    draws: int
    null_mean: float | None
    """Of the statistic over the draws: what the sieve's own errors bring about."""
    by_class: list[float | None]
    """The standardised statistic of each class; None where too few examples are sure."""
    examples: int
    """That were looked at: all, or a random choice of 3,000."""
    sure: int
    """Examples whose class the sieve is sure of; only these enter the statistic."""
    fewest_sure: int
    """The same of the class that has the fewest."""
    noise_rate: float
    """The share of sure examples whose given label is not the refined one."""
    transition: list[list[float]]
    """T̂ of the sure examples, by which the refined labels were made noisy again."""
    refined: Labels
    """What the sieve takes for the true class, of the examples at ``chosen``."""
    chosen: Labels
    """Positions of the examples that were looked at."""
    seed: int


class Smoother:
    """Kernel ridge regression on features, with leave-one-out predictions in closed form.

    The kernel is exp(−‖x − x'‖² / m) of standardised columns, m the median squared distance, plus
    one for the intercept. Nothing here depends on labels, so that one serves many label vectors.
    """

    def __init__(self, features: Array) -> None:
        x = checked_features(features)
        x = Standardizer.of(x)(x)
        square_N = (x**2).sum(axis=1)
        distance_NN = np.maximum(square_N[:, None] + square_N - 2 * x @ x.T, 0)
        scale = float(np.median(distance_NN))
        if scale <= 0:
            raise ValueError(
                "features must differ between examples, but more than half of the pairs are the "
                "same; pass features that tell examples apart"
            )
        self.kernel_NN = np.exp(-distance_NN / scale)
        values, self._vectors = np.linalg.eigh(self.kernel_NN + 1.0)
        self._values = np.maximum(values, 0)
        self._inverses: dict[float, Floats] = {}

    def __len__(self) -> int:
        return len(self.kernel_NN)

    def strength(self, target_NC: Floats) -> float:
        """The ridge whose leave-one-out predictions are nearest to the targets."""
        rotated = self._vectors.T @ target_NC
        squared = self._vectors**2

        def error(ridge: float) -> float:
            shrunk = 1 / (self._values + ridge)
            residual = self._vectors @ (shrunk[:, None] * rotated)
            return float(((residual / (squared @ shrunk)[:, None]) ** 2).sum())

        return min(STRENGTHS, key=error)

    def leave_one_out(self, target_NC: Floats, ridge: float) -> Floats:
        """What is predicted for each example by the others: y_n − [A y]_n / A_nn, A = (K + λ)⁻¹."""
        if ridge not in self._inverses:
            self._inverses = {
                ridge: (self._vectors / (self._values + ridge)) @ self._vectors.T
            }  # one at a time: it is as large as the kernel
        inverse = self._inverses[ridge]
        predicted: Floats = target_NC - inverse @ target_NC / np.diag(inverse)[:, None]
        return predicted


@checked
def instance_dependence_test(
    features: Array,
    given: Array,
    *,
    num_classes: int,
    draws: int = 199,
    seed: int = 0,
    smoother: Smoother | None = None,
    progress: Progress | None = None,
) -> Finding:
    """Tests T(x) = T on features (N, D) and given labels 0…K−1.

    Of more than 3,000 examples, so many are chosen at random. ``smoother`` is that of the features,
    where several label vectors are tested on the same ones.

    >>> rng = np.random.default_rng(0)
    >>> clean = np.arange(300) % 3
    >>> x = rng.normal(size=(300, 4)) + 5 * np.eye(4)[clean]
    >>> flipped = (x[:, 3] > 0) & (rng.random(300) < 0.4)  # half of the space has all the flips
    >>> instance_dependence_test(x, (clean + flipped) % 3, num_classes=3, draws=19).p_value
    0.05
    """
    check_draws(draws)
    rng = generator(seed)
    x = as_tensor(features)
    length = len(x) if x.ndim else 0
    labels = check_labels(given, num_classes=num_classes, length=length, name="given").numpy()
    chosen = at_most(len(x), seed)
    if progress is not None:
        progress(0, draws)
    if smoother is None:
        smoother = Smoother(x[chosen])
    if len(smoother) != len(chosen):
        raise ValueError(
            f"smoother must be that of the {len(chosen)} features, got one of {len(smoother)}"
        )
    labels = labels[chosen]
    ridge = smoother.strength(one_hot(labels[None], num_classes)[:, 0])
    score_NK = sieve(smoother, labels[None], ridge, num_classes)[:, 0]
    observed = class_statistics(smoother.kernel_NN, labels, score_NK)
    refined, is_sure = score_NK.argmax(axis=1), lead(score_NK) > SURE
    transition = transition_of(refined, labels, is_sure, num_classes)
    statistic = pooled(observed)
    p_value, null_mean = None, None
    if statistic is not None:
        null = np.empty(draws)
        block = max(1, ENTRIES // score_NK.size)
        for start in range(0, draws, block):
            count = min(block, draws - start)
            noisy_BN = renoised(refined, transition, count, rng)
            score_NBK = sieve(smoother, noisy_BN, ridge, num_classes)
            for number, noisy in enumerate(noisy_BN):
                of_draw = class_statistics(smoother.kernel_NN, noisy, score_NBK[:, number])
                value = pooled(of_draw)
                # A draw without a sure class cannot speak against the null.
                null[start + number] = np.inf if value is None else value
            if progress is not None:
                progress(start + count, draws)
        p_value = (1 + int((null >= statistic).sum())) / (1 + draws)
        finite = null[np.isfinite(null)]
        null_mean = float(finite.mean()) if len(finite) else None
    size_K = np.bincount(refined[is_sure], minlength=num_classes)
    return Finding(
        statistic=statistic,
        p_value=p_value,
        draws=draws,
        null_mean=null_mean,
        by_class=[None if np.isnan(value) else float(value) for value in observed],
        examples=len(chosen),
        sure=int(is_sure.sum()),
        fewest_sure=int(size_K.min()),
        noise_rate=float((refined != labels)[is_sure].mean()) if is_sure.any() else 0.0,
        transition=transition.tolist(),
        refined=refined,
        chosen=chosen,
        seed=seed,
    )


def at_most(num_examples: int, seed: int) -> Labels:
    """Positions of all examples, or of 3,000 at random, in order."""
    if num_examples <= MOST:
        return np.arange(num_examples)
    return np.sort(generator(seed).permutation(num_examples)[:MOST])


def generator(seed: int) -> np.random.Generator:
    """Random numbers of the test.

    Noise that was drawn with the same seed must not come again among the draws: one that repeats
    the observed flips is no draw of the null.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of 0 at least, got {seed!r}")
    return np.random.default_rng([seed, STREAM])


def sieve(smoother: Smoother, noisy_BN: Labels, ridge: float, num_classes: int) -> Floats:
    """Scores (N, B, K) of the true class, for B label vectors at once.

    1. Leave-one-out predictions of the noisy label are near T's row of the true class.
    2. Their argmax, and twice the nearest mean of those with the same class: under pair noise the
       largest entries of a row are close, but the rows are not.
    3. Leave-one-out predictions of that class, as CAL's second network is trained on D̂.
    """
    first_NBK = predictions(smoother, noisy_BN, ridge, num_classes)
    class_BN = np.empty_like(noisy_BN)
    for number in range(len(noisy_BN)):
        score_NK = first_NBK[:, number]
        label = score_NK.argmax(axis=1)
        for _ in range(2):
            label = nearest_mean(score_NK, label)
        class_BN[number] = label
    return predictions(smoother, class_BN, ridge, num_classes)


def predictions(smoother: Smoother, label_BN: Labels, ridge: float, num_classes: int) -> Floats:
    """Leave-one-out predictions of label vectors, (N, B, K)."""
    target_NBK = one_hot(label_BN, num_classes)
    flat = target_NBK.reshape(len(smoother), -1)
    return smoother.leave_one_out(flat, ridge).reshape(target_NBK.shape)


def nearest_mean(score_NK: Floats, label: Labels) -> Labels:
    """The class whose members' mean score is nearest; a class without members stays so."""
    member_NK = one_hot(label[None], score_NK.shape[1])[:, 0]
    size_K = member_NK.sum(axis=0)
    mean_KK = member_NK.T @ score_NK / np.maximum(size_K, 1)[:, None]
    distance_NK = (mean_KK**2).sum(axis=1) - 2 * score_NK @ mean_KK.T
    distance_NK[:, size_K == 0] = np.inf
    nearest: Labels = distance_NK.argmin(axis=1)
    return nearest


def class_statistics(kernel_NN: Floats, noisy: Labels, score_NK: Floats) -> Floats:
    """One number a class, about standard normal where flips are independent of x; NaN: untested.

    Of the examples that are surely of class i, Q_nj = (1{ỹ_n = j} − T̂_ij) / √T̂_ij, for labels j
    that two of them have at least. The statistic is Σ_{n≠m} G_nm ⟨Q_n, Q_m⟩, G the centred kernel:
    large if examples that are near each other are flipped alike. Its deviation is that of a
    shuffle.
    """
    num_classes = score_NK.shape[1]
    refined, is_sure = score_NK.argmax(axis=1), lead(score_NK) > SURE
    statistic_K = np.full(num_classes, np.nan)
    for i in range(num_classes):
        rows = np.flatnonzero((refined == i) & is_sure)
        share_K = np.bincount(noisy[rows], minlength=num_classes) / max(len(rows), 1)
        seen = np.flatnonzero(share_K * len(rows) >= 2)
        if len(rows) < FEWEST or len(seen) < 2:
            continue
        flip = (noisy[rows][:, None] == seen) - share_K[seen]
        flip /= np.sqrt(share_K[seen])
        near = kernel_NN[np.ix_(rows, rows)]
        mean = near.mean(axis=0)
        near += mean.mean() - mean - mean[:, None]
        np.fill_diagonal(near, 0)
        spread = flip.T @ flip / len(rows)
        deviation = np.sqrt(2 * np.vdot(near, near) * np.vdot(spread, spread))
        if deviation > 0:
            statistic_K[i] = np.vdot(near @ flip, flip) / deviation
    return statistic_K


def pooled(statistic_K: Floats) -> float | None:
    """The sum over the classes tested, of deviation about one; None where there is none."""
    tested = statistic_K[~np.isnan(statistic_K)]
    return float(tested.sum() / np.sqrt(len(tested))) if len(tested) else None


def lead(score_NK: Floats) -> Floats:
    """How far the largest score is above the second."""
    top = np.partition(score_NK, -2, axis=1)[:, -2:]
    ahead: Floats = top[:, 1] - top[:, 0]
    return ahead


def transition_of(
    refined: Labels, noisy: Labels, is_sure: NDArray[np.bool_], num_classes: int
) -> Floats:
    """T̂ of the sure examples; of all, for a class without; the identity, for one without any."""
    transition = np.eye(num_classes)
    for i in range(num_classes):
        of_class = refined == i
        rows = of_class & is_sure if (of_class & is_sure).any() else of_class
        if rows.any():
            transition[i] = np.bincount(noisy[rows], minlength=num_classes) / rows.sum()
    return transition


def renoised(refined: Labels, transition: Floats, count: int, rng: np.random.Generator) -> Labels:
    """Label vectors (count, N) drawn from the rows of T̂ of the refined labels."""
    bound_KK = transition.cumsum(axis=1)
    bound_KK[:, -1] = np.inf
    uniform = rng.random((count, len(refined)))
    drawn: Labels = np.empty(uniform.shape, dtype=np.int64)
    for i, bound in enumerate(bound_KK):
        here = refined == i
        drawn[:, here] = np.searchsorted(bound, uniform[:, here], side="right")
    return drawn


def one_hot(label_BN: Labels, num_classes: int) -> Floats:
    """(N, B, K)."""
    return np.eye(num_classes)[label_BN.T]


@checked
def check_draws(draws: int) -> None:
    """Refuses too few draws for any p-value to reach 0.05."""
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 19:
        raise ValueError(
            f"draws must be an integer of 19 at least, got {draws!r}; with fewer no p-value "
            "reaches 0.05"
        )


def checked_features(features: Array) -> Floats:
    """(N, D) finite numbers in float64."""
    values = as_tensor(features)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"features must have shape (examples, columns), got {tuple(values.shape)}; flatten "
            "images, or take the features of a network"
        )
    x: Floats = values.detach().cpu().numpy().astype(np.float64)
    if not np.isfinite(x).all():
        bad = int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])
        raise ValueError(f"features must be finite, got NaN or infinity first in row {bad}")
    return x
