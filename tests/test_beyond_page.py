"""docs/beyond.md: its table is that of the records."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from covlearn.metrics import calibration_error

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "beyond.md").read_text(encoding="utf-8")
BEYOND = json.loads(
    (ROOT / "results" / "beyond" / "beyond" / "table.json").read_text(encoding="utf-8")
)
CELLS = {(cell["row"], cell["column"]): cell for cell in BEYOND["cells"]}


def record(row: str, column: str, name: str) -> Any:
    """A file of the first trial."""
    place = ROOT / "results" / "beyond" / "beyond" / column / row / "0" / name
    return json.loads(place.read_text(encoding="utf-8"))


def share_right(row: str, column: str) -> float:
    """Of the labels that the first trial of a row has in the end."""
    share: float = record(row, column, "result.json")["labels"]["quality"]["share_right"]
    return share


@pytest.mark.parametrize(
    ("title", "column"),
    [
        ("CIFAR-10, 0.2", "cifar10/0.2"),
        ("CIFAR-10, 0.4", "cifar10/0.4"),
        ("CIFAR-10, 0.6", "cifar10/0.6"),
        ("CIFAR-10, `ptd` 0.4", "cifar10/ptd 0.4"),
        ("CIFAR-10, `confused` 0.4", "cifar10/confused 0.4"),
        ("CIFAR-100, 0.4", "cifar100/0.4"),
    ],
)
def test_a_row_of_the_page_is_that_of_the_records(title: str, column: str) -> None:
    last = [CELLS[row, column]["last mean"] for row in ("ce", "published", "recommended")]
    texts = ["—" if value is None else f"{value:.2f}" for value in last]
    right = [100 * share_right(row, column) for row in ("published", "recommended")]
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {title} |"))
    assert line.startswith(f"| {title} | {' | '.join(texts)} |")
    given = 100 * (1 - record("recommended", column, "config.json")["noise"]["actual_rate"])
    assert line.endswith(f"| {given:.1f}, {right[0]:.1f}, {right[1]:.1f} % |")


@pytest.mark.parametrize(
    ("column", "row"),
    [
        ("cifar10/clean", "recommended"),
        ("cifar10/clean", "ce"),
        ("cifar10/confused 0.1", "recommended"),
        ("cifar10/0.4", "ce averaged"),
        ("cifar10/three labellers 0.4", "recommended"),
    ],
)
def test_what_was_run_beside_the_table(column: str, row: str) -> None:
    assert f"{CELLS[row, column]['last mean']:.2f}" in PAGE


def test_the_labels_of_a_confused_network() -> None:
    assert f"{100 * share_right('recommended', 'cifar10/confused 0.1'):.1f} % of the labels" in PAGE


def test_the_labels_of_three_labellers() -> None:
    column = "cifar10/three labellers 0.4"
    assert f"and {100 * share_right('recommended', column):.1f} % of the labels right" in PAGE
    place = ROOT / "results" / "beyond" / "beyond" / column / "recommended" / "0"
    lines = map(json.loads, (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    sieve = [line["averaged_right"] for line in lines if line["stage"] == "sieve"]
    assert max(sieve) == sieve[-1]
    assert f"After the sieve {100 * sieve[-1]:.1f} % are." in PAGE


INGREDIENTS = json.loads(
    (ROOT / "results" / "beyond" / "ingredients" / "table.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(
    ("title", "column"),
    [
        ("ResNet-34, 0.4", "cifar10/0.4"),
        ("ResNet-34, 0.6", "cifar10/0.6"),
        ("ResNet-34, three labellers, 0.4", "cifar10/three labellers 0.4"),
        ("ResNet-34, labels that a network confuses, 0.4", "cifar10/confused 0.4"),
        ("ResNet-34, CIFAR-100, 0.4", "cifar100/0.4"),
        ("plain network, half the epochs, 0.4", "cifar10/0.4"),
        ("plain network, 0.6", "cifar10/0.6"),
        ("plain network, `ptd` 0.4", "cifar10/ptd 0.4"),
        ("plain network, labels that a network confuses, 0.4", "cifar10/confused 0.4"),
    ],
)
def test_a_row_of_mixup_is_that_of_the_records(title: str, column: str) -> None:
    table = BEYOND if title.startswith("ResNet") else INGREDIENTS
    cells = {(cell["row"], cell["column"]): cell for cell in table["cells"]}
    rows = ("recommended", "regulariser alone", "regulariser and mixup")
    last = [
        f"{cells[row, column]['last mean']:.2f} ({cells[row, column]['n']})"
        if cells[row, column]["n"]
        else "—"
        for row in rows
    ]
    (found,) = (
        each
        for each in table["differences"]
        if (each["first"], each["second"]) == ("regulariser and mixup", "recommended")
        and (each["column"], each["rule"]) == (column, "last")
    )
    error = "" if found["error"] is None else f" ± {found['error']:.2f}"
    difference = f"{found['mean']:+.2f}{error} ({found['n']})"
    assert f"| {title} | {' | '.join(last)} | {difference} |" in PAGE
    if table is INGREDIENTS:
        in_the_sieve = cells["mixup in the sieve", column]["last mean"]
        text = "chance at 0.6" if in_the_sieve == 10 else f"{in_the_sieve:.2f}"
        assert text in PAGE


def test_what_a_resnet_gains_by_mixup_on_average() -> None:
    columns = ("0.4", "0.6", "three labellers 0.4", "confused 0.4")
    gains = [
        each["mean"]
        for each in BEYOND["differences"]
        if (each["first"], each["second"]) == ("regulariser and mixup", "recommended")
        and each["column"] in [f"cifar10/{column}" for column in columns]
        and each["rule"] == "last"
    ]
    assert len(gains) == 4
    assert sum(gain > 0 for gain in gains) == 3
    assert f"three noises of four,\n{statistics.mean(gains):+.2f} on average" in PAGE


def result_of(table: str, row: str, column: str = "cifar10/0.4") -> Any:
    """What the first trial of a row of a table came to; None where it was not run."""
    place = ROOT / "results" / "beyond" / table / column / row / "0" / "result.json"
    return json.loads(place.read_text(encoding="utf-8")) if place.exists() else None


@pytest.mark.parametrize(
    ("title", "row"),
    [
        ("recommended", "recommended"),
        ("+ cut of the learning rate", "with the cut"),
        ("+ cut, − average of the weights", "without weight average"),
        ("− average of the predictions", "without averaged predictions"),
        ("− most probable class (threshold −8)", "with the published threshold"),
        ("− covariance", "regulariser alone"),
        ("− covariance and regulariser", "without the covariance"),
        ("CAL as published", "published"),
    ],
)
def test_a_row_of_one_ingredient_less(title: str, row: str) -> None:
    runs = (result_of("ingredients", row), result_of("beyond", row))
    shown = [
        "—" if run is None else f"{100 * run['test_accuracy']['last']['value']:.2f}" for run in runs
    ]
    assert f"| {title} | {' | '.join(shown)} |" in PAGE


def test_what_the_threshold_of_the_published_code_makes_of_averages() -> None:
    fixed = result_of("ingredients", "with the published threshold")["labels"]
    argmax = result_of("targets_cifar10", "hard")["labels"]
    assert fixed["quality"] == argmax["quality"]
    right = f"{100 * fixed['quality']['share_right']:.1f} % of it right"
    ranked = [f"{100 * each['average_precision']:.1f}" for each in (fixed, argmax)]
    assert f"{right}; its score ranks labels worse" in PAGE
    assert f"average precision of {ranked[0]} for {ranked[1]} %" in PAGE
    published = result_of("ingredients", "published")["labels"]["quality"]["share_right"]
    assert f"D̂ is right for {100 * published:.1f} %, as in the last row" in PAGE


def test_how_far_quality_is_off() -> None:
    columns = ("10/0.2", "10/0.4", "10/0.6", "10/ptd 0.4", "10/confused 0.4",
               "10/three labellers 0.4", "100/0.4")  # fmt: skip
    files = (record("recommended", f"cifar{column}", "refinement.json") for column in columns)
    off = [100 * calibration_error(each["reliability"]["quality"]) for each in files]
    assert f"| {' | '.join(f'{points:.1f}' for points in off)} |" in PAGE
    assert sum(points <= 3.05 for points in off) == 3


def test_what_cal_over_gce_gains_with_averaged_weights() -> None:
    gains = []
    for column in ("cifar10/0.4", "cifar10/0.6"):
        over, plain = (
            result_of("ingredients", row, column)["test_accuracy"]["last"]["value"]
            for row in ("over gce", "recommended")
        )
        gains.append(f"{100 * (over - plain):+.2f}")
    assert f"over GCE it has {gains[0]} and {gains[1]} points at 0.4 and 0.6" in PAGE


READ = ("averaged", "evaluated", "both", "averaged, 20 neighbours", "both, 20 neighbours",
        "both, 100 neighbours")  # fmt: skip


@pytest.mark.parametrize(
    ("title", "column"),
    [
        ("0.4", "cifar10/0.4"),
        ("0.6", "cifar10/0.6"),
        ("`ptd` 0.4", "cifar10/ptd 0.4"),
        ("labels that a network confuses, 0.4", "cifar10/confused 0.4"),
        ("three labellers, 0.4", "cifar10/three labellers 0.4"),
    ],
)
def test_refined_labels_read_in_several_ways(title: str, column: str) -> None:
    file = ROOT / "results" / "beyond" / "refined.json"
    found = json.loads(file.read_text(encoding="utf-8"))[f"{column}/0"]
    right = " | ".join(f"{100 * found[way]['right']:.1f}" for way in READ)
    assert f"| {title} | {right} |" in PAGE


def over(table: Any, row: str, other: str, column: str) -> str:
    """The difference at the last epoch, as the page writes it."""
    for each in table["differences"]:
        names = (each["first"], each["second"], each["column"], each["rule"])
        if names == (row, other, column, "last"):
            error = "" if each["error"] is None else f" ± {each['error']:.2f}"
            return f"{each['mean']:+.2f}{error} ({each['n']})"
    return "—"


@pytest.mark.parametrize(
    ("title", "column"),
    [
        ("ResNet-34, three labellers, 0.4", "cifar10/three labellers 0.4"),
        ("plain network, three labellers, 0.4", "cifar10/three labellers 0.4"),
        ("plain network, 0.4", "cifar10/0.4"),
        ("plain network, 0.6", "cifar10/0.6"),
        ("plain network, `ptd` 0.4", "cifar10/ptd 0.4"),
        ("plain network, labels that a network confuses, 0.4", "cifar10/confused 0.4"),
    ],
)
def test_what_better_refined_labels_bring(title: str, column: str) -> None:
    table = BEYOND if title.startswith("ResNet") else INGREDIENTS
    rows = ("better sieve", "better sieve and mixup")
    points = " | ".join(over(table, row, "recommended", column) for row in rows)
    assert f"| {title} | {points} |" in PAGE


def test_mixup_alone_with_three_labellers() -> None:
    mixup, column = "regulariser and mixup", "cifar10/three labellers 0.4"
    points = over(INGREDIENTS, mixup, "recommended", column)
    assert f"Mixup alone has {points} with three labellers" in PAGE


def test_single_trials_of_recommended() -> None:
    place = ROOT / "results" / "beyond" / "ingredients" / "cifar10" / "0.4" / "recommended"
    last = [
        json.loads((place / str(trial) / "result.json").read_text(encoding="utf-8"))
        for trial in (2, 0, 1)
    ]
    texts = [f"{100 * one['test_accuracy']['last']['value']:.2f}" for one in last]
    said = " ".join(PAGE.split())
    assert f"ends at {texts[0]}, where the others have {texts[1]} and {texts[2]}" in said
    other = ROOT / "results" / "beyond" / "targets_cifar10" / "cifar10" / "0.4"
    found = json.loads((other / "hard and regulariser" / "2" / "result.json").read_text("utf-8"))
    value = 100 * found["test_accuracy"]["last"]["value"]
    assert f"with the regulariser has {value:.2f} in that trial" in said


@pytest.mark.parametrize(
    ("title", "column"),
    [
        ("0.4", "cifar10/0.4"),
        ("0.6", "cifar10/0.6"),
        ("`ptd` 0.4", "cifar10/ptd 0.4"),
        ("labels that a network confuses, 0.4", "cifar10/confused 0.4"),
    ],
)
def test_labels_found_beside_cleanlab(title: str, column: str) -> None:
    file = ROOT / "results" / "beyond" / "out_of_fold.json"
    found = json.loads(file.read_text(encoding="utf-8"))["columns"][f"{column}, trial 0"]
    names = ("f1", "average_precision", "refined_right")
    judges = {"recommended": "recommended", "published": "CAL as published", "cleanlab": "cleanlab"}
    for row, judge in judges.items():
        line = f"| {title} | {judge} | "
        if found[row] is None:
            assert line not in PAGE
        else:
            texts = [f"{100 * found[row][name]:.1f}" for name in names]
            assert f"{line}{' | '.join(texts)} |" in PAGE


def test_how_far_above_the_published_recipe_it_is() -> None:
    points = [
        CELLS["recommended", column]["last mean"] - cell["last mean"]
        for (row, column), cell in CELLS.items()
        if row == "published" and cell["n"]
    ]
    assert len(points) == 6
    assert min(points) > 0
    assert f"{sum(points) / len(points):.1f} points above CAL as published" in PAGE


def test_the_means_of_three_trials_stand_beside_trial_0() -> None:
    cells = json.loads((ROOT / "results" / "table1" / "table.json").read_text("utf-8"))["cells"]
    three = {
        cell["column"]: f"{cell['last mean']:.2f}"
        for cell in cells
        if cell["row"] == "cal" and cell["n"] == 3
    }
    assert set(three) == {"cifar10/0.4", "cifar10/0.6"}
    said = " ".join(PAGE.split())
    assert f"whose means are {three['cifar10/0.4']} and {three['cifar10/0.6']}" in said
    assert "trial 0 of each" in said
    rows = ("ce", "published", "recommended")
    shown = [cell["n"] for (row, _), cell in CELLS.items() if row in rows]
    assert max(shown) == 1


def test_what_the_covariance_adds_to_ce_on_the_same_labels() -> None:
    table = json.loads((ROOT / "results" / "table1" / "table.json").read_text(encoding="utf-8"))
    best, last = (
        {
            found["column"]: found
            for found in table["differences"]
            if (found["first"], found["second"], found["rule"]) == ("cal", "relabel", rule)
        }
        for rule in ("best", "last")
    )
    at = "cifar10/0.6"
    assert f"{best[at]['mean']:.2f} ± {best[at]['error']:.2f} points above CE on the same" in PAGE
    assert f"{last[at]['mean']:.2f} ± {last[at]['error']:.2f} at the last with 0.6 (n = 3" in PAGE
    at = "cifar10/0.4"
    text = " and ".join(
        f"{each[at]['mean']:.2f} ± {each[at]['error']:.2f}" for each in (best, last)
    )
    assert f"{text} with 0.4 (n = 3" in PAGE
    assert {found["n"] for each in (best, last) for found in each.values()} == {3}


TARGETS = json.loads(
    (ROOT / "results" / "beyond" / "targets_cifar10" / "table.json").read_text(encoding="utf-8")
)
NOISES = ["cifar10/0.4", "cifar10/0.6", "cifar10/ptd 0.4", "cifar10/calibrated 0.4"]


@pytest.mark.parametrize(
    ("title", "row"),
    [
        ("CE on D̂, regulariser", "hard and regulariser"),
        ("rows of T̂", "rows"),
        ("CAL, class weighting", "cal"),
        ("CAL, sample weighting", "cal by sample"),
        ("soft CAL: q T̂, regulariser", "posterior rows"),
        ("the posterior q", "posterior"),
    ],
)
def test_objectives_on_one_set_of_labels(title: str, row: str) -> None:
    found = {
        each["column"]: each
        for each in TARGETS["differences"]
        if (each["first"], each["second"], each["rule"]) == (row, "hard", "last")
    }
    texts = [f"{found[noise]['mean']:+.2f} ± {found[noise]['error']:.2f}" for noise in NOISES]
    assert f"| {title} | {' | '.join(texts)} |" in PAGE
    assert [found[noise]["n"] for noise in NOISES] == [3] * len(NOISES)


def test_what_the_objectives_are_compared_with() -> None:
    cells = {cell["column"]: cell for cell in TARGETS["cells"] if cell["row"] == "hard"}
    right = [f"{100 * cells[noise]['D̂ right']:.1f} %" for noise in NOISES]
    assert f"| D̂ right | {' | '.join(right)} |" in PAGE
    last = [f"{cells[noise]['last mean']:.2f}" for noise in NOISES]
    assert f"| CE on D̂ | {' | '.join(last)} |" in PAGE


def test_what_the_averages_cost() -> None:
    file = ROOT / "results" / "speed" / "averages_cost.json"
    figures = json.loads(file.read_text(encoding="utf-8"))["figures"]
    cost = 100 * (figures["ce with both averages / ce, K = 10"] - 1)
    assert f"both averages together {cost:.1f} % of each" in PAGE


def test_rounds() -> None:
    file = ROOT / "results" / "beyond" / "rounds.json"
    cells = list(json.loads(file.read_text(encoding="utf-8"))["cells"].values())

    def by_round(way: str, figure: str) -> list[str]:
        each = zip(*(cell[way][figure] for cell in cells), strict=True)
        return [f"{100 * statistics.fmean(values):.2f}" for values in each]

    def difference(values: list[float], sign: str = "+") -> str:
        error = statistics.stdev(values) / len(values) ** 0.5
        return f"{100 * statistics.fmean(values):{sign}.2f} ± {100 * error:.2f}"

    assert f"n = {len(cells)}" in PAGE
    right, changed = by_round("new", "refined right"), by_round("new", "changed")
    assert f"| D̂ right, from new weights | {' | '.join(right)} |" in PAGE
    assert f"| D̂ differs from the last one | | {' % | '.join(changed)} % |" in PAGE
    for way, title in (("new", "new weights"), ("last", "the last round's weights")):
        assert f"| accuracy, from {title} | {' | '.join(by_round(way, 'accuracy'))} |" in PAGE
    better = [cell["new"]["refined right"][1] - cell["new"]["refined right"][0] for cell in cells]
    assert f"by {difference(better, '')} points, in {sum(d > 0 for d in better)} of 18" in PAGE
    second = [cell["new"]["accuracy"][1] - cell["new"]["accuracy"][0] for cell in cells]
    assert f"{difference(second)} points in the second round" in PAGE
    over = [cell["last"]["accuracy"][3] - cell["new"]["accuracy"][3] for cell in cells]
    assert f"{difference(over, '')} points above starting over" in PAGE
    longer = [cell["last"]["accuracy"][3] - cell["longer"]["accuracy"][0] for cell in cells]
    assert f"{difference(longer, '')} above one stage 2 as long" in PAGE
    regret = []
    for cell in cells:
        made, moved = cell["last"]["refined right"], cell["last"]["changed"]
        stop = next((n for n, share in enumerate(moved) if share < 0.05), len(moved))
        regret.append(100 * (max(made) - made[stop]))
    mean, worst = statistics.fmean(regret), max(regret)
    assert f"D̂ is {mean:.2f} points on average, {worst:.2f} at worst" in PAGE


RENEWED = json.loads(
    (ROOT / "results" / "beyond" / "tried" / "renewed.json").read_text(encoding="utf-8")
)


def after(net: str, column: str, row: str, epoch: int = -1) -> str:
    """Test accuracy of a cell that was tried after an epoch of stage 2, from one on."""
    (cell,) = (
        each
        for each in RENEWED["cells"]
        if (each["net"], each["column"], each["row"]) == (net, column, row)
    )
    curve = cell["test accuracy"]["cal"]
    return f"{curve[epoch if epoch < 0 else epoch - 1]:.2f}"


def recommended_after(column: str, epoch: int) -> str:
    place = ROOT / "results" / "beyond" / "beyond" / column / "recommended" / "0"
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    curve = [line["test_accuracy"] for line in lines if line["stage"] == "cal"]
    return f"{100 * curve[epoch - 1]:.2f}"


def test_what_was_cut_off_is_compared_after_the_same_epochs() -> None:
    said, row = " ".join(PAGE.split()), "better sieve and mixup"
    for column in ("cifar10/0.4", "cifar10/0.6"):
        (cell,) = (each for each in RENEWED["cells"] if each["net"] == "resnet34"
                   and each["column"] == column)  # fmt: skip
        assert len(cell["test accuracy"]["cal"]) == 61
        assert not cell["finished"]
    ours = [after("resnet34", f"cifar10/{rate}", row) for rate in ("0.4", "0.6")]
    theirs = [recommended_after(f"cifar10/{rate}", 61) for rate in ("0.4", "0.6")]
    assert f"{ours[0]} at 0.4, where `recommended` has {theirs[0]} by then" in said
    assert f"{ours[1]} for {theirs[1]} at 0.6" in said
    one = "cifar100/one labeller 0.4"
    cal, hard, mixed = (
        after("resnet18", one, row, 42) for row in ("cal", "regulariser alone", "mixup")
    )
    assert f"CAL has {cal}, CE on the same D̂ with the regulariser {hard}" in said
    assert f"with mixup {mixed}" in said


def test_what_renewal_cost() -> None:
    said = " ".join(PAGE.split())
    for net, column, words in (
        ("resnet18", "cifar10/three labellers 0.4", "{} where CE on the first D̂ has {} (ResNet-18"),
        ("cnn", "cifar10/0.4", "{} for {} at 0.4 (plain network)"),
        ("cnn", "cifar10/confused 0.4", "better with confused labels alone, {} for {}."),
    ):
        rows = ("strong renewed", "regulariser alone")
        assert words.format(*(after(net, column, row) for row in rows)) in said


def test_what_strong_views_and_consistency_cost() -> None:
    """Beside rows that have the same refined labels, with and without the cut."""
    tried = ROOT / "results" / "beyond" / "tried"
    last, milestones, right = {}, {}, set()
    table = ROOT / "results" / "beyond" / "beyond" / "cifar10" / "0.4"
    for place in (
        *(tried / name for name in ("strong_views", "consistency", "consistency_milder_views")),
        *(table / row / "0" for row in ("with the cut", "sieve alone")),
    ):
        name = place.parent.name if place.name == "0" else place.name
        result = json.loads((place / "result.json").read_text(encoding="utf-8"))
        last[name] = f"{100 * result['test_accuracy']['last']['value']:.2f}"
        right.add(result["labels"]["quality"]["share_right"])
        plan = json.loads((place / "config.json").read_text(encoding="utf-8"))["method"]["plan"]
        milestones[name] = plan["lr_milestones"], plan["epochs"]
    assert len(right) == 1
    assert [name for name, plan in milestones.items() if plan == ([], 100)] == ["sieve alone"]
    assert milestones["consistency_milder_views"] == ([], 50)
    assert list(milestones.values()).count(([60], 100)) == 3
    plain = f"{last['with the cut']} with the cut and at {last['sieve alone']} without it"
    said = " ".join(PAGE.split())
    assert f"{last['strong_views']}, where plain ones end at {plain}" in said
    assert (
        f"{last['consistency']} with the cut, where plain training ends at {last['with the cut']}"
        in said
    )
    ours = f"{CELLS['recommended', 'cifar10/0.4']['last mean']:.2f}"
    assert f"{last['consistency_milder_views']} with milder views, no cut and half" in said
    assert f"where `recommended` has {ours}" in said


OWN_PRIOR = ROOT / "results" / "beyond" / "tried" / "own_prior"
ITS_PAGE = (OWN_PRIOR / "README.md").read_text(encoding="utf-8")


def test_whose_prior_the_regulariser_has() -> None:
    file = OWN_PRIOR / "cifar10_6000.json"
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    last = {(cell["trial"], cell["prior"], cell["mixup"]): cell["last"] for cell in cells}

    def gained(more: tuple[str, bool], less: tuple[str, bool]) -> str:
        gaps = [last[trial, *more] - last[trial, *less] for trial in range(3)]
        return f"{statistics.fmean(gaps):+.2f} ± {statistics.stdev(gaps) / 3**0.5:.2f}"

    said = " ".join(ITS_PAGE.split())
    alone = gained(("target", False), ("noisy", False))
    mixed = gained(("target", True), ("noisy", True))
    mixup = gained(("noisy", True), ("noisy", False))
    assert f"gains {alone} points at the last epoch, and {mixed} with mixup" in said
    assert f"which itself gains {mixup} there (n = 3" in said


@pytest.mark.parametrize(
    ("title", "column"),
    [
        ("ResNet-34, published 0.4", "cifar10/0.4"),
        ("ResNet-34, published 0.6", "cifar10/0.6"),
        ("ResNet-34, as three people label", "cifar10/three labellers 0.4"),
        ("plain network, published 0.4", "cifar10/0.4"),
        ("plain network, published 0.6", "cifar10/0.6"),
        ("plain network, part-dependent", "cifar10/ptd 0.4"),
        ("plain network, as a network confuses", "cifar10/confused 0.4"),
        ("plain network, as three people label", "cifar10/three labellers 0.4"),
    ],
)
def test_mixup_with_the_prior_of_its_target(title: str, column: str) -> None:
    table = "beyond" if title.startswith("ResNet") else "ingredients"
    last = last_of(OWN_PRIOR / table / column / "own prior and mixup")
    points = []
    for row in ("recommended", "regulariser and mixup"):
        place = OWN_PRIOR.parents[1] / table / column / row
        points.append(f"{last - last_of(place):+.2f} (1)" if place.exists() else "—")
    assert f"| {title} | {last:.2f} | {' | '.join(points)} |" in ITS_PAGE
    if title.startswith("ResNet"):
        assert points[0].split()[0] in PAGE


def last_of(row: Path) -> float:
    """Test accuracy in percent after the last epoch of a row's first trial."""
    result = json.loads((row / "0" / "result.json").read_text(encoding="utf-8"))
    return 100 * float(result["test_accuracy"]["last"]["value"])


@pytest.mark.parametrize("rule", ["1", "2", "3", "relabel"])
def test_how_strong_the_regulariser_should_be_on_digits(rule: str) -> None:
    """The table of docs/start/my_loop.md, and a sentence here."""
    place = ROOT / "results" / "beyond" / "beta_digits" / "table.json"
    table = json.loads(place.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "start" / "my_loop.md").read_text(encoding="utf-8")
    cells = {(cell["row"], cell["column"]): f"{cell['last mean']:.2f}" for cell in table["cells"]}
    columns = ["cal 0.4", "ptd 0.4", "calibrated 0.4", "symmetric 0.4", "cal 0.2"]
    title = "CE on D̂" if rule == "relabel" else f"CAL, β = {rule}"
    assert f"| {title} | {' | '.join(cells[rule, column] for column in columns)} |" in page
    if rule in ("1", "relabel"):
        other = "β = 1" if rule == "1" else "CE on D̂"
        gaps = [over(table, "2", rule, column).removesuffix(" (4)") for column in columns]
        assert f"| CAL, β = 2 minus {other} | {' | '.join(gaps)} |" in page
        assert rule != "1" or f"is worth {gaps[0]} points of CAL's last epoch" in PAGE
        behind = over(table, "2", "on D̂, 2", "ptd 0.4").removesuffix(" (4)")
        assert f"by {behind.removeprefix('-')} points" in " ".join(page.split())


BASES_DIGITS = ROOT / "results" / "beyond" / "bases_digits"
BASES = json.loads((BASES_DIGITS / "table.json").read_text(encoding="utf-8"))
BASE_COLUMNS = ["cal 0.2", "cal 0.4", "ptd 0.4", "calibrated 0.4", "symmetric 0.4"]


@pytest.mark.parametrize(
    ("title", "row"),
    [
        ("CE on D̂", "CE on D̂"),
        ("GCE on D̂", "GCE on D̂"),
        ("GCE on D̂, its regulariser", "GCE on D̂, its regulariser"),
        ("CAL", "CAL, as recommended has it"),
        ("CAL, β = 2", "CAL, β = 2"),
        ("CAL over GCE", "CAL over GCE"),
        ("CAL over Reweight", "CAL over Reweight"),
    ],
)
def test_a_base_loss_on_digits_is_that_of_the_record(title: str, row: str) -> None:
    """As the table there rounds it."""
    table = (BASES_DIGITS / "table.md").read_text(encoding="utf-8")
    last = table[table.index("## Ours, last epoch") : table.index("## Ours, mean of the last")]
    (line,) = (line for line in last.splitlines() if line.startswith(f"| {row} | "))
    figures = [cell.strip() for cell in line.split("|")[2:-1]]
    assert all(figure.endswith(" (8)") for figure in figures)
    assert f"| {title} | {' | '.join(figure.split(' ± ')[0] for figure in figures)} |" in PAGE


@pytest.mark.parametrize(
    ("title", "first", "second"),
    [
        ("GCE on D̂ minus CE on D̂", "gce on D̂", "ce on D̂"),
        ("GCE on D̂ minus CAL", "gce on D̂", "ce"),
        ("CAL over GCE minus GCE on D̂, its regulariser", "gce", "gce on D̂, regulariser"),
    ],
)
def test_what_a_bounded_loss_gains_on_digits(title: str, first: str, second: str) -> None:
    gaps = [over(BASES, first, second, column) for column in BASE_COLUMNS]
    assert all(gap.endswith(" (8)") for gap in gaps)
    texts = " | ".join(gap.removesuffix(" (8)") for gap in gaps)
    assert f"| {title} | {texts} |" in PAGE


def test_cal_over_gce_ends_as_in_its_table() -> None:
    composed = json.loads(
        (ROOT / "results" / "composed" / "table.json").read_text(encoding="utf-8")
    )
    last = {cell["row"]: f"{cell['last mean']:.2f}" for cell in composed["cells"]}
    text = f"ends at {last['over gce']} over GCE, where it ends at {last['cal']} over cross-entropy"
    assert text in " ".join(PAGE.split())
