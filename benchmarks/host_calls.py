"""What the host asks of the GPU in one whole training epoch, by the profiler.

    python -m benchmarks.host_calls            # ResNet-34 on 12,800 images of CIFAR's size

One epoch from setting its order to reading its mean loss: how often each runtime call was made, and
which of those that wait for the device lie before the last launch of a step.
"""

import argparse
from collections import Counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.epoch_cost import draw_split, objectives
from benchmarks.measure import write
from covlearn.data import Resident
from covlearn.engine import Machine, Plan, train
from covlearn.ledger import Ledger
from covlearn.nets import build_net

WAITS = ("Synchronize", "cudaMemcpy ", "cudaStreamQuery")
LAUNCH = "cudaGraphLaunch"


def calls_of_an_epoch(name: str, size: int, net: str, precision: Any) -> dict[str, Any]:
    """Counts of the CUDA runtime calls in the third epoch: set-up and capture are over by then."""
    split = draw_split(size, 10, "cuda")
    objective = objectives(split)[name]
    model = build_net(net, num_classes=10, input_shape=(3, 32, 32), seed=0)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    data = Resident(split, batch_size=128, seed=0, device="cuda")
    machine = Machine(device="cuda", precision=precision)
    plan = Plan(epochs=3, lr=0.01, weight_decay=5e-4)
    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True)

    def switch(epoch: int, *_: Any) -> dict[str, float]:
        if epoch == 1:
            profiler.start()
        elif epoch == 2:
            profiler.stop()
        return {}

    train(
        model,
        objective,
        data,
        plan,
        machine,
        seed=0,
        ledger=Ledger(size, "cuda"),
        after_epoch=switch,
    )
    events = sorted(
        (event for event in profiler.events() or [] if event.name.startswith("cuda")),
        key=lambda event: event.time_range.start,
    )
    launches = [event.time_range.start for event in events if event.name == LAUNCH]
    within = [
        event.name
        for event in events
        if launches
        and launches[0] < event.time_range.start < launches[-1]
        and any(word in f"{event.name} " for word in WAITS)
    ]
    return {
        "steps": -(-size // 128),
        "calls": dict(Counter(event.name for event in events).most_common()),
        "waits between the first and the last step": dict(Counter(within)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a small network and few steps")
    options = parser.parse_args()
    size, net = (1000, "cnn") if options.tiny else (12_800, "resnet34")
    figures = {name: calls_of_an_epoch(name, size, net, "bfloat16") for name in ("ce", "cal")}
    for name, value in figures.items():
        print(name, value)
    write("host_calls", {"net": net, "examples": size, "figures": figures})


if __name__ == "__main__":
    main()
