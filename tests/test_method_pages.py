"""docs/methods/: what the pages say of settings is what the code has, their figures are those of the
records, and each method has its paper and code."""

import itertools
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from covlearn.config import as_text, leaves, meanings
from covlearn.data import Batch
from covlearn.engine import Outputs, Plan
from covlearn.methods import METHODS
from covlearn.methods.dmi import Determinant
from covlearn.methods.presets import DATA, PRESETS, preset, protocol
from covlearn.schedules import Ramp
from tests.site_pages import DOCS, page
from tools.method_pages import changes, row_of
from tools.papers import ALSO, CODE, PAPERS

RESULTS = DOCS.parent / "results"
RATES = ("0.2", "0.4", "0.6")


def text(name: str) -> str:
    """A method's page, in one line."""
    return " ".join(page(f"methods/{name}.md").split())


def table(name: str) -> Any:
    return json.loads((RESULTS / name / "table.json").read_text(encoding="utf-8"))


TABLE1, TABLE3, TABLE4 = map(table, ("table1", "table3", "table4"))


def cell(found: Any, row: str, column: str) -> Any:
    (one,) = (each for each in found["cells"] if (each["row"], each["column"]) == (row, column))
    return one


def epochs(trial: str, stage: str) -> list[Any]:
    """What was recorded of a stage, epoch by epoch."""
    lines = (RESULTS / trial / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [each for each in map(json.loads, lines) if each["stage"] == stage]


def best(stage: list[Any]) -> Any:
    return max(stage, key=lambda epoch: epoch["test_accuracy"])


def percent(epoch: Any) -> str:
    return f"{100 * epoch['test_accuracy']:.2f}"


def points(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def beside_cores(rate: str) -> float:
    """CAL less CORES² on CIFAR-100, at the last epoch of one trial."""
    (found,) = (
        each
        for each in TABLE1["differences"]
        if (each["first"], each["second"]) == ("cal", "cores")
        and (each["column"], each["rule"]) == (f"cifar100/{rate}", "last")
    )
    assert found["n"] == 1
    value: float = found["mean"]
    return value


# ---- Figures ----------------------------------------------------------------------------------


def test_cal_beside_cores_on_cifar_100() -> None:
    low, middle, high = map(beside_cores, RATES)
    assert (
        f"CAL is above CORES² at 0.2 and 0.4 ({points(low)} and {points(middle)} at the last "
        f"epoch), and below it at 0.6 ({points(high)})"
    ) in text("index")
    assert f"CAL is {low:.2f} and {middle:.2f} points above it" in text("cal")
    assert f"and {-high:.2f} below it at 0.6" in text("cal")
    right = cell(TABLE1, "cal", "cifar100/0.6")["D̂ right"]
    assert f"its D̂ is right for {100 * right:.1f} % of the labels" in text("cal")


def test_what_the_index_says_of_cifar_10_and_digits() -> None:
    presets = {name: row_of("table1", name)["preset"] for name in METHODS if name != "ptd"}
    assert {name for name, of in presets.items() if of != "paper"} == {"cal"}
    assert presets["cal"] == "published"
    assert row_of("digits", "cal")["preset"] == "recommended"
    last = {
        row: [cell(TABLE1, row, f"cifar10/{rate}")["last mean"] for rate in RATES]
        for row in ("cal", "cores")
    }
    assert last["cal"][2] > last["cores"][2]
    assert last["cal"][1] < last["cores"][1]
    digits = table("digits")
    for noise in ("ptd", "calibrated"):
        cells = [
            each
            for each in digits["cells"]
            if each["column"] == f"{noise} 0.4" and each["row"] == each["method"]
        ]
        (ours,) = (each["last mean"] for each in cells if each["row"] == "cal")
        assert sum(each["last mean"] > ours for each in cells) >= 5


def test_table_4_is_learned_by_heart() -> None:
    assert "augmentation.crop=0" in (DOCS.parent / "benchmarks" / "table4.toml").read_text("utf-8")
    sieve, found = epochs("table4/cifar10/0.4/cal/0", "sieve"), cell(TABLE4, "cal", "cifar10/0.4")
    assert found["n"] == 1
    assert found["labels kept"] > 0.998
    first, last = (100 * each["memorisation"] for each in (best(sieve), sieve[-1]))
    said = text("cal")
    assert f"repeats {first:.0f} % of the wrong labels in its best epoch and {last:.1f} %" in said
    paper = f"{found['paper mean']:.2f} ± {found['paper std']:.2f}"
    assert f"{found['best mean']:.2f} where the paper has {paper}" in said


def test_the_covariance_without_the_peer_term() -> None:
    ours, theirs = (
        [cell(TABLE3, "covariance", f"cifar10/{rate}")[what] for rate in ("0.4", "0.6")]
        for what in ("best mean", "paper mean")
    )
    assert (
        f"has {ours[0]:.2f} at 0.4 (paper {theirs[0]:.2f}) and {ours[1]:.2f} at 0.6 "
        f"(paper {theirs[1]:.2f})"
    ) in text("cal")
    stage = epochs("table3/cifar10/0.6/covariance/0", "cal")
    before = [each["test_accuracy"] for each in stage[20:60]]
    steps = [abs(b - a) for a, b in itertools.pairwise(before)]
    assert max(steps) > 0.1
    assert {each["lr"] for each in stage[:60]} == {0.1}


def test_ce_is_where_the_papers_table_3_is() -> None:
    theirs = [cell(TABLE3, "neither", f"cifar10/{rate}")["paper mean"] for rate in RATES]
    said = text("ce")
    assert f"{theirs[0]}, {theirs[1]} and {theirs[2]} at 0.2, 0.4 and 0.6" in said
    columns = [f"cifar{k}/{rate}" for k in (10, 100) for rate in RATES]
    assert sum(cell(TABLE1, "ce", column)["difference"] > 0 for column in columns) == 5
    assert "At five of six rates our best epoch is above" in said
    ours = [cell(TABLE1, "ce", f"cifar10/{rate}")["best mean"] for rate in RATES]
    table1 = [cell(TABLE1, "ce", f"cifar10/{rate}")["paper mean"] for rate in RATES]
    for mine, third, first in zip(ours, theirs, table1, strict=True):
        assert abs(mine - third) < 2 < abs(mine - first)
    after = [best(epochs(f"table1/{column}/ce/0", "ce"))["epoch"] - 59 for column in columns]
    assert (min(after), max(after)) == (3, 5)
    assert "third to fifth after the cut" in said


def test_cores_on_cifar_100_is_of_another_form() -> None:
    stage = epochs("table1/cifar100/0.2/cores/0", "cores")
    assert {each["beta"] for each in stage[40:]} == {10.0}
    assert stage[45]["lr"] * 11 == pytest.approx(0.1)
    sieves = [percent(best(epochs(f"table1/cifar100/{rate}/cal/0", "sieve"))) for rate in RATES]
    assert f"{sieves[0]}, {sieves[1]} and {sieves[2]} at its best epochs" in text("cores")
    for name, value in (("paper", 10), ("published", 2), ("recommended", 2)):
        assert preset(name, "cores", "cifar100").beta.value == value  # type: ignore[attr-defined]
    cal: Any = preset("published", "cal", "cifar100")
    assert (cal.sieve_beta.value, cal.prior_scale) == (1, 10)


def test_forward_is_above_the_paper() -> None:
    found, trial = cell(TABLE1, "forward", "cifar10/0.4"), "table1/cifar10/0.4/forward/0"
    stage, said = epochs(trial, "forward"), text("forward")
    assert found["n"] == 1
    assert f"ours is {found['difference']:.2f} points above the paper's mean" in said
    assert best(stage)["epoch"] - 59 == 3
    assert f"and {found['best mean'] - found['last mean']:.2f} points are lost by the last" in said
    facts, noise = (
        json.loads((RESULTS / trial / name).read_text(encoding="utf-8"))[part]["transition"]
        for name, part in (("result.json", "facts"), ("config.json", "noise"))
    )
    true, ours = ([row[2] for i, row in enumerate(each) if i != 2] for each in (noise, facts))
    assert f"{min(true):.2f} to {max(true):.2f} are labelled bird" in said
    assert f"it says {min(ours):.2f} to {max(ours):.2f}" in said


def test_peer_loss_is_above_the_paper() -> None:
    found = [cell(TABLE1, "peer", f"cifar10/{rate}") for rate in RATES]
    above = [f"{each['difference']:.2f}" for each in found]
    assert {each["n"] for each in found} == {1}
    assert f"{above[0]}, {above[1]} and {above[2]} points above the paper's means" in text("peer")
    deviations = [each["difference"] / each["paper std"] for each in found]
    assert f"At 0.4 these are {deviations[1]:.1f} of the paper's standard" in text("peer")
    assert max(deviations[0], deviations[2]) < 2


def test_gce_begins_with_one_class() -> None:
    found = cell(TABLE1, "gce", "cifar10/0.4")
    stage = epochs("table1/cifar10/0.4/gce/0", "gce")
    at = [f"{100 * stage[epoch]['test_accuracy']:.1f} % in epoch {epoch}" for epoch in (5, 10)]
    assert ", ".join(at) in text("gce")
    assert f"{-found['difference']:.2f} points below the paper's mean" in text("gce")


def test_jocor_stays_at_chance() -> None:
    found = cell(TABLE1, "jocor", "cifar10/0.4")
    stage = [each["test_accuracy"] for each in epochs("table1/cifar10/0.4/jocor/0", "jocor")]
    near = next(n for n, accuracy in enumerate(stage) if abs(accuracy - 0.1) > 0.005)
    assert f"within half a point of chance for {near} epochs" in text("jocor")
    assert f"{-found['difference']:.2f} points below the paper's mean" in text("jocor")
    for name in PRESETS:
        assert preset(name, "jocor", "cifar10").agreement == 0.9  # type: ignore[attr-defined]


def test_reweight_r_has_the_figure_of_its_last_stage() -> None:
    found, trial = cell(TABLE1, "reweight_r", "cifar10/0.4"), "table1/cifar10/0.4/reweight_r/0"
    assert percent(best(epochs(trial, "revision"))) == f"{found['best mean']:.2f}"
    before = percent(best(epochs(trial, "reweight")))
    assert f"The stage before it has {before} at its best epoch" in text("reweight_r")
    assert f"{-found['difference']:.2f} points below the paper's mean" in text("reweight_r")
    assert -found["difference"] < found["paper std"]


# ---- What presets do --------------------------------------------------------------------------


def test_dmi_has_no_gradient_from_128_examples_of_100_classes() -> None:
    for name in ("paper", "published"):
        assert preset(name, "dmi", "cifar100").plan.batch_size == 128  # type: ignore[attr-defined]
    larger: Any = preset("recommended", "dmi", "cifar100")
    assert larger.plan.batch_size == 1000
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(50_000)[torch.randperm(50_000, generator=draw)] % 100
    batches = labels.split(128)[:-1]
    assert max(len(y.unique()) for y in batches) < 90  # far from all of them
    objective = Determinant(100, 128)
    for y in batches[:3]:
        logits = torch.randn(128, 100, generator=draw, requires_grad=True)
        objective(Outputs(logits), Batch(logits, y, torch.arange(128))).backward()
        assert logits.grad is not None
        assert not logits.grad.any()
    assert int(objective.singular) == 3


def test_published_is_as_paper_where_the_index_says_so() -> None:
    same = {
        name
        for name in METHODS
        if all(preset("paper", name, data) == preset("published", name, data) for data in DATA)
    }
    assert same == {"ce", "forward", "gce", "dmi", "peer"}
    assert "For CE, Forward, GCE, L_DMI and Peer loss it is the same as `paper`" in text("index")


def test_published_leaves_networks_and_images_to_the_protocol() -> None:
    made = protocol("published", "cifar10")
    assert (made.net, made.augmentation) == ("resnet34", {"crop": 4, "flip": True})
    for name in ("coteaching", "coteaching_plus", "jocor"):
        plan = preset("published", name, "cifar10").plan  # type: ignore[attr-defined]
        assert (plan.epochs, plan.optimizer, plan.lr_milestones) == (200, "adam", ())
        said = text(name)
        assert "the falling learning rate and the other $\\beta_1$, which a plan cannot say" in said
        assert "it trains a ResNet-34 on images that are cropped" in said
    off = "augmentation.crop=0 augmentation.flip=false"
    assert f"`--set {off}`" in text("ptd")
    table4 = (DOCS.parent / "benchmarks" / "table4.toml").read_text(encoding="utf-8")
    assert all(f'"{setting}"' in table4 for setting in off.split())


def test_the_baselines_see_as_much_of_clothing1m_as_cals_first_stage() -> None:
    cal: Any = preset("paper", "cal", "clothing1m")
    plan = cal.sieve_plan
    assert (plan.epochs, cal.sieve_balanced_batches, plan.batch_size) == (120, 1000, 32)
    assert "120 epochs of 1,000 batches of 32 are four epochs over the million" in text("index")
    assert preset("paper", "ce", "clothing1m").plan.epochs == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", METHODS)
def test_the_table_of_presets_says_all_that_they_set(name: str) -> None:
    """Settings that all have in common are in a row of their own."""
    rows, own = (
        list(changes(name)),
        dict((leaf.path, leaf.value) for leaf in leaves(METHODS[name]())),
    )
    for data in DATA:
        for source in PRESETS:
            said = {
                setting
                for kind, names, sets in rows
                if kind == data and {"*all*", source} & set(names.split(", "))
                for setting in re.findall(r"`(.+?)`", sets)
            }
            made = leaves(preset(source, name, data))
            assert said == {
                f"{leaf.path}={as_text(leaf.value)}"
                for leaf in made
                if leaf.value != own[leaf.path]
            }


def test_every_field_says_what_it_is() -> None:
    for kind in (Plan, Ramp, *METHODS.values()):
        said = meanings(kind)
        speak_for_themselves = {"optimizer"} if kind is Plan else set()
        assert {each.name for each in fields(kind)} - set(said) == speak_for_themselves, kind


# ---- Papers and code --------------------------------------------------------------------------


def test_every_method_has_its_paper_and_code() -> None:
    assert {*PAPERS, *ALSO} == set(CODE) == set(METHODS)
    assert len({paper.arxiv for paper in PAPERS.values()}) == len(PAPERS)
    for name in METHODS:
        assert f"## Sources\n\n<!-- generated: sources {name} -->" in page(f"methods/{name}.md")
        paper = PAPERS.get(name) or ALSO[name]
        assert re.fullmatch(r"\d{4}\.\d{5}", paper.arxiv)
        assert paper.venue[-4:] in paper.cited
        family = paper.authors.partition(",")[0].split()[-1]
        assert paper.cited.startswith(family)
        if name in PAPERS:
            assert f"{paper.cited.split()[-1]}: " in text(name)


def test_measured_comes_before_the_defaults() -> None:
    for name in METHODS:
        headings = re.findall(r"^## (.+)$", page(f"methods/{name}.md"), re.MULTILINE)
        assert headings == [
            *("What is minimised", "Algorithm", "The three sources"),
            *("Measured", "Defaults", "Sources"),
        ]


def test_links_to_the_theory_lead_to_the_section_that_they_name() -> None:
    for path in sorted(Path(DOCS / "methods").glob("*.md")):
        for number, anchor in re.findall(
            r"\[Sec[a-z.]*\s+(\d+)[^]]*\]\(\.\./theory\.md#(\d+)-", path.read_text("utf-8")
        ):
            assert number == anchor, path.name
    assert "drops out ([Section 13 of the theory](../theory.md#13-given" in text("cal")
