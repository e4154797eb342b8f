"""Crop, flip and rotation again, pixel by pixel, given the movements of one image."""

from math import cos, floor, radians, sin

import numpy as np
from numpy.typing import NDArray


def crop(image: NDArray[np.uint8], down: int, right: int, pad: int) -> NDArray[np.uint8]:
    height, width, _ = image.shape
    padded = np.zeros((height + 2 * pad, width + 2 * pad, image.shape[2]), np.uint8)
    padded[pad : pad + height, pad : pad + width] = image
    return padded[down : down + height, right : right + width]


def rotate(image: NDArray[np.uint8], degrees: float) -> NDArray[np.uint8]:
    height, width, _ = image.shape
    turn = radians(degrees)
    result = np.zeros_like(image)
    for row in range(height):
        for col in range(width):
            y, x = row + 0.5 - height / 2, col + 0.5 - width / 2
            source_row = floor(cos(turn) * y + sin(turn) * x + height / 2)
            source_col = floor(cos(turn) * x - sin(turn) * y + width / 2)
            if 0 <= source_row < height and 0 <= source_col < width:
                result[row, col] = image[source_row, source_col]
    return result


def normalise(
    image: NDArray[np.uint8], mean: tuple[float, ...], std: tuple[float, ...]
) -> NDArray[np.float64]:
    result = np.zeros((image.shape[2], *image.shape[:2]))
    for channel in range(image.shape[2]):
        result[channel] = (image[:, :, channel] / 255 - mean[channel]) / std[channel]
    return result
