"""One image: every mode, the right way up, and what is no image."""

import contextlib
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from covlearn.inputs.images import BadImage, check_image, load_image
from tests.inputs.make import picture, pixels


def solid(path: Path, mode: str, colour: object, size: int = 40) -> Path:
    Image.new(mode, (size, size), colour).save(path)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    ("mode", "colour", "suffix", "expected"),
    [
        ("RGB", (10, 200, 30), "png", (10, 200, 30)),
        ("L", 77, "png", (77, 77, 77)),
        ("1", 1, "png", (255, 255, 255)),
        ("LA", (80, 255), "png", (80, 80, 80)),
        ("RGBA", (10, 200, 30, 255), "png", (10, 200, 30)),
        ("RGBA", (10, 200, 30, 0), "png", (255, 255, 255)),  # clear parts are white
        ("RGBA", (0, 0, 0, 128), "webp", (127, 127, 127)),
        ("I;16", 257 * 90, "png", (90, 90, 90)),
        ("I;16", 30_000, "png", (116, 116, 116)),
        ("I;16", 65535, "tiff", (255, 255, 255)),
        ("CMYK", (0, 0, 0, 255), "jpg", (0, 0, 0)),
        ("CMYK", (0, 255, 255, 0), "jpg", (255, 0, 0)),
    ],
)
def test_modes(
    tmp_path: Path, mode: str, colour: object, suffix: str, expected: tuple[int, int, int]
) -> None:
    image = load_image(solid(tmp_path / f"x.{suffix}", mode, colour), 32)
    assert image.shape == (32, 32, 3)
    assert image.dtype == np.uint8
    np.testing.assert_allclose(image.astype(int), np.broadcast_to(expected, (32, 32, 3)), atol=2)


def test_palettes(tmp_path: Path) -> None:
    whole = Image.fromarray(pixels(0)).quantize(16)
    whole.save(tmp_path / "x.png")
    expected = np.asarray(whole.convert("RGB"))
    np.testing.assert_array_equal(load_image(tmp_path / "x.png", 20), expected)
    whole.save(tmp_path / "clear.png", transparency=3)
    white = load_image(tmp_path / "clear.png", 20)[np.asarray(whole) == 3]
    assert white.size
    assert (white == 255).all()


def test_the_suffix_does_not_matter(tmp_path: Path) -> None:
    picture(tmp_path / "x.png").rename(tmp_path / "x.jpg")
    np.testing.assert_array_equal(load_image(tmp_path / "x.jpg", 20), pixels(0))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_the_picture(tmp_path: Path, orientation: int) -> None:
    image = Image.new("RGB", (64, 64), "black")
    ImageDraw.Draw(image).rectangle((0, 0, 31, 31), fill="red")  # top left
    undo = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    stored = image if undo is None else image.transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "x.jpg", exif=exif, quality=95)
    shown = load_image(tmp_path / "x.jpg", 64).astype(int)
    assert shown[8, 8, 0] > 200
    for row, column in ((8, 56), (56, 8), (56, 56)):
        assert shown[row, column, 0] < 60


def test_exif_that_is_damaged_turns_nothing(tmp_path: Path) -> None:
    Image.fromarray(pixels(0)).save(
        tmp_path / "x.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff nonsense"
    )
    assert load_image(tmp_path / "x.jpg", 20).shape == (20, 20, 3)


def test_the_middle_is_taken(tmp_path: Path) -> None:
    whole = np.zeros((40, 120, 3), dtype=np.uint8)
    whole[:, 40:80] = 255
    Image.fromarray(whole).save(tmp_path / "x.png")
    assert (load_image(tmp_path / "x.png", 40) == 255).all()
    assert load_image(tmp_path / "x.png", 20).mean() > 250


def test_an_image_of_the_right_size_is_left_alone(tmp_path: Path) -> None:
    np.testing.assert_array_equal(load_image(picture(tmp_path / "x.png", 4), 20), pixels(4))


def test_a_large_jpeg_is_what_it_would_be_without_the_short_way(tmp_path: Path) -> None:
    smooth = np.linspace(0, 255, 1000)[:, None, None] * np.ones((1, 900, 3))
    Image.fromarray(smooth.astype(np.uint8)).save(tmp_path / "x.jpg", quality=95)
    with Image.open(tmp_path / "x.jpg") as image:
        whole = load_image(np.asarray(image), 64)
    quick = load_image(tmp_path / "x.jpg", 64)
    np.testing.assert_allclose(quick.astype(int), whole.astype(int), atol=6)


def test_pictures_and_arrays() -> None:
    array = pixels(1)
    np.testing.assert_array_equal(load_image(array, 20), array)
    np.testing.assert_array_equal(load_image(Image.fromarray(array), 20), array)
    grey = load_image(array[..., 0], 20)
    np.testing.assert_array_equal(grey, np.repeat(array[..., :1], 3, axis=2))
    np.testing.assert_array_equal(load_image(array[..., :1], 20), grey)
    with pytest.raises(BadImage, match="1, 3 or 4 channels"):
        load_image(array[..., :2], 20)
    with pytest.raises(BadImage, match="uint8"):
        load_image(array / 255, 20)


def test_a_photo_with_a_second_picture(tmp_path: Path) -> None:
    first, second = (Image.fromarray(np.full((40, 40, 3), level, np.uint8)) for level in (200, 0))
    first.save(tmp_path / "x.jpg", format="MPO", save_all=True, append_images=[second])
    with Image.open(tmp_path / "x.jpg") as image:
        assert image.format == "MPO"
    assert load_image(tmp_path / "x.jpg", 40).min() > 190


def huge_png(path: Path, side: int) -> Path:
    """A PNG of a few hundred bytes whose header says that it has side × side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


@pytest.mark.parametrize("side", [10_000, 30_000])  # Pillow warns of one and refuses the other
def test_huge_images_are_refused_by_their_header(
    tmp_path: Path, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(*args: object) -> None:
        raise AssertionError("it must not be decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decode)
    path = huge_png(tmp_path / "x.png", side)
    for look in (check_image, lambda source: load_image(source, 32)):
        with pytest.raises(BadImage, match=r"over 89,478,485 pixels; scale it down"):
            look(path)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tiff"])
def test_what_moves_is_refused(tmp_path: Path, suffix: str) -> None:
    frames = [Image.fromarray(pixels(seed)) for seed in range(3)]
    frames[0].save(tmp_path / f"x.{suffix}", save_all=True, append_images=frames[1:])
    with pytest.raises(BadImage, match="several frames and one is expected"):
        check_image(tmp_path / f"x.{suffix}")


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif"])
def test_what_is_cut_off_is_refused(tmp_path: Path, suffix: str) -> None:
    path = picture(tmp_path / f"x.{suffix}", size=(100, 100))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadImage, match=r"cannot be|no image"):
        load_image(path, 32)


def test_damaged_images(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    with pytest.raises(BadImage, match="there is no such file"):
        load_image(path, 32)
    path.write_bytes(b"")
    with pytest.raises(BadImage, match="it is empty"):
        load_image(path, 32)
    path.write_bytes(b"hello world" * 20)
    with pytest.raises(BadImage, match="no image of a known kind"):
        load_image(path, 32)
    with pytest.raises(BadImage, match="it is empty"):
        load_image(b"", 32)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(BadImage, match="header cannot be read"):
        load_image(tmp_path / "folder.png", 32)


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((20, 20), dtype=np.float32)).save(tmp_path / "x.tiff")
    with pytest.raises(BadImage, match="floating-point"):
        load_image(tmp_path / "x.tiff", 32)


def test_postscript_is_not_run(tmp_path: Path) -> None:
    Image.fromarray(pixels(0)).save(tmp_path / "x.eps")
    (tmp_path / "x.eps").rename(tmp_path / "x.png")
    with pytest.raises(BadImage, match="no image of a known kind"):
        load_image(tmp_path / "x.png", 32)


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = picture(tmp_path / "x.png")

    def denied(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("PIL.Image.open", denied)  # root may read everything
    with pytest.raises(BadImage, match="permission denied"):
        load_image(path, 32)


@pytest.mark.parametrize("seed", range(30))
def test_no_damage_gives_anything_but_an_image_or_a_reason(tmp_path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    suffix = ["jpg", "png", "webp", "bmp", "gif", "tiff"][seed % 6]
    content = bytearray(picture(tmp_path / f"x.{suffix}", seed).read_bytes())
    for place in generator.integers(0, len(content), 8):
        content[place] = generator.integers(0, 256)
    with contextlib.suppress(BadImage):
        assert load_image(bytes(content), 32).shape == (32, 32, 3)
