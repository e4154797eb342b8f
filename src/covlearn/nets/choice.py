"""Is there enough to train a residual network from scratch?"""

FEWEST, LARGEST_SIDE = 10_000, 64


def worth_training(num_examples: int, shape: tuple[int, ...], device: str) -> bool:
    """Whether there are enough images, small enough, and a GPU; shape (H, W, C) or (D,).

    >>> worth_training(50_000, (32, 32, 3), "cuda"), worth_training(50_000, (32, 32, 3), "cpu")
    (True, False)
    """
    small = len(shape) == 3 and max(shape[:2]) <= LARGEST_SIDE
    return small and num_examples >= FEWEST and device.startswith("cuda")
