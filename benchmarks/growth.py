"""Growth on paper: time and cost of Clothing1M on 8 GPUs and of ImageNet-sized data on 64.

    python -m benchmarks.growth            # a few seconds: no GPU, nothing is timed
    python -m benchmarks.growth --show     # prints the tables, writes nothing

The model is ``benchmarks.growth_model``, one function a term. This script writes what comes of it,
with all that goes in, to results/scale/growth.json, draws growth.png beside it, and writes the
tables of docs/scaling.md anew. First it sets the model beside figures that were measured and that
it was not fitted to.
"""

import argparse
import json
import re
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.collectives import all_reduce_seconds
from benchmarks.growth_model import (
    ASSUMED,
    CASES,
    CIFAR,
    CLOTHING,
    ENGINES,
    GPUS,
    RESULTS,
    ROOT,
    VIEWS,
    Case,
    Costs,
    Engine,
    Part,
    costs_of,
    epoch,
    measured,
    recipe,
    steps,
    work_of,
)

PLACE = RESULTS / "scale" / "growth.json"
PAGE = ROOT / "docs" / "scaling.md"
BLOCK = r"(<!-- growth: (\w+) -->)\n.*?(<!-- end -->)"
PARTS: dict[Part, str] = {
    "compute": "the GPUs' arithmetic",
    "all-reduce": "adding up gradients",
    "launches": "kernel launches",
    "reading": "waiting for images",
    "evaluation": "evaluation, D̂ and probabilities",
    "ledger and order": "ledger and order",
}
BOTH = ENGINES["both"]

Record = dict[str, Any]


def make_record() -> Record:
    """Everything that goes in and everything that comes out."""
    known = measured()
    costs = [costs_of(view, known) for view in range(len(VIEWS))]
    return {
        "measured": known,
        "assumed": {
            name: {**dict(zip(VIEWS, values, strict=True)), "source": source}
            for name, (values, source) in ASSUMED.items()
        },
        "counted": {
            case.title: asdict(work_of(case.net, case.num_classes, case.side))
            for case in (CIFAR, *CASES.values())
        },
        "costs": {view: asdict(each) for view, each in zip(VIEWS, costs, strict=True)},
        "checks": checks(costs[1]),
        "cases": {
            name: {
                "title": case.title,
                "by number of GPUs": {str(g): outcome(case, g, costs) for g in GPUS[name]},
                "engines": {
                    title: outcome(case, case.gpus, costs, engine)
                    for title, engine in ENGINES.items()
                },
                "needs": needs(case, costs, known),
            }
            for name, case in CASES.items()
        },
    }


def as_it_is(gpus: int) -> Engine:
    """One process runs its steps as CUDA graphs, several do not."""
    return Engine(captured=gpus == 1)


def outcome(case: Case, gpus: int, costs: list[Costs], engine: Engine | None = None) -> Record:
    """Hours and money of a recipe, and where the likely time goes; by the engine as it is."""
    engine = engine or as_it_is(gpus)
    hours = [sum(recipe(case, gpus, each, engine).values()) / 3600 for each in costs]
    parts = recipe(case, gpus, costs[1], engine)
    largest = max(parts, key=lambda part: parts[part])
    dollars = [gpus * h * each.dollars_a_gpu_hour for h, each in zip(hours, costs, strict=True)]
    return {
        "hours": dict(zip(VIEWS, hours, strict=True)),
        "GPU-hours": dict(zip(VIEWS, [gpus * h for h in hours], strict=True)),
        "dollars": dict(zip(VIEWS, dollars, strict=True)),
        "hours by part": {part: seconds / 3600 for part, seconds in parts.items()},
        "largest part": largest,
        "share of the largest part": parts[largest] / sum(parts.values()),
        "epoch, s": {
            stage.name: epoch(case, stage, gpus, costs[1], engine) for stage in case.stages
        },
    }


def needs(case: Case, costs: list[Costs], known: Record) -> Record:
    """Cores that keep a GPU busy, and the memory that grows with N and K, in bytes."""
    work = work_of(case.net, case.num_classes, case.side)
    reading = [each.an_image_read for each in costs]
    image = [each.an_image(work) for each in costs]
    stage = case.stages[-1]
    parts = epoch(case, stage, case.gpus, costs[1], as_it_is(case.gpus))
    stepping = sum(parts[part] for part in ("compute", "all-reduce", "launches", "reading"))
    predictions = 4 * case.examples * case.num_classes
    return {
        "cores a GPU, as it is": stage.images / case.gpus / stepping * reading[1],
        "cores a GPU that never waits": {
            "low": reading[0] / image[2],
            "likely": reading[1] / image[1],
            "high": reading[2] / image[0],
        },
        "ledger and D̂, bytes": known["bytes an example"]["value"] * case.examples,
        "T̂, bytes": 4 * case.num_classes**2,
        "class masses summed in a step, bytes": 4 * case.num_classes,
        "gradient summed in a step, bytes": 4 * work.parameters,
        "predictions of all examples, bytes": predictions,
        # Logits and probabilities, in each process: covlearn.methods.cal.CAL.build.
        "predictions in a machine's memory, bytes": 2 * costs[1].gpus_a_machine * predictions,
    }


def checks(costs: Costs) -> Record:
    """Figures that were measured, and that no cost was taken from, beside the model's."""

    def read(file: str) -> Any:
        return json.loads((RESULTS / file).read_text(encoding="utf-8"))["figures"]

    trial, epochs = read("speed/trial_cost.json"), read("speed/epoch_cost.json")
    captured = Engine(captured=True)
    parts = epoch(CIFAR, CIFAR.stages[0], 1, costs, captured)
    whole = sum(recipe(CIFAR, 1, costs, captured).values())
    training, evaluation = parts["compute"] + parts["launches"], parts["evaluation"]
    pairs = {
        "CIFAR, epoch of CORES², s": (training, epochs["cores, K = 10"]["epoch, s"]),
        "CIFAR, epoch of CAL, s": (training, epochs["cal, K = 10"]["epoch, s"]),
        "CIFAR, epoch of CAL at K = 100, s": (training, epochs["cal, K = 100"]["epoch, s"]),
        "CIFAR, evaluation of 10,000 images, s": (
            evaluation,
            median(trial["cal"]["evaluation, s"]),
        ),
        "CIFAR, epoch of CAL with evaluation, s": (
            training + evaluation,
            median(trial["cal"]["epochs with evaluation, s"][1:]),
        ),
        "CIFAR, CAL's 66 + 100 epochs, by 3 + 3 of them, s": (
            whole,
            trial["66 + 100 epochs by these figures, s"],
        ),
    }
    found = {
        name: {"modelled": ours, "measured": theirs, "ratio": ours / theirs}
        for name, (ours, theirs) in pairs.items()
    }
    on_gpu = RESULTS / "scale" / "loader_gpu.json"  # of benchmarks.loader --train, where it was run
    if on_gpu.exists():
        step = json.loads(on_gpu.read_text(encoding="utf-8"))["small"]["training"]
        found["Clothing1M, step of the sieve, s"] = check_step(step, costs)
    return found


def check_step(training: Record, costs: Costs) -> Record:
    """A step of Clothing1M's sieve on one GPU with a batch at hand, beside the model's."""
    sieve = CLOTHING.stages[0]
    parts = epoch(CLOTHING, sieve, 1, costs, Engine())
    ours = (parts["compute"] + parts["launches"]) / steps(CLOTHING, sieve, 1)
    theirs = training["ms_a_step_of_a_batch_at_hand"] / 1e3
    return {"modelled": ours, "measured": theirs, "ratio": ours / theirs}


# ---- The page ----------------------------------------------------------------------------------


def blocks(record: Record, collectives: Record) -> dict[str, str]:
    """The tables of docs/scaling.md by name."""
    made = {"checks": checks_table(record), "assumed": assumed_table(record)}
    for name, case in record["cases"].items():
        made[name] = hours_table("GPUs", case["by number of GPUs"])
        made[f"{name}_engines"] = hours_table("engine", case["engines"])
    made["needs"] = needs_table(record)
    made["collectives"] = collectives_table(collectives)
    return made


def hours_table(what: str, rows: Record) -> str:
    return table(
        [what, "hours", "GPU-hours", "dollars", "most of it"],
        [
            [name, *(spread(row[entry]) for entry in ("hours", "GPU-hours", "dollars")), most(row)]
            for name, row in rows.items()
        ],
    )


def checks_table(record: Record) -> str:
    return table(
        ["", "modelled", "measured", "ratio"],
        [
            [name, f"{row['modelled']:.3g}", f"{row['measured']:.3g}", f"{row['ratio']:.2f}"]
            for name, row in record["checks"].items()
        ],
    )


def assumed_table(record: Record) -> str:
    return table(
        ["assumed", "low cost", "likely", "high cost", "source"],
        [
            [name, *(f"{row[view]:g}" for view in VIEWS), row["source"]]
            for name, row in record["assumed"].items()
        ],
    )


def needs_table(record: Record) -> str:
    needed = [case["needs"] for case in record["cases"].values()]
    rows = []
    for name in needed[0]:
        cells = [each[name] for each in needed]
        if name.endswith(", bytes"):
            rows.append([name.removesuffix(", bytes"), *map(in_bytes, cells)])
        else:
            rows.append([name, *(spread(c) if isinstance(c, dict) else short(c) for c in cells)])
    return table(["", *record["cases"]], rows)


def collectives_table(collectives: Record) -> str:
    rows = []
    for name, found in collectives["figures"].items():
        line, largest = found["line"], max(found["seconds, least"], key=int)
        ratios = found["line / least"].values()
        rows.append(
            [
                name,
                f"{1e3 * line['latency, s']:.2g} ms",
                f"{line['bytes a second'] / 1e9:.2g} GB/s",
                f"{1e3 * found['seconds, least'][largest]:.0f} ms",
                f"{1e3 * found['seconds, median'][largest]:.0f} ms",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
            ]
        )
    head = ["gloo, CPU", "latency", "bandwidth", "a gradient, least", "median", "line / measured"]
    return table(head, rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(values: Record) -> str:
    return f"{short(values['likely'])} ({short(values['low'])} to {short(values['high'])})"


def most(row: Record) -> str:
    return f"{PARTS[row['largest part']]}, {100 * row['share of the largest part']:.0f} %"


def short(value: float) -> str:
    """Two digits; of more than a hundred, all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def in_bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{short(value / size)} {unit}"
    return f"{value:.0f} B"


def fill(page: str, made: dict[str, str]) -> str:
    """The page with every table between its two marks written anew."""
    return re.sub(
        BLOCK, lambda match: f"{match[1]}\n{made[match[2]]}\n{match[3]}", page, flags=re.DOTALL
    )


# ---- The figure --------------------------------------------------------------------------------


def draw(record: Record, collectives: Record, place: Path) -> None:
    """Measured points and modelled lines: all-reduce, CIFAR, and the two cases."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(10.5, 8.4), layout="constrained")
    (first, second), (third, fourth) = figure.subplots(2, 2)
    draw_collectives(first, collectives)
    costs = [Costs(**record["costs"][view]) for view in VIEWS]
    draw_cifar(second, costs, record["measured"])
    for axes, (name, case) in zip((third, fourth), CASES.items(), strict=True):
        draw_case(axes, case, GPUS[name], costs)
    handles, labels = fourth.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, ncols=3, loc="outside lower center")
    figure.savefig(place, dpi=110)


def draw_collectives(axes: Any, collectives: Record) -> None:
    for colour, (name, found) in zip(("C0", "C1"), collectives["figures"].items(), strict=True):
        seconds = {int(size): value for size, value in found["seconds, least"].items()}
        processes, line = int(name.split()[0]), found["line"]
        places = [10 ** (power / 10) for power in range(5, 83)]
        modelled = [
            all_reduce_seconds(size, processes, line["latency, s"], line["bytes a second"])
            for size in places
        ]
        axes.loglog(
            list(seconds), list(seconds.values()), "o", color=colour, label=f"{name}, measured"
        )
        axes.loglog(places, modelled, color=colour, label=f"{name}, modelled")
    axes.set(title="All-reduce on a CPU (gloo)", xlabel="bytes", ylabel="seconds")
    axes.legend(fontsize=8)


def draw_cifar(axes: Any, costs: list[Costs], known: Record) -> None:
    stage, numbers = CIFAR.stages[-1], (1, 2, 4, 8)

    def seconds(gpus: int, engine: Engine) -> float:
        parts = epoch(CIFAR, stage, gpus, costs[1], engine)
        return sum(parts.values()) - parts["evaluation"]

    axes.plot(numbers, [seconds(g, Engine()) for g in numbers], label="not captured, modelled")
    captured = [seconds(g, Engine(captured=True)) for g in numbers]
    axes.plot(numbers, captured, "--", label="captured, modelled; several processes cannot yet")
    for name, marker in (("captured", "D"), ("not captured", "o")):
        value = known[f"epoch of CIFAR, {name}, s"]["value"]
        axes.plot([1], [value], f"k{marker}", label=f"{name}, measured")
    axes.set_title(CIFAR.title, fontsize=10)
    axes.set(ylabel="seconds an epoch", yscale="log", xscale="log")
    axes.legend(fontsize=8)
    label_gpus(axes, numbers)


def draw_case(axes: Any, case: Case, numbers: tuple[int, ...], costs: list[Costs]) -> None:
    stage = case.stages[-1]

    def total(gpus: int, view: int, engine: Engine) -> float:
        return sum(epoch(case, stage, gpus, costs[view], engine).values())

    low, likely, high = ([total(g, v, as_it_is(g)) for g in numbers] for v in range(len(VIEWS)))
    axes.fill_between(numbers, low, high, color="k", alpha=0.12, label="low to high")
    axes.plot(numbers, likely, "k", lw=2, label="whole, as it is")
    both = [total(g, 1, BOTH) for g in numbers]
    axes.plot(numbers, both, "k--", label="whole, captured, evaluation shared")
    for part, title in PARTS.items():
        values = [epoch(case, stage, g, costs[1], as_it_is(g))[part] for g in numbers]
        if any(values):
            axes.plot(numbers, [value or None for value in values], ".-", lw=1, label=title)
    axes.set_title(case.title, fontsize=10)
    axes.set(ylabel="seconds an epoch of stage 2", yscale="log", xscale="log")
    label_gpus(axes, numbers)


def label_gpus(axes: Any, numbers: tuple[int, ...]) -> None:
    axes.set_xlabel("GPUs")
    axes.set_xticks(numbers, [str(g) for g in numbers])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--show", action="store_true", help="print the tables, write nothing")
    options = parser.parse_args()
    collectives = json.loads((RESULTS / "scale" / "collectives.json").read_text(encoding="utf-8"))
    record = make_record()
    made = blocks(record, collectives)
    for name, text in made.items():
        print(f"{name}\n{text}\n")
    if options.show:
        return
    PLACE.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draw(record, collectives, PLACE.with_suffix(".png"))
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(f"written: {PLACE}, {PLACE.with_suffix('.png')}, {PAGE}")


if __name__ == "__main__":
    main()
