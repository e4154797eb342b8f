"""Who can use the page: on a phone, in the dark, with a keyboard or a screen reader."""

from pathlib import Path

import pytest

from tests.report.browser import SHOWN, Browser
from tests.report.runs import suspects


def test_a_screen_reader_is_told(browser: Browser, run: Path) -> None:
    browser.open(run / "report.html")
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored")
    ]
    nameless = [
        role
        for role, name in named
        if role in ("button", "combobox", "slider", "searchbox", "progressbar", "link", "image")
        and not name
    ]
    assert not nameless
    roles = {role for role, _ in named}
    assert {"main", "navigation", "search", "slider", "status", "list"} <= roles
    row = suspects(run).iloc[0]
    browser.choose("#sort", "worst")
    label = browser.evaluate('document.querySelector(".card").getAttribute("aria-label")')
    assert label.startswith(f"{row['id']}: given {row['given']}, suggested {row['suggested']}")
    reachable = browser.evaluate(f"{SHOWN}.filter(card => card.tabIndex === 0).length")
    assert reachable == 1


@pytest.mark.parametrize("width", [360, 1200])
def test_no_width_needs_scrolling_sideways(browser: Browser, run: Path, width: int) -> None:
    browser.open(run / "report.html", width=width, height=800)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_light_and_dark(browser: Browser, run: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    browser.open(run / "report.html")
    light = browser.evaluate(colour)
    browser.open(run / "report.html", dark=True)
    dark = browser.evaluate(colour)
    assert light != dark
    browser.click("#theme")
    assert browser.evaluate(colour) == light
    browser.open(run / "report.html", dark=True)  # the choice outlasts the page
    assert browser.evaluate(colour) == light


CONTRAST = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const bytes = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (colour) => { const [r, g, b] = bytes(colour).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (element) => { for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor; if (bytes(colour)[3] === 255) return colour; } return "white"; };
  return ["body", ".quiet", ".tiles dt", ".verdict.relabel", ".verdict.review", ".accept", ".reject", ".id", "a", ".legend"].map((name) => {
    const element = document.querySelector(name);
    const pair = [light(getComputedStyle(element).color), light(behind(element))].sort((a, b) => b - a);
    return [name, (pair[0] + 0.05) / (pair[1] + 0.05)]; });
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_read(browser: Browser, run: Path, dark: bool) -> None:
    browser.open(run / "report.html", dark=dark)
    browser.choose("#filter-verdict", "review")
    browser.choose("#filter-verdict", "")
    for name, contrast in browser.evaluate(CONTRAST):
        assert contrast >= 4.5, name
