"""What a method is given: data, networks, training and the folder that stages are kept in."""

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import covlearn
from covlearn import distributed, records
from covlearn.average import Judge
from covlearn.config import plain
from covlearn.data import Loaded, Resident, Split, batches_of
from covlearn.engine import Machine, Objective, Plan, Record, make_ledger, predict, train
from covlearn.evaluation import (
    Progress,
    digest,
    evaluation_batches,
)
from covlearn.kept import Kept
from covlearn.ledger import Ledger
from covlearn.nets import build_net
from covlearn.shortage import OutOfMemory, in_words, is_shortage
from covlearn.stages import (
    FollowedCheckpoint,
    derived_seed,
    digest_of,
    fingerprint,
    has_lasting_name,
    identity_of,
)
from covlearn.threads import threads_for

AfterEpoch = Callable[[str, int, nn.Module, Ledger], Record]
HOLDOUT = "holdout_accuracy"
JUDGED = "judged"


@dataclass
class LocalRun:
    """What a method is given (:class:`covlearn.methods.Run`), on this machine.

    ``after_epoch(stage, epoch, model, ledger)`` is the evaluator's: it may know clean labels, and
    nothing that it returns reaches the method. With a folder, stages are kept there, and
    ``follow`` is told of each epoch.
    """

    split: Split
    net_name: str = "mlp"
    net_options: dict[str, Any] = field(default_factory=dict)
    machine: Machine = Machine()
    seed: int = 0
    folder: Path | None = None
    after_epoch: AfterEpoch | None = None
    can_choose: bool = False
    """Whether ``after_epoch`` gives an accuracy on labels that an epoch may be chosen by."""
    follow: Progress | None = None
    checkpoint_seconds: float = 30.0
    shared_stages: Path | None = None
    data_identity: str = ""
    """A digest of inputs, test data and right labels, all of which a stage's records depend on."""
    to_share: FollowedCheckpoint | None = None
    history: dict[str, list[Record]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    refined: tuple[Tensor, Tensor, str] | None = None
    refined_by: Tensor | None = None
    last_ledger: Ledger | None = None
    last_labels: Tensor | None = None
    """What the stage of that ledger was trained on, if not on the given labels."""

    def net(self, name: str) -> nn.Module:
        """A new network; its weights are a function of the run's seed and the name."""
        model = build_net(
            self.net_name,
            num_classes=self.split.num_classes,
            input_shape=input_shape(self.split),
            seed=derived_seed(self.seed, "net", name),
            options=self.net_options,
        )
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return distributed.share_batch_norm(model) if self.machine.sync_batch_norm else model

    def train(
        self,
        stage: str,
        model: nn.Module,
        objective: Objective,
        plan: Plan,
        *,
        labels: Tensor | None = None,
        mixup: bool = False,
        balanced_batches: int | None = None,
        keep_best: bool | Judge = False,
    ) -> Ledger:
        """Trains in place; a stage whose checkpoint is complete is read back instead."""
        if stage in self.history:
            raise ValueError(f"each stage of a run needs its own name, {stage!r} came twice")
        if keep_best is True and not self.can_choose:
            raise ValueError(
                f"the best epoch of stage {stage} is chosen on a validation part or on held-out "
                "labels, and there are none; set holdout, as holdout=0.1, or take the last epoch"
            )
        split = self.split
        if labels is not None:
            split = replace(split, y=labels.clamp(min=0))
            objective = Kept(objective, labels >= 0)
        data = self.batches(
            split,
            batch_size=plan.batch_size,
            seed=derived_seed(self.seed, "data", stage),
            mixup=mixup,
            balanced_batches=balanced_batches,
            taking_part=None if labels is None else labels >= 0,
        )
        ledger = make_ledger(data, plan)
        evaluate = self.after_epoch
        judge = keep_best if callable(keep_best) else None
        choose_by = JUDGED if judge is not None else HOLDOUT if keep_best else None

        def look(epoch: int, shown: nn.Module, rows: Ledger) -> Record:
            seen = {} if evaluate is None else evaluate(stage, epoch, shown, rows)
            return seen if judge is None else seen | {JUDGED: judge(shown)}

        checkpoint = self.checkpoint(stage, plan, data, objective, model, choose_by)
        if self.to_share is not None:
            # A last stage is nobody else's, so that a stage is shared when another one follows.
            self.to_share.share()
            self.to_share = None
        try:
            if checkpoint is not None:
                checkpoint.claim()
            with self.threads(model, plan):
                self.history[stage] = train(
                    model,
                    objective,
                    data,
                    plan,
                    self.machine,
                    seed=derived_seed(self.seed, "train", stage),
                    ledger=ledger,
                    checkpoint=checkpoint,
                    after_epoch=look,
                    choose_by=choose_by,
                )
        except BaseException as error:
            if checkpoint is not None:
                checkpoint.release()
                with contextlib.suppress(Exception):  # the first failure is the one to report
                    checkpoint.wait()
            kept = "" if checkpoint is None else checkpoint.kept()
            if isinstance(error, ValueError):
                raise ValueError(f"stage {stage}: {error}{kept}") from error
            if is_shortage(error):
                said = in_words(error, self.what_to_lower(plan))
                raise OutOfMemory(f"stage {stage}: {said}{kept}") from error
            raise
        finally:
            data.close()
        if checkpoint is not None and self.history[stage]:
            self.to_share = checkpoint
        if self.history[stage]:
            self.last_ledger, self.last_labels = ledger, labels
        return ledger

    def threads(self, model: nn.Module, plan: Plan) -> contextlib.AbstractContextManager[None]:
        """As many as the steps of a stage are worth, on the processor."""
        if torch.device(self.machine.device).type != "cpu":
            return contextlib.nullcontext()
        return threads_for(model, plan.batch_size)

    def what_to_lower(self, plan: Plan) -> list[str]:
        """The settings that a stage's memory depends on, as they are."""
        remedies = [
            f"lower the plan's batch_size (now {plan.batch_size})",
            f"take a smaller net than {self.net_name}",
        ]
        if plan.average_predictions is not None:
            kept = plan.average_classes or self.split.num_classes
            remedies.append(f"keep fewer average_classes in the plan (now {kept})")
        return remedies

    def predict(self, model: nn.Module, *, features: bool = False) -> tuple[Tensor, Tensor | None]:
        """Logits, and features if asked for, of the training examples, in evaluation mode."""
        data = evaluation_batches(self.split, self.machine)
        logits, hidden = predict(model, data, self.machine, features=features)
        return logits.cpu(), None if hidden is None else hidden.cpu()

    def note(self, **facts: Any) -> None:
        """Records what the method found out."""
        plain(facts)  # what cannot be written down is refused now, not after training
        self.facts |= facts

    def keep_labels(
        self, label: Tensor, score: Tensor, *, reason: str, logits: Tensor | None = None
    ) -> None:
        """Records D̂ with a score each, higher for a label that is likelier wrong."""
        self.refined = label.cpu(), score.cpu(), reason
        self.refined_by = None if logits is None else logits.cpu()

    def batches(self, split: Split, **options: Any) -> Resident | Loaded:
        """The training batches of this process."""
        return batches_of(
            split,
            num_workers=self.machine.num_workers(),
            device=self.machine.device,
            process=distributed.process(),
            num_processes=distributed.num_processes(),
            **options,
        )

    def checkpoint(
        self,
        stage: str,
        plan: Plan,
        data: Resident | Loaded,
        objective: Objective,
        model: nn.Module,
        choose_by: str | None,
    ) -> FollowedCheckpoint | None:
        """Where a stage is kept, under a name for everything that decides what it computes."""
        if self.folder is None:
            return None
        identity = fingerprint(
            {
                "stage": stage,
                "covlearn": covlearn.__version__,
                "data": self.data_identity,
                "plan": asdict(plan),
                "net": [self.net_name, self.net_options],
                "seed": self.seed,
                "examples": len(data),
                "labels": digest(data.y),
                "augmentation": plain(data.augmentation),
                "mixup": data.mixup,
                "balanced_batches": data.balanced_batches,
                "choose_by": choose_by,
                "objective": identity_of(objective),
                "network": digest_of(model),
                "precision": self.machine.precision,
            }
        )
        follow = self.follow
        return FollowedCheckpoint(
            self.folder / records.STAGES / f"{stage}.pt",
            identity,
            seconds_between=self.checkpoint_seconds,
            follow=None if follow is None else partial(follow, stage, plan.epochs),
            # Of two that cannot be told apart one would be taken for the other.
            shared=None
            if self.shared_stages is None or not has_lasting_name(objective)
            else self.shared_stages / f"{stage}-{identity[:16]}.pt",
        )


def input_shape(split: Split) -> tuple[int, ...]:
    """The shape of one example as a network sees it."""
    shape = tuple(split.x.shape[1:])
    if split.augmentation is None:
        return shape
    return (shape[2], *split.augmentation.shape(*shape[:2]))


def machine_config(machine: Machine) -> dict[str, Any]:
    """What of the machine belongs to a run: not which GPU it was, nor how many read the images."""
    known = plain(machine) | {"device": torch.device(machine.device).type}
    return {name: value for name, value in known.items() if name != "workers"}
