"""The house checks: what every method must keep, shipped so that outside methods can use them.

``check_method(MyMethod())`` runs them all. Each is a function of a method that raises an
``AssertionError`` with a sentence; :data:`CHECKS` has them by name, to be parametrised over. They
train on a toy with plans that :func:`shortened` cuts to a few epochs.
"""

import contextlib
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from covlearn import records
from covlearn.config import nearest, plain, typed
from covlearn.data import Split
from covlearn.engine import Plan, Record
from covlearn.evaluation import model_bytes
from covlearn.ledger import Ledger
from covlearn.methods import Method, Run
from covlearn.noise import symmetric
from covlearn.run import LocalRun, fit_and_evaluate
from covlearn.schedules import Ramp

M = TypeVar("M")

RUN_MEMBERS = ("split", "seed", "net", "train", "predict", "note", "keep_labels")
"""All that a method may use of a run."""
EPOCH_FIELDS = ("_epochs", "_from", "_every")
"""How the name of a whole number that counts epochs ends."""
NET_OPTIONS = {"hidden": [32]}
SEED = 7
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
    expected = dict(expected_failures or {})
    selected = list(CHECKS) if checks is None else list(checks)
    for name in [*selected, *expected]:
        if name not in CHECKS:
            raise ValueError(
                f"a check must be one of {', '.join(CHECKS)}, got {name!r}{nearest(name, CHECKS)}"
            )
    if not is_dataclass(method) or isinstance(method, type) or not isinstance(method, Method):
        raise ValueError(
            "method must be an instance of a frozen dataclass with fit(run), as "
            f"check_method(MyMethod()), got {method!r}"
        )
    for name in selected:
        try:
            CHECKS[name](method)
        except AssertionError as error:
            if name not in expected:
                error.add_note(f"house check {name} of {type(method).__name__}")
                raise
        else:
            _require(
                name not in expected,
                f"{name} was expected to fail ({expected.get(name)}), but passes: take it out of "
                "expected_failures",
            )


def shortened(method: M, *, epochs: int = 3, batch_size: int = 32, lr: float | None = None) -> M:
    """A copy of a method, or of any dataclass, that trains for at most ``epochs`` a stage.

    Every :class:`~covlearn.engine.Plan` in it, however deep, gets the epochs and the batch size,
    and ``lr`` if that is given. What counts epochs beside it shrinks in proportion to the longest
    plan: milestones, start and end of a :class:`~covlearn.schedules.Ramp`, and whole numbers in
    fields named ``…_epochs``, ``…_from`` or ``…_every``, which stay at least 1 unless they are 0.

    >>> from covlearn.methods import CORES
    >>> short = shortened(CORES(), epochs=10)
    >>> short.plan.epochs, short.beta, short.sieve_from
    (10, Ramp(value=2.0, start=1, end=4), 3)
    """
    longest = max((plan.epochs for plan in _plans(method)), default=0)
    return cast("M", _scaled(method, min(1.0, epochs / max(longest, 1)), epochs, batch_size, lr))


def _plans(value: Any) -> Iterator[Plan]:
    if isinstance(value, Plan):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _plans(getattr(value, field.name))


def _scaled(value: Any, scale: float, epochs: int, batch_size: int, lr: float | None) -> Any:
    if isinstance(value, Plan):
        return replace(
            value,
            epochs=min(value.epochs, epochs),
            batch_size=batch_size,
            lr=value.lr if lr is None else lr,
            lr_milestones=tuple(round(epoch * scale) for epoch in value.lr_milestones),
        )
    if isinstance(value, Ramp):
        return replace(value, start=round(value.start * scale), end=round(value.end * scale))
    changes = {}
    for field in fields(value):
        item = getattr(value, field.name)
        if is_dataclass(item):
            changes[field.name] = _scaled(item, scale, epochs, batch_size, lr)
        elif type(item) is int and item > 0 and field.name.endswith(EPOCH_FIELDS):
            changes[field.name] = max(1, round(item * scale))
    return replace(value, **changes)


class Toy(NamedTuple):
    """Three clouds in eight dimensions, a fifth of whose training labels are wrong."""

    split: Split
    clean: Tensor
    test: Split


def make_toy(num_examples: int = 120) -> Toy:
    """The same toy whenever it is asked for; a linear classifier gets its test labels right."""
    generator = torch.Generator().manual_seed(0)

    def clouds() -> Split:
        clean = torch.arange(num_examples) % 3
        noise = torch.randn(num_examples, 8, generator=generator)
        return Split(noise + 5 * torch.eye(8)[clean], clean, 3)

    train, test = clouds(), clouds()
    noisy = torch.from_numpy(symmetric(train.y, rate=0.2, num_classes=3, seed=0).label)
    return Toy(replace(train, y=noisy), train.y, test)


def check_deterministic(method: Method) -> None:
    """The same seed gives the same bits."""
    with _global_seed(1):
        first = _fit(method)[0]
    with _global_seed(2):
        second = _fit(method)[0]
    _require_same(
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
    _require_same(
        first,
        second,
        "training changes with the clean labels that the evaluator has; let the method see noisy "
        "labels alone, and choose nothing by test accuracy",
    )


def check_keeps_global_random_state(method: Method) -> None:
    """The generators of torch, NumPy and ``random`` are left as they were."""
    with _global_seed(0):
        before = _random_state()
        _fit(method)
        for name, state in _random_state().items():
            _require(
                _bits(state) == _bits(before[name]),
                f"the global random state of {name} was changed; draw from a generator that is "
                "seeded with run.seed",
            )


def check_keeps_inputs(method: Method) -> None:
    """Neither the examples, nor their labels, nor the method itself are changed."""
    toy = make_toy()
    x, y, settings = toy.split.x.clone(), toy.split.y.clone(), plain(method)
    short = shortened(method)
    run = _run(split=toy.split)
    short.fit(run)
    _require(torch.equal(toy.split.x, x), "split.x was changed; work on a copy")
    _require(torch.equal(toy.split.y, y), "split.y was changed; pass labels= to run.train instead")
    _require(
        run.split is toy.split and run.seed == SEED,
        "run.split or run.seed was replaced; pass labels= to run.train instead",
    )
    _require(
        short == shortened(method) and plain(method) == settings,
        "fit changed the method's own fields; what it finds out goes to run.note",
    )


def check_config_round_trips(method: Method) -> None:
    """The method is frozen, and what JSON holds of it makes the same method again."""
    kind = type(method)
    _require(
        kind.__dataclass_params__.frozen,  # type: ignore[attr-defined]
        f"{kind.__name__} must be frozen: @dataclass(frozen=True)",
    )
    try:
        again = typed(kind, json.loads(json.dumps(plain(method))))
    except ValueError as error:
        raise AssertionError(f"{kind.__name__} cannot be written and read back: {error}") from error
    _require(again == method, f"{method} was read back from its JSON as {again}")


def check_resumes(method: Method) -> None:
    """A run that is cut off in each epoch of each stage in turn ends with the same bits."""
    whole, run = _fit(method)
    with tempfile.TemporaryDirectory() as folder:
        epochs = [(stage, at) for stage, lines in run.history.items() for at in range(len(lines))]
        for stage, epoch in epochs:
            cut = partial(_interrupt, stage, epoch)
            try:
                _fit(method, folder=Path(folder), after_epoch=cut)
            except KeyboardInterrupt:
                continue
            except ValueError as error:
                raise AssertionError(f"a run that was cut off cannot go on: {error}") from error
            raise AssertionError(
                f"epoch {epoch} of stage {stage} was interrupted, and fit went on or did not come "
                "by there again; let KeyboardInterrupt pass, and name stages alike"
            )
        resumed, _ = _fit(method, folder=Path(folder))
    _require_same(
        whole,
        resumed,
        "a run that was cut off ends otherwise than a whole one; what an objective carries from "
        "step to step must be in buffers or parameters",
    )


def check_recovers(method: Method) -> None:
    """Clouds that are far apart are told apart, though a fifth of the labels is wrong."""
    toy = make_toy()
    model = shortened(method, epochs=12).fit(_run(split=toy.split)).eval()
    with torch.no_grad():
        logits = model(toy.test.x)
    shape = (len(toy.test), toy.test.num_classes)
    _require(tuple(logits.shape) == shape, f"expected logits {shape}, got {tuple(logits.shape)}")
    share = float((logits.argmax(dim=1) == toy.test.y).float().mean())
    _require(
        share >= RECOVERED,
        f"an accuracy of {RECOVERED} on an easy toy was expected, got {share:.3f}; guessing gets "
        f"{1 / toy.test.num_classes:.2f}",
    )


def check_needs_only_the_protocol(method: Method) -> None:
    """An object with the members of :class:`covlearn.methods.Run` alone serves as a run."""
    run = _run()
    bare = SimpleNamespace(**{name: getattr(run, name) for name in RUN_MEMBERS})
    try:
        model = shortened(method).fit(cast("Run", bare))
    except AttributeError as error:
        raise AssertionError(
            f"a method may use {', '.join(RUN_MEMBERS)} of a run and nothing else: {error}"
        ) from error
    _require_same(
        _fit(method)[0], _outcome(model, run), "a run of another class gives another network"
    )


CHECKS: dict[str, Callable[[Method], None]] = {
    "config_round_trips": check_config_round_trips,
    "deterministic": check_deterministic,
    "ignores_clean_labels": check_ignores_clean_labels,
    "keeps_global_random_state": check_keeps_global_random_state,
    "keeps_inputs": check_keeps_inputs,
    "resumes": check_resumes,
    "recovers": check_recovers,
    "needs_only_the_protocol": check_needs_only_the_protocol,
}

Outcome = dict[str, Any]


def _run(*, split: Split | None = None, **options: Any) -> LocalRun:
    split = make_toy().split if split is None else split
    return LocalRun(split, net_options=NET_OPTIONS, seed=SEED, checkpoint_seconds=0.0, **options)


def _fit(method: Method, **options: Any) -> tuple[Outcome, LocalRun]:
    run = _run(**options)
    return _outcome(shortened(method).fit(run), run), run


def _outcome(model: nn.Module, run: LocalRun) -> Outcome:
    """All that must be the same of two runs, as what can be compared bit by bit."""
    _require(isinstance(model, nn.Module), f"fit must return a network, got {type(model).__name__}")
    lines = {
        stage: [{**line, "seconds": None} for line in epochs]
        for stage, epochs in run.history.items()
    }
    return {
        "network": model_bytes(model),
        "refined labels": None if run.refined is None else [_bits(part) for part in run.refined],
        "facts": json.dumps(plain(run.facts)),
        "records": json.dumps(plain(lines)),
    }


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


def _bits(value: Any) -> Any:
    """A value that ``==`` compares bit by bit."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(_bits(part) for part in value) if isinstance(value, tuple) else value


def _require_same(first: Outcome, second: Outcome, sentence: str) -> None:
    differ = [name for name in first if first[name] != second[name]]
    _require(not differ, f"{sentence} ({', '.join(differ)})")


def _require(condition: bool, sentence: str) -> None:
    """An assertion that ``python -O`` does not leave out."""
    if not condition:
        raise AssertionError(sentence)
