"""``make demo``: the main job on scikit-learn's digits with 40 % instance-dependent label noise.

CE, Forward, CORES² and CAL with the recommended settings for small data, eight seeds each; a seed
has its own noise. Clean labels make the noise and judge the results, and no method sees one.
"""

import argparse
import multiprocessing
import os
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from covlearn.records import Result

METHODS = ("ce", "forward", "cores", "cal")
NOISE = "cal:0.4"


def main(argv: list[str] | None = None) -> None:
    """Runs every method and seed, or reads what an earlier demo left, and prints the table."""
    parser = argparse.ArgumentParser(prog="covlearn.demo", description=(__doc__ or "").strip())
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args(argv)
    console = Console()
    console.print("Handwritten digits, 1,297 to learn from, about 40 % of them mislabelled.\n")
    jobs = [(name, seed) for seed in range(options.seeds) for name in METHODS]
    results: dict[tuple[str, int], Result] = {}
    # Small tensors: two processes of one thread each are faster than one with two.
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=context) as pool,
        Progress(console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("training", total=len(jobs))
        futures = {pool.submit(fit, name, seed, options.out): (name, seed) for name, seed in jobs}
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            progress.advance(task)
    report(results, options.seeds, console)
    console.print("The settings were chosen on this data set: it shows the job, not what it gains.")
    console.print(f"\nEvery run's settings, epochs, labels and model are in {options.out}.")


def fit(name: str, seed: int, out: Path) -> Result:
    """One method on one draw of the noise, in a folder of its own."""
    import torch  # noqa: PLC0415  the process that only waits need not load it

    from covlearn.data.sources import load_data, with_noise  # noqa: PLC0415
    from covlearn.methods.presets import preset, protocol  # noqa: PLC0415
    from covlearn.run import fit_and_evaluate  # noqa: PLC0415

    torch.set_num_threads(1)
    source, card = with_noise(load_data("digits"), NOISE, seed=seed)
    return fit_and_evaluate(
        preset("recommended", name, "small"),
        source.train,
        test=source.test,
        clean=source.clean,
        noise_card=card,
        folder=out / f"{name}-{seed}",
        seed=seed,
        data_name="digits",
        preset="recommended",
        holdout=protocol("recommended", "small").holdout,
        resume=True,
    )


def report(results: dict[tuple[str, int], Result], seeds: int, console: Console) -> None:
    """The table, and the difference that a reader looks for first."""
    last = {name: [_last(results[name, seed]) for seed in range(seeds)] for name in METHODS}
    table = Table(title=f"Accuracy on 500 clean test images, last epoch, {seeds} seeds")
    for column in ("method", "accuracy", "wrong labels found", "correctly repaired"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name in METHODS:
        found, repaired = "–", "–"
        labels = [labels for seed in range(seeds) if (labels := results[name, seed].labels)]
        if len(labels) == seeds:
            found = _spread([100 * label["quality"]["recall"] for label in labels])
            repaired = _spread([100 * label["quality"]["repaired"] for label in labels])
        table.add_row(name, _spread(last[name]), found, repaired)
    console.print(table)
    gains = [cal - ce for cal, ce in zip(last["cal"], last["ce"], strict=True)]
    if seeds > 1:
        error = statistics.stdev(gains) / seeds**0.5
        console.print(
            f"cal − ce, paired: {statistics.mean(gains):+.2f} points, standard error {error:.2f}"
        )


def _last(result: Result) -> float:
    assert result.test_accuracy.last is not None
    return 100 * result.test_accuracy.last.value


def _spread(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread} %"


if __name__ == "__main__":
    main()
