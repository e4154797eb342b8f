"""Covariance-Assisted Learning (the paper): a sieve, then training with the covariance term."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from covlearn.covariance import SecondOrder, Weighting
from covlearn.engine import Objective, Plan
from covlearn.evidence import noise_evidence
from covlearn.ledger import Ledger
from covlearn.methods.base import Run, class_shares, noisy_prior
from covlearn.methods.cal_checks import check_settings
from covlearn.methods.cal_loss import Base, CovarianceAssisted
from covlearn.methods.cal_sieve import asked_again, build_refined, refine_probs
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.posteriors import (
    averaged_probs,
    averaging_predictions,
    held_posterior,
    logs,
    refined_by,
)
from covlearn.methods.subsets import balanced_subset
from covlearn.methods.targets import Target, Targeted, soft_transition
from covlearn.reweight import kernel_mean_matching
from covlearn.schedules import Ramp
from covlearn.sieve import (
    Refined,
    hold_fixed,
)

Threshold = Literal["fixed", "quantile", "auto", "argmax"]
Scores = Literal["training", "evaluation", "averaged", "both"]
Prior = Literal["root", "plain"]
RoundsFrom = Literal["new", "last"]
Judges = Literal["sieve", "both"]
SUREST = 0.5
"""The share of surest predictions in which a sieve that was trained on the labels themselves looks
for evidence: of wrong labels it is less sure, so that the surest quarter has too few of them."""
TOLERATED = 0.005
"""The share of these that may contradict the label without a label being wrong: of CIFAR-10's right
labels 0.02 % do, of those that are wrong for one hard image in ten 1.2 % (``results/beyond``)."""


@dataclass(frozen=True)
class CAL:
    """Stage 1 trains the sieve and builds D̂ (Algorithm 1), stage 2 minimises Eq. (cov_def).

    D̂ may also come from elsewhere: from a file of ``labels``, or by the same threshold from a file
    of another model's ``probs``. There is then no sieve. The defaults are the paper's with the
    schedule of β that its code has; :mod:`covlearn.methods.presets` has either one as it is.
    """

    sieve_plan: Plan = Plan(epochs=65, lr_milestones=(60,), divide_lr=True, weight_decay=5e-4)
    """Of stage 1."""
    sieve_beta: Ramp = Ramp(2.0, start=10, end=40)
    """β of stage 1."""
    sieve_prior: Prior = "root"
    """The prior of stage 1's regulariser: √π, scaled to sum one, or π itself."""
    sieve_mixup: bool = False
    """Mix the inputs and labels of stage 1; its regulariser is on the inputs themselves."""
    sieve_balanced_batches: int | None = None
    """Batches an epoch in which noisy classes are equally frequent; None: every example once."""
    sieve_regularizer_eps: float = 1e-5
    """ε in the sieve's regulariser; 1e-2 in the published Clothing1M code."""
    sieve_best: bool = False
    """Build D̂ by the sieve's best epoch instead of its last: best on the validation part of the
    data or, without one, on held-out noisy labels."""
    scores: Scores = "evaluation"
    """Sieve scores from the last training pass, as published, from an evaluation pass, from the
    average of each example's training passes (of decay 0.9 unless the sieve's plan says), or from
    the mean of both of these; evidence is looked for in the averages."""
    neighbours: int = 0
    """Make D̂ of the mean over an example and so many others, nearest by the sieve's features."""
    threshold: Threshold = "fixed"
    """Where a label is no longer believed: at ``lower``, such that the share ``kept`` is, between
    two groups of scores, or (argmax) never: D̂ is then what the sieve predicts."""
    lower: float = -8.0
    """L_min, for ``threshold="fixed"``: a label with a score up to it is kept."""
    upper: float | None = None
    """Scores between ``lower`` and ``upper`` leave D̂; None: nothing does."""
    kept: float = 0.6154
    """The share that keeps its label, for ``threshold="quantile"``."""
    labels: str | None = None
    """A file of N labels, −1 where dropped, that are D̂: .npy, .npz, .txt, .csv (a run's, too)."""
    probs: str | None = None
    """A file of N×K probabilities that stand in for the sieve's: .npy or .npz (a run's, too)."""
    plan: Plan = Plan(epochs=100, lr_milestones=(60,), divide_lr=True, weight_decay=5e-4)
    """Of stage 2."""
    beta: Ramp = Ramp(1.0, start=10, end=40)
    """β of stage 2."""
    prior_scale: float = 1.0
    """A factor on π in both stages, 10 in the published CIFAR-100 code. Since β, not βπ, divides
    the learning rate, it is not the same as a larger β."""
    mixup: bool = False
    """Mix the inputs and targets of stage 2, whose ``target`` must then be another than noisy."""
    balanced_batches: int | None = None
    """The same of stage 2 as ``sieve_balanced_batches`` of stage 1."""
    balanced_subset: int | None = None
    """Of each noisy class so many examples, drawn once, are all that stage 2 sees, or as many as
    the smallest class has; the others leave D̂. An epoch is once through them, unless
    ``balanced_batches`` says otherwise."""
    covariance: bool = True
    """Subtract the covariance."""
    peer: bool = True
    """Subtract β Σ_k π_k ℓ_k, the base loss's own expectation, except over Forward (see
    :meth:`peer_strength`)."""
    base: Base = "ce"
    """The loss ℓ that the covariance is subtracted from."""
    weighting: Weighting = "class"
    """Of the covariance: each class's mean by its share, as published, or each example alike."""
    look_for_evidence: bool = False
    """Change no label, and train plain cross-entropy, where the sieve's surest predictions
    contradict no more labels than errors of its own would (:mod:`covlearn.evidence`). The learning
    rate is then cut in the sieve's epochs."""
    target: Target = "noisy"
    """What stage 2's loss (``base`` ce or gce) is against: the noisy label with the covariance
    subtracted, D̂'s label, its row of T̂, the posterior that D̂ was made of, or that times T̂."""
    relabel: bool = False
    """Plain cross-entropy on D̂ instead of stage 2: the baseline a soft correction must beat."""
    match_dropped: bool = True
    """Weigh by γ(x) (kernel mean matching on features) where examples were dropped and the target
    is noisy."""
    warm_start: bool = False
    """Continue from the sieve's network instead of a new one (the paper's Clothing1M setting)."""
    rounds: int = 1
    """How often stage 2 is trained at most: each time after the first on a D̂ that is the argmax of
    what the last one said on average of each example."""
    rounds_from: RoundsFrom = "new"
    """Where the later ones start: from new weights, or from the last one's."""
    rounds_stop: float = 0.0
    """No further round where D̂ would change on a smaller share of the examples than this."""
    judges: Judges = "sieve"
    """Whose predictions say in the end which labels are wrong: those that D̂ was made of, or the
    mean of these and the last network's."""

    def __post_init__(self) -> None:
        check_settings(self)

    def fit(self, run: Run) -> nn.Module:
        """The algorithm box: train the sieve, refine, train with the covariance term."""
        if not self.needs_refined:
            return self.fit_without(run)
        if self.neighbours >= len(run.split):
            raise ValueError(
                f"neighbours must be fewer than the {len(run.split)} examples, got "
                f"{self.neighbours}; lower it"
            )
        refined, sieve, posterior = build_refined(self, run)
        if self.look_for_evidence:
            assert posterior is not None
            if not self.contradicted(run, posterior):
                return self.fit_given(run, refined, posterior)
        if self.asks_again:
            assert posterior is not None
            assert sieve is not None
            posterior = asked_again(self, run, sieve, posterior)
            refined = refine_probs(self, run, posterior)
        refined = hold_fixed(refined, run.split.y.cpu(), run.split.trusted)
        posterior = held_posterior(posterior, run.split)
        if bool(refined.dropped.all()):
            raise ValueError("D̂ must keep some example, got none; move lower and upper together")
        reason = "sieve score above the threshold" if sieve is not None else "from a file"
        judged_by = logs(posterior) if self.look_for_evidence and posterior is not None else None
        run.keep_labels(refined.label, refined.score, reason=reason, logits=judged_by)
        return self.second_stage(run, refined, sieve, posterior)

    def second_stage(
        self,
        run: Run,
        refined: Refined,
        sieve: nn.Module | None,
        posterior: Tensor | None = None,
    ) -> nn.Module:
        """Training with the covariance term of D̂, or plainly on it; with rounds again and again."""
        model = sieve if self.warm_start and sieve is not None else run.net("cal")
        stage = first = "relabel" if self.relabel else "cal"
        ledger = self.one_round(run, stage, model, refined, sieve, posterior)
        changed: list[float] = []
        for number in range(2, self.rounds + 1):
            again, theirs = refined_by(averaged_probs(ledger), run.split)
            changed.append(float((again.label != refined.label).float().mean()))
            run.note(rounds_changed=changed)
            if changed[-1] < self.rounds_stop:
                break
            reason = f"averaged predictions of stage {stage}"
            run.keep_labels(again.label, again.score, reason=reason, logits=logs(theirs))
            refined, posterior, stage = again, theirs, f"{first} {number}"
            model = model if self.rounds_from == "last" else run.net(f"cal {number}")
            ledger = self.one_round(run, stage, model, refined, sieve, posterior)
        if self.judges == "both":
            self.judge_again(run, model, posterior)
        return model

    def judge_again(self, run: Run, model: nn.Module, posterior: Tensor | None) -> None:
        """The last network has learned from D̂, not from the given labels, and is right more often
        than what D̂ was made of, but too sure (results/beyond/last_network.json)."""
        assert posterior is not None
        logits, _ = run.predict(model)
        again, both = refined_by((posterior + logits.float().softmax(dim=1)) / 2, run.split)
        reason = "predictions of the sieve and the last network"
        run.keep_labels(again.label, again.score, reason=reason, logits=logs(both))

    def one_round(
        self,
        run: Run,
        stage: str,
        model: nn.Module,
        refined: Refined,
        sieve: nn.Module | None,
        posterior: Tensor | None,
    ) -> Ledger:
        """Stage 2 on one D̂."""
        run.note(kept_share=float(refined.keep.float().mean()), dropped=int(refined.dropped.sum()))
        most, noisy = self.balanced_subset, run.split.y.cpu()
        part = None if most is None else balanced_subset(run, most)
        labels = None if part is None else noisy.where(part, -1)
        objective: Objective
        if self.relabel:
            objective = CrossEntropy()
            labels = refined.label if part is None else refined.label.where(part, -1)
        elif self.target != "noisy":
            objective = self.targeted(run, refined, posterior)
        else:
            objective = self.corrected(run, refined, sieve, part)
        batches = self.balanced_batches
        if batches is None and part is not None:
            batches = -(-int(part.sum()) // self.plan.batch_size)
        return run.train(
            stage,
            model,
            objective,
            averaging_predictions(self.plan) if self.rounds > 1 else self.plan,
            labels=labels,
            mixup=self.mixup,
            balanced_batches=batches,
        )

    def corrected(
        self, run: Run, refined: Refined, sieve: nn.Module | None, part: Tensor | None
    ) -> Objective:
        """The paper's loss, with statistics of the examples that stage 2 sees."""
        noisy, weight = run.split.y.cpu(), self.example_weight(run, sieve, refined)
        seen = torch.ones_like(noisy, dtype=torch.bool) if part is None else part
        stats = SecondOrder.from_labels(
            noisy[seen],
            refined.label[seen],
            run.split.num_classes,
            weight=None if weight is None else weight[seen],
            empty_class="identity",
        )
        prior = class_shares(noisy[seen], run.split.num_classes)
        return self.objective(refined, stats, weight, prior)

    def contradicted(self, run: Run, posterior: Tensor) -> bool:
        """Whether the surest predictions contradict more labels than errors would."""
        counted = run.split.counted
        evidence = noise_evidence(
            logs(posterior[counted]),
            run.split.y.cpu()[counted],
            surest=SUREST,
            tolerated=TOLERATED,
        )
        run.note(
            surest=evidence.surest,
            surest_contradicted=evidence.contradicted,
            evidence_p_value=evidence.p_value,
            evidence_found=evidence.found,
        )
        return evidence.contradictory

    def fit_given(self, run: Run, refined: Refined, posterior: Tensor) -> nn.Module:
        """Plain cross-entropy on the labels as they were given.

        As stage 2 is trained, but with the sieve's cut of the learning rate: on right labels it
        pays, and stage 2 may have none.
        """
        noisy = run.split.y.cpu()
        reason = "no evidence of wrong labels"
        run.keep_labels(noisy, refined.score, reason=reason, logits=logs(posterior))
        model = run.net("ce")  # the same network as that of method ce
        steps = self.sieve_plan.lr_milestones
        run.train(
            "ce", model, CrossEntropy(), replace(self.plan, lr_milestones=steps, divide_lr=False)
        )
        return model

    @property
    def balanced(self) -> bool:
        """Whether stage 2 draws its examples by class."""
        return self.balanced_subset is not None or self.balanced_batches is not None

    @property
    def asks_again(self) -> bool:
        """Whether D̂ is made of more than what was looked for evidence in."""
        return self.neighbours > 0 or self.scores == "both"

    @property
    def needs_refined(self) -> bool:
        """Whether anything of stage 2 looks at D̂: the term, a transition matrix, or CE on D̂."""
        return self.covariance or self.relabel or self.warm_start or self.base not in ("ce", "gce")

    def fit_without(self, run: Run) -> nn.Module:
        """Stage 2 alone, for the rows of the ablation that need no sieve."""
        model, noisy = run.net("cal"), run.split.y.cpu()
        same = Refined(noisy, keep=torch.ones_like(noisy).bool(), score=torch.zeros(len(noisy)))
        stats = SecondOrder.from_labels(noisy, noisy, run.split.num_classes, empty_class="identity")
        run.train(
            "cal",
            model,
            self.objective(same, stats, None, noisy_prior(run.split)),
            self.plan,
            balanced_batches=self.balanced_batches,
        )
        return model

    def targeted(self, run: Run, refined: Refined, posterior: Tensor | None) -> Targeted:
        """Stage 2's loss against a target that D̂ or its posterior gives."""
        num_classes, noisy = run.split.num_classes, run.split.y.cpu()
        soft = self.target.startswith("posterior")
        if soft and posterior is None:
            raise ValueError(f"target={self.target!r} needs the probabilities that D̂ was made of")
        if self.target in ("refined", "posterior"):
            of_class = torch.eye(num_classes)
        elif soft:
            assert posterior is not None
            of_class = soft_transition(posterior, noisy)
        else:
            of_class = SecondOrder.from_labels(
                noisy, refined.label, num_classes, empty_class="identity"
            ).transition
        return Targeted(
            refined.label,
            of_class,
            prior=self.prior_scale * noisy_prior(run.split),
            beta=self.peer_strength(),
            posterior=posterior if soft else None,
            base=self.base,
        )

    def example_weight(self, run: Run, sieve: nn.Module | None, refined: Refined) -> Tensor | None:
        """γ(x), so that the examples that are left stand for all; None if nothing was dropped.

        By the sieve's features, or where there is no sieve by the inputs themselves.
        """
        if not self.match_dropped or not bool(refined.dropped.any()):
            return None
        if sieve is None:
            x = run.split.whole("matching what was dropped by the inputs (match_dropped)")
            features: Tensor | None = x.flatten(1).float()
        else:
            _, features = run.predict(sieve, features=True)
        assert features is not None
        return kernel_mean_matching(features, ~refined.dropped).gamma.float()

    def objective(
        self, refined: Refined, stats: SecondOrder, weight: Tensor | None, prior: Tensor
    ) -> Objective:
        """Stage 2's loss with the parts that are switched on."""
        return CovarianceAssisted(
            refined.label,
            stats,
            weight,
            prior=self.prior_scale * prior,
            beta=self.peer_strength(),
            covariance=self.covariance,
            base=self.base,
            weighting=self.weighting,
        )

    def peer_strength(self) -> Ramp:
        """β of stage 2, which depends on what it multiplies.

        CE: as it is set, a ramp, since −Σ_k π_k ℓ_k has no lower bound and would otherwise drive
        the network before it has learned. GCE: its value from the first epoch on, since the term
        is bounded, and GCE without it settles on the most frequent noisy label, where it has no
        gradient left by the time a ramp rises; on D̂'s own labels GCE was better without the term
        (``peer=false``) on digits, not where D̂ itself has a favourite class. Reweight: as it is
        set; by its weights alone every class m with T_im > 0 would be a resting point for examples
        of class i, by the term only those with T_im > βπ_m are. Forward: none, for −ln((pᵀT)_ỹ) is
        least at the right p under the class-dependent noise that the covariance leaves, and would
        be corrected twice.
        """
        if not self.peer or self.base == "forward":
            return Ramp(0.0)
        return Ramp(self.beta.value) if self.base == "gce" else self.beta
