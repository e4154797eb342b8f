"""Commands side by side on one GPU, as many as end within the time there is.

    python -m benchmarks.lanes benchmarks/lanes_next.txt --minutes 24 --folder runs/lanes

Each line of the file reads ``name | lane | minutes | command``; ``@`` in the command is a folder of
its own, FOLDER/name. Large trials and small ones go in lanes of their own (``--lanes large=2
small=1``), so that either always has a part of the GPU, under CUDA's multi-process service. The
first command of the file is taken whose lane is free and that would end in time. What each prints
is in FOLDER/name.txt, when it began and ended in FOLDER/lanes.txt. What the end of the time cuts
off goes on when it is run again: `covlearn bench` skips what is done.
"""

import argparse
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from covlearn.bench.mps import kernels_at_once

LOOKS = 0.5  # seconds between them


@dataclass(frozen=True)
class Command:
    """A line of the file."""

    name: str
    lane: str
    minutes: float
    text: str


@dataclass
class Running:
    """A command that has been started."""

    command: Command
    process: "subprocess.Popen[bytes]"


def read_commands(text: str) -> list[Command]:
    """The commands of a file; lines that begin with # are none.

    >>> read_commands("a | large | 9 | echo 1 | cat")
    [Command(name='a', lane='large', minutes=9.0, text='echo 1 | cat')]
    """
    commands = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|", 3)]
        try:
            name, lane, minutes, command = parts
            commands.append(Command(name, lane, float(minutes), command))
        except ValueError as error:
            raise SystemExit(
                f"line {number} must read name | lane | minutes | command, got {line!r}"
            ) from error
    if len({command.name for command in commands}) < len(commands):
        raise SystemExit("each command must have a name of its own")
    return commands


def run_lanes(
    commands: list[Command], lanes: dict[str, int], folder: Path, *, seconds: float
) -> dict[str, str]:
    """What became of each command: how it ended, cut off, or that there was no time for it."""
    if strange := [each.name for each in commands if each.lane not in lanes]:
        raise SystemExit(f"{strange[0]} is for a lane that there is not; the lanes: {lanes}")
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    waiting, running, ended = list(commands), [], {}  # type: ignore[var-annotated]

    def say(what: str, name: str) -> None:
        with (folder / "lanes.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.monotonic() - start:7.0f} s  {what}  {name}\n")

    while (waiting or running) and time.monotonic() - start < seconds:
        for each in [each for each in running if each.process.poll() is not None]:
            running.remove(each)
            ended[each.command.name] = f"exit code {each.process.returncode}"
            say(ended[each.command.name], each.command.name)
        left = seconds - (time.monotonic() - start)
        for command in list(waiting):
            taken = sum(each.command.lane == command.lane for each in running)
            if taken < lanes[command.lane] and 60 * command.minutes <= left:
                waiting.remove(command)
                running.append(started(command, folder))
                say("begins", command.name)
        if not running:
            break  # of what is left nothing would end in time
        time.sleep(LOOKS)
    for each in running:
        os.killpg(each.process.pid, signal.SIGTERM)
        each.process.wait()
        ended[each.command.name] = "cut off"
        say("cut off", each.command.name)
    return ended | {command.name: "no time" for command in waiting}


def started(command: Command, folder: Path) -> Running:
    """The command in processes of its own, what it prints in a file."""
    text = command.text.replace("@", f"'{folder / command.name}'")
    with (folder / f"{command.name}.txt").open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", text], stdout=file, stderr=file, start_new_session=True
        )
    return Running(command, process)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--lanes", nargs="+", default=["large=2", "small=1"])
    parser.add_argument("--folder", type=Path, default=Path("runs/lanes"))
    options = parser.parse_args(arguments)
    lanes = {name: int(count) for name, _, count in (each.partition("=") for each in options.lanes)}
    commands = read_commands(options.file.read_text(encoding="utf-8"))
    with kernels_at_once("cuda", sum(lanes.values())) as at_once:
        if not at_once:
            print("without CUDA's multi-process service: commands take turns on the GPU")
        ended = run_lanes(commands, lanes, options.folder, seconds=60 * options.minutes)
    print(*(f"{name}: {how}" for name, how in ended.items()), sep="\n")


if __name__ == "__main__":
    main()
