"""The only training loop. Precision, memory format, capture and processes live here.

A method hands over a model, an :class:`Objective` and batches; ``train`` minimises, ``predict``
reads out. Everything that a resumed run needs is in the checkpoint, and everything random is a
function of seed and epoch, so that a run that was cut off ends with the same bits.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from covlearn import distributed
from covlearn.average import Average, Best
from covlearn.checkpoint import Checkpoint
from covlearn.data import Batch, Batches, Loaded, Resident, counter
from covlearn.flat import Working, use_working_copy
from covlearn.ledger import Ledger
from covlearn.memory import Memory
from covlearn.objective import (
    Objective,
    Outputs,
    Record,
    check_result,
    forward,
    mean_loss,
    reduced,
)
from covlearn.plan import Machine, Plan
from covlearn.schedules import Steps

__all__ = [
    "AfterEpoch",
    "Machine",
    "Objective",
    "Outputs",
    "Plan",
    "Record",
    "forward",
    "make_ledger",
    "make_optimizer",
    "mean_loss",
    "predict",
    "reduced",
    "train",
]

LEDGER_STEPS, LEDGER_VALUES = 32, 1 << 20  # kept at most before they go into the ledger
CHUNK = 512  # inputs that averaged weights are measured on at a time

AfterEpoch = Callable[[int, nn.Module, Ledger], Record]
"""Called with the epoch, the model and the ledger; what it returns joins the epoch's record."""
Inputs = Callable[[], Iterable[Tensor]]


def train(
    model: nn.Module,
    objective: Objective,
    data: Batches,
    plan: Plan,
    machine: Machine,
    *,
    seed: int,
    ledger: Ledger | None = None,
    checkpoint: Checkpoint | None = None,
    after_epoch: AfterEpoch | None = None,
    choose_by: str | None = None,
) -> list[Record]:
    """Minimises the objective over the batches; the model is changed in place.

    Returns one record an epoch: learning rate, β, mean loss, seconds, and what ``after_epoch``
    (given the averaged model, if the plan asks for one) adds. The model ends as it is after the
    last epoch or, with ``choose_by``, as it was after the first of the epochs for which that entry
    of the record is highest.
    """
    ledger = make_ledger(data, plan) if ledger is None else ledger
    model.to(data.device)
    objective.to(data.device)
    parameters: list[Tensor] = [*model.parameters(), *objective.parameters()]
    optimizer = make_optimizer(parameters, plan, data.device)
    average = None if plan.average is None else Average(model, plan.average)
    run_model: nn.Module = torch.compile(model) if machine.compile else model  # type: ignore[assignment]
    step = _Step(run_model, objective, optimizer, ledger, average, machine, parameters)
    best = None if choose_by is None else Best(model, choose_by)
    state = _State(model, objective, optimizer, ledger, average, best)
    history: list[Record] = []
    if checkpoint is not None and (saved := checkpoint.load()) is not None:
        history = state.restore(saved)
    run_epoch = _epoch_runner(step, state, data, objective, machine)
    learning_rate = Steps(plan.lr, plan.lr_milestones, plan.lr_factor)
    cuda = [data.device] if data.device.type == "cuda" else []
    with _deterministic(), torch.random.fork_rng(devices=cuda):
        for epoch in range(len(history), plan.epochs):
            started = time.perf_counter()
            _seed(int(counter.key(seed, epoch)), data.device)  # dropout, and whatever else draws
            beta = objective.strength(epoch)
            lr = learning_rate(epoch) / (1 + beta if plan.divide_lr else 1)
            _set_lr(optimizer, lr)
            objective.begin_epoch(epoch, ledger)
            model.train()
            last = epoch + 1 == plan.epochs
            some = None if average is None else _some_inputs(data, epoch, last=last)
            losses = run_epoch(epoch)
            # Before the losses are read, which waits for a GPU's last step.
            shown = _shown(model, average, some, machine)
            loss = mean_loss(losses, epoch)
            record = {"epoch": epoch, "lr": lr, "beta": beta, "loss": loss}
            if after_epoch is not None:
                record |= after_epoch(epoch, shown, ledger)
            if best is not None:
                best.look(shown, record)
            record["seconds"] = time.perf_counter() - started
            history.append(record)
            if not _finite(model):
                raise ValueError(
                    f"epoch {epoch}: the weights must be finite after the last step, got NaN or "
                    "infinity; lower the learning rate or β; the last checkpoint is from before "
                    "this epoch"
                )
            if checkpoint is not None:
                checkpoint.save(state.whole(history), now=last)
    if checkpoint is not None:
        checkpoint.wait()
    if best is not None and history:
        model.load_state_dict(best.model.state_dict())
    elif average is not None:
        model.load_state_dict(average.model.state_dict())
    return history


def _shown(
    model: nn.Module, average: Average | None, some: Inputs | None, machine: Machine
) -> nn.Module:
    """The model of an epoch, or its average, with statistics that all processes share."""
    distributed.average_buffers(model)
    if average is None or some is None:
        return model
    with machine.autocast():
        average.measure(some)
    distributed.average_buffers(average.model)
    return average.model


def _some_inputs(data: Batches, epoch: int, *, last: bool) -> Inputs:
    """About a sixteenth of an epoch's inputs, one chunk at most; after the last epoch sixteen.

    Which images one has moves accuracy by a third of a point (docs/log.md), the last must not.
    """
    most = 16 * CHUNK if last else CHUNK
    count = min(len(data) if last else max(len(data) // 16, data.batch_size), most)
    if isinstance(data, Resident):
        # What the device is sent it is sent now, so that gathering waits for nothing.
        order, key = data.order(epoch)[:count], data.key(epoch)
        chunks = [idx for idx in order.split(CHUNK) if len(idx) in (CHUNK, count)]
        return lambda: (data.gather(idx, key).x for idx in chunks)
    return lambda: (b.x for b in islice(data.epoch(epoch), max(1, count // data.batch_size)))


def make_ledger(data: Batches, plan: Plan) -> Ledger:
    """A ledger for the examples, with the average of predictions that the plan asks for."""
    memory = None
    if plan.average_predictions is not None:
        memory = Memory(
            len(data),
            data.num_classes,
            decay=plan.average_predictions,
            largest=plan.average_classes,
            device=data.device,
        )
    return Ledger(len(data), data.device, memory=memory)


@torch.no_grad()
def predict(
    model: nn.Module, data: Batches, machine: Machine, *, features: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Logits (N, K) of a committee's mean or a network, and its features (N, D) if asked for.

    ``data`` must not shuffle. The model is left in the mode it was in.
    """
    was_training, logits, hidden = model.training, [], []
    model.to(data.device).eval()
    for batch in data.epoch(0):
        with machine.autocast():
            outputs = forward(model, batch.x, features=features)
        logits.append(outputs.logits.float())
        if outputs.features is not None:
            hidden.append(outputs.features.float())
    model.train(was_training)
    whole = torch.cat(logits, dim=-2)
    whole = whole.softmax(dim=-1).mean(dim=0).log() if whole.ndim == 3 else whole
    return whole, torch.cat(hidden) if hidden else None


def make_optimizer(
    parameters: list[Tensor], plan: Plan, device: torch.device
) -> torch.optim.Optimizer:
    """The plan's optimizer; on CUDA with a learning rate that a captured step reads.

    Fused: one call for all parameters instead of four for each, which small networks feel.
    """
    on_cuda = device.type == "cuda"
    lr: float | Tensor = torch.tensor(plan.lr, device=device) if on_cuda else plan.lr
    if plan.optimizer == "adam":
        return torch.optim.Adam(
            parameters, lr=lr, weight_decay=plan.weight_decay, capturable=on_cuda, fused=True
        )
    return torch.optim.SGD(
        parameters, lr=lr, momentum=plan.momentum, weight_decay=plan.weight_decay, fused=True
    )


@dataclass
class _Step:
    """Forward, loss, backward and update of one batch, as tensor operations alone."""

    model: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer | Working
    ledger: Ledger
    average: Average | None
    machine: Machine
    parameters: list[Tensor]

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The loss, and the logits for the ledger; None where inputs are seen mixed alone."""
        with self.machine.autocast():
            if batch.mix is None:
                outputs = forward(self.model, batch.x, features=self.objective.needs_features)
            else:
                mixed = self.model(batch.mix.x)
                plain = self.model(batch.x) if self.objective.needs_plain else None
                outputs = Outputs(mixed, plain=plain)
        result = self.objective(outputs, batch)
        check_result(result, outputs, batch)
        loss = reduced(result)
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        distributed.sum_gradients(self.parameters)
        self.optimizer.step()
        said = outputs.logits if batch.mix is None else outputs.plain
        logged = loss.detach()
        if isinstance(result, Tensor) and distributed.active():
            # The same number in all processes, whose losses are added up for the record.
            logged = logged / distributed.num_processes()
        return logged, None if said is None else said.detach()


class _State:
    """All that changes in training, to be saved and restored as one."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        ledger: Ledger,
        average: Average | None,
        best: Best | None = None,
    ) -> None:
        self.parts: dict[str, Any] = {
            "model": model,
            "objective": objective,
            "optimizer": optimizer,
            "ledger": ledger,
        }
        if average is not None:
            self.parts["average"] = average
        if best is not None:
            self.parts["best"] = best

    def whole(self, history: list[Record]) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()} | {"history": history}

    def restore(self, saved: dict[str, Any]) -> list[Record]:
        optimizer = self.parts["optimizer"]
        rates = [group["lr"] for group in optimizer.param_groups]
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            # Loading puts the saved one in its place, on the host: a captured step would take its
            # value for a constant. Each epoch sets it anyway.
            group["lr"] = rate
        return list(saved["history"])


def _epoch_runner(
    step: _Step, state: _State, data: Batches, objective: Objective, machine: Machine
) -> Callable[[int], Tensor]:
    """What runs an epoch and returns the loss of each step."""
    if (
        data.device.type == "cuda"
        and machine.capture
        and isinstance(data, Resident | Loaded)
        and objective.capturable
        and not distributed.active()
    ):
        from covlearn.capture import CapturedEpoch, CapturedFiles  # noqa: PLC0415  where CUDA is

        low = machine.precision == "bfloat16" and not machine.compile
        refresh = use_working_copy(step) if low else None
        captured = CapturedEpoch if isinstance(data, Resident) else CapturedFiles
        return captured(step, state.parts, data, refresh)
    return lambda epoch: _eager_epoch(step, data, epoch)


def _eager_epoch(step: _Step, data: Batches, epoch: int) -> Tensor:
    """Runs the batches one by one and returns the loss of each, of all processes."""
    losses: list[Tensor] = []
    together_with_others = distributed.active()
    if together_with_others:
        last_step = torch.full((len(data),), -1, device=data.device)
        learned = step.ledger.learned.clone()
    # Nobody reads the ledger within an epoch, and a few large writes cost less than many small.
    # In balanced batches an example may come twice: the last word must be the last written.
    together = max(1, min(LEDGER_STEPS, LEDGER_VALUES // (data.batch_size * data.num_classes)))
    if getattr(data, "balanced_batches", None) is not None:
        together = 1
    waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    def write() -> None:
        idx, logits, y = zip(*waiting, strict=True)
        rows = torch.cat(idx)
        step.ledger.write(rows, torch.cat(logits, dim=-2), torch.cat(y))
        waiting.clear()
        if together_with_others:
            last_step[rows] = len(losses)

    average = step.average
    for number, batch in enumerate(data.epoch(epoch)):
        try:
            loss, logits = step(batch)
        except ValueError as error:
            raise ValueError(f"epoch {epoch}, step {number}: {error}") from error
        losses.append(loss)
        if average is not None and len(losses) % average.every == 0:
            average.update(average.every)
        if logits is not None:
            waiting.append((batch.idx, logits, batch.y))
        if len(waiting) == together:
            write()
    if waiting:
        write()
    if average is not None and (left := len(losses) % average.every):
        average.update(left)
    if together_with_others:
        step.ledger.merge(last_step, learned)
    return distributed.sum_of(torch.stack(losses))


def _finite(model: nn.Module) -> bool:
    """Whether no weight is NaN or infinite: either would show in the sum."""
    sums = [parameter.detach().sum() for parameter in model.parameters()]
    return not sums or bool(torch.stack(sums).isfinite().all())


def _seed(seed: int, device: torch.device) -> None:
    """Seeds the generators that a step may draw from.

    ``torch.manual_seed`` would seed every kind of device that PyTorch knows, and where there is
    none keep a traceback a call.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    """The same bits for the same seed on the same hardware."""
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before
