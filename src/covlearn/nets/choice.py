"""Is there enough to train a residual network from scratch?"""

FEWEST, SMALLEST_SIDE, LARGEST_SIDE = 10_000, 16, 64


def many_small_images(num_examples: int, shape: tuple[int, ...]) -> bool:
    """Whether data is of CIFAR's kind; shape (H, W, C) or (D,).

    >>> many_small_images(50_000, (32, 32, 3)), many_small_images(50_000, (3072,))
    (True, False)
    """
    if num_examples < FEWEST or len(shape) != 3:
        return False
    return min(shape[:2]) >= SMALLEST_SIDE and max(shape[:2]) <= LARGEST_SIDE


def worth_training(num_examples: int, shape: tuple[int, ...], device: str) -> bool:
    """Whether there are enough images, small enough, and a GPU; shape (H, W, C) or (D,).

    >>> worth_training(50_000, (32, 32, 3), "cuda"), worth_training(50_000, (32, 32, 3), "cpu")
    (True, False)
    """
    return many_small_images(num_examples, shape) and device.startswith("cuda")
