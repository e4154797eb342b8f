"""The pictures of the tables: what is joined, which row is which, and that nothing is cut off."""

import json
import re
import shutil
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from benchmarks.results import BEYOND, RESULTS, TABLES, page
from covlearn import cli
from covlearn.bench.figure_style import legend_beside, panels, row_style, save, wrapped
from covlearn.bench.figures import CURVES, figures
from covlearn.bench.refined_figures import scores_figure
from covlearn.bench.table import Table, read_table
from covlearn.plain_files import read_json
from covlearn.records import read_metrics, read_result

PLACES = {path.stem: RESULTS / path.stem for path in TABLES}
PLACES |= {path.stem: RESULTS / "beyond" / path.stem for path in BEYOND}
EARLIER = "(+n): after n epochs of earlier stages"


def read(name: str, *columns: str) -> Table:
    """A table of ours, of some of its columns."""
    table = read_table(next(path for path in (*TABLES, *BEYOND) if path.stem == name))
    kept = tuple(each for each in table.columns if each.name in columns)
    return replace(table, columns=kept, expected={}, pairs=())


def drawn(name: str, *columns: str) -> dict[str, Any]:
    return dict(figures(read(name, *columns), PLACES[name]))


def lines_of(axes: Any) -> dict[str, Any]:
    """By the row's title its line, whether it has bars or not."""
    bars = {each.get_label(): each.lines[0] for each in axes.containers}
    return bars | {each.get_label(): each for each in axes.lines if each.get_label()[0] != "_"}


def legend_of(axes: Any) -> list[str]:
    """What it says, without the breaks of its lines."""
    legend = axes.get_legend()
    return [text.get_text().replace("\n", " ") for text in (legend.get_title(), *legend.texts)]


def test_by_rate_files_are_the_same_noise_only_if_their_columns_say_so() -> None:
    names = ["confused 0.1", "confused 0.4", "three labellers 0.4", "0.2", "0.4", "0.6", "ptd 0.4"]
    table = read("beyond", *(f"cifar10/{name}" for name in names))
    few = tuple(row for row in table.rows if row.name in ("ce", "published", "recommended"))
    figure = dict(figures(replace(table, rows=few), PLACES["beyond"]))["accuracy_by_rate"]
    panels = {axes.get_title(): lines_of(axes) for axes in figure.axes}
    assert list(panels) == [
        "cifar10/0.2, cifar10/0.4, cifar10/0.6",
        "cifar10/confused 0.1, cifar10/confused 0.4",
    ]
    for lines in panels.values():
        for line in lines.values():
            rates = line.get_xdata()
            assert len(rates) > 1
            assert (np.diff(rates) > 0).all(), "a stroke at one rate joins different noises"
    # Another file at another rate is another noise, and of a rate that nobody says there is no line.
    assert "accuracy_by_rate" not in drawn(
        "beyond", "cifar10/confused 0.1", "cifar10/three labellers 0.4"
    )
    assert "accuracy_by_rate" not in drawn("ingredients", "cifar10/0.4", "cifar10/confused 0.4")
    table = read("beyond", "cifar10/confused 0.1", "cifar10/confused 0.4")
    unsaid = tuple(replace(column, rate=None) for column in table.columns)
    assert "accuracy_by_rate" not in dict(figures(replace(table, columns=unsaid), PLACES["beyond"]))


def test_by_rate_columns_of_other_settings_are_not_joined() -> None:
    table = read("table3", "cifar10/0.2", "cifar10/0.4")
    other = replace(table.columns[1], settings=("plan.batch_size=128",))  # as it is: same runs
    apart = replace(table, columns=(table.columns[0], other))
    assert "accuracy_by_rate" in dict(figures(table, PLACES["table3"]))
    assert "accuracy_by_rate" not in dict(figures(apart, PLACES["table3"]))


def test_by_rate_the_rate_may_stand_in_the_noise_alone() -> None:
    table = read("reliability", "digits/calibrated 0.2", "digits/calibrated 0.4")
    columns = tuple(replace(each, rate=None) for each in table.columns)
    figure = dict(figures(replace(table, columns=columns), PLACES["reliability"]))[
        "accuracy_by_rate"
    ]
    (line,) = lines_of(figure.axes[0]).values()
    assert list(line.get_xdata()) == [0.2, 0.4]


def test_by_rate_the_rule_is_said() -> None:
    figure = drawn("table3", "cifar10/0.4", "cifar10/0.6")["accuracy_by_rate"]
    (axes,) = figure.axes
    assert axes.get_ylabel() == "test accuracy, %, best epoch"
    said = legend_of(axes)
    assert said[0] == "bars: ± a standard deviation, where there are several trials"
    assert "4: peer, epoch 65 [epoch 65]" in said  # of another rule than the table's


def test_styles_tell_rows_apart() -> None:
    styles = [row_style(place) for place in range(56)]
    seen = [(each["color"], each["linestyle"]) for each in styles[:35]]
    assert len(set(seen)) == 35
    assert len({(each["color"], each["marker"]) for each in styles}) == 56
    most = max(len(read_table(path).rows) for path in (*TABLES, *BEYOND))
    assert most <= 35


def test_a_row_looks_the_same_in_all_pictures_of_its_table() -> None:
    table = read("table1", *(f"cifar10/{rate}" for rate in (0.2, 0.4, 0.6)))
    place = {row.title: number for number, row in enumerate(table.rows)}
    seen = set()
    for name, figure in figures(table, PLACES["table1"]):
        if name.endswith(("test_accuracy", "memorisation", "accuracy_by_rate")):
            for label, line in lines_of(figure.axes[0]).items():
                style = row_style(place[label.split(" (+")[0]])
                assert (line.get_color(), line.get_marker()) == (style["color"], style["marker"])
                seen.add((label.split(" (+")[0], name.split("_")[-1]))
    assert {("CE (standard)", "rate"), ("CAL", "rate"), ("CAL", "memorisation")} <= seen
    assert ("JoCoR", "accuracy") in seen


def test_curves_are_of_the_stage_that_a_row_is_of() -> None:
    """Rows 3 and 4 of table 3 are the training that D̂ is made of."""
    figure = drawn("table3", "cifar10/0.6")["cifar10_0.6_test_accuracy"]
    (axes,) = figure.axes
    lines = lines_of(axes)
    records = read_metrics(PLACES["table3"] / "cifar10" / "0.6" / "both" / "0")
    sieve = [100 * each["test_accuracy"] for each in records if each["stage"] == "sieve"]
    whole = lines["3: peer (CAL's sieve) [stage sieve]"]
    assert list(whole.get_xdata()) == list(range(1, 67))
    assert whole.get_ydata() == pytest.approx(sieve)
    point = lines["4: peer, epoch 65 [stage sieve]"]
    assert (list(point.get_xdata()), list(point.get_ydata())) == ([65], [pytest.approx(sieve[64])])
    assert len(lines["5: both (CAL) (+66)"].get_xdata()) == 100
    assert axes.get_xlabel() == "epoch of the last stage, or of the stage that is named"
    assert axes.get_ylabel() == "test accuracy, %"
    assert legend_of(axes)[0] == EARLIER


def test_what_was_trained_before_the_curves_is_said() -> None:
    drawn_ones = drawn("table1", "cifar10/0.4")
    for key, unit in CURVES.items():
        (axes,) = drawn_ones[f"cifar10_0.4_{key}"].axes
        said = {"L_DMI (+100)", "Reweight-R (+120)", "CAL (+66)", "CE (standard)"}
        assert said <= set(legend_of(axes))
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch of the last stage", unit)
        assert unit.endswith(", %")
        assert max(max(line.get_ydata()) for line in axes.lines) > 50
    table = read("table1", "cifar10/0.4")
    alone = replace(table, rows=tuple(row for row in table.rows if row.name == "ce"))
    (axes,) = dict(figures(alone, PLACES["table1"]))["cifar10_0.4_test_accuracy"].axes
    assert axes.get_xlabel() == "epoch"
    assert legend_of(axes) == ["", "CE (standard)"]


def test_small_entries_of_transitions_are_seen_and_axes_say_whose_labels() -> None:
    figure = drawn("table1", "cifar100/0.4")["cifar100_0.4_cal_transition"]
    estimated, true = figure.axes
    assert [axes.get_ylabel() for axes in (estimated, true)] == ["refined label", "true label"]
    assert [axes.get_xlabel() for axes in (estimated, true)] == ["noisy label"] * 2
    (image,) = true.images
    assert image.norm(0.01) > 0.2
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)
    (bar,) = true.child_axes
    assert bar.get_ylabel() == "share of the row (colours by its cube root)"


def test_scores_say_threshold_scale_and_how_many_labels() -> None:
    (axes,) = drawn("table1", "cifar10/0.4")["cifar10_0.4_cal_scores"].axes
    assert axes.get_xlabel() == "score of the given label"
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "examples a bin (log scale)")
    assert axes.get_title() == "cifar10/0.4, CAL, trial 0"
    (line,) = axes.lines
    assert list(line.get_xdata()) == [-8, -8]
    assert legend_of(axes) == [
        "labels replaced by: sieve score above the threshold",
        "right labels (29,835)",
        "wrong labels (20,165)",
        "threshold −8: kept to its left",
    ]
    # The sieve found no evidence, so that labels beyond the threshold were kept, too.
    (axes,) = drawn("beyond", "cifar10/clean")["cifar10_clean_recommended_scores"].axes
    assert not axes.lines
    assert legend_of(axes)[0] == "all labels kept: no evidence of wrong labels"


def test_the_argmax_of_a_score_has_no_threshold() -> None:
    """A record has it as a text; with all labels kept it must not be compared with a score."""
    place = PLACES["beyond"] / "cifar10" / "0.4" / "with the cut" / "0"
    result = read_result(place)
    assert result is not None
    assert result.facts["threshold"] == "-inf"
    assert result.labels is not None
    kept = replace(result, labels=result.labels | {"changed": 0})
    for given, made in ((result, "labels replaced by"), (kept, "all labels kept")):
        (axes,) = scores_figure(read_json(place / "refinement.json"), given, "").axes
        assert not axes.lines
        assert legend_of(axes)[0] == f"{made}: most probable class"


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("table1", ("cifar10/0.6", "cifar10/0.4", "cifar100/0.2", "cifar100/0.4")),
        ("table3", ("cifar10/0.4", "cifar10/0.6")),
        ("ingredients", ("cifar10/0.4", "cifar10/0.6")),
        ("beyond", ("cifar10/confused 0.1", "cifar10/confused 0.4", "cifar100/0.4")),
    ],
)
def test_nothing_is_hidden_or_cut_off(name: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    """Legends stand beside the data, texts beside each other, and the margin is white."""
    made = drawn(name, *columns)
    one_of_a_kind = {title.split("_")[-1]: title for title in made}
    assert {"accuracy", "memorisation", "scores", "transition", "rate"} <= one_of_a_kind.keys()
    for title in one_of_a_kind.values():
        figure = made[title]
        with Image.open(save(figure, tmp_path / f"{title}.png")) as image:
            pixels = np.asarray(image.convert("RGB"))
        edge = (pixels[:3], pixels[-3:], pixels[:, :3], pixels[:, -3:])
        assert all((side == 255).all() for side in edge), title
        assert (tmp_path / f"{title}.png").stat().st_size <= 120 * 1024, title
        renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
        whole = [axes.get_window_extent(renderer) for axes in figure.axes]
        texts = [axes.title.get_window_extent(renderer) for axes in figure.axes]
        if figure.get_suptitle():
            texts.append(figure._suptitle.get_window_extent(renderer))
        for axes in figure.axes:
            if legend := axes.get_legend():
                texts.append(legend.get_window_extent(renderer))
            for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
                texts += [
                    tick.label1.get_window_extent(renderer)
                    for tick in axis.get_major_ticks()
                    if min(low, high) <= tick.get_loc() <= max(low, high)
                ]
        texts = [text for text in texts if text.width]
        assert not any(box.overlaps(text) for box in whole for text in texts), title
        assert not any(one.overlaps(two) for one, two in combinations(texts, 2)), title


def test_long_titles_have_lines() -> None:
    long = "a ridge of words " * 12
    _, (axes,) = panels()
    axes.plot([0, 1], [0, 1], label=long)
    legend_beside(axes, title=long)
    assert max(map(len, axes.get_legend().texts[0].get_text().split("\n"))) <= 48
    assert max(map(len, wrapped(long).split("\n"))) <= 70


def test_a_damaged_file_of_a_picture_is_named_below_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(PLACES["table4"], tmp_path / "runs")
    (file,) = (tmp_path / "runs").rglob("refinement.json")
    (table,) = (path for path in TABLES if path.stem == "table4")
    whole = read_json(file)
    for change in ({"score_edges": None}, {"scores": {"all": ["a"]}}, {"transition": [1]}):
        file.write_text(json.dumps(whole | change), encoding="utf-8")
        words = ["--trials", "0", "--folder", str(tmp_path / "runs"), "--figures", str(tmp_path)]
        assert cli.main(["bench", str(table), *words]) == 2
        said = capsys.readouterr()
        assert f"{file} must say how a D̂ was made, but it is damaged: " in said.err
        assert "Table 4" in said.out


def test_pictures_of_what_is_no_more_do_not_stay(tmp_path: Path) -> None:
    shutil.copytree(PLACES["table4"], tmp_path / "table4")
    made = {path.name for path in (tmp_path / "table4" / "figures").iterdir()}
    for name in ("cifar10_0.4_own_prior_scores.png", "notes.txt"):
        (tmp_path / "table4" / "figures" / name).write_text("left behind", encoding="utf-8")
    text = page([path for path in TABLES if path.stem == "table4"], tmp_path)
    there = {path.name for path in (tmp_path / "table4" / "figures").iterdir()}
    assert there == made | {"notes.txt"}  # and nothing but pictures goes
    assert all(f"(table4/figures/{name})" in text for name in made)


def test_the_page_keeps_what_failed(tmp_path: Path) -> None:
    shutil.copytree(PLACES["table4"], tmp_path / "table4")
    failed = [{"row": "ptd", "column": "cifar10/0.4", "trial": 4, "reason": "no memory"}]
    file = tmp_path / "table4" / "table.json"
    file.write_text(json.dumps({"failed": failed}), encoding="utf-8")
    assert "trial 4: no memory" in page(
        [path for path in TABLES if path.stem == "table4"], tmp_path
    )
    assert read_json(file)["failed"] == failed


def test_every_committed_picture_is_on_its_page() -> None:
    for folder in (RESULTS, RESULTS / "beyond"):
        text = (folder / "README.md").read_text(encoding="utf-8")
        shown = re.findall(r"^!\[.*\]\((.+)\)$", text, re.MULTILINE)
        there = {path.relative_to(folder).as_posix() for path in folder.glob("*/figures/*.png")}
        assert sorted(shown) == sorted(there)
        assert all((folder / name).stat().st_size <= 120 * 1024 for name in there)
