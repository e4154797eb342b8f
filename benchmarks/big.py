"""An epoch of CE, CORES²'s sieve and CAL on synthetic logits, up to 10M examples, 10k classes.

    python -m benchmarks.big            # about ten minutes on one core
    python -m benchmarks.big --quick    # a few steps of each, to see that it runs

CPU time of one thread. A step is what the engine does beside the network: the objective, its
gradient for the logits, and its share of the ledger, for CE as for the others, in turns within one
run. Logits come from a few batches that are drawn once, as 10,000,000 × 10,000 of them fit nowhere;
labels, D̂, ledger and statistics are whole. Epochs of up to a billion logits are run whole, others
are the cost of a step times their number, and marked. Each memory figure is from a process of its
own. Prints what is promised beside what was measured.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import environment, peak_mebibytes
from covlearn.covariance import SecondOrder
from covlearn.data import Batch
from covlearn.engine import LEDGER_STEPS, LEDGER_VALUES, Objective, Outputs, reduced
from covlearn.ledger import Ledger
from covlearn.methods.cal_loss import CovarianceAssisted
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.cores import Confident
from covlearn.schedules import Ramp
from covlearn.sieve import auto_threshold, quantile_threshold, refine_scores

EXAMPLES = (50_000, 1_000_000, 10_000_000)
CLASSES = (10, 100, 1_000, 10_000)
BATCHES = (128, 1_024)
EPOCH_BATCH, TURN = 1_024, 8  # and batches that are drawn at a time
WHOLE = 1_000_000_000  # logits of an epoch that is run whole
MOST_STEP, MOST_GROWTH = 2.0, 1.5  # a step against CE's; an example of 10M against one of 50k
PLACE = Path(__file__).resolve().parents[1] / "results" / "scale" / "big.json"


def draw_labels(num_examples: int, num_classes: int) -> tuple[Tensor, Tensor]:
    """Noisy labels, and a D̂ that agrees with sixty percent of them."""
    generator = torch.Generator().manual_seed(0)
    noisy = torch.randint(num_classes, (num_examples,), generator=generator)
    other = torch.randint(num_classes, (num_examples,), generator=generator)
    kept = torch.rand(num_examples, generator=generator) < 0.6
    return noisy, torch.where(kept, noisy, other)


class Problem:
    """Whole labels, D̂, statistics and ledgers, with batches of synthetic logits."""

    def __init__(self, num_examples: int, num_classes: int) -> None:
        self.num_examples, self.num_classes = num_examples, num_classes
        self.noisy, refined = draw_labels(num_examples, num_classes)
        stats = SecondOrder.from_labels(self.noisy, refined, num_classes, empty_class="identity")
        prior = torch.bincount(self.noisy, minlength=num_classes) / num_examples
        self.objectives: dict[str, Objective] = {
            "ce": CrossEntropy(),
            "sieve": Confident(self.noisy, prior, Ramp(1.0)),
            "cal": CovarianceAssisted(refined, stats, None, prior=prior, beta=Ramp(1.0)),
        }
        self.ledger = Ledger(num_examples)
        for objective in self.objectives.values():
            objective.begin_epoch(1, self.ledger)

    def batches(self, batch_size: int) -> Iterator[tuple[Tensor, Batch]]:
        """An endless supply: a few different logits, examples from all over the set."""
        generator = torch.Generator().manual_seed(1)
        drawn = [
            torch.randn(batch_size, self.num_classes, generator=generator).requires_grad_()
            for _ in range(max(1, min(8, (1 << 25) // (batch_size * self.num_classes))))
        ]
        while True:
            for logits in drawn:
                idx = torch.randint(self.num_examples, (batch_size,), generator=generator)
                yield logits, Batch(torch.empty(0), self.noisy[idx], idx)

    def steps(self, name: str, batches: list[tuple[Tensor, Batch]]) -> None:
        """What the engine does of some steps beside the network."""
        together = max(1, min(LEDGER_STEPS, LEDGER_VALUES // batches[0][0].numel()))
        for start in range(0, len(batches), together):
            some = batches[start : start + together]
            self.losses(name, some)
            logits, rest = zip(*some, strict=True)
            idx, y = torch.cat([b.idx for b in rest]), torch.cat([b.y for b in rest])
            self.ledger.write(idx, torch.cat([z.detach() for z in logits]), y)

    def losses(self, name: str, batches: list[tuple[Tensor, Batch]]) -> None:
        """The losses and their gradients alone."""
        for logits, batch in batches:
            logits.grad = None
            reduced(self.objectives[name](Outputs(logits), batch)).backward()


def cpu_seconds(call: Callable[..., object], *arguments: Any) -> float:
    started = time.process_time()
    call(*arguments)
    return time.process_time() - started


def steps(num_examples: int, num_classes: int, batch_size: int, *, quick: bool) -> dict[str, float]:
    """Microseconds of a step, and its ratio to CE's; the loss and its gradient alone, too."""
    problem = Problem(num_examples, num_classes)
    source = problem.batches(batch_size)
    each = 2 if quick else max(1, min(64, 4_000_000 // (batch_size * num_classes)))
    seconds: dict[str, list[float]] = {}
    for turn in range(3 if quick else 16):
        batches = [next(source) for _ in range(each)]  # the same for all
        for name in problem.objectives:
            for kind, run in (("", problem.steps), (", loss alone", problem.losses)):
                spent = cpu_seconds(run, name, batches)
                if turn:  # the first one warms up
                    seconds.setdefault(name + kind, []).append(spent / each)
    figures = {f"{name}, us": 1e6 * statistics.median(values) for name, values in seconds.items()}
    for name in ("sieve", "cal"):
        for kind in ("", ", loss alone"):
            pairs = zip(seconds[name + kind], seconds[f"ce{kind}"], strict=True)
            figures[f"{name} / ce{kind}"] = statistics.median(a / b for a, b in pairs)
    return figures


def epoch(num_examples: int, num_classes: int, *, quick: bool) -> dict[str, Any]:
    """CPU seconds of an epoch of each, run whole or made of the cost of some steps."""
    problem = Problem(num_examples, num_classes)
    source = problem.batches(EPOCH_BATCH)
    whole = num_examples * num_classes <= WHOLE and not quick
    number = -(-num_examples // EPOCH_BATCH)
    run = number if whole else min(number, max(4, 200_000_000 // (EPOCH_BATCH * num_classes)))
    run = TURN if quick else -(-run // TURN) * TURN
    figures: dict[str, Any] = {"steps": number, "steps run": run, "extrapolated": run < number}
    for name in problem.objectives:
        problem.steps(name, [next(source)])
        seconds = 0.0
        for _ in range(0, run, TURN):
            seconds += cpu_seconds(problem.steps, name, [next(source) for _ in range(TURN)])
        seconds *= number / run
        figures[f"{name}, CPU s"] = seconds
        figures[f"{name}, ns a logit"] = 1e9 * seconds / num_examples / num_classes
    return figures


def after_the_sieve(num_examples: int, num_classes: int) -> dict[str, float]:
    """CPU seconds of what is done once, on all rows of the ledger."""
    noisy, refined = draw_labels(num_examples, num_classes)
    generator = torch.Generator().manual_seed(2)
    score = torch.randn(num_examples, generator=generator)
    score += torch.where(noisy == refined, -6.0, 6.0)
    calls: dict[str, Callable[[], object]] = {
        "from_labels": lambda: SecondOrder.from_labels(
            noisy, refined, num_classes, empty_class="identity"
        ),
        "refine_scores": lambda: refine_scores(score, refined, noisy, lower=0.0),
        "quantile_threshold": lambda: quantile_threshold(score, 0.6),
        "auto_threshold": lambda: auto_threshold(score),
    }
    return {f"{name}, CPU s": cpu_seconds(call) for name, call in calls.items()}


def memory_of(kind: str, num_examples: int, num_classes: int) -> float:
    """MiB that this process holds more at its peak: kept through training, or while D̂ is made."""
    noisy, refined = draw_labels(1000, num_classes)
    SecondOrder.from_labels(noisy, refined, num_classes, empty_class="identity")
    noisy, refined = draw_labels(num_examples, num_classes)
    score = torch.randn(num_examples)
    before = peak_mebibytes(reset=True)
    if kind == "made":
        refine_scores(score, refined, noisy, lower=auto_threshold_or_zero(score))
        SecondOrder.from_labels(noisy, refined, num_classes, empty_class="identity")
    elif kind == "statistics":
        SecondOrder.from_labels(noisy, refined, num_classes, empty_class="identity")
    else:
        stats = SecondOrder(
            torch.eye(num_classes), torch.full((num_classes,), 1 / num_classes), 1.0
        )
        prior = stats.class_weight
        kept = (  # noqa: F841  what training holds beside the network and the inputs
            Ledger(num_examples),
            Confident(noisy, prior, Ramp(1.0)),
            CovarianceAssisted(refined.clone(), stats, None, prior=prior, beta=Ramp(1.0)),
        )
    return peak_mebibytes() - before


def auto_threshold_or_zero(score: Tensor) -> float:
    """The work of a threshold, of scores in which there are no two groups."""
    try:
        return auto_threshold(score)
    except ValueError:
        return 0.0


def memory(kind: str, num_examples: int, num_classes: int) -> float:
    command = [sys.executable, "-m", "benchmarks.big", "--memory", kind]
    command += [str(num_examples), str(num_classes)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def bytes_held() -> dict[str, float]:
    """Bytes an example and a pair of classes, as slopes between two sizes."""
    few, many = EXAMPLES[1], EXAMPLES[2]
    figures = {}
    for kind in ("kept", "made"):
        slope = (memory(kind, many, 10) - memory(kind, few, 10)) * 2**20 / (many - few)
        figures[f"{kind}, bytes an example"] = slope
    for kind in ("kept", "statistics"):
        grown = memory(kind, EXAMPLES[0], CLASSES[-1]) - memory(kind, EXAMPLES[0], CLASSES[-2])
        slope = grown * 2**20 / (CLASSES[-1] ** 2 - CLASSES[-2] ** 2)
        figures[f"{kind}, bytes a pair of classes"] = slope
    return figures


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few steps of each, nothing written")
    parser.add_argument("--memory", nargs=3, metavar=("KIND", "N", "K"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        kind, num_examples, num_classes = options.memory
        print(memory_of(kind, int(num_examples), int(num_classes)))
        return
    quick = options.quick
    record: dict[str, Any] = {"steps": {}, "epochs": {}, "once": {}}
    examples = EXAMPLES[:1] if quick else EXAMPLES
    for num_classes in CLASSES:
        for batch_size in BATCHES:
            show(record, "steps", f"K = {num_classes}, B = {batch_size}",
                 steps(examples[-2:][0], num_classes, batch_size, quick=quick))  # fmt: skip
    for num_examples in examples:
        for num_classes in CLASSES:
            title = f"N = {num_examples}, K = {num_classes}"
            show(record, "epochs", title, epoch(num_examples, num_classes, quick=quick))
            show(record, "once", title, after_the_sieve(num_examples, num_classes))
    if not quick:
        record["memory"] = bytes_held()
        print(json.dumps(record["memory"], indent=2))
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        whole = {"environment": environment(), "batch of epochs": EPOCH_BATCH, **record}
        PLACE.write_text(json.dumps(whole, indent=2) + "\n")
    verdicts(record)


def show(record: dict[str, Any], part: str, title: str, figures: dict[str, Any]) -> None:
    record[part][title] = figures
    print(part, title, json.dumps({name: round(value, 4) for name, value in figures.items()}))
    sys.stdout.flush()


def verdicts(record: dict[str, Any]) -> None:
    """Each promise beside what was measured."""
    for title, figures in record["steps"].items():
        for name in ("sieve", "cal"):
            if int(title.split()[2].rstrip(",")) <= 1_000:
                verdict(f"{name} / ce, a step at {title}", figures[f"{name} / ce"], MOST_STEP)
    for num_classes in CLASSES if len(record["epochs"]) > len(CLASSES) else ():
        costs = [
            record["epochs"][f"N = {size}, K = {num_classes}"]["cal, ns a logit"]
            for size in EXAMPLES
        ]
        what = f"an example of {EXAMPLES[-1]:,} against one of {EXAMPLES[0]:,}, K = {num_classes}"
        verdict(what, costs[-1] / costs[0], MOST_GROWTH)


def verdict(what: str, measured: float, promised: float) -> None:
    met = "met    " if measured <= promised else "NOT MET"
    print(f"{met} {what}: {measured:.3g}, promised {promised:g}")


if __name__ == "__main__":
    main()
