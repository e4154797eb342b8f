"""A browser, and a page to open in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from covlearn.report import write_report
from tests.report.browser import Browser, find_chromium
from tests.report.runs import CLASSES, look_alike, pictures


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Skips, loudly, where there is no Chromium; ``COVLEARN_CHROMIUM`` names one off the path."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("NO CHROMIUM: the report's page is not tested; install it (Debian: chromium)")
    with Browser(chromium, tmp_path / "browser") as opened:
        yield opened
        assert not opened.problems
        outside = [
            url for url in opened.requests if not url.startswith(("file:", "blob:", "data:"))
        ]
        assert not outside


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    files = pictures(root / "pictures", 400, side=24)
    folder = look_alike(root / "run", count=400, classes=CLASSES, wrong=0.4, paths=files)
    write_report(folder)
    return folder
