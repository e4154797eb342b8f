"""A run: a method, its data and its folder, joined.

Clean labels go to the evaluator and nowhere else: what it finds is written down, and no method can
ask for it.
"""

import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import covlearn
from covlearn import distributed, records
from covlearn.checks import check_labels
from covlearn.config import plain
from covlearn.data import Loaded, Resident, Split, batches_of, counter
from covlearn.engine import Machine, Objective, Plan, Record, make_ledger, predict, train
from covlearn.evaluation import (
    Evaluator,
    Progress,
    Recorder,
    described,
    digest,
    environment,
    evaluation_batches,
    example_table,
    model_bytes,
    probs_bytes,
)
from covlearn.kept import Kept
from covlearn.ledger import Ledger
from covlearn.methods import METHODS, Method
from covlearn.methods.base import view_of
from covlearn.nets import build_net
from covlearn.noise import NoiseCard
from covlearn.noise.inputs import check_seed
from covlearn.records import Result
from covlearn.stages import (
    FollowedCheckpoint,
    derived_seed,
    digest_of,
    digests_of_files,
    fingerprint,
    identity_of,
)

AfterEpoch = Callable[[str, int, nn.Module, Ledger], Record]
HOLDOUT = "holdout_accuracy"


def fit_and_evaluate(
    method: Method,
    split: Split,
    *,
    test: Split,
    clean: Tensor | None = None,
    validation: Split | None = None,
    noise_card: NoiseCard | None = None,
    folder: str | PathLike[str],
    machine: Machine = Machine(),
    seed: int = 0,
    net: str = "mlp",
    net_options: Mapping[str, Any] | None = None,
    data_name: str | None = None,
    preset: str | None = None,
    holdout: float = 0.0,
    resume: bool = False,
    progress: Progress | None = None,
    checkpoint_seconds: float = 30.0,
    shared_stages: Path | None = None,
    job: Mapping[str, Any] | None = None,
) -> Result:
    """Trains on the noisy labels of ``split``, evaluates each epoch, and records it in ``folder``.

    ``test`` has right labels. ``clean``, the right training labels where they are known, only ever
    reaches the evaluator. An epoch is chosen by ``validation``, other examples with right labels,
    or, with ``holdout``, by the noisy labels of that share of the examples, which leaves training.
    ``preset`` names where the method's settings came from,
    for the record. A finished folder of the same configuration is read back; an unfinished one is
    continued with ``resume``, and ends with the same figures and bits. Runs that are given the same
    folder of ``shared_stages`` train a stage that they have in common only once. ``job`` says in
    words what the run is, for the record.
    """
    folder = Path(folder)
    check_seed(seed)
    if clean is not None:
        clean = check_labels(clean, num_classes=split.num_classes, length=len(split), name="clean")
    for name, other in (("test", test), ("validation", validation)):
        if other is not None:
            _check_like(split, other, name)
    kept, held = held_out(len(split), holdout, seed)
    run = LocalRun(
        split.subset(kept)
        if len(held)
        else split,  # a copy, of images that may be mapped from a file
        net_name=net,
        net_options=dict(net_options or {}),
        machine=machine,
        seed=seed,
        folder=folder,
        checkpoint_seconds=checkpoint_seconds,
        shared_stages=shared_stages,
    )
    run.net("check")  # what is wrong with a net is said before there is a folder
    config = {
        "format": records.FORMAT,
        "covlearn": covlearn.__version__,
        "method": {"name": method_name(method), **plain(method)},
        "job": None if job is None else dict(job),
        "preset": preset,
        "seed": seed,
        "net": {"name": net, **run.net_options},
        "files": digests_of_files([plain(method), run.net_options]),
        "holdout": holdout,
        "data": {"name": data_name, **described(split, test, clean, validation)},
        "noise": None if noise_card is None else noise_card.to_dict(),
        "machine": machine_config(machine),
    }
    run.data_identity = fingerprint(config["data"])
    finished = start_as(Result, folder, config, resume=resume)
    if finished is not None:
        return finished

    with records.held(folder) if distributed.process() == 0 else contextlib.nullcontext():
        evaluator = Evaluator(
            test,
            held=split.subset(held) if len(held) else validation,
            held_is_noisy=bool(len(held)),
            noisy=run.split.y,
            clean=None if clean is None else clean[kept],
            machine=machine,
        )
        run.after_epoch, run.can_choose = evaluator, evaluator.held is not None
        recording = distributed.process() == 0
        if recording:
            records.write_json(folder / records.ENVIRONMENT, environment(machine))
            run.follow = Recorder(run.history, folder, progress)
        try:
            model = method.fit(view_of(run))
        except ValueError:
            if recording:
                records.abandon_if_empty(folder)
            raise
        finally:
            if run.to_share is not None:
                run.to_share.release()
        result = Result(
            method=method_name(method),
            seed=seed,
            **evaluator.figures(run.history, model),
            labels=evaluator.labels(run.refined),
            facts=plain(run.facts),
        )
        if recording:
            records.write_metrics(folder, run.history)
            table = example_table(run.split.y, run.refined, run.last_ledger, evaluator.clean)
            records.write_table(folder / records.LABELS, {"idx": kept.tolist(), **table})
            if (refinement := evaluator.refinement(run.refined)) is not None:
                records.write_json(folder / records.REFINEMENT, refinement)
            records.write_bytes(folder / records.PROBS, probs_bytes(run.predict(model)[0], kept))
            records.write_bytes(folder / records.MODEL, model_bytes(model))
            records.write_json(folder / records.RESULT, result)
            # What it would be resumed from has no use any more, and is larger than all the rest.
            shutil.rmtree(folder / records.STAGES, ignore_errors=True)
        return result


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
        keep_best: bool = False,
    ) -> Ledger:
        """Trains in place; a stage whose checkpoint is complete is read back instead."""
        if stage in self.history:
            raise ValueError(f"each stage of a run needs its own name, {stage!r} came twice")
        if keep_best and not self.can_choose:
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
            strong=objective.needs_strong,
            balanced_batches=balanced_batches,
            taking_part=None if labels is None else labels >= 0,
        )
        ledger = make_ledger(data, plan)
        evaluate = self.after_epoch
        choose_by = HOLDOUT if keep_best else None
        checkpoint = self.checkpoint(stage, plan, data, objective, model, choose_by)
        if self.to_share is not None:
            # A last stage is nobody else's, so that a stage is shared when another one follows.
            self.to_share.share()
            self.to_share = None
        try:
            if checkpoint is not None:
                checkpoint.claim()
            self.history[stage] = train(
                model,
                objective,
                data,
                plan,
                self.machine,
                seed=derived_seed(self.seed, "train", stage),
                ledger=ledger,
                checkpoint=checkpoint,
                after_epoch=None
                if evaluate is None
                else lambda epoch, shown, rows: evaluate(stage, epoch, shown, rows),
                choose_by=choose_by,
            )
        except BaseException as error:
            if checkpoint is not None:
                checkpoint.release()
                with contextlib.suppress(OSError):  # the first failure is the one to report
                    checkpoint.wait()
            if isinstance(error, ValueError):
                kept = "" if checkpoint is None else checkpoint.kept()
                raise ValueError(f"stage {stage}: {error}{kept}") from error
            raise
        finally:
            data.close()
        if checkpoint is not None and self.history[stage]:
            self.to_share = checkpoint
        if self.history[stage]:
            self.last_ledger = ledger
        return ledger

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
            shared=None
            if self.shared_stages is None
            else self.shared_stages / f"{stage}-{identity[:16]}.pt",
        )


def held_out(num_examples: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions to train on and positions held out, each in order; a function of the seed."""
    if not 0 <= share < 1:  # also refuses NaN
        raise ValueError(f"holdout must lie in [0, 1), got {share}; 10 % is written 0.1")
    count = round(share * num_examples)
    if share > 0 and not 0 < count < num_examples:
        raise ValueError(
            f"holdout={share} of {num_examples} examples leaves nothing on one side; change it"
        )
    order = counter.permutation(counter.key(derived_seed(seed, "holdout"), 0), num_examples)
    return order[count:].sort().values, order[:count].sort().values


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


def method_name(method: Method) -> str:
    """The name under which ``covlearn train --method`` finds the method's class."""
    kind = type(method)
    own = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, known in METHODS.items() if known is kind), own)


def _check_like(split: Split, other: Split, name: str) -> None:
    if other.x.shape[1:] != split.x.shape[1:] or other.num_classes != split.num_classes:
        raise ValueError(
            f"{name} must hold examples as the training split does, shape "
            f"{tuple(split.x.shape[1:])} and {split.num_classes} classes, got "
            f"{tuple(other.x.shape[1:])} and {other.num_classes}"
        )


def start_as(
    kind: type[records.Outcome], folder: Path, config: dict[str, Any], *, resume: bool
) -> records.Outcome | None:
    """The first process looks after the folder; the others are told what it found.

    Processes on machines of their own may have read other data: that is found here, too.
    """
    finished = distributed.of_first(lambda: records.start_as(kind, folder, config, resume=resume))
    differing = records.differences(distributed.of_first(lambda: plain(config)), plain(config))
    if differing:
        raise ValueError(
            f"all processes must be given the same run, process {distributed.process()} differs "
            f"from the first: {'; '.join(differing[:3])}"
        )
    return finished
