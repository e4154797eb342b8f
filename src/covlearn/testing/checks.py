"""Each house check is a function of a method that raises an AssertionError with a sentence."""

import contextlib
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from covlearn import records
from covlearn.config import plain, typed
from covlearn.engine import Machine, Objective, Plan, Record
from covlearn.evaluation import evaluation_batches
from covlearn.kinds import check_kind, nearest, shown
from covlearn.ledger import Ledger
from covlearn.methods import Method
from covlearn.methods.base import view_of
from covlearn.run import LocalRun, fit_and_evaluate
from covlearn.testing.processes import check_two_processes
from covlearn.testing.short import shortened
from covlearn.testing.toy import (
    NET_OPTIONS,
    SEED,
    Outcome,
    Toy,
    bits,
    fit,
    fit_as_it_is,
    make_toy,
    outcome_of,
    require,
    require_same,
    toy_run,
)

RECOVERED = 0.8
"""The accuracy that a method must reach on a toy where guessing gets a third."""


def check_method(
    method: Method,
    *,
    checks: Iterable[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> None:
    """Raises an ``AssertionError`` that says what a method does wrong; None if all is well.

    ``checks`` are names of :data:`CHECKS`, by default all. ``expected_failures`` has a reason for
    each check that the method is known to fail; one that passes all the same is an error, so that
    the table cannot grow old.

    >>> from covlearn.methods import CE
    >>> check_method(CE(), checks=["config_round_trips", "keeps_global_random_state"])
    """
    check_kind(checks, Iterable[str] | None, name="checks")
    check_kind(expected_failures, Mapping[str, str] | None, name="expected_failures")
    expected = dict(expected_failures or {})
    selected = list(CHECKS) if checks is None else list(checks)
    for name in [*selected, *expected]:
        check_kind(name, str, name="a check")
        if name not in CHECKS:
            raise ValueError(
                f"a check must be one of {', '.join(CHECKS)}, got {name!r}{nearest(name, CHECKS)}"
            )
    if not is_dataclass(method) or isinstance(method, type) or not isinstance(method, Method):
        raise ValueError(
            "method must be an instance of a frozen dataclass with fit(run), as "
            f"check_method(MyMethod()), got {shown(method)}"
        )
    for name in selected:
        try:
            CHECKS[name](method)
        except AssertionError as error:
            if name not in expected:
                error.add_note(f"house check {name} of {type(method).__name__}")
                raise
        else:
            require(
                name not in expected,
                f"{name} was expected to fail ({expected.get(name)}), but passes: take it out of "
                "expected_failures",
            )


def check_deterministic(method: Method) -> None:
    """The same seed gives the same bits."""
    with _global_seed(1):
        first = fit(method)[0]
    with _global_seed(2):
        second = fit(method)[0]
    require_same(
        first, second, "two runs of one seed differ; let all that is random follow from run.seed"
    )


def check_ignores_clean_labels(method: Method) -> None:
    """Other clean labels, given to the evaluator, change no bit of training."""
    toy = make_toy()
    wrong = toy._replace(
        clean=toy.clean.roll(1), test=replace(toy.test, y=(toy.test.y + 1) % toy.test.num_classes)
    )
    with tempfile.TemporaryDirectory() as folder:
        first, second = (
            _recorded(shortened(method), given, Path(folder) / name)
            for name, given in (("right", toy), ("wrong", wrong))
        )
    require_same(
        first,
        second,
        "training changes with the clean labels that the evaluator has; let the method see noisy "
        "labels alone, and choose nothing by test accuracy",
    )


def check_keeps_global_random_state(method: Method) -> None:
    """The generators of torch, NumPy and ``random`` are left as they were."""
    with _global_seed(0):
        before = _random_state()
        fit(method)
        for name, state in _random_state().items():
            require(
                bits(state) == bits(before[name]),
                f"the global random state of {name} was changed; draw from a generator that is "
                "seeded with run.seed",
            )


def check_keeps_inputs(method: Method) -> None:
    """Neither the examples, nor their labels, nor the method itself are changed."""
    toy = make_toy()
    x = toy.split.whole("a check").clone()
    y, settings = toy.split.y.clone(), plain(method)
    short = shortened(method)
    run = toy_run(toy.split)
    short.fit(run)
    require(torch.equal(toy.split.whole("a check"), x), "split.x was changed; work on a copy")
    require(torch.equal(toy.split.y, y), "split.y was changed; pass labels= to run.train instead")
    require(
        run.split is toy.split and run.seed == SEED,
        "run.split or run.seed was replaced; pass labels= to run.train instead",
    )
    require(
        short == shortened(method) and plain(method) == settings,
        "fit changed the method's own fields; what it finds out goes to run.note",
    )


def check_config_round_trips(method: Method) -> None:
    """The method is frozen, and what JSON holds of it makes the same method again."""
    kind = type(method)
    require(
        kind.__dataclass_params__.frozen,  # type: ignore[attr-defined]
        f"{kind.__name__} must be frozen: @dataclass(frozen=True)",
    )
    try:
        again = typed(kind, json.loads(json.dumps(plain(method))))
    except ValueError as error:
        raise AssertionError(f"{kind.__name__} cannot be written and read back: {error}") from error
    require(again == method, f"{method} was read back from its JSON as {again}")


def check_resumes(method: Method) -> None:
    """A run that is cut off in each epoch of each stage in turn ends with the same bits.

    So does one that averages its weights and predictions, cut off in the last epoch of each stage.
    """
    _require_resumes(shortened(method), range)
    _require_resumes(shortened(method, average=0.99), lambda epochs: range(epochs)[-1:])


def _require_resumes(short: Method, cut_in: Callable[[int], range]) -> None:
    whole, run = fit_as_it_is(short)
    with tempfile.TemporaryDirectory() as folder:
        cuts = [(stage, at) for stage, lines in run.history.items() for at in cut_in(len(lines))]
        for stage, epoch in cuts:
            cut = partial(_interrupt, stage, epoch)
            try:
                fit_as_it_is(short, folder=Path(folder), after_epoch=cut)
            except KeyboardInterrupt:
                continue
            except ValueError as error:
                raise AssertionError(f"a run that was cut off cannot go on: {error}") from error
            raise AssertionError(
                f"epoch {epoch} of stage {stage} was interrupted, and fit went on or did not come "
                "by there again; let KeyboardInterrupt pass, and name stages alike"
            )
        resumed, _ = fit_as_it_is(short, folder=Path(folder))
    require_same(
        whole,
        resumed,
        "a run that was cut off ends otherwise than a whole one; what an objective carries from "
        "step to step must be in buffers or parameters",
    )


def check_recovers(method: Method) -> None:
    """Clouds that are far apart are told apart, though a fifth of the labels is wrong."""
    toy = make_toy()
    model = shortened(method, epochs=12).fit(toy_run(toy.split)).eval()
    (batch,) = evaluation_batches(toy.test, Machine()).epoch(0)
    with torch.no_grad():
        logits = model(batch.x)
    shape = (len(toy.test), toy.test.num_classes)
    require(tuple(logits.shape) == shape, f"expected logits {shape}, got {tuple(logits.shape)}")
    share = float((logits.argmax(dim=1) == toy.test.y).float().mean())
    require(
        share >= RECOVERED,
        f"an accuracy of {RECOVERED} on an easy toy was expected, got {share:.3f}; guessing gets "
        f"{1 / toy.test.num_classes:.2f}",
    )


def check_needs_only_the_protocol(method: Method) -> None:
    """An object with the members of :class:`covlearn.methods.Run` alone serves as a run."""
    run = toy_run(make_toy().split)
    try:
        model = shortened(method).fit(view_of(run))
    except AttributeError as error:
        raise AssertionError(f"a run of another class does not do: {error}") from error
    require_same(
        fit(method)[0], outcome_of(model, run), "a run of another class gives another network"
    )


def check_keeps_buffers_in_place(method: Method) -> None:
    """What an objective keeps is in buffers, which stay where they are: a CUDA step reads them."""
    shortened(method).fit(_Watching(make_toy().split, net_options=NET_OPTIONS, seed=SEED))


class _Watching(LocalRun):
    """A run that looks at what each objective holds, and compares its first epoch with its end."""

    def train(
        self, stage: str, model: nn.Module, objective: Objective, plan: Plan, **options: Any
    ) -> Ledger:
        begin_epoch = objective.begin_epoch
        first: dict[str, Any] = {}
        for name in _left_behind(objective):
            raise AssertionError(
                f"{type(objective).__name__}.{name} holds a tensor that is no buffer, and stays on "
                "the CPU when the objective moves to a GPU: register_buffer it, and put together "
                "in forward what is made of several, as a SecondOrder"
            )

        def watched(epoch: int, ledger: Ledger) -> None:
            begin_epoch(epoch, ledger)
            if not first:
                first.update(_held(objective))

        objective.begin_epoch = watched  # type: ignore[method-assign]
        try:
            ledger = super().train(stage, model, objective, plan, **options)
        finally:
            del objective.begin_epoch
        for name, held in _held(objective).items() if first and objective.capturable else ():
            require(
                _same_place(first.get(name), held),
                f"{type(objective).__name__}.{name} is another after training than after the first "
                "begin_epoch, and a captured CUDA step would not see it: keep it in a buffer that "
                "is written in place (fill_, copy_), or set capturable = False",
            )
        return ledger


def _held(objective: Objective) -> dict[str, Any]:
    """Every tensor and every number of an objective and of the modules in it, by name."""
    held = {}
    for prefix, module in objective.named_modules():
        for name, value in {**vars(module), **module._buffers, **module._parameters}.items():
            if isinstance(value, Tensor | int | float):
                # detach shares the memory: while it is held, no other tensor gets its address.
                kept = value.detach() if isinstance(value, Tensor) else value
                held[f"{prefix}.{name}".lstrip(".")] = kept
    return held


def _left_behind(objective: Objective) -> Iterator[str]:
    """The attributes with a tensor in them that ``objective.to(device)`` does not know of."""
    known = ("_buffers", "_parameters", "_modules")
    for prefix, module in objective.named_modules():
        for name, value in vars(module).items():
            if name not in known and _has_tensor(value):
                yield f"{prefix}.{name}".lstrip(".")


def _has_tensor(value: Any) -> bool:
    """A tensor, or a dataclass or collection of some; one number mixes with any device."""
    if isinstance(value, Tensor):
        return value.ndim > 0
    if isinstance(value, Mapping):
        return any(map(_has_tensor, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_tensor, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(_has_tensor(getattr(value, field.name)) for field in fields(value))
    return False


def _same_place(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return before.data_ptr() == after.data_ptr()
    return type(before) is type(after) and bool(before == after)


CHECKS: dict[str, Callable[[Method], None]] = {
    "config_round_trips": check_config_round_trips,
    "deterministic": check_deterministic,
    "ignores_clean_labels": check_ignores_clean_labels,
    "keeps_global_random_state": check_keeps_global_random_state,
    "keeps_inputs": check_keeps_inputs,
    "resumes": check_resumes,
    "recovers": check_recovers,
    "needs_only_the_protocol": check_needs_only_the_protocol,
    "keeps_buffers_in_place": check_keeps_buffers_in_place,
    "two_processes": check_two_processes,
}
"""Every house check by name."""


def _recorded(method: Method, toy: Toy, folder: Path) -> Outcome:
    """The same of a run that was evaluated and written down, less what evaluation found."""
    fit_and_evaluate(
        method,
        toy.split,
        test=toy.test,
        clean=toy.clean,
        folder=folder,
        net_options=NET_OPTIONS,
    )
    run = records.read(folder)
    return {
        "network": (folder / records.MODEL).read_bytes(),
        "refined labels": [
            line.rpartition(",")[0]  # the last column holds the clean labels
            for line in (folder / records.LABELS).read_text(encoding="utf-8").splitlines()
        ],
        "facts": None if run.result is None else json.dumps(run.result.facts),
    }


def _interrupt(stage: str, epoch: int, now: str, at: int, _: nn.Module, __: Ledger) -> Record:
    if (now, at) == (stage, epoch):
        raise KeyboardInterrupt
    return {}


def _random_state() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),  # noqa: NPY002  it is this one that must not change
        "random": random.getstate(),
    }


@contextlib.contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    """The global generators in a known state; at the end they are as they were."""
    before = _random_state()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before["torch"])
        np.random.set_state(before["numpy"])  # noqa: NPY002
        random.setstate(before["random"])
