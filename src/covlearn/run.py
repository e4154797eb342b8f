"""A run: a method, its data and its folder, joined.

Clean labels go to the evaluator and nowhere else: what it finds is written down, and no method can
ask for it.
"""

import shutil
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

import covlearn
from covlearn import distributed, records
from covlearn.atomic import write_bytes
from covlearn.checks import Array, check_labels
from covlearn.config import plain
from covlearn.data import Split, counter
from covlearn.engine import Machine
from covlearn.evaluation import (
    Evaluator,
    Progress,
    Recorder,
    described,
    environment,
    example_table,
    model_bytes,
    probs_bytes,
)
from covlearn.kinds import checked
from covlearn.local_run import LocalRun, machine_config
from covlearn.methods import METHODS, Method
from covlearn.methods.base import view_of
from covlearn.noise import NoiseCard
from covlearn.noise.inputs import check_seed
from covlearn.records import Result
from covlearn.stages import (
    alone_in,
    derived_seed,
    digests_of_files,
    fingerprint,
    start_as,
)

__all__ = [
    "LocalRun",
    "fit_and_evaluate",
    "held_out",
    "method_name",
]


@checked
def fit_and_evaluate(
    method: Method,
    split: Split,
    *,
    test: Split,
    clean: Array | None = None,
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
    keep_model: bool = True,
) -> Result:
    """Trains on the noisy labels of ``split``, evaluates each epoch, and records it in ``folder``.

    ``test`` has right labels. ``clean``, the right training labels where they are known, only ever
    reaches the evaluator. An epoch is chosen by ``validation``, other examples with right labels,
    or, with ``holdout``, by the noisy labels of that share of the examples, which leaves training.
    ``preset`` names where the method's settings came from,
    for the record. A finished folder of the same configuration is read back; an unfinished one is
    continued with ``resume``, and ends with the same figures and bits. Runs that are given the same
    folder of ``shared_stages`` train a stage that they have in common only once. ``job`` says in
    words what the run is, for the record. Without ``keep_model`` figures alone are recorded, no
    weights and nothing of single examples.
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
    with alone_in(folder):
        finished = start_as(Result, folder, config, resume=resume)
        if finished is not None:
            return finished
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
        except (ValueError, MemoryError):
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
            refinement = evaluator.refinement(run.refined, run.refined_by)
            if refinement is not None:
                records.write_json(folder / records.REFINEMENT, refinement)
            if keep_model:
                table = example_table(
                    run.split.y, run.refined, run.last_ledger, evaluator.clean, run.last_labels
                )
                records.write_table(folder / records.LABELS, {"idx": kept.tolist(), **table})
                write_bytes(folder / records.PROBS, probs_bytes(run.predict(model)[0], kept))
                write_bytes(folder / records.MODEL, model_bytes(model))
            records.write_json(folder / records.RESULT, result)
            # What it would be resumed from has no use any more, and is larger than all the rest.
            shutil.rmtree(folder / records.STAGES, ignore_errors=True)
        return result


@checked
def held_out(num_examples: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions to train on and positions held out, each in order; a function of the seed."""
    if not 0 <= share < 1:  # also refuses NaN
        raise ValueError(f"holdout must lie in [0, 1), got {share}; 10 % is written 0.1")
    count = round(share * num_examples)
    if share > 0 and not 0 < count < num_examples:
        raise ValueError(
            f"holdout={share} of {num_examples} examples leaves nothing on one side; change it"
        )
    order = counter.permutation(counter.key(derived_seed(int(seed), "holdout"), 0), num_examples)
    return order[count:].sort().values, order[:count].sort().values


@checked
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
