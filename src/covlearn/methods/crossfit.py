"""CAL with a cross-fitted sieve: no example is judged by a network that was trained on its label.

A sieve that has seen a label begins to know it by heart, the sooner the fewer examples there are.
Here each example's score comes from a sieve that was trained on the other folds, and before any
label is changed the surest predictions must contradict more labels than errors of a model would.
D̂ then is the most probable label given the sieve's prediction and the label that came with the
example (:mod:`covlearn.calibration`), for the examples of which that is sure.

How much weight decay holds a network back from wrong labels without keeping it from learning
depends on the problem, and sieves can tell: given labels that they were not shown are predicted
best by those that have learned most of what is right. These labels so have a part in which sieves
judge them, in favour of sieves that agree with them. In the same way it is found how to train where
no label is changed, and whether the network that learns from D̂ is to be held back less.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from covlearn.calibration import label_posterior, surest_transition
from covlearn.data import Split, counter
from covlearn.engine import Objective, Plan
from covlearn.evidence import noise_evidence, rank_in_class
from covlearn.methods.base import Run, noisy_prior, root_prior
from covlearn.methods.cal import CAL
from covlearn.methods.cal_sieve import refine
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.cores import Confident
from covlearn.sieve import Refined, adjusted_loss, hold_fixed

__all__ = ["CrossFittedCAL"]

ENOUGH = 1_000  # examples, about, of folds by which a weight decay is chosen


@dataclass(frozen=True)
class CrossFittedCAL(CAL):
    """CAL whose D̂ comes from ``folds`` sieves; cross-entropy where no label looks wrong."""

    folds: int = 5
    deals: int = 1
    """How often examples are dealt out into folds; the mean of what the sieves say is taken."""
    surest: float = 0.25
    """The share of surest predictions, of each class, in which evidence is looked for."""
    tolerated: float = 0.02
    """The share of them that may contradict the label without a label being wrong."""
    significance: float = 0.01
    sure: float = 0.7
    """The probability that a label must have to be in D̂, for ``threshold="argmax"``; of each class
    the surer half is there in any case."""
    plain_plan: Plan | None = None
    """How cross-entropy is trained where no label looks wrong; None: as stage 2 is."""
    may_hold_back: bool = False
    """Where no label looks wrong, train as sieves were if they predict more labels of folds that
    they have not seen than networks do that are trained by ``plain_plan``."""
    decays: tuple[float, ...] = ()
    """Weight decays to try beside the plans' own; the one is taken whose sieves predict most labels
    of folds that they have not seen, each class counting alike. Stage 2 has it, too, unless it is
    more than the plan's own and a smaller one clearly predicts more."""
    average_share: float = 0.0
    """The share of a stage's steps that an average of its weights spans, at the end; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.average_share < 1:
            raise ValueError(f"average_share must lie in [0, 1), got {self.average_share}")
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")
        if self.deals < 1:
            raise ValueError(f"deals must be at least 1, got {self.deals}")
        if not all(0 <= decay < math.inf for decay in self.decays):
            raise ValueError(f"decays must be finite and at least 0, got {self.decays}")
        if len({f"{decay:g}" for decay in self.decays}) < len(self.decays):
            raise ValueError(f"decays must differ from each other, got {self.decays}")
        for name in ("surest", "tolerated", "significance"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1], got {getattr(self, name)}")
        if not 0 <= self.sure <= 1:
            raise ValueError(f"sure must lie in [0, 1], got {self.sure}; 70 % is written 0.7")
        of_one_sieve = {
            "labels": self.labels is not None,
            "probs": self.probs is not None,
            "warm_start": self.warm_start,
            "rounds": self.rounds > 1,
            "judges": self.judges == "both",
            "scores": self.scores != "evaluation",
            "neighbours": self.neighbours > 0,
            "sieve_best": self.sieve_best,
            "look_for_evidence": self.look_for_evidence,
            f"target={self.target}": self.target.startswith("posterior"),
        }
        if names := [name for name, is_set in of_one_sieve.items() if is_set]:
            raise ValueError(
                "a cross-fitted sieve makes D̂ itself and has no one network to go on from; use "
                f"method cal for {', '.join(names)}, or leave it out"
            )

    def fit(self, run: Run) -> nn.Module:
        """Train the sieves, look for evidence, refine, train with the covariance term."""
        noisy = run.split.y.cpu()
        decays = (self.plan.weight_decay, *self.decays)
        self, first = self.cross_fitted(run)  # noqa: PLW0642
        logits = self.of_all_deals(run, first)
        score = adjusted_loss(logits.softmax(dim=1), noisy)
        these = run.split.counted
        evidence = noise_evidence(
            logits[these],
            noisy[these],
            surest=self.surest,
            tolerated=self.tolerated,
            significance=self.significance,
        )
        run.note(
            refined_from="cross-fitted sieves",
            surest=evidence.surest,
            surest_contradicted=evidence.contradicted,
            evidence_p_value=evidence.p_value,
            evidence_found=evidence.found,
        )
        if not evidence.contradictory:
            run.keep_labels(noisy, score, reason="no evidence of wrong labels", logits=logits)
            model = run.net("ce")  # plainly trained the same, bit for bit, as that of method ce
            run.train("ce", model, CrossEntropy(), self.plan_of_all_labels(run, first))
            return model
        if self.threshold == "argmax":
            transition = surest_transition(logits[these], noisy[these], surest=self.surest)
            posterior = label_posterior(logits, noisy, transition)
            refined = sure_labels(posterior, noisy, score, sure=self.sure)
        else:
            refined = refine(self, run, score, logits.argmax(dim=1))
        refined = hold_fixed(refined, noisy, run.split.trusted)
        if bool(refined.dropped.all()):
            raise ValueError("D̂ must keep some example, got none; move lower and upper together")
        run.keep_labels(refined.label, score, reason="score of a cross-fitted sieve", logits=logits)
        return self.held_back_less(run, refined, decays).second_stage(run, refined, None)

    def averaging(self, num_examples: int) -> "CrossFittedCAL":
        """The same with plans that average over ``average_share`` of their steps."""
        if not self.average_share:
            return self

        def averaged(plan: Plan) -> Plan:
            steps = plan.epochs * math.ceil(num_examples / plan.batch_size)
            return replace(plan, average=1 - 1 / max(self.average_share * steps, 2.0))

        return replace(
            self,
            sieve_plan=averaged(self.sieve_plan),
            plan=averaged(self.plan),
            average_share=0.0,
        )

    def cross_fitted(self, run: Run) -> tuple["CrossFittedCAL", Tensor]:
        """The same with the weight decay that fits best, and its sieves' logits, (N, K).

        Of each example they are what the sieve says that was trained without its fold.
        """
        best, name = self.averaging(len(run.split)), ""
        fold, tried, seen = self.dealt(run)
        given = run.split.y.cpu()[seen]
        logits = best.fold_logits(run, fold, tried, name)
        predicted = share_predicted(logits[seen], given)
        for decay in self.decays:
            other, its_name = best.with_decay(decay), f" with weight decay {decay:g}"
            heard = other.fold_logits(run, fold, tried, its_name)
            if (more := share_predicted(heard[seen], given)) > predicted:
                best, name, logits, predicted = other, its_name, heard, more
        if self.decays:
            run.note(weight_decay_of_sieves=best.sieve_plan.weight_decay)
        if rest := range(len(tried), self.folds):
            later = torch.isin(fold, torch.tensor(rest))
            logits[later] = best.fold_logits(run, fold, rest, name)[later]
        return best, logits

    def of_all_deals(self, run: Run, first: Tensor) -> Tensor:
        """The logarithm of the mean of the probabilities, of the first deal and the others.

        What a sieve of a hundred examples says depends much on which ones it has seen.
        """
        if self.deals == 1:
            return first
        probs = first.double().softmax(dim=1)
        for number in range(2, self.deals + 1):
            fold = folds_of(run.split, self.folds, seed=run.seed, deal=number)
            again = self.fold_logits(run, fold, range(self.folds), f" of deal {number}")
            probs += again.double().softmax(dim=1)
        return (probs / self.deals).log().float()

    def plan_of_all_labels(self, run: Run, logits: Tensor) -> Plan:
        """How to train on the labels as they are: plainly, or held back as the sieves were.

        Labels that are wrong where examples are hard leave no evidence, and are better not known by
        heart all the same.
        """
        plain_plan = self.plain_plan or replace(self.plan, divide_lr=False)
        if not (self.may_hold_back and self.plainly_sieved):
            return plain_plan
        fold, tried, seen = self.dealt(run)
        given = run.split.y.cpu()[seen]
        plainly = replace(self, sieve_plan=plain_plan)
        heard = plainly.fold_logits(run, fold, tried, "", kind="plain")
        held_back = share_predicted(logits[seen], given) > share_predicted(heard[seen], given)
        run.note(held_back=held_back)
        return self.sieve_plan if held_back else plain_plan

    def held_back_less(
        self, run: Run, refined: Refined, decays: tuple[float, ...]
    ) -> "CrossFittedCAL":
        """The same with the weight decay in stage 2 that fits D̂, if that of the sieves is large.

        D̂ has fewer wrong labels than the sieves had, so that more than the first of the decays may
        be too much. Given labels are what counts here, too, for D̂ is what the sieves say; beyond
        two standard errors, for of labels that are wrong on hard examples a network that is held
        back less predicts some more.
        """
        best = self.plan.weight_decay
        if not (best > decays[0] and self.may_hold_back_less):
            return self
        # By name, since stages are called so; a user may name the plan's own among the others.
        smaller = {f"{one:g}": one for one in sorted(decays, reverse=True) if one < best}
        smaller.pop(f"{best:g}", None)
        fold, tried, seen = self.dealt(run)
        given = run.split.y.cpu()[seen]

        def hits(decay: float) -> Tensor:
            trained = replace(self, sieve_plan=replace(self.plan, weight_decay=decay))
            name = f" with weight decay {decay:g}"
            logits = trained.fold_logits(
                run, fold, tried, name, kind="refined", labels=refined.label
            )
            return logits[seen].argmax(dim=1) == given

        hit = hits(best)
        for decay in smaller.values():
            other = hits(decay)
            gained, lost = int((other & ~hit).sum()), int((hit & ~other).sum())
            if gained - lost > 2 * math.sqrt(gained + lost):
                best, hit = decay, other
        run.note(weight_decay_of_network=best)
        return replace(self, plan=replace(self.plan, weight_decay=best))

    @property
    def most_epochs(self) -> int:
        """How many are trained at most, with all that is tried."""
        ways = 1 + len(self.decays)
        sieves = self.folds * (ways + self.deals - 1) * self.sieve_plan.epochs
        network = self.plan.epochs
        if self.decays and self.may_hold_back_less:
            network *= 1 + self.folds * ways
        plain = self.plain_plan or self.plan
        plainly = plain.epochs * (1 + self.folds * self.may_hold_back)
        return sieves + max(network, plainly)

    @property
    def may_hold_back_less(self) -> bool:
        """Whether stage 2 differs from the sieves in its labels alone, so that it can be tried."""
        return self.relabel and self.plainly_sieved and not self.balanced

    @property
    def plainly_sieved(self) -> bool:
        """Whether sieves are trained as other networks are, so that both can be compared."""
        return not (self.sieve_beta.value or self.sieve_mixup or self.sieve_balanced_batches)

    def dealt(self, run: Run) -> tuple[Tensor, range, Tensor]:
        """The fold of each example, the folds that choices are made by, and which examples count.

        These are the ones of those folds whose labels may be wrong.
        """
        num_examples = len(run.split)
        if self.folds > num_examples:
            raise ValueError(
                f"folds must be at most the number of examples, {num_examples}, got {self.folds}; "
                f"set folds={min(5, num_examples)}"
            )
        fold = folds_of(run.split, self.folds, seed=run.seed)
        copied = run.split.copied
        different = num_examples if copied is None else len(copied.unique())
        tried = range(self.folds_tried(different))
        return fold, tried, torch.isin(fold, torch.tensor(tried)) & run.split.counted

    def folds_tried(self, num_examples: int) -> int:
        """On how many folds ways to train are tried, all if there is no choice."""
        if not (self.decays or self.may_hold_back):
            return self.folds
        return min(self.folds, math.ceil(self.folds * ENOUGH / num_examples))

    def with_decay(self, decay: float) -> "CrossFittedCAL":
        """The same with another weight decay in both stages."""
        return replace(
            self,
            sieve_plan=replace(self.sieve_plan, weight_decay=decay),
            plan=replace(self.plan, weight_decay=decay),
        )

    def fold_logits(
        self,
        run: Run,
        fold: Tensor,
        numbers: range,
        name: str,
        *,
        kind: str = "sieve",
        labels: Tensor | None = None,
    ) -> Tensor:
        """(N, K): of the examples of some folds what the sieve says that has not seen theirs.

        It learns from ``labels``, or the given ones.
        """
        learned = run.split.y.cpu() if labels is None else labels
        logits = torch.zeros(len(learned), run.split.num_classes)
        for number in numbers:
            outside = fold == number
            if not bool(outside.any()):
                continue
            sieve = run.net(f"sieve-{number}")  # alike, whatever its weight decay
            run.train(
                f"{kind}-{number}{name}",
                sieve,
                self.sieve_objective(run),
                self.sieve_plan,
                # Labels of people are judged by no sieve, so that all of them may learn from these.
                labels=torch.where(outside & run.split.judged, -1, learned).to(run.split.y.device),
                mixup=self.sieve_mixup,
                balanced_batches=self.sieve_balanced_batches,
            )
            logits[outside] = run.predict(sieve)[0].float()[outside]
        return logits

    def sieve_objective(self, run: Run) -> Objective:
        """CORES²'s loss, or without its regulariser plain cross-entropy, which is cheaper."""
        if not self.sieve_beta.value:
            return CrossEntropy()
        prior = root_prior(run.split) if self.sieve_prior == "root" else noisy_prior(run.split)
        return Confident(
            run.split.y,
            prior,
            self.sieve_beta,
            prior_scale=self.prior_scale,
            regularizer_eps=self.sieve_regularizer_eps,
        )


def folds_of(split: Split, folds: int, *, seed: int, deal: int = 1) -> Tensor:
    """A fold for each example, each class spread evenly over them; copies are in one fold.

    A network that has seen a copy of an example has seen its label.
    """
    y = split.y.cpu()
    if split.copied is None:
        return stratified_folds(y, folds, seed=seed, deal=deal)
    originals, original = split.copied.unique(return_inverse=True)
    return stratified_folds(y[originals], folds, seed=seed, deal=deal)[original]


def stratified_folds(y: Tensor, folds: int, *, seed: int, deal: int = 1) -> Tensor:
    """A fold for each label, each class spread evenly over them; a function of seed and deal."""
    order = counter.permutation(counter.key(seed, deal * folds), len(y))
    order = order[y[order].argsort(stable=True)]
    fold = torch.empty_like(y)
    # Classes come one after the other, so that also those of one example go to different folds.
    fold[order] = torch.arange(len(y)) % folds
    return fold


def share_predicted(logits: Tensor, given: Tensor) -> float:
    """The share of a class's given labels that are the most probable ones, mean over the classes.

    Of a rare class all may be missed with few labels lost.

    >>> logits = torch.tensor([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [1.0, 2.0]])
    >>> share_predicted(logits, torch.tensor([0, 0, 0, 0]))
    0.75
    >>> share_predicted(logits, torch.tensor([0, 1, 0, 1]))
    0.75
    """
    size_K = torch.bincount(given, minlength=logits.shape[1])
    hit_K = torch.bincount(given[logits.argmax(dim=1) == given], minlength=logits.shape[1])
    return float((hit_K / size_K)[size_K > 0].mean())


def sure_labels(posterior: Tensor, noisy: Tensor, score: Tensor, *, sure: float) -> Refined:
    """D̂: the most probable labels of a log-posterior (N, K); −1 for the less sure ones.

    Sure are those of probability ``sure`` at least, and the surer half of each class: under much
    noise no label may be as probable, and a class must not vanish.

    >>> posterior = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.3, 0.7]]).log()
    >>> sure_labels(posterior, torch.zeros(4).long(), torch.zeros(4), sure=0.8).label.tolist()
    [0, -1, -1, 1]
    """
    best, label = posterior.max(dim=1)
    rank, size = rank_in_class(best, label)
    label = torch.where((best.exp() >= sure) | (rank < (size + 1) // 2), label, -1)
    return Refined(label, keep=label == noisy, score=score)
