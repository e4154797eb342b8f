"""Labels as of someone who confuses what a small network confuses; benchmarks/labels has them.

    python -m benchmarks.confused cifar10 --rate 0.1 0.4
    covlearn train --data cifar10 --noise file:benchmarks/labels/confused_0.4_cifar10.npz …

Nearer to people's mistakes than noise by projections of pixels is: hard images are wrong more
often, and for what they look like. Each half of the images is labelled by a network that was
trained, briefly, on the right labels of the other half (`covlearn.noise.confused`).
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from covlearn.data import Split
from covlearn.data.sources import load_data
from covlearn.engine import Plan
from covlearn.job import augmented, make_machine, resolve_device
from covlearn.methods import presets
from covlearn.methods.ce import CrossEntropy
from covlearn.noise import confused
from covlearn.noise.files import write_labels
from covlearn.run import LocalRun

LABELS = Path(__file__).resolve().parent / "labels"
PLAN = Plan(epochs=6, lr=0.05, lr_milestones=(4,), weight_decay=5e-4)


def part(split: Split, chosen: Tensor) -> Split:
    """Some of the examples."""
    return replace(split, x=split.x[chosen], y=split.y[chosen])


def labeller_probs(split: Split, *, plan: Plan, net: str) -> Tensor:
    """What a network that was trained on the other half says of each example, (N, K)."""
    order = torch.randperm(len(split.y), generator=torch.Generator().manual_seed(0))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    probs = torch.empty(len(split.y), split.num_classes)
    machine = make_machine(resolve_device("auto"), {})
    for seen, labelled in (halves, halves[::-1]):
        run = LocalRun(part(split, seen), net_name=net, machine=machine)
        model = run.net("labeller")
        run.train("labeller", model, CrossEntropy(), plan)
        other = LocalRun(part(split, labelled), net_name=net, machine=machine)
        logits, _ = other.predict(model)
        probs[labelled] = logits.float().softmax(dim=1)
    return probs


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--rate", type=float, nargs="+", default=[0.4])
    parser.add_argument("--net", default="cnn")
    parser.add_argument("--epochs", type=int, default=PLAN.epochs)
    parser.add_argument("--out", type=Path, default=LABELS)
    options = parser.parse_args(arguments)
    split = load_data(options.data).train
    moved = presets.protocol("recommended", presets.data_kind(options.data)).augmentation
    plan = replace(PLAN, epochs=options.epochs)
    probs = labeller_probs(augmented(split, moved, {}), plan=plan, net=options.net)
    right = float((probs.argmax(dim=1) == split.y).float().mean())
    print(f"labeller right for {right:.1%}")
    options.out.mkdir(parents=True, exist_ok=True)
    for rate in options.rate:
        labels = confused(split.y, probs=probs, rate=rate, seed=0)
        path = options.out / f"confused_{rate}_{Path(options.data).stem}.npz"
        write_labels(path, labels, split.y.numpy())
        print(f"{labels.card.actual_rate:.1%} of the labels are wrong: {path}")


if __name__ == "__main__":
    main()
