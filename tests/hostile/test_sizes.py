"""A file of few bytes does not ask for more room or time than there is."""

import contextlib
import io
import json
import resource
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from covlearn import npz
from covlearn.bench.table import read_table
from covlearn.fitted import load
from covlearn.inputs import read_examples, table_files
from covlearn.inputs.images import BadImage, check_image, load_image
from covlearn.noise.card import NoiseCard
from covlearn.report.collect import collect
from tests.hostile.reader import Reader, time_limit
from tests.hostile.readers import TOML


def chunk(kind: bytes, content: bytes) -> bytes:
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def png(width: int, height: int, *extra: bytes, depth: int = 8, colour: int = 0) -> bytes:
    """An image of one colour, in few bytes."""
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    packer = zlib.compressobj(9)
    line = b"\0" * (1 + width * channels * depth // 8)
    packed = b"".join(packer.compress(line) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [chunk(b"IHDR", head), *extra, chunk(b"IDAT", packed), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_a_huge_image_is_refused_by_its_header() -> None:
    bomb = png(30_000, 30_000, depth=1)
    assert len(bomb) < 500_000
    for read in (check_image, lambda content: load_image(content, 8)):
        with time_limit(2.0), pytest.raises(BadImage, match="pixels; scale it down first"):
            read(bomb)


LARGEST = """
import resource, sys
from pathlib import Path
from covlearn.inputs.images import load_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert load_image(Path(sys.argv[1]), 8).shape == (8, 8, 3)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(("depth", "colour"), [(8, 6), (16, 0)])
def test_the_largest_image_takes_less_than_a_gibibyte(
    depth: int, colour: int, tmp_path: Path
) -> None:
    (tmp_path / "large.png").write_bytes(png(9_400, 9_400, depth=depth, colour=colour))
    done = subprocess.run(
        [sys.executable, "-c", LARGEST, str(tmp_path / "large.png")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 2**20


def test_metadata_that_inflates_is_refused_or_left() -> None:
    bomb = zlib.compress(b"a" * 200_000_000, 9)
    for extra in (chunk(b"zTXt", b"k\0\0" + bomb), chunk(b"iCCP", b"k\0\0" + bomb)):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with time_limit(2.0), contextlib.suppress(BadImage):
            load_image(png(8, 8, extra), 8)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18


def test_frames_are_not_counted() -> None:
    frames = [Image.new("L", (1, 1), level) for level in (0, 255)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    content = buffer.getvalue()
    frame = content[content.rindex(b",") : -1]  # with its pixels; the file ends with one byte more
    with time_limit(2.0), pytest.raises(BadImage, match="several frames"):
        check_image(content[:-1] + frame * 500_000 + b";")


def test_exif_of_absurd_size_turns_nothing() -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 65_535) + b"\x12\x01" * 10_000
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(buffer, "JPEG", exif=exif)
    with time_limit(2.0):
        assert load_image(buffer.getvalue(), 8).shape == (8, 8, 3)


# ---- Arrays and tables ------------------------------------------------------------------------


def test_an_archive_that_inflates_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "MOST_UNPACKED", 10**6)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(10**7, dtype=np.uint8))
    with pytest.raises(ValueError, match="bytes would unpack to 10,000,"):
        npz.read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=np.zeros(10**7, dtype=np.uint8))
    assert npz.read_arrays(tmp_path / "a.npz")["x"].shape == (10**7,)


def npy(shape: str, kind: str = "<f8") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (117 - len(head)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("(10000000000000,)", "<f8"),
        ("(10**9,)", "<f8"),
        ("(4000000000,)", "<U0"),
        ("(-1, 3)", "<f8"),
    ],
)
def test_a_length_that_is_only_claimed_is_refused(shape: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(npy(shape, kind))
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", npy(shape, kind))
    with time_limit(2.0):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            npz.read_array(tmp_path / "x.npy")
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            npz.read_arrays(tmp_path / "d.npz")


def test_a_table_that_repeats_itself_for_ever_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "MOST_CELLS", 10**5)
    monkeypatch.setattr(table_files, "MOST_TIMES", 10)
    pq.write_table(
        pa.table({"a": pa.array(np.zeros(5 * 10**5)), "label": pa.nulls(5 * 10**5)}),
        tmp_path / "t.parquet",
    )
    with pytest.raises(ValueError, match="bytes claim to be 1,000,000 cells"):
        read_examples(tmp_path / "t.parquet")


def test_places_outside_of_a_dataset_are_not_read(tmp_path: Path) -> None:
    """Offsets that lead out of the file: pyarrow would read what lies there, or crash."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    words = list("xyxyxy")
    datasets.Dataset.from_dict({"a": words, "label": words}).save_to_disk(tmp_path / "saved")
    place = next((tmp_path / "saved").glob("*.arrow"))
    good, evil = (np.array([*range(6), last], dtype=np.int32).tobytes() for last in (6, 2**30))
    content = place.read_bytes()
    assert good in content
    place.write_bytes(content.replace(good, evil, 1))
    with pytest.raises(ValueError, match="cannot be read as a Hugging Face dataset"):
        read_examples(tmp_path / "saved")


# ---- Runs and tables of benchmarks ------------------------------------------------------------


@pytest.mark.parametrize("trials", ["1000000000000", "-1", "0"])
def test_trials_are_counted_before_they_are_listed(trials: str, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_bytes(TOML.replace(b"trials = 2", b"trials = " + trials.encode()))
    with time_limit(2.0), pytest.raises(ValueError, match="trials must be 1…10,000"):
        read_table(tmp_path / "t.toml")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("net", {"name": "mlp", "hidden": [10**6, 10**6]}),
        ("shape", [10**9]),
        ("shape", "x"),
        ("shape", None),
    ],
)
def test_a_network_larger_than_its_weights_is_refused(
    part: str, value: object, readers: dict[str, Reader], tmp_path: Path
) -> None:
    readers["fit config.json"].prepare(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (config if part == "net" else config["data"])[part] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with time_limit(2.0), pytest.raises(ValueError, match=r"larger one|input_shape"):
        _ = load(tmp_path).model


def test_classes_without_end_are_refused(readers: dict[str, Reader], tmp_path: Path) -> None:
    readers["train config.json"].prepare(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["data"]["classes"] = 10**12
    (tmp_path / "config.json").write_text(json.dumps(config))
    with time_limit(2.0), pytest.raises(ValueError, match="1…1,000,000 classes"):
        collect(tmp_path)
    card = config["noise"] | {"num_classes": 10**7, "transition": [None] * 3}
    with time_limit(2.0), pytest.raises(ValueError, match="2…10,000 classes"):
        NoiseCard.from_dict(card)
