"""Reading JPEG files for training: images a second of a core, memory, and beside a bare PIL loop.

    python -m benchmarks.loader                  # 20,000 files of a look-alike of Clothing1M
    python -m benchmarks.loader --train 15       # also steps of a ResNet-50, with 15 workers

By turns, in rounds, and by CPU time of all processes that take part, since the machine may be
shared: a bare PIL loop (open, convert, scale the short side to 256, cut 224 of it, as an array),
the same by torchvision where it is installed, our decoding alone, and the loader with one worker up
to the augmented batch that a network sees, all of it on the CPU; of that also the worker's part,
since augmentation is a GPU's where there is one. Ratios are within a round. Memory is that of this
process and its workers together (proportional set size), looked at during an epoch.
"""

import argparse
import importlib
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.measure import environment
from covlearn.data import ImageFiles, Loaded, Resident, Split, batches_of
from covlearn.data.clothing1m import SHORT_SIDE, SIDE, read_split
from covlearn.testing.clothing import write_lookalike

OUT = Path(__file__).resolve().parents[1] / "results" / "scale" / "loader.json"
BATCH = 32
SIZES = {"small": ((256, 340), (340, 256)), "large": ((600, 800), (800, 600))}


def bare(paths: list[Path]) -> None:
    """What anybody would write first."""
    for path in paths:
        with Image.open(path) as image:
            scale = SHORT_SIDE / min(image.size)
            size = [max(SHORT_SIDE, round(side * scale)) for side in image.size]
            left, top = ((side - SIDE) // 2 for side in size)
            whole = image.convert("RGB").resize((size[0], size[1]), Image.Resampling.BILINEAR)
            np.array(whole.crop((left, top, left + SIDE, top + SIDE)))


def paths_of(split: Split) -> list[Path]:
    """Where the images are."""
    assert isinstance(split.x, ImageFiles)
    return [split.x.root / split.x.name(place) for place in range(len(split))]


def by_torchvision() -> Callable[[list[Path]], None] | None:
    """The same with torchvision's transforms, if they are there."""
    try:
        transforms: Any = importlib.import_module("torchvision.transforms")
        pil_loader: Any = importlib.import_module("torchvision.datasets.folder").pil_loader
    except (ImportError, RuntimeError):
        return None
    change = transforms.Compose(
        [transforms.Resize(SHORT_SIDE), transforms.CenterCrop(SIDE), transforms.PILToTensor()]
    )

    def read(paths: list[Path]) -> None:
        for path in paths:
            change(pil_loader(str(path)))

    return read


def worker_seconds() -> float:
    """CPU time of the workers that there are now."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        ticks += sum(int(field) for field in fields.split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mib() -> float:
    """Proportional set size of this process and its workers: shared pages count once."""
    pids = ["self", *(str(child.pid) for child in multiprocessing.active_children())]
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def started(data: Resident | Loaded) -> Iterator[Any]:
    """An epoch whose workers are there and have read their first batches."""
    batches = data.epoch(0)
    next(batches)
    return batches


def rates(split: Split, *, rounds: int, images: int) -> dict[str, Any]:
    """Images a second of CPU time, by turns."""
    split = split.subset(
        torch.from_numpy(np.random.default_rng(0).permutation(len(split))[:images])
    )
    images, names, epochs = len(split), paths_of(split), itertools.count()
    data = batches_of(split, batch_size=BATCH, num_workers=1)
    calls: dict[str, Callable[[], object]] = {
        "bare": lambda: bare(names),
        "decoding": lambda: [split.x[place] for place in range(images)],
        # Whole epochs, so that nothing is read ahead for another turn.
        "loader": lambda: deque(data.epoch(next(epochs)), maxlen=0),
    }
    torchvision = by_torchvision()
    if torchvision is not None:
        calls["torchvision"] = lambda: torchvision(names)
    seconds: dict[str, list[float]] = {name: [] for name in (*calls, "workers of the loader")}
    for number in range(rounds + 1):
        for name, call in calls.items():
            before, before_workers = time.process_time(), worker_seconds()
            call()
            workers = worker_seconds() - before_workers
            if number:  # the first one warms up
                seconds[name].append(time.process_time() - before + workers)
                if name == "loader":
                    seconds["workers of the loader"].append(workers)
    data.close()
    return {
        "rounds": rounds,
        "images_a_turn": images,
        "images_a_cpu_second": {
            name: images / statistics.median(values) for name, values in seconds.items()
        },
        "times_the_bare_loop": {
            name: statistics.median(
                base / value for base, value in zip(seconds["bare"], values, strict=True)
            )
            for name, values in seconds.items()
        },
    }


def memory(split: Split, *, workers: int, looks: int = 40) -> dict[str, Any]:
    """Over one epoch of all files, at equal distances; growth of the peak from half to half."""
    data = batches_of(split, batch_size=BATCH, num_workers=workers)
    total = -(-len(split) // BATCH)
    batches = started(data)
    found = []
    for number, _ in enumerate(batches, start=2):
        if number % max(1, total // looks) == 0:
            found.append(memory_mib())
    data.close()
    half = len(found) // 2
    return {
        "images": len(split),
        "workers": workers,
        "mib": found,
        "growth_mib": max(found[half:]) - max(found[:half] or found),
    }


def of_a_million() -> dict[str, Any]:
    """CPU time and memory of what is done for all examples, of a million made up ones."""
    count = 10**6
    names = [f"images/{n % 10}/{n % 100}/{n:010},{n % 997:03}.jpg".encode() for n in range(count)]
    end = np.cumsum([len(name) for name in names])
    files = ImageFiles(Path(), SHORT_SIDE, b"".join(names), end, np.arange(count), "")
    data = Resident(
        Split(torch.zeros(count, 1), torch.arange(count) % 14, 14),
        batch_size=BATCH,
        balanced_batches=1000,
    )
    before = time.process_time()
    data.order(0)
    return {
        "names_mib": (len(files.text) + files.end.nbytes + files.place.nbytes) / 2**20,
        "cpu_seconds_of_a_balanced_order": time.process_time() - before,
    }


def training(split: Split, *, workers: int, steps: int, rounds: int = 3) -> dict[str, Any]:
    """Steps of the Clothing1M sieve (ResNet-50, mixup): loaded, and with one batch."""
    from covlearn.engine import Machine, Plan, _Step, make_ledger, make_optimizer  # noqa: PLC0415
    from covlearn.methods.base import root_prior  # noqa: PLC0415
    from covlearn.methods.cores import Confident  # noqa: PLC0415
    from covlearn.nets import build_net  # noqa: PLC0415
    from covlearn.schedules import Ramp  # noqa: PLC0415

    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = Machine(device=device, precision="bfloat16" if device == "cuda" else "float32")
    plan = Plan(epochs=1, batch_size=BATCH, lr=0.01, weight_decay=1e-3)
    data = batches_of(
        split,
        num_workers=workers,
        batch_size=BATCH,
        mixup=True,
        balanced_batches=10 * steps,
        device=device,
    )
    model = build_net("resnet50_imagenet", num_classes=14, input_shape=(3, SIDE, SIDE), seed=0)
    model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    objective = Confident(split.y, root_prior(split), Ramp(0.4)).to(device)
    parameters = list(model.parameters())
    optimizer = make_optimizer(parameters, plan, data.device)  # type: ignore[arg-type]
    ledger = make_ledger(data, plan)
    step = _Step(model, objective, optimizer, ledger, None, machine, parameters)  # type: ignore[arg-type]
    batches = started(data)
    held = next(batches)

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def timed(source: Iterator[Any]) -> float:
        wait()
        before = time.perf_counter()
        for batch in islice(source, steps):
            step(batch)
        wait()
        return (time.perf_counter() - before) / steps

    def reading() -> float:
        wait()
        before = time.perf_counter()
        for _ in islice(batches, steps):
            pass
        wait()
        return (time.perf_counter() - before) / steps

    timed(iter([held] * steps))
    turns = [(timed(iter([held] * steps)), timed(batches), reading()) for _ in range(rounds)]
    data.close()
    alone, loaded, read = (statistics.median(column) for column in zip(*turns, strict=True))
    return {
        "device": device,
        "workers": workers,
        "steps_a_turn": steps,
        "rounds": rounds,
        "ms_a_step_of_a_batch_at_hand": 1000 * alone,
        "ms_a_step_with_the_loader": 1000 * loaded,
        "ms_a_batch_of_the_loader_alone": 1000 * read,
        "images_a_second_of_the_loader_alone": BATCH / read,
        "steps_with_the_loader_to_steps_without": loaded / alone,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--images", type=int, default=256, help="in a turn")
    parser.add_argument("--train", type=int, metavar="WORKERS", help="also time steps of training")
    parser.add_argument("--steps", type=int, default=100, help="of training in a turn")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    record: dict[str, Any] = {"environment": environment(), "batch_size": BATCH}
    record["of_a_million"] = of_a_million()
    if by_torchvision() is None:
        record["torchvision"] = "not measured: it is not installed, or cannot be imported, here"
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for name, sizes in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            write_lookalike(Path(folder), noisy=args.files, clean=14, sizes=sizes, drawn=56)
            split = read_split(Path(folder), "noisy_train")
            found: dict[str, Any] = {
                "sizes": sizes,
                "kib_a_file": statistics.mean(p.stat().st_size for p in paths_of(split)) / 1024,
                **rates(split, rounds=args.rounds, images=args.images),
            }
            if name == "small":
                found["memory"] = memory(split, workers=2)
            if args.train is not None:
                found["training"] = training(split, workers=args.train, steps=args.steps)
            record[name] = found
            print(json.dumps({name: found}))
            args.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
