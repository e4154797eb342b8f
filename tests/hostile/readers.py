"""Every reader of files, with whole files to start from: what attacks, fuzzes and the corpus share."""

import hashlib
import importlib
import importlib.util
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from covlearn.bench.found import RunReader
from covlearn.bench.summary import collect as collect_table
from covlearn.bench.summary import found_by_column
from covlearn.bench.table import read_table
from covlearn.checkpoint import FORMAT, Checkpoint
from covlearn.data import clothing1m
from covlearn.data.cifar import CIFAR10
from covlearn.data.cifar_files import read_cifar
from covlearn.data.image_files import read_square
from covlearn.data.pickles import read_pickle
from covlearn.data.sources import from_npz
from covlearn.data.store import open_stored
from covlearn.inputs import read_examples
from covlearn.inputs.cache import RowFile
from covlearn.inputs.images import load_image
from covlearn.inputs.trusted import read_trusted
from covlearn.methods.label_files import read_labels, read_probs
from covlearn.nets import build_net, load_pretrained
from covlearn.noise import symmetric
from covlearn.noise.files import read_label_file, write_labels
from tests.data import lookalike
from tests.hostile.reader import NUM, Files, Reader, X, Y, files_of, mixed_table, picture, saved
from tests.hostile.run_readers import run_readers

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


def make_readers(scratch: Path) -> list[Reader]:
    """All of them; ``scratch`` is a folder to make whole files in."""
    return [
        *_data(scratch),
        *_labels(scratch),
        *_sources(),
        *_saved_dataset(scratch),
        *_weights(scratch),
        *run_readers(scratch),
    ]


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
        Reader(
            "labels .npz of anyone's",
            "own.npz",
            (saved(np.savez, noisy=clean, clean=clean),),
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


def _sources() -> list[Reader]:
    frame, images = mixed_table(), np.zeros((NUM, 4, 4, 3), dtype=np.uint8)
    images += Y.astype(np.uint8)[:, None, None, None]
    manifest = "path,label\n" + "".join(f"{n}.png,{y}\n" for n, y in enumerate(Y[:6]))
    pictures = {f"{n}.png": picture("PNG") for n in range(6)}

    def source(name: str) -> Callable[[Path], object]:
        return lambda folder: read_examples(folder / name, on_bad="skip", features="none")

    def table(folder: Path) -> object:
        made = read_table(folder / "t.toml")
        return collect_table(made, folder, found_by_column(RunReader(made, folder)))

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
    datasets.Dataset.from_pandas(mixed_table()).save_to_disk(scratch / "saved")
    files = files_of(scratch / "saved")

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
