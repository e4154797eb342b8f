"""The documentation: it builds without a warning, its code runs, and what is generated is current."""

import argparse
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

import covlearn
from covlearn import records
from covlearn.cli import main, make_parser
from covlearn.estimator import NoisyLabelClassifier
from covlearn.methods import METHODS
from covlearn.noise.registry import GENERATORS
from tests.report.browser import Browser, find_chromium
from tests.site_pages import DOCS, blocks, commands, mentioned, page, pages
from tools import noise_pictures
from tools.docstrings import as_markdown
from tools.pages import BEYOND, filled, shown, spread

ROOT = DOCS.parent
# Pages whose blocks other tests run or compare, all of them, with what those need.
ELSEWHERE = {
    "extending.md": "tests/test_house_checks.py",
    "inputs.md": "tests/inputs/test_page.py",
    "plug_in.md": "tests/integrations/test_page.py",
}
RUN_WHOLE = ("extending_parts.md", "noise.md", "start/my_data.md", "start/my_table.md")
# Not run with the pages above: they fetch data, or take minutes.
NOT_RUN = (["data", "fetch"], ["bench", "benchmarks/table1.toml"], ["bench", "small.toml"])

# Pages that are read first: what they show of code is seen whole on a usual screen.
NO_SCROLLING = (
    *("index", "start/my_data", "start/my_loop", "start/my_table", "faq", "fit"),
    *("diagnose", "report", "noise", "glossary", "threats", "extending_parts", "scaling", "theory"),
)


# ---- The site ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_pages_ask_nothing_of_the_network(site: Path) -> None:
    htmls = list(site.rglob("*.html"))
    assert len(htmls) > len(pages())
    for path in htmls:
        text = path.read_text(encoding="utf-8")
        fetched = re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"?(https?:[^\" >]*)", text
        )
        assert fetched == [], path.name


def test_what_pages_link_to_outside_of_docs_is_in_the_site(site: Path) -> None:
    assert (site / "results" / "peers.html").is_file()
    assert (site / "results" / "theory.json").is_file()
    assert (site / "examples" / "plain_loop.py").is_file()
    assert 'href="results/peers.html"' in (site / "fit.html").read_text(encoding="utf-8")
    assert 'href="../results/peers.html"' in (site / "start" / "my_data.html").read_text(
        encoding="utf-8"
    )


def test_the_api_pages_have_every_public_name(site: Path) -> None:
    documented = re.findall(r"^::: (\S+)$", "\n".join(map(page, pages())), re.MULTILINE)
    html = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    anchors = set(re.findall(r"id=\"(covlearn[\w.]*)\"", html))
    missing = []
    for name in documented:
        module = importlib.import_module(name)
        missing += [f"{name}.{n}" for n in public(module) if f"{name}.{n}" not in anchors]
    assert missing == []
    assert {f"{home}.{name}" for name, home in covlearn.LATER.items()} <= anchors
    promised = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "src" / "covlearn").rglob("*.py")
        if "\n__all__ = " in path.read_text(encoding="utf-8")
    }
    contents = page("api/index.md")
    promised |= set(re.findall(r"^\| `(covlearn\.\w+)` \|", contents, re.MULTILINE))
    for name in covlearn.LATER:
        assert f"`covlearn.{name}` is" in " ".join(contents.split())
    assert len(promised) > 15
    assert {name for name in promised if name not in documented} <= {"covlearn.integrations"}


def test_the_api_pages_say_what_a_class_is_made_with(site: Path) -> None:
    documented = re.findall(r"^::: (\S+)$", "\n".join(map(page, pages())), re.MULTILINE)
    html = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    seen, missing = 0, []
    for name in documented:
        module = importlib.import_module(name)
        for found in public(module):
            made = getattr(module, found)
            if not isinstance(made, type) or issubclass(made, Exception | Protocol):
                continue
            if getattr(made.__init__, "__module__", "").startswith("torch."):
                continue  # made as its base is
            try:
                asked = list(inspect.signature(made).parameters)
            except ValueError:  # a built-in base has none
                continue
            signature = html.partition(f'id="{name}.{found}"')[2].partition("</div>")[0]
            text = re.sub(r"<[^>]+>", "", signature)
            missing += [
                f"{name}.{found}.{each}"
                for each in asked
                if not re.search(rf"\b{each}\b", text) and f'id="{name}.{found}.{each}"' not in html
            ]
            seen += len(asked)
    assert missing == []
    assert seen > 200


def public(module: Any) -> list[str]:
    """What a module offers: its ``__all__``, or its own functions and classes."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        and not isinstance(value, TypeVar)
    ]
    return list(getattr(module, "__all__", own))


@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium to look at the site")
def test_search_and_formulas_work_from_the_disk(site: Path, tmp_path: Path) -> None:
    program = find_chromium()
    assert program is not None
    with Browser(program, tmp_path) as browser:
        browser.open(site / "theory.html")
        formulas = browser.evaluate(
            "['.arithmatex', '.arithmatex .katex', '.katex-error'].map("
            "each => document.querySelectorAll(each).length)"
        )
        assert formulas[0] == formulas[1] > 100
        assert formulas[2] == 0
        browser.open(site / "index.html")
        browser.evaluate("document.querySelector('.md-search__input').focus()")
        browser.choose(".md-search__input", "covariance")
        found = browser.evaluate(
            """new Promise(done => { const look = () => {
            const hits = document.querySelectorAll('.md-search-result__item').length;
            hits ? done(hits) : setTimeout(look, 50); }; look(); })"""
        )
        assert found > 3
        for name in METHODS:
            browser.open(site / "methods" / f"{name}.html")
            assert browser.evaluate("document.querySelectorAll('.katex-display').length") > 0
            assert browser.evaluate("document.querySelectorAll('.katex-error').length") == 0
        for name in (*NO_SCROLLING, *(f"methods/{method}" for method in METHODS)):
            browser.open(site / f"{name}.html", width=1280)
            wide = browser.evaluate(
                "[...document.querySelectorAll('pre code, .katex-display')].filter("
                "each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"
            )
            assert wide == [], f"{name}: break the line, or move the comment above it"
        for name in ("index", "methods/cal", "noise", "api/terms"):
            browser.open(site / f"{name}.html", width=390, height=800)
            assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
                f"{name} is wider than a phone"
            )
        assert {request.partition(":")[0] for request in browser.requests} <= {"file", "data"}
        assert browser.problems == []


def test_docstrings_become_markdown() -> None:
    text = "See :func:`~covlearn.losses.cores` and ``x``.\n\n>>> 1 + 1\n2\n\nMore."
    assert as_markdown(text) == (
        "See `covlearn.losses.cores` and `x`.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."
    )


# ---- What is generated ------------------------------------------------------------------------


@pytest.mark.parametrize("name", pages())
def test_generated_parts_are_current(name: str) -> None:
    assert filled(page(name)) == page(name), "run python -m tools.pages"


def test_every_method_and_generator_has_its_place() -> None:
    for name in METHODS:
        text = page(f"methods/{name}.md")
        for part in (f"generated: defaults {name} ", f"generated: measured {name} "):
            assert part in text
        for heading in ("What is minimised", "Algorithm", "The three sources"):
            assert f"## {heading}\n" in text
        for source in (
            "What the paper says",
            "What the published code does",
            "What we do, and why",
        ):
            assert f"**{source}.** " in text
        assert re.search(r"## What is minimised\n\n\$\$.+?\$\$\n", text, re.DOTALL)
        assert re.search(r"## Algorithm\n\n```text\ninput  .+?\noutput .+?```\n", text, re.DOTALL)
    noise = page("noise.md")
    for name in GENERATORS:
        assert f"## {name}\n" in noise
        assert f"generated: card {name} " in noise
        assert f"(pictures/noise/{name}.png)" in noise


def test_the_first_page_counts_methods_and_generators() -> None:
    words = {11: "eleven", 12: "twelve"}
    said = f"{words[len(METHODS)].title()} methods, {words[len(GENERATORS)]} kinds of noise"
    assert said in page("index.md")


def test_figures_of_a_variant_are_not_taken_for_a_methods() -> None:
    """A row of digits is called peer and is CAL without its covariance."""
    cell = {"row": "peer", "method": "cal", "n": 8}
    assert not shown(cell, "peer", "digits")
    assert not shown(cell, "cal", "digits")
    assert shown(cell | {"method": "peer"}, "peer", "digits")
    published = {"row": "published", "method": "cal", "n": 1}  # is in table 1
    assert not shown(published, "cal", BEYOND)
    assert shown(published | {"row": "recommended"}, "cal", BEYOND)
    assert not shown(published | {"row": "recommended", "n": 0}, "cal", BEYOND)


def test_figures_of_a_method_have_the_digits_of_the_results() -> None:
    """With one digit 91.05 came out as 91.0 and 81.65 as 81.7."""
    cell = {"best mean": 91.05, "best std": 0.125, "last mean": 81.65, "last std": None}
    assert [spread(cell, rule) for rule in ("best", "last")] == ["91.05 ± 0.12", "81.65"]
    assert "| 91.05 | 81.54 | 1 |" in page("methods/ce.md")


@pytest.mark.parametrize("name", GENERATORS)
def test_pictures_are_current(name: str) -> None:
    drawn = io.BytesIO()
    noise_pictures.picture(noise_pictures.drawn(name)).savefig(drawn, dpi=noise_pictures.DPI)
    now = np.asarray(Image.open(drawn).convert("L"), dtype=float)
    kept = Image.open(DOCS / "pictures" / "noise" / f"{name}.png").convert("L")
    # Letters and edges may differ by a shade with another version of the fonts.
    assert np.abs(now - np.asarray(kept, dtype=float)).mean() < 1, "run python -m tools.pages"


# ---- What is typed ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", pages())
def test_command_lines_are_understood(name: str) -> None:
    parser = make_parser()
    for language, _, text in blocks(name):
        if language in ("", "sh"):
            for words in commands(text):
                parser.parse_args(words)  # exits with 2 where an option does not exist
    (subcommands,) = (
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for words in mentioned(name):
        if words[0].startswith("-"):
            continue
        assert words[0] in subcommands, words
        known = subcommands[words[0]]._option_string_actions
        for word in words:
            if word.startswith("--"):
                assert word in known, words


def test_command_lines_are_found() -> None:
    found = [words for name in pages() for b in blocks(name) for words in commands(b.text)]
    assert len(found) > 50
    with pytest.raises(SystemExit):
        make_parser().parse_args(["fit", "x.csv", "--no-such-option"])


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A folder to stand in with the files that pages speak of, and their names in Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    table, target = load_breast_cancer(return_X_y=True, as_frame=True)
    table.head(30).to_csv("new.csv", index=False)
    flipped = np.random.default_rng(0).choice(len(table), size=60, replace=False)
    target[flipped] = 1 - target[flipped]
    table["diagnosis"] = target.map({0: "malignant", 1: "benign"})
    table.to_csv("cells.csv", index=False)
    pd.DataFrame({"id": [0, 1], "label": ["malignant", "malignant"]}).to_csv(
        "decisions.csv", index=False
    )
    return {}


@pytest.mark.parametrize("name", RUN_WHOLE)
def test_whole_pages_run(
    name: str, prepared: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for language, title, text in blocks(name):
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif language == "python":
            with torch.random.fork_rng(devices=[]):
                exec(text, prepared)
        elif language == "sh":
            for words in commands(text):
                only_looks = "--dry-run" in words or "--only" in words
                if words[:2] in NOT_RUN and not (only_looks and words[1] == "small.toml"):
                    continue
                assert main(words) == 0, (words, capsys.readouterr().err)
    if name == "start/my_data.md":
        judged = prepared["model"].label_issues_
        assert (judged["decision"].iloc[prepared["wrong"]] != "keep").mean() > 0.5
        assert (judged["decision"] != "keep").mean() < 0.2
        assert Path("compared.html").is_file()
        assert len(pd.read_csv("preds.csv")) == 30
    if name == "start/my_table.md":  # what is typed and what Python does are one run
        typed, called = (records.read(Path("runs") / run) for run in ("cal", "cal-0"))
        assert typed.config["holdout"] == called.config["holdout"] == 0.1
        assert typed.config["method"] == called.config["method"]
        if not torch.cuda.is_available():  # where the command line would take another device
            assert typed.result is not None
            assert called.result is not None
            assert typed.result.test_accuracy == called.result.test_accuracy


def test_the_loop_repairs_labels() -> None:
    names: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        for block in blocks("start/my_loop.md"):
            assert block.language == "python"
            before = dict(names)
            exec(block.text, names)
            if not before:
                clean = torch.from_numpy(names["clean"])
                right = (names["noisy"] == clean).float().mean()
                repaired = (names["refined"].label == clean).float().mean()
                assert repaired > right + 0.2


def test_the_blocks_of_reference_pages_run() -> None:
    X, y = load_wine(return_X_y=True)
    names: dict[str, Any] = {"X": X, "y": y, "X_new": X[:3]}
    run_python("fit.md", names)
    assert isinstance(names["model"], NoisyLabelClassifier)
    pixels, digit = load_digits(return_X_y=True)
    run_python("diagnose.md", names | {"features": pixels[:600] / 16, "given": digit[:600]})
    run_python("theory.md", {})


def run_python(name: str, names: dict[str, Any]) -> None:
    found = [block.text for block in blocks(name) if block.language in ("py", "python")]
    assert found, name
    for text in found:
        exec(text, names)


def test_no_page_has_code_that_nobody_runs() -> None:
    ran = {*ELSEWHERE, *RUN_WHOLE, "start/my_loop.md", "fit.md", "diagnose.md", "theory.md"}
    with_code = {
        name for name in pages() if any(b.language in ("py", "python") for b in blocks(name))
    }
    assert with_code <= ran
    for name, test in ELSEWHERE.items():
        assert f'"{name}"' in (ROOT / test).read_text(encoding="utf-8")
    # An unnamed block may be a command or a picture of a tree, but not Python.
    for name in pages():
        for language, _, text in blocks(name):
            assert language in ("", "sh", "py", "python", "toml", "text"), (name, language)
            assert language or "import " not in text, name
