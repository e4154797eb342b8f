"""Memory that runs out, in words. Nothing here imports torch."""

from collections.abc import Sequence

# PyTorch has an error of its own for a GPU, and a RuntimeError like any other for the rest.
SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
ANYWHERE = ("lower batch_size", "take a smaller net")


class OutOfMemory(MemoryError):
    """Its message says what to lower."""


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error means that memory has run out, the host's or a GPU's.

    So it does where it came while such an error was dealt with: the end of a CUDA graph that could
    not be captured has an error of its own.
    """
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    return any(sign in str(error) for sign in SIGNS) or is_shortage(error.__context__)


def in_words(error: BaseException, remedies: Sequence[str] = ANYWHERE) -> str:
    """What happened, and what takes less memory; an error that has said so is left as it is."""
    if isinstance(error, OutOfMemory):
        return str(error)
    said = str(error).strip().partition("\n")[0][:120]
    return (
        f"out of memory{f' ({said})' if said else ''}; {' or '.join(remedies)}, which makes it "
        "another run with a folder of its own, or free memory and resume this one"
    )
