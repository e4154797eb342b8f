"""The page on inputs: its code runs, and its facts are those of the code."""

import re
from pathlib import Path

import pytest
from PIL import Image

from covlearn.inputs import cache, extractors, number_texts, pictures, tables
from tests.inputs.make import class_folders, picture

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "inputs.md").read_text(encoding="utf-8")


def test_the_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    class_folders(tmp_path / "birds", ("emu", "owl"))
    (tmp_path / "birds" / "owl" / "x.png").write_bytes(b"")
    picture(tmp_path / "new_photos" / "a.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pictures, "default_extractor", lambda: None)  # the network is slow
    exec(code, {})
    printed = capsys.readouterr().out
    assert "6 examples of emu, owl" in printed
    assert "owl/x.png it is empty" in printed
    assert (tmp_path / "cache").is_dir()


def test_the_facts_are_right() -> None:
    flat = " ".join(PAGE.split())
    assert f"last {pictures.SHARD} images" in flat
    assert f"the {tables.MOST_CATEGORIES} most frequent" in flat
    share = f"at least {number_texts.NEARLY_ALL:.0%}".replace("%", " %")
    assert f"{share} of its cells are, at least {number_texts.MANY_DIFFERENT} different" in flat
    assert ", ".join(map(str, pictures.SIZES[:-1])) + f" or {pictures.SIZES[-1]}" in flat
    assert cache.MAPPED_FROM == 2 * 2**30
    assert (Image.MAX_IMAGE_PIXELS or 0) // 10**6 == 89
    assert extractors.PRETRAINED in flat
