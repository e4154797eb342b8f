"""Commands side by side within a time: which are run, and what becomes of the others."""

from pathlib import Path

import pytest

from benchmarks import lanes
from benchmarks.lanes import Command, read_commands, run_lanes


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LOOKS", 0.01)


def test_a_lane_has_one_command_at_a_time_and_others_do_not_wait(tmp_path: Path) -> None:
    said = tmp_path / "said"
    commands = [
        Command("a", "large", 0, f"sleep 0.6; echo a >> {said}"),
        Command("b", "large", 0, f"echo b >> {said}"),
        Command("c", "small", 0, f"echo c >> {said}; mkdir @; false"),
    ]
    ended = run_lanes(commands, {"large": 1, "small": 1}, tmp_path / "here", seconds=30)
    assert said.read_text().split() == ["c", "a", "b"]
    assert ended == {"c": "exit code 1", "a": "exit code 0", "b": "exit code 0"}
    assert (tmp_path / "here" / "c").is_dir()
    assert "begins  b" in (tmp_path / "here" / "lanes.txt").read_text()


def test_what_would_not_end_in_time_is_not_begun_and_what_did_not_is_cut_off(
    tmp_path: Path,
) -> None:
    commands = [
        Command("long", "large", 5, "touch never"),
        Command("late", "large", 0, f"sleep 60; touch {tmp_path / 'late'}"),
        Command("short", "small", 0, f"touch {tmp_path / 'short'}"),
    ]
    ended = run_lanes(commands, {"large": 1, "small": 1}, tmp_path, seconds=0.5)
    assert ended == {"short": "exit code 0", "late": "cut off", "long": "no time"}
    assert (tmp_path / "short").exists()
    assert not (tmp_path / "late").exists()


def test_where_nothing_would_end_in_time_it_is_over_at_once(tmp_path: Path) -> None:
    ended = run_lanes([Command("a", "large", 5, "true")], {"large": 1}, tmp_path, seconds=60)
    assert ended == {"a": "no time"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a | large | echo", "line 1 must read name | lane | minutes | command"),
        ("# no\na | large | soon | echo", "line 2 must read"),
        ("a | large | 1 | echo\na | large | 1 | echo", "a name of its own"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(SystemExit) as caught:
        read_commands(text)
    assert message in str(caught.value)


def test_a_lane_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="a is for a lane that there is not"):
        run_lanes([Command("a", "huge", 1, "true")], {"large": 1}, tmp_path, seconds=1)


def test_the_next_commands_can_be_read() -> None:
    file = Path(lanes.__file__).with_name("lanes_next.txt")
    commands = read_commands(file.read_text(encoding="utf-8"))
    assert {command.lane for command in commands} <= {"large", "small"}
    assert all("@" in command.text for command in commands)
