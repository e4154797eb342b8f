"""The documentation: it builds without a warning, its code runs, and what is generated is current."""

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
import pytest
from PIL import Image

import covlearn
from covlearn.methods import METHODS
from covlearn.noise.registry import GENERATORS
from tests.report.browser import Browser, find_chromium
from tests.site_pages import DOCS, page, pages
from tools import noise_pictures
from tools.docstrings import as_markdown
from tools.method_pages import BEYOND, shown, spread
from tools.pages import filled

ROOT = DOCS.parent
# Pages that are read first: what they show of code is seen whole on a usual screen.
NO_SCROLLING = (
    *(
        "index",
        "start/my_data",
        "start/my_loop",
        "start/my_table",
        "faq",
        "fit",
        "fit_works",
        "fit_measured",
    ),
    *("diagnose", "report", "noise", "glossary", "threats", "extending", "extending_parts"),
    *("reproduce", "scaling", "theory"),
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
