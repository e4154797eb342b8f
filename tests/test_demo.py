from pathlib import Path

import pytest

from covlearn import demo, records


def test_demo_trains_every_method_and_reads_it_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.main(["--out", str(tmp_path), "--seeds", "1"])
    first = capsys.readouterr().out
    for method in demo.METHODS:
        assert f"│ {method} " in first
        assert records.read(tmp_path / f"{method}-0").result is not None
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    demo.main(["--out", str(tmp_path), "--seeds", "1"])
    assert capsys.readouterr().out == first
    assert written == {path: path.stat().st_mtime_ns for path in written}
