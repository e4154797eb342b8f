"""``make demo``: the sieve and the second-order statistics on scikit-learn's digits.

This is stage 1 of CAL and what stage 2 would be given, in a plain training loop; the engine that
trains stage 2 is not part of covlearn yet. The clean labels are used to make the noise and to
count how often the sieve is right, nowhere else.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from covlearn.covariance import SecondOrder, covariance_table, covariance_term
from covlearn.losses import cores
from covlearn.noise import instance_dependent
from covlearn.sieve import SieveRecorder, auto_threshold
from covlearn.transition import count_transition, transition_error

NUM_CLASSES = 10
NUM_EPOCHS = 20
BETA = 3.0


def train_sieve(x: Tensor, noisy: Tensor, *, seed: int) -> tuple[nn.Module, SieveRecorder]:
    """Minimises ℓ_ỹ − β Σ_k π'_k ℓ_k on the noisy labels and records a last pass over them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, NUM_CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    root = torch.bincount(noisy, minlength=NUM_CLASSES).sqrt()
    prior = root / root.sum()
    for epoch in range(NUM_EPOCHS):
        beta = BETA * min(max(epoch / NUM_EPOCHS - 0.15, 0) / 0.45, 1)
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + beta)
        for idx in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            cores(model(x[idx]), noisy[idx], prior=prior, beta=beta).mean().backward()
            optimizer.step()
    recorder = SieveRecorder(noisy, NUM_CLASSES)
    with torch.no_grad():
        recorder.update(torch.arange(len(x)), model(x))
    return model, recorder


def share(mask: Tensor) -> str:
    """A share as people read it."""
    return f"{100 * mask.double().mean().item():.1f} %"


def main() -> None:
    """Prints what the sieve and the covariance say of digits with 40 % wrong labels."""
    pixels, labels = load_digits(return_X_y=True)
    noise = instance_dependent(
        pixels / 16, labels, rate=0.4, num_classes=NUM_CLASSES, variant="cal", seed=0
    )
    x = torch.from_numpy(pixels / 16).float()
    clean, noisy = torch.from_numpy(labels).long(), torch.from_numpy(noise.label)
    print("Handwritten digits with instance-dependent label noise (the paper's Algorithm 2)\n")
    print(noise.card)

    model, recorder = train_sieve(x, noisy, seed=0)
    threshold = auto_threshold(recorder.score)
    refined = recorder.refine(lower=threshold)
    changed, wrong = refined.label != noisy, noisy != clean
    print(f"\nThe sieve (paper, Algorithm 1), {NUM_EPOCHS} epochs, threshold {threshold:.2f}:")
    print(f"  labels that are right, as given      {share(~wrong)}")
    print(f"  labels that are right, refined       {share(refined.label == clean)}")
    print(f"  wrong labels that were found         {share(changed[wrong])}")
    print(f"  wrong labels that were repaired      {share((refined.label == clean)[wrong])}")
    print(f"  of the labels it changed, were wrong {share(wrong[changed])}")
    print("  the surest of them (image: given, suggested, in truth):")
    surest = torch.where(changed, refined.score, -torch.inf).argsort(descending=True)[:8]
    for n in surest.tolist():
        print(f"    {n:4d}: {noisy[n]}, {refined.label[n]}, {clean[n]}")

    stats = SecondOrder.from_labels(noisy, refined.label, NUM_CLASSES)
    truth = count_transition(clean, noisy, num_classes=NUM_CLASSES)
    print("\nSecond-order statistics (paper, Sec. 4), what CAL's second stage is given:")
    print(f"  mean error of the transition matrix  {transition_error(stats.transition, truth):.4f}")
    with torch.no_grad():
        logits = model(x)
    table = covariance_table(logits, noisy, refined.label, stats)
    term = covariance_term(logits, noisy, refined.label, stats).item()
    print(f"  covariance term over all examples    {term:+.4f}")
    print("  largest Cov(T_ij, loss_j | i) by size:")
    for position in table.abs().flatten().argsort(descending=True)[:5].tolist():
        i, j = divmod(position, NUM_CLASSES)
        print(f"    refined {i}, labelled {j}: {table[i, j]:+.3f}")
    print(
        "\nBelow zero: of class i, the examples labelled j are those the model finds more like j."
        "\nAbove zero: less like j. Noise that depends on the class alone has zero in expectation."
    )


if __name__ == "__main__":
    main()
