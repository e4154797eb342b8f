"""What a person at the terminal sees of a run, and how they stop it."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, cast

from covlearn.cli.say import Aside, one_line, say_aside

if TYPE_CHECKING:
    from covlearn.data.archives import Progress as Steps
    from covlearn.evaluation import Progress as Follow


SECONDS_BETWEEN = 30  # lines for whoever has no terminal: in a log, bars would be noise


class Lines:
    """A plain line on standard error now and then; none if all is done sooner."""

    def __init__(self, *, shown: bool) -> None:
        self.shown = shown
        self.last = time.monotonic()

    def __call__(self, text: str) -> None:
        """Prints the line if the last one is long ago."""
        if self.shown and time.monotonic() - self.last >= SECONDS_BETWEEN:
            self.last = time.monotonic()
            say_aside(f"covlearn: {one_line(text)}")


@contextlib.contextmanager
def progress_bars(above: Callable[[], Any] | None = None) -> Iterator["Follow"]:
    """One bar a stage with loss, accuracy and time left; outside of a terminal a line now and then.

    ``above`` gives something to show above the bars, anew each time they are drawn.

    Ctrl-C lets the epoch end, so that the run can go on from there; a second one does not wait.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(file=cast(IO[str], Aside()))
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  {task.fields[says]}"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, Any] = {}
    line = Lines(shown=not console.is_terminal)

    class Bars(Progress):
        def get_renderables(self) -> Iterator[Any]:
            if above is not None:
                yield above()
            yield from super().get_renderables()

    with (
        asked_to_stop() as stop,
        Bars(*columns, console=console, disable=not console.is_terminal) as bars,
    ):

        def show(stage: str, epochs: int, history: list[dict[str, float]]) -> None:
            last = history[-1]
            says = (
                f"accuracy {last['test_accuracy']:.1%}"
                if "test_accuracy" in last
                else f"agrees with {last['agreement']:.1%} of labels"
            )
            shown: dict[str, Any] = {"loss": last["loss"], "says": says}
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=epochs, **shown)
            bars.update(tasks[stage], completed=len(history), **shown)
            line(f"{stage}: epoch {len(history):,} of {epochs:,}, loss {last['loss']:.4f}, {says}")
            if stop.is_set():
                raise KeyboardInterrupt

        yield show


@contextlib.contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second interrupts as ever."""
    stop = threading.Event()
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # by nohup, or in the background
    if ignored or threading.current_thread() is not threading.main_thread():
        yield stop  # signals are the main thread's
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            signal.default_int_handler(number, frame)
        stop.set()
        say_aside("covlearn: stopping after this epoch; Ctrl-C again stops at once and loses it")

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def step_bars() -> Iterator["Steps"]:
    """One bar for each thing that is done, such as a download; else a line now and then."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(file=cast(IO[str], Aside()))
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, Any] = {}
    line = Lines(shown=not console.is_terminal)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for task in tasks.values():  # one thing is done after the other
                    bars.stop_task(task)
                tasks[what] = bars.add_task(one_line(what))
            bars.update(tasks[what], completed=done, total=total or None)
            line(f"{what}: {done:,} of {total:,}" if total else what)

        yield show
        for task in bars.tasks:
            bars.update(task.id, completed=task.total)
