"""The page in a real browser: open, sort, filter, slide, decide, download, and fit again."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from covlearn import cells, cli, records
from covlearn.report import write_comparison, write_report
from covlearn.verdicts import RELABEL_BELOW
from tests.report.browser import SHOWN, Browser
from tests.report.runs import CLASSES, decide, look_alike, suspects
from tests.report.test_page import DIAGNOSIS, HOSTILE


def test_opens_with_all_sections_and_pictures(browser: Browser, run: Path) -> None:
    browser.open(run / "report.html")
    titles = browser.evaluate('[...document.querySelectorAll("h2")].map(h => h.textContent)')
    assert titles == [
        "Summary", "Look and decide", "Threshold", "Noise card", "Hardest classes", "Training",
        "Covariance", "Where it comes from",
    ]  # fmt: skip
    assert browser.text("h1") == "run"
    drawn = browser.evaluate(
        f'{SHOWN}.filter(c => c.querySelector("[role=img]").style.backgroundImage).length'
    )
    assert drawn == 48
    assert browser.evaluate('document.querySelectorAll(".heat").length') == 2
    assert browser.evaluate('document.querySelectorAll(".chart polyline").length') == 6
    assert browser.evaluate('document.querySelector(".plot svg").clientWidth') > 300


def test_sorts(browser: Browser, run: Path) -> None:
    rows = suspects(run)
    browser.open(run / "report.html")
    browser.choose("#sort", "worst")
    assert browser.ids() == rows["id"].tolist()[:48]
    browser.choose("#sort", "best")
    assert browser.ids()[0] == rows["id"].tolist()[-1]
    browser.choose("#sort", "id")
    assert browser.ids() == sorted(rows["id"])[:48]
    browser.choose("#sort", "sure")
    assert browser.ids()[0] == rows.sort_values("confidence").iloc[-1]["id"]
    browser.choose("#sort", "pair")
    largest = rows.groupby(["given", "suggested"]).size().max()
    assert browser.text(".group h3").endswith(f" {largest}")


def test_filters(browser: Browser, run: Path) -> None:
    rows = suspects(run)
    browser.open(run / "report.html")
    browser.choose("#sort", "worst")
    browser.choose("#filter-given", "1")
    mine = rows[rows["given"] == "birch"]
    assert browser.ids() == mine["id"].tolist()[:48]
    assert browser.text(".showing").startswith(f"1–{min(48, len(mine))} of {len(mine)}")
    browser.choose("#filter-suggested", "3")
    mine = mine[mine["suggested"] == "=elm()"]
    assert browser.ids() == mine["id"].tolist()
    browser.choose("#search", mine.iloc[-1]["id"][-9:].upper())
    assert browser.ids() == [mine.iloc[-1]["id"]]
    browser.choose("#search", "nothing is called so")
    assert browser.text(".showing") == "No suspect fits these filters."
    browser.click("#clear")
    browser.choose("#filter-verdict", "review")
    assert browser.ids() == rows[rows["decision"] == "review"]["id"].tolist()[:48]
    browser.click("#clear")
    browser.click(".chips button")
    pair = browser.evaluate(f'new Set({SHOWN}.map(c => c.querySelector(".pair").textContent)).size')
    assert pair == 1


def test_pages(browser: Browser, run: Path) -> None:
    rows = suspects(run)
    browser.open(run / "report.html")
    browser.choose("#sort", "worst")
    browser.click(".paging button:last-child")
    assert browser.ids() == rows["id"].tolist()[48:96]
    browser.click(".paging button:first-child")
    assert browser.ids() == rows["id"].tolist()[:48]


def test_the_slider_shows_what_would_change(browser: Browser, run: Path) -> None:
    labels = pd.DataFrame(cells.read_cells(run / "labels.csv"))
    quality, sure = labels["quality"].astype(float), labels["confidence"].astype(float) >= 0.5
    browser.open(run / "report.html")
    for threshold in (0.2, 0.05, 0.37, 0.5, 0.0):
        browser.choose("#threshold", str(threshold))
        wrong = quality < threshold
        expected = {
            "relabel": wrong & sure,
            "drop": wrong & ~sure,
            "review": ~wrong & (quality < 0.5),
            "keep": quality >= 0.5,
        }
        for verdict, mask in expected.items():
            row = browser.evaluate(
                f"""[...document.querySelectorAll('#what-if [data-verdict={verdict}] td')].map(c => c.textContent)"""
            )
            before = (labels["decision"] == verdict).sum()
            sign = "+" if mask.sum() > before else "−" if mask.sum() < before else ""
            assert row == [str(before), str(mask.sum()), f"{sign}{abs(mask.sum() - before)}"]
    browser.choose("#threshold", "0.2")
    moved = labels[(quality >= 0.2) & (quality < RELABEL_BELOW)]
    assert len(moved) > 5
    browser.click("#show-changed")
    assert sorted(browser.ids()) == sorted(moved["id"])[:48]


def test_runs_are_told_apart_whatever_they_are_called(browser: Browser, tmp_path: Path) -> None:
    """A name that ends as those of folds do is still that of a run."""
    runs = [look_alike(tmp_path / f"tree{end}", count=60, classes=CLASSES) for end in ("", "-2")]
    browser.open(write_comparison(runs, tmp_path / "compared.html"))
    legend = browser.evaluate('[...document.querySelectorAll(".legend")].map(l => l.innerText)')
    assert [text.split() for text in legend] == [["tree", "tree-2"]] * 2
    strokes = browser.evaluate(
        '[...document.querySelectorAll(".chart polyline")].map(l => getComputedStyle(l).stroke)'
    )
    assert strokes[:2] == strokes[2:]
    assert strokes[0] != strokes[1]
    # The stages of one run still are grouped.
    browser.open(write_report(runs[0]))
    assert browser.text(".legend") == "sieves (2)network on the refined labels"


def test_the_covariance_is_no_test(browser: Browser, tmp_path: Path) -> None:
    folder = look_alike(tmp_path / "a run", count=60, classes=CLASSES)
    largest = np.nanmax(np.abs(np.load(folder / "refinement.npz")["covariance"]))
    browser.open(write_report(folder))
    text = browser.text("#covariance")
    assert "These numbers are no test" in text
    assert f"covlearn diagnose '{folder}'" in text
    assert f"strongest at ±{largest:.2g}, the largest number here" in text
    records.write_json(folder / "diagnosis.json", DIAGNOSIS)
    browser.open(write_report(folder))
    assert "covlearn diagnose: There is no evidence" in browser.text("#covariance .diagnosis")


@pytest.mark.parametrize("width", [400, 1200])
def test_the_slider_stands_under_its_axis(browser: Browser, run: Path, width: int) -> None:
    """A press below a number of the axis sets that number."""
    browser.open(run / "report.html", width=width)
    for number, value in (("0.2", 0.2), ("0.4", 0.4), ("0", 0.0)):
        place = browser.evaluate(
            f"""(() => {{ const slider = document.getElementById("threshold");
            slider.scrollIntoView({{block: "center", behavior: "instant"}});
            const label = [...slider.closest(".split").querySelectorAll("svg text")]
              .find(t => t.textContent === "{number}" && t.getAttribute("text-anchor") === "middle");
            const at = label.getBoundingClientRect(), box = slider.getBoundingClientRect();
            return [at.left + at.width / 2, box.top + box.height / 2]; }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            browser.send(
                "Input.dispatchMouseEvent",
                type=kind, x=place[0], y=place[1], button="left", clickCount=1,
            )  # fmt: skip
        found = float(browser.evaluate('document.getElementById("threshold").value'))
        assert found == pytest.approx(value, abs=0.011)


def test_decides_by_mouse_and_by_keyboard(browser: Browser, run: Path) -> None:
    rows = suspects(run).reset_index(drop=True)
    browser.open(run / "report.html")
    assert browser.evaluate('document.getElementById("download").disabled')
    browser.choose("#sort", "worst")
    browser.click('.card[data-place="0"] .accept')
    assert browser.evaluate("document.activeElement.dataset.place") == "1"  # goes on to the next
    browser.press("r")
    browser.press("ArrowRight")
    browser.press("a")
    browser.press("l")
    assert browser.evaluate("document.activeElement.tagName") == "SELECT"
    wanted = next(
        n for n in range(4) if CLASSES[n] not in rows.loc[4, ["given", "suggested"]].tolist()
    )
    browser.choose('.card[data-place="4"] select', str(wanted))
    browser.press("Enter")
    browser.press("a")
    browser.press("ArrowLeft")
    browser.press("u")
    assert "4 of" in browser.text(".progress")
    assert browser.text("#said").startswith(f"{rows.loc[5, 'id']}: undecided")
    browser.choose("#filter-state", "done")
    assert browser.ids() == rows.loc[[0, 1, 3, 4], "id"].tolist()

    browser.click("#download")
    made = cells.read_cells(browser.downloaded("decisions.csv"))
    assert made["id"] == rows.loc[[0, 1, 3, 4], "id"].tolist()
    assert made["action"] == ["accept", "reject", "accept", "relabel"]
    assert made["label"] == [
        rows.loc[0, "suggested"],
        rows.loc[1, "given"],
        rows.loc[3, "suggested"],
        CLASSES[wanted],
    ]
    assert made["given"] == rows.loc[[0, 1, 3, 4], "given"].tolist()

    browser.open(run / "report.html")  # decisions outlast the page
    assert "4 of" in browser.text(".progress")


def test_hostile_names_stay_names(browser: Browser, tmp_path: Path) -> None:
    names = [f"{HOSTILE[n % len(HOSTILE)]} {n}" for n in range(240)]
    table = pd.DataFrame({HOSTILE[0]: HOSTILE * 40, "label": "x"})
    folder = look_alike(tmp_path / "run", count=240, classes=HOSTILE, ids=names, table=table)
    write_report(folder)
    browser.open(folder / "report.html")
    assert browser.evaluate("window.broken === undefined")
    assert browser.evaluate('document.querySelectorAll("script").length') == 2
    assert (
        browser.evaluate('document.querySelectorAll("main img, main script, main iframe").length')
        == 0
    )
    rows = suspects(folder)
    browser.choose("#sort", "worst")
    assert browser.ids() == rows["id"].tolist()[:48]
    for _ in range(12):
        browser.evaluate(
            f'{SHOWN}.find(c => c.dataset.state === "open").querySelector(".accept").click()'
        )
    browser.click("#download")
    made = cells.read_cells(browser.downloaded("decisions.csv"))
    assert made["id"] == rows["id"].tolist()[:12]
    assert made["label"] == rows["suggested"].tolist()[:12]


def test_cells_are_defused_as_in_python(browser: Browser, run: Path) -> None:
    browser.open(run / "report.html")
    parts = [
        "",
        "'",
        "''",
        "=1+1",
        "+3",
        "-3.5",
        "-x",
        "@a",
        "\tb",
        "\rc",
        "＝d",
        "oak",
        ".5",
        "1e5",
        "+1e",
        "- 1",
        "\nq",
    ]
    texts = [first + second for first in parts for second in parts]
    assert browser.evaluate(f"{json.dumps(texts)}.map(defused)") == [
        cells.defused(t) for t in texts
    ]


def test_fifty_thousand_examples(browser: Browser, tmp_path: Path) -> None:
    classes = [f"class {n}" for n in range(100)]
    folder = look_alike(tmp_path / "run", count=50_000, classes=classes, wrong=0.6)
    write_report(folder)
    browser.open(folder / "report.html")
    rows = suspects(folder)
    assert len(rows) > 25_000
    browser.choose("#sort", "worst")
    assert len(browser.ids()) == 48
    browser.choose("#search", "0123")
    mine = rows[rows["id"].str.contains("0123")]
    assert browser.ids() == mine["id"].tolist()[:48]
    assert f"of {len(mine)}" in browser.text(".showing")
    assert browser.evaluate('document.querySelectorAll("*").length') < 20_000


@pytest.mark.parametrize("case", ["no suspects", "no evidence", "many classes"])
def test_pages_with_little_and_with_much(browser: Browser, tmp_path: Path, case: str) -> None:
    folder = look_alike(
        tmp_path / "run",
        count=2000 if case == "many classes" else 100,
        classes=[f"class {n}" for n in range(500)] if case == "many classes" else ["a", "b"],
        wrong=0.0 if case == "no suspects" else 0.3,
        found=case != "no evidence",
    )
    if case == "no suspects":
        labels = cells.read_cells(folder / "labels.csv")
        labels["decision"] = ["keep"] * 100
        labels["quality"] = ["0.9"] * 100
        cells.write_cells(folder / "labels.csv", list(labels), zip(*labels.values(), strict=True))
    write_report(folder)
    browser.open(folder / "report.html")
    browser.choose("#threshold", "0.4")
    if case == "no suspects":
        assert "No label is suspect." in browser.text("#suspects")
        assert browser.text("#show-changed") == "No verdict would change"
    elif case == "no evidence":
        assert "There is no evidence" in browser.text("#threshold-section")
        assert len(browser.ids()) > 10
    else:
        assert browser.evaluate('document.querySelectorAll(".dense tbody tr").length') == 80
        assert "460 classes" in browser.text("#noise")
        browser.evaluate('document.querySelectorAll(".card")[7].focus()')
        browser.choose('.card[data-place="7"] select', "499")
        assert browser.text('.card[data-place="7"] .state') == "relabelled: class 499"


def test_earlier_decisions_are_shown_and_handed_on(browser: Browser, tmp_path: Path) -> None:
    folder = look_alike(tmp_path / "run", count=200, classes=CLASSES)
    first, second = suspects(folder)["id"].tolist()[:2]
    decide(folder, {first: ("cedar", "ash")})
    write_report(folder)
    browser.open(folder / "report.html")
    browser.choose("#filter-verdict", "decided")
    assert browser.ids() == [first]
    assert browser.text(".card .state") == "decided before: cedar, was ash"
    browser.click("#clear")
    browser.choose("#search", second)
    browser.click(".card .reject")
    browser.click("#download")
    made = cells.read_cells(browser.downloaded("decisions.csv"))
    assert made["id"] == [first, second]
    assert made["label"][0] == "cedar"
    assert made["given"][0] == "ash"


def test_a_comparison_opens(browser: Browser, run: Path, tmp_path: Path) -> None:
    second = look_alike(tmp_path / "second", count=400, classes=CLASSES, seed=1)
    page = write_comparison([run, second], tmp_path / "compared.html")
    browser.open(page)
    assert browser.text("h1") == "run and second"
    assert browser.evaluate('document.querySelectorAll("#changes tbody tr").length') == 4
    assert browser.evaluate('document.querySelectorAll(".chart polyline").length') == 4


def test_the_whole_way_round(browser: Browser, tmp_path: Path) -> None:
    """Fit, decide in the page against the model, fit with the file: the decisions hold."""
    y = np.arange(180) % 3
    x = np.random.default_rng(0).normal(size=(180, 4)) + 5 * np.eye(4)[y]
    frame = pd.DataFrame(x, columns=list("abcd"))
    noisy = np.where(np.arange(180) % 4 == 0, (y + 1) % 3, y)
    frame["label"] = np.array(["ash", "=birch()", "cedar"])[noisy]
    frame.to_csv(tmp_path / "table.csv", index=False)
    quick = ["--device", "cpu", "--set", "folds=2", "net.hidden=[16]"]
    fit = ["fit", str(tmp_path / "table.csv"), *quick]
    assert cli.main([*fit, "--out", str(tmp_path / "first")]) == 0
    browser.open(tmp_path / "first" / "report.html")
    browser.choose("#sort", "worst")
    browser.evaluate('document.querySelector(".card").focus()')
    for key in "rrrra":
        browser.press(key)
    browser.click("#download")
    file = browser.downloaded("decisions.csv")
    made = cells.read_cells(file)
    assert made["action"] == ["reject"] * 4 + ["accept"]
    again = [*fit, "--trusted", str(file), "--out", str(tmp_path / "second")]
    assert cli.main(again) == 0
    labels = pd.DataFrame(cells.read_cells(tmp_path / "second" / "labels.csv")).set_index("id")
    assert labels.loc[made["id"], "given"].tolist() == made["label"]
    assert set(labels.loc[made["id"], "reason"]) == {"decided by a person"}
    assert set(labels.loc[made["id"], "decision"]) == {"keep"}
    browser.open(tmp_path / "second" / "report.html")
    assert "People decided on 5 labels and changed 1" in browser.text(".lead")
    browser.choose("#filter-verdict", "decided")
    assert set(browser.ids()) == set(made["id"])
