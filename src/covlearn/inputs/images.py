"""One image, decoded with care: what is not an ordinary image of sane size is said, not guessed.

- Formats: JPEG, PNG, WebP, BMP, GIF, TIFF and PNM, told by content, whatever the name ends in.
- The header is looked at first: more than 89 million pixels (Pillow's limit) are not decoded, and
  neither is what moves (GIF, WebP, PNG) or has several pages (TIFF). Of a photo with a second
  picture in it (MPO, as phones write) the first is taken.
- The picture is turned as its EXIF entry says, brought to RGB (grey levels of 16 bits are divided
  by 257, transparent parts are put on white), scaled until the short side fits, and cut in the
  middle.
"""

import io
import struct
import warnings
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = frozenset(
    (
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".png",
        ".apng",
        ".webp",
        ".bmp",
        ".dib",
        ".gif",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".pbm",
        ".pnm",
    )
)
OTHER_SUFFIXES = frozenset(
    (
        ".heic",
        ".heif",
        ".avif",
        ".svg",
        ".psd",
        ".raw",
        ".cr2",
        ".cr3",
        ".nef",
        ".arw",
        ".dng",
        ".jxl",
        ".jp2",
        ".eps",
        ".ico",
        ".tga",
    )
)
CHANNELS = 3
STRIP = 256  # rows that are brought to RGB together

ImageLike: TypeAlias = Path | bytes | Image.Image | NDArray[Any]
"""A file, what is in one, or a picture that is decoded already."""


DECODING_ERRORS = (
    OSError,
    SyntaxError,  # Pillow's word for a damaged file
    ValueError,
    EOFError,
    TypeError,
    KeyError,
    IndexError,
    OverflowError,
    struct.error,
)


class BadImage(ValueError):
    """Why an image cannot be used, without its name."""


def is_image_name(name: str) -> bool:
    """Whether a file is taken for an image that can be read, by its name."""
    return PurePath(name).suffix.lower() in SUFFIXES


def is_other_image_name(name: str) -> bool:
    """Whether a file is an image, by its name, of a kind that is not read."""
    return PurePath(name).suffix.lower() in OTHER_SUFFIXES


def check_image(source: ImageLike) -> tuple[int, int]:
    """Width and height by the header; nothing is decoded."""
    if isinstance(source, np.ndarray):
        return int(source.shape[1]), int(source.shape[0])
    if isinstance(source, Image.Image):
        return source.size
    with _opened(source) as image:
        return image.size


def load_image(source: ImageLike, size: int) -> NDArray[np.uint8]:
    """The picture as RGB (size, size, 3): scaled until its short side fits, the middle taken."""
    if isinstance(source, np.ndarray):
        return _squared(_rgb(Image.fromarray(_as_pixels(source))), size)
    if isinstance(source, Image.Image):
        return _squared(_rgb(_turned(source)), size)
    with _opened(source) as image:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                # A JPEG is decoded at a fraction of its size where that is enough.
                image.draft("RGB", (size, size))
                image.load()
        except (*DECODING_ERRORS, MemoryError) as error:
            raise BadImage(f"it cannot be decoded ({error}); it is cut off or damaged") from error
        return _squared(_rgb(_turned(image, in_place=True)), size)


def _opened(source: Path | bytes) -> Image.Image:
    """The image with its header read and found sane."""
    file: Any = io.BytesIO(source) if isinstance(source, bytes) else source
    if isinstance(source, Path):
        try:
            length = source.stat().st_size
        except FileNotFoundError:
            raise BadImage("there is no such file") from None
        except OSError as error:
            raise BadImage(f"it cannot be read ({error.strerror})") from error
    else:
        length = len(source)
    if length == 0:
        raise BadImage("it is empty (0 bytes)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.simplefilter("ignore", UserWarning)  # of odd but readable metadata
            image = Image.open(file, formats=FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise BadImage(
            f"it has over {Image.MAX_IMAGE_PIXELS or 0:,} pixels; scale it down first"
        ) from None
    except UnidentifiedImageError:
        raise BadImage(f"it is no image of a known kind ({', '.join(FORMATS)})") from None
    except PermissionError as error:
        raise BadImage("it cannot be read (permission denied)") from error
    except DECODING_ERRORS as error:
        raise BadImage(f"its header cannot be read ({error})") from error
    try:
        moves = image.format != "MPO" and bool(getattr(image, "is_animated", False))
    except DECODING_ERRORS as error:
        image.close()
        raise BadImage(f"its frames cannot be counted ({error})") from error
    if moves:
        image.close()
        raise BadImage("it has several frames and one is expected; save one as an image")
    if min(image.size) < 1:
        image.close()
        raise BadImage(f"it is {image.size[0]} × {image.size[1]} pixels")
    return image


def _turned(image: Image.Image, *, in_place: bool = False) -> Image.Image:
    """The right way up; an entry that cannot be read turns nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if in_place:
                ImageOps.exif_transpose(image, in_place=True)
                return image
            return ImageOps.exif_transpose(image)
    except DECODING_ERRORS:
        return image


def _rgb(image: Image.Image) -> Image.Image:
    """Eight bits of red, green and blue."""
    if image.mode == "RGB":
        return image
    if image.mode == "F":
        raise BadImage("its pixels are floating-point numbers; save it with 8 or 16 bits")
    whole = Image.new("RGB", image.size)
    width, height = image.size
    try:
        for top in range(0, height, STRIP):  # so that a large image is not there four times over
            part = image.crop((0, top, width, min(top + STRIP, height)))
            whole.paste(_rgb_of_part(part), (0, top))
    except (ValueError, KeyError) as error:
        raise BadImage(f"it is in colours that are not read ({image.mode}: {error})") from error
    return whole


def _rgb_of_part(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits; Pillow itself would cut off what is above 255
        levels = np.clip(np.asarray(image, dtype=np.int64), 0, 65535)
        return Image.fromarray((levels // 257).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        white = Image.new("RGBA", clear.size, "white")
        return Image.alpha_composite(white, clear).convert("RGB")
    return image.convert("RGB")


def _squared(image: Image.Image, size: int) -> NDArray[np.uint8]:
    if image.size != (size, size):
        image = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
    return np.array(image, dtype=np.uint8)


def _as_pixels(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """(H, W), (H, W, 1), (H, W, 3) or (H, W, 4) as Pillow takes it."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise BadImage(
            f"an image must be uint8 of shape (H, W, C), got {pixels.dtype} {pixels.shape}"
        )
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4):
        raise BadImage(f"an image must have 1, 3 or 4 channels, got shape {pixels.shape}")
    return np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
