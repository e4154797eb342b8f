"""The fast path (captured, bfloat16) against the eager float32 one: test accuracy, five seeds each.

    python -m benchmarks.same_result cifar10

A short schedule of a ResNet-18 with cross-entropy on all of CIFAR-10, which must have been fetched.
The averaged weights are judged: those of the last step alone scattered by three points between
seeds after so few epochs, which hides any difference worth knowing. Needs CUDA.
"""

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.epoch_cost import HOW
from benchmarks.measure import write
from covlearn.data import Resident, Split
from covlearn.data.sources import load_data
from covlearn.engine import Machine, Plan, predict, train
from covlearn.methods.ce import CrossEntropy
from covlearn.nets import build_net

PLAN = Plan(epochs=8, lr=0.02, lr_milestones=(6,), weight_decay=5e-4, average=0.99)
MACHINES = {
    "eager float32": Machine(device="cuda", capture=False),
    "captured bfloat16": Machine(device="cuda", precision="bfloat16"),
}


def accuracy(machine: Machine, train_split: Split, test: Split, seed: int) -> float:
    model = build_net("resnet18", num_classes=10, input_shape=(3, 32, 32), seed=seed)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    data = Resident(train_split, batch_size=PLAN.batch_size, seed=seed, device="cuda")
    train(model, CrossEntropy(), data, PLAN, machine, seed=seed)
    still = Resident(test, batch_size=1000, shuffle=False, device="cuda")
    logits, _ = predict(model, still, machine)
    return float((logits.argmax(dim=1) == still.y).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", help="a name or a file that covlearn train takes")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    source = load_data(options.data)
    train_split, test = (replace(part, augmentation=HOW) for part in (source.train, source.test))
    figures: dict[str, Any] = {}
    for name, machine in MACHINES.items():
        started = time.perf_counter()
        found = [accuracy(machine, train_split, test, seed) for seed in range(options.seeds)]
        figures[name] = {
            "test accuracies": found,
            "mean": statistics.mean(found),
            "standard error": statistics.stdev(found) / len(found) ** 0.5,
            "seconds": time.perf_counter() - started,
        }
        print(name, figures[name], flush=True)
    first, second = (figures[name]["mean"] for name in MACHINES)
    figures["difference of the means, points"] = 100 * (second - first)
    print(figures["difference of the means, points"])
    sizes = {"training images": len(train_split), "test images": len(test)}
    write("same_result", {"net": "resnet18", "data": options.data, **sizes, "figures": figures})


if __name__ == "__main__":
    main()
