"""What the losses cost: CE, CORES² and CAL, and CAL by a dense K×K×N construction.

    python -m benchmarks.loss_cost

Forward and backward at B = 128, in turns within one run, so that the ratios hold on a busy machine.
The dense construction stores 1{ŷ_n = i, ỹ_n = j} for all i, j, n, as a direct reading of the
paper's estimate does; it is written here for the comparison and gives the same number.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.measure import peak_mebibytes, ratio, seconds_by_turns, write
from covlearn.covariance import CALLoss, SecondOrder, cal, covariance_term
from covlearn.losses import cores, cross_entropy

BATCH = 128
NUM_EXAMPLES = 50_000
IMAGENET = (1_281_167, 1000)
DENSE_EXAMPLES = {10: NUM_EXAMPLES, 100: NUM_EXAMPLES, 1000: 500}  # K×K×N floats: 2 GB at most
# What is promised, for two cores: CAL against CE up to K = 100, dense against CAL at K = 100, MiB.
MOST_CAL, LEAST_DENSE, MOST_MEMORY = 2.5, 30.0, 100.0


class DenseCovariance:
    """The covariance term from the K×K×N array, with the published weighting.

    ``centred`` subtracts the class mean m_ij from ℓ_j, as the published code does: another K×K×B
    array, for a value that differs and a gradient that does not.
    """

    def __init__(self, noisy: Tensor, refined: Tensor, num_classes: int) -> None:
        size = len(noisy)
        self.flips = torch.zeros(num_classes, num_classes, size)
        self.flips[refined, noisy, torch.arange(size)] = 1
        member = nn.functional.one_hot(refined, num_classes).T.float()
        self.transition = self.flips.sum(dim=2) / member.sum(dim=1, keepdim=True).clamp(min=1)
        self.class_weight = member.mean(dim=1)
        self.mean_loss = torch.full((num_classes, num_classes), 3.0)

    def term(
        self, logits: Tensor, refined: Tensor, idx: Tensor, *, centred: bool = False
    ) -> Tensor:
        """The batch's estimate."""
        loss_BK = -(logits.softmax(dim=1) + 1e-5).log()
        member = nn.functional.one_hot(refined, logits.shape[1]).T.float()
        deviation = (self.flips[:, :, idx] - self.transition[:, :, None]) * member[:, None, :]
        share = self.class_weight / member.sum(dim=1).clamp(min=1)
        loss = loss_BK.T - self.mean_loss[:, :, None] if centred else loss_BK.T
        return (share[:, None, None] * deviation * loss).sum()


def draw_labels(num_examples: int, num_classes: int) -> tuple[Tensor, Tensor]:
    """Noisy labels and a D̂ that agrees with 60 % of them."""
    generator = torch.Generator().manual_seed(0)
    noisy = torch.randint(num_classes, (num_examples,), generator=generator)
    other = torch.randint(num_classes, (num_examples,), generator=generator)
    return noisy, torch.where(torch.rand(num_examples, generator=generator) < 0.6, noisy, other)


def backward(loss: Callable[[Tensor], Tensor], logits: Tensor) -> Callable[[], None]:
    def call() -> None:
        logits.grad = None
        loss(logits).backward()

    return call


def losses_alone(num_classes: int, *, rounds: int) -> dict[str, float]:
    noisy, refined = draw_labels(NUM_EXAMPLES, num_classes)
    stats = SecondOrder.from_labels(noisy, refined, num_classes)
    prior = torch.full((num_classes,), 1 / num_classes)
    idx = torch.randperm(NUM_EXAMPLES, generator=torch.Generator().manual_seed(1))[:BATCH]
    y, refined_y = noisy[idx], refined[idx]
    criterion = CALLoss(noisy, refined, num_classes)
    logits = torch.randn(BATCH, num_classes, generator=torch.Generator().manual_seed(2))
    logits.requires_grad_()
    steps: dict[str, Callable[[Tensor], Tensor]] = {
        "torch cross_entropy": lambda z: nn.functional.cross_entropy(z, y),
        "ce": lambda z: cross_entropy(z, y).mean(),
        "cores": lambda z: cores(z, y, prior=prior, beta=1.0).mean(),
        "cal": lambda z: cal(z, y, refined_y, stats, prior=prior, beta=1.0).mean(),
        "CALLoss": lambda z: criterion(z, y, idx),
    }
    seconds = seconds_by_turns(
        {name: backward(loss, logits) for name, loss in steps.items()}, rounds=rounds
    )
    figures = {f"{name}, us": 1e6 * statistics.median(s) for name, s in seconds.items()}
    for name, base in (
        ("cores", "ce"),
        ("cal", "ce"),
        ("CALLoss", "ce"),
        ("cal", "torch cross_entropy"),
    ):
        figures[f"{name} / {base}"] = ratio(seconds, name, base)
    return figures


def dense_beside_cal(num_classes: int) -> dict[str, float]:
    """The dense construction and CAL by turns, on as many examples as the former has room for."""
    noisy, refined = draw_labels(DENSE_EXAMPLES[num_classes], num_classes)
    stats = SecondOrder.from_labels(noisy, refined, num_classes, empty_class="identity")
    dense = DenseCovariance(noisy, refined, num_classes)
    prior = torch.full((num_classes,), 1 / num_classes)
    idx = torch.arange(BATCH)
    y, refined_y = noisy[idx], refined[idx]
    logits = torch.randn(BATCH, num_classes, generator=torch.Generator().manual_seed(2))
    logits.requires_grad_()
    gap = (dense.term(logits, refined_y, idx) - covariance_term(logits, y, refined_y, stats)).item()
    assert abs(gap) < 1e-4, f"the two constructions differ by {gap}"

    def dense_step(centred: bool) -> Callable[[], None]:
        def loss(z: Tensor) -> Tensor:
            first_order = cores(z, y, prior=prior, beta=1.0).mean()
            return first_order - dense.term(z, refined_y, idx, centred=centred)

        return backward(loss, logits)

    seconds = seconds_by_turns(
        {
            "cal": backward(
                lambda z: cal(z, y, refined_y, stats, prior=prior, beta=1.0).mean(), logits
            ),
            "dense": dense_step(centred=False),
            "dense, centred": dense_step(centred=True),
        },
        rounds=20 if num_classes <= 100 else 2,
        # Longer turns: the dense form leaves nothing of the other's data in the caches.
        seconds_a_turn=0.1,
    )
    return {
        "examples": DENSE_EXAMPLES[num_classes],
        "dense, us": 1e6 * statistics.median(seconds["dense"]),
        "dense / cal": ratio(seconds, "dense", "cal"),
        "dense, centred / cal": ratio(seconds, "dense, centred", "cal"),
    }


def whole_step(num_classes: int, *, rounds: int) -> dict[str, float]:
    """The training step of a small convolutional network on 32×32 images, CAL against CE."""
    noisy, refined = draw_labels(NUM_EXAMPLES, num_classes)
    criterion = CALLoss(noisy, refined, num_classes)
    idx = torch.arange(BATCH)
    x, y = torch.randn(BATCH, 3, 32, 32), noisy[idx]
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def call() -> None:
            optimizer.zero_grad()
            loss(model(x)).backward()
            optimizer.step()

        return call

    seconds = seconds_by_turns(
        {
            "ce": step(lambda z: cross_entropy(z, y).mean()),
            "cal": step(lambda z: criterion(z, y, idx)),
        },
        rounds=rounds,
    )
    return {
        "ce step, ms": 1e3 * statistics.median(seconds["ce"]),
        "cal step, ms": 1e3 * statistics.median(seconds["cal"]),
        "cal / ce": ratio(seconds, "cal", "ce"),
    }


def memory_of(kind: str, num_examples: int, num_classes: int) -> float:
    """MiB that a construction adds to the peak of a process of its own, one step included."""
    noisy, refined = draw_labels(num_examples, num_classes)
    noisy, refined = noisy.int(), refined.int()
    idx = torch.arange(BATCH)
    logits = torch.randn(BATCH, num_classes, requires_grad=True)
    cross_entropy(logits, noisy[idx]).mean().backward()
    before = peak_mebibytes(reset=True)
    if kind == "ce":
        cross_entropy(logits, noisy[idx]).mean().backward()
    elif kind == "cores":
        prior = torch.bincount(noisy, minlength=num_classes) / len(noisy)
        cores(logits, noisy[idx], prior=prior, beta=1.0).mean().backward()
    elif kind == "cal":
        criterion = CALLoss(noisy, refined, num_classes, empty_class="identity")
        criterion(logits, noisy[idx], idx).backward()
    else:
        dense = DenseCovariance(noisy.long(), refined.long(), num_classes)
        dense.term(logits, refined[idx].long(), idx).backward()
    return peak_mebibytes() - before


def memory(kind: str, num_examples: int, num_classes: int) -> float:
    arguments = ["--memory", kind, str(num_examples), str(num_classes)]
    command = [sys.executable, "-m", "benchmarks.loss_cost", *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100, help="rounds of turns (default 100)")
    parser.add_argument("--memory", nargs=3, metavar=("KIND", "N", "K"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        kind, num_examples, num_classes = options.memory
        print(memory_of(kind, int(num_examples), int(num_classes)))
        return
    record: dict[str, dict[str, float]] = {}
    for num_classes in (10, 100, 1000):
        figures = losses_alone(num_classes, rounds=options.rounds)
        for kind in ("ce", "cores", "cal"):
            figures[f"{kind}, peak MiB"] = memory(kind, NUM_EXAMPLES, num_classes)
        record[f"loss, K = {num_classes}, N = {NUM_EXAMPLES}"] = figures
        dense = dense_beside_cal(num_classes)
        dense["dense, peak MiB"] = memory("dense", DENSE_EXAMPLES[num_classes], num_classes)
        record[f"dense, K = {num_classes}"] = dense
    for num_classes in (10, 100):
        record[f"training step, K = {num_classes}"] = whole_step(num_classes, rounds=20)
    imagenet = memory("cal", *IMAGENET)
    record["memory, K = 1000, N = 1281167"] = {"cal, peak MiB": imagenet}
    for title, figures in record.items():
        print(title)
        for name, value in figures.items():
            print(f"  {name:28s} {value:10.4g}")
    write("loss_cost", {"batch": BATCH, "figures": record})
    for num_classes in (10, 100):
        measured = record[f"loss, K = {num_classes}, N = {NUM_EXAMPLES}"]["cal / ce"]
        verdict(f"cal / ce at K = {num_classes}", measured, measured <= MOST_CAL, MOST_CAL)
    measured = record["dense, K = 100"]["dense / cal"]
    verdict("dense / cal at K = 100", measured, measured >= LEAST_DENSE, LEAST_DENSE)
    verdict("MiB of ImageNet's labels", imagenet, imagenet <= MOST_MEMORY, MOST_MEMORY)


def verdict(what: str, measured: float, met: bool, promised: float) -> None:
    print(f"{'met    ' if met else 'NOT MET'} {what}: {measured:.3g}, promised {promised:g}")


if __name__ == "__main__":
    main()
