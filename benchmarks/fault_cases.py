"""What the harness of faults runs: each case is a command line on a toy."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from covlearn.config import as_text, leaves
from covlearn.data import clothing1m
from covlearn.methods import CAL, METHODS, Method
from covlearn.methods.presets import preset
from covlearn.testing import shortened
from covlearn.testing.clothing import write_lookalike
from covlearn.testing.toy import make_toy


@dataclass(frozen=True)
class Case:
    """A command line without its folder."""

    name: str
    argv: tuple[str, ...]
    place: str = "--out"
    """The option that names the folder."""
    again: tuple[str, ...] = ("--resume",)
    """What it takes to go on."""
    weight: int = 1
    """How many times as often as others it is killed: those of many stages want more."""


def cases(folder: Path) -> list[Case]:
    """Every method, what CAL has beside its defaults, images in files, fit, and a table."""
    points, images, table, clothes = (
        folder / name for name in ("points.npz", "images.npz", "points.csv", "clothes")
    )
    write_npz(points, images=False)
    write_npz(images, images=True)
    write_csv(table)
    clothing1m.SHORT_SIDE, clothing1m.SIDE = 20, 16
    write_lookalike(clothes, noisy=84, clean=28, sizes=((40, 30), (30, 30)), drawn=28)
    found = [train_case(name, kind(), points) for name, kind in METHODS.items()]
    averaged = shortened(CAL(scores="averaged"), average=0.9)
    averaged = replace(averaged, plan=replace(averaged.plan, average_classes=2))
    rounds = CAL(threshold="argmax", rounds=3)
    recommended = preset("recommended", "cal", "cifar10")
    variants = {
        "cal, averages": (averaged, points),
        "cal, recommended for images": (recommended, images),
        "cal, rounds": (rounds, points),
        "cal, image files": (CAL(threshold="argmax"), clothes),
    }
    found += [train_case(name, method, data) for name, (method, data) in variants.items()]
    short = ("--set", "sieve_plan.epochs=3", "plan.epochs=3")
    fit = ("fit", str(table), "--label", "label", "--device", "cpu")
    bench = ("bench", write_table(folder, points), "--device", "cpu")
    return [
        *found,
        Case("fit", (*fit, *short), weight=6),
        Case("fit, method ce", (*fit, "--method", "ce", "--set", "plan.epochs=3"), weight=4),
        Case("bench", bench, "--folder", (), weight=4),
    ]


def write_table(folder: Path, data: Path) -> str:
    """Two rows that share a stage, and two trials of each."""
    file = folder / "table.toml"
    epochs = "settings = ['sieve_plan.epochs=2', 'plan.epochs=2', 'net.hidden=[32]'"
    file.write_text(
        "title = 'A table'\npreset = 'defaults'\ntrials = 2\nfigure = 'last'\nnet = 'mlp'\n"
        f"[[columns]]\nname = 'points'\ndata = '{data}'\nnoise = 'none'\n"
        f"[[rows]]\nname = 'cal'\nmethod = 'cal'\n{epochs}]\n"
        f"[[rows]]\nname = 'relabel'\nmethod = 'cal'\n{epochs}, 'relabel=true']\n",
        encoding="utf-8",
    )
    return str(file)


def train_case(name: str, method: Method, data: Path) -> Case:
    """``covlearn train`` of the method as the house checks shorten it."""
    kind = next(key for key, cls in METHODS.items() if cls is type(method))
    defaults = {leaf.path: leaf.value for leaf in leaves(METHODS[kind]())}
    changed = [
        f"{leaf.path}={as_text(leaf.value)}"
        for leaf in leaves(shortened(method))
        if leaf.value != defaults[leaf.path]
    ]
    options = ("--device", "cpu", "--set", "net.hidden=[32]", *changed, "machine.workers=1")
    return Case(name, ("train", "--data", str(data), "--method", kind, *options))


def write_npz(path: Path, *, images: bool) -> None:
    toy = make_toy(images=images)
    x, x_test = (part.whole("a toy").numpy() for part in (toy.split, toy.test))
    y, y_test, clean = (part.numpy() for part in (toy.split.y, toy.test.y, toy.clean))
    np.savez(path, x=x, y=y, x_test=x_test, y_test=y_test, clean=clean)


def write_csv(path: Path) -> None:
    toy = make_toy().split
    rows = [
        ",".join([*(f"{value:.4f}" for value in point), f"class {label}"])
        for point, label in zip(toy.whole("a toy").tolist(), toy.y.tolist(), strict=True)
    ]
    path.write_text("\n".join(["a,b,c,d,e,f,g,h,label", *rows]) + "\n", encoding="utf-8")
