"""Every reader of files, with whole files to start from: what attacks, fuzzes and the corpus share.

A reader is given a folder in which one file is hostile, and must return something or raise a
ValueError of one sentence.
"""

import hashlib
import importlib
import importlib.util
import io
import json
import signal
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from PIL import Image

from covlearn import cli, records
from covlearn.bench.summary import collect as collect_table
from covlearn.bench.table import read_table
from covlearn.checkpoint import FORMAT, Checkpoint
from covlearn.data import clothing1m
from covlearn.data.cifar import CIFAR10
from covlearn.data.cifar_files import read_cifar
from covlearn.data.image_files import read_square
from covlearn.data.pickles import read_pickle
from covlearn.data.sources import from_npz
from covlearn.data.store import open_stored
from covlearn.exports import clean_table
from covlearn.fitted import load
from covlearn.inputs import read_examples
from covlearn.inputs.cache import RowFile
from covlearn.inputs.images import load_image
from covlearn.inputs.trusted import read_trusted
from covlearn.methods.label_files import read_labels, read_probs
from covlearn.nets import build_net, load_pretrained
from covlearn.noise import symmetric
from covlearn.noise.files import read_label_file, write_labels
from covlearn.records_frame import read_runs
from covlearn.report.collect import collect
from covlearn.report.compare import compare
from covlearn.report.page import page
from tests.data import lookalike
from tests.runs import fit as train

SECONDS = 2.0
"""What no file of a few kilobytes may take to be read or refused."""
NUM, NUM_COLUMNS = 40, 6

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Reader:
    """What reads ``file`` of a folder; ``around`` are the other files there."""

    name: str
    file: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], object]
    around: Files = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        """The folder as it would be if nobody meant harm."""
        for name, content in {**self.around, self.file: self.seeds[0]}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    def attempt(self, folder: Path, content: bytes) -> str | None:
        """Reads hostile content: None if that gave a value, else the sentence of the refusal.

        Any other exception, two lines, and more than :data:`SECONDS` are the reader's fault.
        """
        (folder / self.file).write_bytes(content)
        try:
            with time_limit(SECONDS):
                self.read(folder)
        except ValueError as error:
            return self._sentence(error)
        return None

    def _sentence(self, error: ValueError) -> str:
        text = str(error)
        if not text.strip() or "\n" in text:
            raise AssertionError(
                f"{self.name} must refuse in one sentence, got {text!r}"
            ) from error
        return text


class TookTooLongError(BaseException):
    """Not an Exception, which a reader might take for damage."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stops what takes longer, of the processor's time, so that a busy machine does not count.

    What the C code of a library does not let itself be stopped in is found out afterwards.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLongError(f"over {seconds} seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    began = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if time.process_time() - began > seconds:
        raise TookTooLongError(f"over {seconds} seconds")


def make_readers(scratch: Path) -> list[Reader]:
    """All of them; ``scratch`` is a folder to make whole files in."""
    return [
        *_data(scratch),
        *_labels(scratch),
        *_sources(),
        *_saved_dataset(scratch),
        *_weights(scratch),
        *_fit_files(_fitted(scratch)),
        *_train_files(_trained(scratch)),
    ]


def saved(function: Callable[..., Any], *arguments: Any, **named: Any) -> bytes:
    """What ``function(buffer, …)`` writes."""
    buffer = io.BytesIO()
    function(buffer, *arguments, **named)
    return buffer.getvalue()


def picture(kind: str, side: int = 12, **options: Any) -> bytes:
    pixels = np.random.default_rng(0).integers(256, size=(side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


X = np.random.default_rng(0).normal(size=(NUM, 3)).astype(np.float32)
Y = np.arange(NUM) % 2


def _data(scratch: Path) -> list[Reader]:
    facts, images = lookalike.tiny(CIFAR10)
    pickled = lookalike.official_files(images, facts)
    packed = lookalike.write_archive(scratch / "cifar.tar.gz", pickled).read_bytes()
    mosaics = lookalike.package_files(images, facts)
    package = lookalike.write_archive(scratch / "package.tgz", mosaics).read_bytes()
    plain = saved(_tar, pickled)
    stored = safetensors.numpy.save(images._asdict(), metadata={"data": facts.name})
    pictures = tuple(map(picture, ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")))
    keys = "\n".join(f"images/{n}.jpg" for n in range(4)).encode()
    values = "\n".join(f"images/{n}.jpg {n}" for n in range(4)).encode()
    names = [*clothing1m.KEY_LISTS.values(), *clothing1m.LABELS.values(), clothing1m.CATEGORIES]
    clothing = {name: values if name.endswith("kv.txt") else keys for name in names}

    def clothing_read(folder: Path) -> None:
        clothing1m.check_layout(folder)
        for part in clothing1m.KEY_LISTS:
            clothing1m.read_part(folder, part)

    return [
        Reader(
            "cifar pickle",
            "batch",
            (next(iter(pickled.values())),),
            lambda folder: read_pickle((folder / "batch").read_bytes()),
        ),
        Reader(
            "cifar archive",
            "cifar.tar.gz",
            (packed, package, plain),
            lambda folder: read_cifar(folder / "cifar.tar.gz", facts),
        ),
        Reader(
            "cifar store",
            "cifar10.safetensors",
            (stored,),
            lambda folder: open_stored(facts, folder / "cifar10.safetensors"),
        ),
        Reader("image", "a.png", pictures, lambda folder: load_image(folder / "a.png", 8)),
        Reader(
            "image file", "a.jpg", pictures[:2], lambda folder: read_square(folder / "a.jpg", 8)
        ),
        *(
            Reader(f"clothing1m {name}", name, (clothing[name],), clothing_read, clothing)
            for name in ("noisy_train_key_list.txt", "noisy_label_kv.txt", clothing1m.CATEGORIES)
        ),
    ]


def _tar(buffer: io.BytesIO, files: Files) -> None:
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _labels(scratch: Path) -> list[Reader]:
    clean = np.arange(NUM) % 3
    write_labels(scratch / "own.npz", symmetric(clean, rate=0.2, num_classes=3, seed=0), clean)
    published = {"clean_label_train": torch.from_numpy(clean), "noise_label_train": clean.copy()}
    files = tuple(
        saved(
            lambda buffer, new: torch.save(published, buffer, _use_new_zipfile_serialization=new),
            new,
        )
        for new in (True, False)
    )
    probs = np.full((NUM, 3), 1 / 3)
    text = "\n".join(map(str, clean)).encode()
    table = b"idx,suggested\n" + b"".join(b"%d,%d\n" % (n, y) for n, y in enumerate(clean))
    tasks = [
        {
            "data": {"id": str(n)},
            "annotations": [{"result": [{"type": "choices", "value": {"choices": ["a"]}}]}],
        }
        for n in range(3)
    ]

    def labels(name: str) -> Callable[[Path], object]:
        return lambda folder: read_labels(str(folder / name), NUM, 3)

    return [
        Reader("labels .pt", "a.pt", files, lambda folder: read_label_file(folder / "a.pt")),
        Reader(
            "labels .npz",
            "own.npz",
            ((scratch / "own.npz").read_bytes(),),
            lambda folder: read_label_file(folder / "own.npz"),
        ),
        Reader("refined .npy", "a.npy", (saved(np.save, clean),), labels("a.npy")),
        Reader("refined .npz", "a.npz", (saved(np.savez, labels=clean),), labels("a.npz")),
        Reader("refined .txt", "a.txt", (text,), labels("a.txt")),
        Reader("refined .csv", "a.csv", (table,), labels("a.csv")),
        Reader(
            "probabilities",
            "p.npy",
            (saved(np.save, probs),),
            lambda folder: read_probs(str(folder / "p.npy"), NUM, 3),
        ),
        Reader(
            "decisions .csv",
            "d.csv",
            (b"id,label\nx,a\ny,'=b\n",),
            lambda folder: read_trusted(folder / "d.csv"),
        ),
        Reader(
            "decisions .json",
            "d.json",
            (json.dumps(tasks).encode(),),
            lambda folder: read_trusted(folder / "d.json"),
        ),
    ]


TOML = b"""
title = "A table"
trials = 2
settings = ["plan.epochs=3"]
pairs = [["ce", "gce"]]

[[rows]]
name = "ce"
method = "ce"

[[rows]]
name = "gce"
method = "gce"
settings = ["q=0.5"]

[[columns]]
name = "digits/0.2"
data = "digits"
noise = "symmetric:0.2"
rate = 0.2

[expected]
ce = {"digits/0.2" = [0.9, 0.1]}
"""


def _frame() -> pd.DataFrame:
    when = pd.date_range("2024-01-01", periods=NUM).astype(str)
    words = np.array(["red", "green", "blue"])[np.arange(NUM) % 3]
    frame = pd.DataFrame({"key": [f"k{n}" for n in range(NUM)], "a": X[:, 0], "b": X[:, 1]})
    return frame.assign(colour=words, when=when, label=np.array(["=x", "y"])[Y])


def _sources() -> list[Reader]:
    frame, images = _frame(), np.zeros((NUM, 4, 4, 3), dtype=np.uint8)
    images += Y.astype(np.uint8)[:, None, None, None]
    manifest = "path,label\n" + "".join(f"{n}.png,{y}\n" for n, y in enumerate(Y[:6]))
    pictures = {f"{n}.png": picture("PNG") for n in range(6)}

    def source(name: str) -> Callable[[Path], object]:
        return lambda folder: read_examples(folder / name, on_bad="skip", features="none")

    def table(folder: Path) -> object:
        made = read_table(folder / "t.toml")
        return collect_table(made, folder)

    whole = {"x": X, "y": Y, "x_test": X, "y_test": Y, "clean": Y}
    vectors = frame.assign(v=list(X.astype(float)))
    return [
        Reader(
            "data .npz",
            "d.npz",
            (
                saved(np.savez, **whole),
                saved(np.savez_compressed, **{**whole, "x": images, "x_test": images}),
            ),
            lambda folder: from_npz(folder / "d.npz"),
        ),
        Reader(
            "source .npz",
            "d.npz",
            (
                saved(np.savez, x=X, y=Y, ids=np.arange(NUM)),
                saved(np.savez_compressed, images=images, labels=Y),
            ),
            source("d.npz"),
        ),
        Reader(
            "source .npy",
            "x.npy",
            (saved(np.save, X),),
            source("x.npy"),
            {"y.npy": saved(np.save, Y)},
        ),
        Reader(
            "source labels .npy",
            "y.npy",
            (saved(np.save, Y),),
            source("x.npy"),
            {"x.npy": saved(np.save, X)},
        ),
        Reader(
            "source .csv",
            "t.csv",
            (
                frame.to_csv(index=False).encode(),
                frame.to_csv(index=False, sep=";").encode("utf-16"),
            ),
            source("t.csv"),
        ),
        Reader(
            "source .parquet",
            "t.parquet",
            (saved(vectors.to_parquet), saved(frame.to_parquet, compression="gzip")),
            lambda folder: read_examples(folder / "t.parquet", on_bad="skip"),
        ),
        Reader("manifest", "m.csv", (manifest.encode(),), source("m.csv"), pictures),
        Reader(
            "image of a manifest",
            "0.png",
            (picture("PNG"),),
            source("m.csv"),
            pictures | {"m.csv": manifest.encode()},
        ),
        Reader("table of a benchmark", "t.toml", (TOML,), table),
    ]


def _saved_dataset(scratch: Path) -> list[Reader]:
    """A dataset of Hugging Face's on the disk, where their library is installed."""
    if importlib.util.find_spec("datasets") is None:
        return []
    datasets = importlib.import_module("datasets")
    datasets.disable_progress_bars()
    datasets.Dataset.from_pandas(_frame()).save_to_disk(scratch / "saved")
    files = _files(scratch / "saved")

    def read(folder: Path) -> object:
        return read_examples(folder, label="label", on_bad="skip")

    return [Reader(f"dataset {name}", name, (files[name],), read, files) for name in sorted(files)]


def _weights(scratch: Path) -> list[Reader]:
    net = build_net("mlp", num_classes=3, input_shape=(4,), seed=0, options={"hidden": [5]})
    state = net.state_dict()
    held = {
        "format": FORMAT,
        "identity": "me",
        "state": {"epoch": 1, "model": state, "history": []},
    }
    rows = RowFile(scratch, "rows", (3,), np.float32)
    facts = {"done": NUM, "rows": NUM, "bad": [[1, "why"]], "levels": []}

    def weights(name: str) -> Callable[[Path], object]:
        return lambda folder: load_pretrained(net, folder / name)

    def cached(folder: Path) -> object:
        return RowFile(folder, "rows", (3,), np.float32).finished()

    def sealed(folder: Path) -> object:
        """With the digest of whatever is in it, which anyone can compute."""
        path = folder / "c.pt"
        content = path.read_bytes()
        path.write_bytes(content + hashlib.sha256(content).digest())
        return Checkpoint(path, "me").load()

    around = {"rows.npy": saved(np.save, X), "rows.json": json.dumps(facts).encode()}
    assert rows.path.name in around
    return [
        Reader("weights .pt", "w.pt", (saved(lambda b: torch.save(state, b)),), weights("w.pt")),
        Reader(
            "weights .safetensors",
            "w.safetensors",
            (safetensors.torch.save(state),),
            weights("w.safetensors"),
        ),
        Reader(
            "checkpoint",
            "c.pt",
            (saved(lambda b: torch.save(held, b)),),
            sealed,
        ),
        Reader("cache rows", "rows.npy", (around["rows.npy"],), cached, around),
        Reader("cache facts", "rows.json", (around["rows.json"],), cached, around),
    ]


def _fitted(scratch: Path) -> dict[str, bytes]:
    """The files of a small fit, with decisions of people in it."""
    frame = _frame()
    frame["a"] += 5 * Y
    frame.to_csv(scratch / "table.csv", index=False)
    (scratch / "trusted.csv").write_text("id,label\nk0,'=x\nk1,y\n")
    quick = [
        "--device",
        "cpu",
        "--set",
        "folds=2",
        "net.hidden=[4]",
        "plan.epochs=2",
        "sieve_plan.epochs=2",
    ]
    out = ["--id", "key", "--trusted", str(scratch / "trusted.csv"), "--out", str(scratch / "fit")]
    code = cli.main(["fit", str(scratch / "table.csv"), *out, *quick])
    assert code == 0
    return _files(scratch / "fit")


def _trained(scratch: Path) -> dict[str, bytes]:
    train(scratch / "train")
    return _files(scratch / "train")


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "report.html"}


def read_fit(folder: Path) -> object:
    """All that commands do with a run of ``covlearn fit``, but for reading its source again."""
    fitted = load(folder)
    fitted.probabilities(torch.zeros(2, NUM_COLUMNS))
    clean_table(fitted)
    page(collect(folder))
    compare([folder, folder])
    return read_runs(folder.parent if folder.name == "run" else folder)


def read_train(folder: Path) -> object:
    """The same of a run of ``covlearn train``."""
    page(collect(folder))
    compare([folder, folder])
    read_runs(folder, by="epoch")
    return read_runs(folder)


def _fit_files(files: Files) -> list[Reader]:
    names = sorted({*files} - {records.PROBS})
    return [Reader(f"fit {name}", name, (files[name],), read_fit, files) for name in names]


def _train_files(files: Files) -> list[Reader]:
    names = sorted({*files} - {records.PROBS, records.MODEL})
    return [Reader(f"train {name}", name, (files[name],), read_train, files) for name in names]
