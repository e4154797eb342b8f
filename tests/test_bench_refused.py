"""Tables and options that are refused before anything is run."""

import re
from pathlib import Path

import pytest

from covlearn import cli
from tests.bench_table import command, small_table


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A table of two rows and two columns on forty examples."""
    return small_table(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'method = "gce"',
            'method = "gcee"',
            "row gce: method must be one of .* did you mean 'gce'",
        ),
        ('title = "CE"', 'titel = "CE"', "Row has .*, got 'titel'; did you mean 'title'"),
        ("trials = 2", "trial = 2", "Table has .*, got 'trial'; did you mean 'trials'"),
        ("[expected.ce]", "[expected.cee]", "expected: there is no 'cee' in this table"),
        ('"data/0.2" = [80.0', '"data/0.3" = [80.0', "expected.ce: there is no 'data/0.3'"),
        ("[70.0]", "[70.0, 1.0, 2.0]", "must be a mean and perhaps a standard deviation, got 3"),
        ("[70.0]", '["70"]', "expected.ce.data/0.4 must be numbers, .* got the text '70'; leave"),
        ("[70.0]", '"70"', "expected.ce.data/0.4 must be numbers, .* got the text '70'; leave"),
        ("[70.0]", "[7000.0, 1.5]", "a mean of 0…100 percent and .*, got 7000, 1.5; write both"),
        ("[70.0]", "[70.0, -1.5]", "perhaps a standard deviation from 0 on, got 70, -1.5"),
        ("[70.0]", "[70.0, inf]", "perhaps a standard deviation from 0 on, got 70, inf"),
        ("[70.0]", "[nan]", "expected a number, got nan"),
        ("[70.0]", "[true]", "expected a number, got True"),
        ('"epoch:2"', '"epoch:two"', "figure must be one of .* or epoch:N from 1 on, got"),
        ('"epoch:2"', '"epoch:0"', "epoch:N from 1 on, got 'epoch:0'"),
        ('same_runs_as = "ce"', 'same_runs_as = "c"', "same_runs_as: there is no 'c'"),
        ('[["gce", "ce"]]', '[["gce", "cx"]]', "pairs: there is no 'cx'"),
        ('[["gce", "ce"]]', '[["ce", "ce"]]', "pairs must be of two different rows, got 'ce' twi"),
        ('name = "gce"', 'name = "ce"', "each row needs a name of its own, 'ce' came twice"),
        ('name = "gce"', 'name = "../gce"', "must serve as a folder's, .* got '../gce'"),
        ('name = "gce"', 'name = "a/b"', "must serve as a folder's, .* got 'a/b'"),
        ('name = "gce"', 'name = ".stages"', "must serve as a folder's, .* got '.stages'"),
        ('name = "data/0.4"', 'name = "data/0.2/x"', "would share a folder"),
        ('name = "gce"', 'name = "CE"', "row 'CE' and 'ce' would share a folder, case aside"),
        ('name = "data/0.4"', 'name = "DATA/0.2/x"', "would share a folder, case aside"),
        ('"symmetric:0.4"', '"symetric:0.4"', "column data/0.4: noise must be one of"),
        ("rate = 0.4", "rate = 0.5", "must have the rate of its noise, symmetric:0.4, got 0.5"),
        ("rate = 0.4", 'published = "x.pt"', "has a published file and needs its rate"),
        (
            '["plan.lr=0.01"]',
            '["net.hiden=[3]"]',
            "row gce: net 'mlp' takes the options hidden, .*hiden",
        ),
        ('["plan.lr=0.01"]', '["machine.precison=float32"]', "row gce: machine.precison cannot"),
        (
            'same_runs_as = "ce"',
            'same_runs_as = "ce"\nsettings = ["plan.epochs=1"]',
            "reads the runs",
        ),
        ('same_runs_as = "ce"', 'same_runs_as = "gce"', "it must have that row's method"),
        ('["plan.lr=0.01"]', '["plan.rl=0.01"]', "row gce: plan.rl cannot be set"),
        ('preset = "paper"', 'preset = "papr"', "preset must be one of .*did you mean 'paper'"),
        ("trials = 2", "trials = 0", "trials must be 1…10,000, got 0"),
        ("[[rows]]", "[[rows", "must be TOML"),
    ],
)
def test_a_bad_table_is_refused_before_anything_is_run(
    small: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    assert old in small.read_text()
    small.write_text(small.read_text().replace(old, new, 1))
    assert command(small) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert error.count("\n") == 1
    assert not (small.parent / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "metod=ce"], "--only takes key=value with row, .*did you mean 'method'"),
        (["--only", "method=cal"], "no cell of this table has method=cal"),
        (["--only", "row=ce,row=gce"], "asks for two of row; write --only twice"),
        (["--only", "row=ce,method=gce"], "no cell of this table has all of row=ce,method=gce"),
        (["--only", "rate=much"], "rate must be a number, got 'much'"),
        (["--trials", "-1"], "trials must be 0…10,000, got -1"),
        (
            ["--data", "clothing1m"],
            "column data/0.2: data must be digits, .* got 'clothing1m'.*; --data PATH says where",
        ),
        (["--set", "plan.epoch=3"], "plan.epoch cannot be set"),
    ],
)
def test_bad_options_are_refused(
    small: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert command(small, *arguments) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (small.parent / "runs").exists()


def test_a_table_whose_data_is_somebodys_own_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Path(__file__).resolve().parents[1] / "benchmarks" / "table2.toml"
    for options in (["--dry-run"], []):
        assert cli.main(["bench", str(table), "--folder", str(tmp_path / "runs"), *options]) == 2
        assert re.search(
            "column clothing1m: data must be .*the folder of Clothing1M .*got 'clothing1m'; "
            "--data PATH says where it is\n$",
            capsys.readouterr().err,
        )
    assert not (tmp_path / "runs").exists()


def test_a_table_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "no.toml"]) == 2
    assert "there is no table no.toml" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--figures", "--folder"])
def test_a_place_that_can_be_no_folder_is_refused_before_anything_is_run(
    small: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    link = small.with_name("link")
    link.symlink_to("nowhere")
    places = {
        small: "it is a file",
        small / "pictures": f"{small} is a file",
        link: "it is a link to nothing",
        link / "pictures": f"{link} is a link to nothing",
    }
    for place, what in places.items():
        assert command(small, option, str(place)) == 2
        assert f"{place} must be a folder, but {what}; choose" in capsys.readouterr().err
    assert not (small.parent / "runs").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a disk that nobody may write to")
def test_pictures_that_could_not_be_written_are_refused_before_anything_is_run(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in ([], ["--dry-run"]):
        assert command(small, "--figures", "/proc/pictures", *options) == 2
        said = "/proc/pictures cannot be made: nothing can be written in /proc ("
        assert said in capsys.readouterr().err
    assert not (small.parent / "runs").exists()


def test_a_table_may_begin_with_a_mark(small: Path) -> None:
    small.write_text(small.read_text(), encoding="utf-8-sig")
    assert command(small, "--dry-run") == 0


def test_a_share_of_gpus_is_a_number(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for share in ("nan", "inf", "-1"):
        assert command(small, "--on", "ray", f"--gpus={share}") == 2
        assert "--gpus is a share" in capsys.readouterr().err
    assert not (small.parent / "runs").exists()
