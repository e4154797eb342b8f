"""docs/fit_measured.md: its tables are generated, and what its prose says of them holds."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

from tools.pages import BLOCK

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "fit_measured.md").read_text(encoding="utf-8")
PROSE = " ".join(BLOCK.sub("", PAGE).split())


def record(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def test_prose_has_no_figures_of_its_own() -> None:
    settings = ["`ptd:0.4`"]
    assert re.findall(r"\d+\.\d+", re.sub("|".join(settings), "", PROSE)) == []


def test_where_evidence_is_missed_with_people() -> None:
    cells = record("people.json")["cells"]
    found = [cell["ours"]["evidence"] for name, cell in cells.items() if "confused_0.1" in name]
    assert sorted(found) == [False, True, True]
    assert "With a tenth of confused labels evidence is missed in one seed" in PROSE
    said = {
        noise: statistics.fmean(
            cell["ours"]["noise_rate"] - cell["ours"]["wrong"]
            for name, cell in cells.items()
            if name.startswith(f"{noise}/") and cell["ours"]["evidence"]
        )
        for noise in ("three_labellers_0.4", "confused_0.4", "symmetric:0.2", "confused_0.1")
    }
    assert [rate > 0 for rate in said.values()] == [False, False, True, True]


def test_what_is_below_cross_entropy() -> None:
    cells = record("hard_tables.json")["cells"]
    below = {name.split("/")[0] for name, c in cells.items() if c["accuracy"] < c["ce"]}
    assert below == {"iris"}
    sizes = record("sizes.json")["cells"]
    small = [c for c in sizes if (c["examples"], c["classes"], c["rate"]) == (500, 2, 0.4)]
    assert len(small) == 3
    assert not any(c["evidence"] or c["repaired"] for c in small)
    worse = [c for c in sizes if c["rate"] and c["accuracy"]["ours"] < c["accuracy"]["ce"]]
    assert len(worse) == 1
    assert worse[0] in small
    assert max(c["flagged"] for c in sizes if not c["rate"]) <= 0.02


def test_what_cleanlab_does_with_our_probabilities() -> None:
    of = {measure: each["cleanlab, our sieves"]["all rows"]
          for measure, each in record("peers.json")["summary"].items()
          if "cleanlab, our sieves" in each}  # fmt: skip
    assert of["f1"]["high"] < 0
    assert of["repaired"]["high"] < 0
    assert of["average_precision"]["low"] > 0


def test_what_copies_lose() -> None:
    once, thrice = ({name: c["accuracy"] for name, c in record("copies.json")["cells"].items()
                     if name.startswith("wine/ptd:0.4/") and name.endswith(times)}
                    for times in ("/1", "/3"))  # fmt: skip
    lost = [a - b for a, b in zip(once.values(), thrice.values(), strict=True)]
    assert sum(points > 0.02 for points in lost) == 2


def test_a_fit_of_pixels_is_short() -> None:
    assert max(cell["processor_seconds"] for cell in record("pixels.json")["cells"]) < 60
    clean = [cell for cell in record("pixels.json")["cells"] if cell["noise"] == "none"]
    assert all(cell["accuracy"]["ours"] == cell["accuracy"]["ce"] for cell in clean)
