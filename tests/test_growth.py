"""The model of benchmarks/growth.py gives back what was measured, and the page says what it says."""

import dataclasses
import itertools
import json
import re
from typing import Any

import pytest
import torch

from benchmarks import growth
from benchmarks.collectives import all_reduce_seconds, fit
from benchmarks.growth_model import (
    CASES,
    CIFAR,
    CIFAR_STEPS,
    CLOTHING,
    ENGINES,
    GPUS,
    IMAGENET,
    LEDGER_BYTES,
    RESULTS,
    Costs,
    Engine,
    Stage,
    compute_seconds,
    costs_of,
    epoch,
    evaluation_seconds,
    gradient_seconds,
    launch_seconds,
    ledger_seconds,
    measured,
    reading_seconds,
    recipe,
    steps,
    work_of,
)
from covlearn import distributed
from covlearn.ledger import Ledger
from covlearn.methods.cal import CAL
from covlearn.methods.presets import preset

RECORD: dict[str, Any] = json.loads(growth.PLACE.read_text(encoding="utf-8"))
COLLECTIVES = json.loads((RESULTS / "scale" / "collectives.json").read_text(encoding="utf-8"))
PAGE = growth.PAGE.read_text(encoding="utf-8")
TOLERANCE = 0.1  # of what was measured on one H200


@pytest.fixture(scope="module")
def costs() -> list[Costs]:
    return [costs_of(view, measured()) for view in range(3)]


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        leaves = [flat(part, f"{path}/{key}") for key, part in value.items()]
        return {place: leaf for each in leaves for place, leaf in each.items()}
    return {path: value}


# ---- Against what was measured ----------------------------------------------------------------


def test_an_epoch_of_cifar_on_one_gpu_is_the_measured_one(costs: list[Costs]) -> None:
    figures = json.loads((RESULTS / "speed" / "epoch_cost.json").read_text())["figures"]
    for engine, name in ((Engine(captured=True), "ce, K = 10"), (Engine(), "eager ce, K = 10")):
        parts = epoch(CIFAR, CIFAR.stages[0], 1, costs[1], engine)
        training = sum(parts.values()) - parts["evaluation"]
        assert training == pytest.approx(figures[name]["epoch, s"], rel=1e-6)  # it was fitted to it


def test_it_was_not_fitted_to_these(costs: list[Costs]) -> None:
    found = {name: row for name, row in growth.checks(costs[1]).items() if "CIFAR" in name}
    assert len(found) == 6
    for name, row in found.items():
        assert row["ratio"] == pytest.approx(1, abs=TOLERANCE), name


def test_a_step_of_clothing1m_would_be_checked(costs: list[Costs]) -> None:
    row = growth.check_step({"ms_a_step_of_a_batch_at_hand": 50.0}, costs[1])
    assert row["measured"] == 0.05
    parts = epoch(CLOTHING, CLOTHING.stages[0], 1, costs[1], Engine())
    assert row["modelled"] * 1000 == pytest.approx(parts["compute"] + parts["launches"])


def test_the_line_of_the_all_reduce_goes_through_its_ends() -> None:
    for name, found in COLLECTIVES["figures"].items():
        seconds = {int(size): value for size, value in found["seconds, least"].items()}
        line = fit(seconds, int(name.split()[0]))
        assert line == found["line"]
        for size in (min(seconds), max(seconds)):
            modelled = all_reduce_seconds(size, int(name.split()[0]), *line.values())
            assert modelled == pytest.approx(seconds[size], rel=1e-3)
    with pytest.raises(ValueError, match="must take longer"):
        fit({4: 0.2, 4000: 0.1}, 2)


# ---- The terms --------------------------------------------------------------------------------


def test_counts_are_those_of_the_networks() -> None:
    # He et al. give 4.1e9 products at 224²; torchvision's ResNet-50 has 25,557,032 parameters.
    work = work_of("resnet50_imagenet", 1000, 224)
    assert work.products == pytest.approx(4.1e9, rel=0.01)
    assert work.parameters == 25_557_032
    assert work.layers == 54
    # One 7×7 stride-2 layer has 64·112² outputs of 3·49 products; the whole has far more.
    assert work.outputs > 64 * 112**2


def test_terms_by_hand() -> None:
    costs = Costs(
        a_product=0.0,
        an_output=1e-12,
        a_launched_layer=1e-3,
        a_launched_layer_forward=1e-4,
        a_captured_layer=1e-5,
        an_image_read=2e-3,
        an_example_ordered=1e-7,
        near_latency=1e-5,
        near_bandwidth=1e11,
        far_latency=1e-4,
        far_bandwidth=1e10,
        workers_a_gpu=15,
        gpus_a_machine=8,
        dollars_a_gpu_hour=3.0,
    )
    work = work_of("resnet50_imagenet", 14, 224)
    sieve = CLOTHING.stages[0]
    assert steps(CLOTHING, sieve, 1) == steps(CLOTHING, sieve, 8) == 1000
    assert steps(IMAGENET, IMAGENET.stages[0], 64) == 157
    assert compute_seconds(CLOTHING, sieve, 8, costs) == pytest.approx(8000 * work.outputs * 1e-12)
    assert launch_seconds(CLOTHING, sieve, 8, costs) == pytest.approx(1000 * 2 * 54 * 1e-3)
    a_step = 1e-5 + 1.75 * 4 * work.parameters / 1e11 + 2 * (1e-5 + 1.75 * 56 / 1e11)
    assert gradient_seconds(CLOTHING, sieve, 8, costs) == pytest.approx(1000 * a_step)
    assert gradient_seconds(CLOTHING, sieve, 1, costs) == 0
    # Of 4,000 images a GPU seven in eight partners are another GPU's, and are read as well.
    read = 4000 * (1 + 7 / 8) * 2e-3 / 15
    assert reading_seconds(CLOTHING, sieve, 8, costs) == pytest.approx(read)
    assert reading_seconds(CIFAR, CIFAR.stages[0], 1, costs) == 0
    merged = 1e-4 * 5 + 2 * 63 / 64 * 24 * 1_281_167 / 1e10 + 0.1281167
    assert ledger_seconds(IMAGENET, 64, costs) == pytest.approx(merged)
    # Reading is the slowest part of evaluation, and every process does all of it unless shared.
    whole = 50_000 * 2e-3 / 15
    assert evaluation_seconds(IMAGENET, 50_000, 64, costs) == pytest.approx(whole)
    shared = evaluation_seconds(IMAGENET, 50_000, 64, costs, shared=True)
    assert shared == pytest.approx(whole * 782 / 50_000)


def test_reading_is_waited_for_when_it_is_slowest(costs: list[Costs]) -> None:
    slow = dataclasses.replace(costs[1], an_image_read=1.0)
    parts = epoch(IMAGENET, IMAGENET.stages[0], 8, slow, Engine())
    stepping = sum(parts[p] for p in ("compute", "all-reduce", "launches", "reading"))
    assert stepping == pytest.approx(1_281_167 / 8 / 15)


def test_the_recipes_are_those_of_the_presets() -> None:
    cal = preset("published", "cal", "clothing1m")
    assert isinstance(cal, CAL)
    sieve, second = CLOTHING.stages
    assert (sieve.epochs, second.epochs) == (cal.sieve_plan.epochs, cal.plan.epochs)
    assert CLOTHING.batch == cal.plan.batch_size == cal.sieve_plan.batch_size
    assert cal.sieve_balanced_batches is not None
    assert sieve.images == cal.sieve_balanced_batches * CLOTHING.batch
    assert sieve.passes == 1 + cal.sieve_mixup
    assert cal.balanced_subset is not None
    assert second.images == 14 * cal.balanced_subset
    assert cal.scores == "evaluation"  # a pass over all examples
    cifar = preset("published", "cal", "cifar10")
    assert isinstance(cifar, CAL)
    assert [s.epochs for s in CIFAR.stages] == [cifar.sieve_plan.epochs, cifar.plan.epochs]
    assert steps(CIFAR, CIFAR.stages[0], 1) == CIFAR_STEPS


@pytest.mark.parametrize("name", CASES)
def test_it_grows_as_it_should(name: str, costs: list[Costs]) -> None:
    case = CASES[name]
    stage = case.stages[0]
    for gpus in GPUS[name]:
        for engine in ENGINES.values():
            low, likely, high = (sum(recipe(case, gpus, each, engine).values()) for each in costs)
            assert low <= likely <= high
            assert all(seconds >= 0 for seconds in recipe(case, gpus, costs[1], engine).values())
            twice = dataclasses.replace(stage, images=2 * stage.images)
            once, more = (
                sum(epoch(case, each, gpus, costs[1], engine).values()) for each in (stage, twice)
            )
            assert once < more
        shared = sum(recipe(case, gpus, costs[1], ENGINES["both"]).values())
        assert shared <= sum(recipe(case, gpus, costs[1], ENGINES["as it is"]).values())
    # As it is, another GPU never makes an epoch of these longer.
    hours = [sum(recipe(case, gpus, costs[1], Engine()).values()) for gpus in GPUS[name]]
    assert all(more <= less * 1.001 for less, more in itertools.pairwise(hours))


def test_an_all_reduce_grows_with_bytes_and_processes() -> None:
    assert all_reduce_seconds(1e9, 1, 1e-5, 1e9) == 0
    seconds = [all_reduce_seconds(1e9, g, 1e-5, 1e9) for g in (2, 4, 8, 64)]
    assert seconds == sorted(seconds)
    assert seconds[-1] < 2 + 1e-4  # never more than twice the bytes
    assert all_reduce_seconds(2e9, 4, 0, 1e9) == 2 * all_reduce_seconds(1e9, 4, 0, 1e9)


def test_the_ledger_sums_as_many_bytes_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[int] = []

    def seen(values: torch.Tensor) -> torch.Tensor:
        summed.append(values.numel() * values.element_size())
        return values

    monkeypatch.setattr(distributed, "sum_of", seen)
    monkeypatch.setattr(distributed, "max_of", seen)
    ledger = Ledger(10)
    ledger.merge(torch.full((10,), -1), ledger.learned.clone())
    assert (sum(summed), len(summed)) == (10 * LEDGER_BYTES, 5)


def test_mixup_reads_no_partner_twice_in_one_process(costs: list[Costs]) -> None:
    plain, mixed = Stage("plain", 1, 32_000), Stage("mixed", 1, 32_000, passes=2)
    one, other = (reading_seconds(CLOTHING, each, 1, costs[1]) for each in (plain, mixed))
    assert one == other


# ---- The file and the page --------------------------------------------------------------------


def test_file_agrees_with_the_code() -> None:
    written, computed = flat(RECORD), flat(growth.make_record())
    assert written.keys() == computed.keys()
    for path, value in computed.items():
        expected = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        assert written[path] == expected, f"{path}: run python -m benchmarks.growth"


def test_page_agrees_with_the_file() -> None:
    made = growth.blocks(RECORD, COLLECTIVES)
    assert growth.fill(PAGE, made) == PAGE, "run python -m benchmarks.growth"
    blocks = [match[2] for match in re.finditer(growth.BLOCK, PAGE, flags=re.DOTALL)]
    assert sorted(blocks) == sorted(made)  # each once


def test_what_the_page_concludes_is_what_the_model_says() -> None:
    clothing, imagenet = (RECORD["cases"][name] for name in CASES)
    hours = [row["hours"]["likely"] for row in clothing["by number of GPUs"].values()]
    assert hours[0] < min(hours[1:]) / 3, "more GPUs do harm"
    assert max(hours[1:]) < 1.01 * min(hours[1:])
    largest = [row["largest part"] for row in clothing["by number of GPUs"].values()]
    assert largest == ["compute", "launches", "launches", "launches"]
    assert clothing["engines"]["captured steps"]["hours"]["likely"] < hours[-1] / 3
    at_64 = imagenet["by number of GPUs"]["64"]
    assert at_64["largest part"] == "evaluation"
    shared = imagenet["engines"]["evaluation shared"]["hours"]["likely"]
    assert shared < 0.75 * at_64["hours"]["likely"]
    cores = RECORD["measured"]["cores beside the GPU"]["value"]
    for case in (clothing, imagenet):
        assert case["needs"]["cores a GPU, as it is"] < cores
        assert case["needs"]["cores a GPU that never waits"]["high"] > cores


def test_prose_has_no_figures_of_its_own() -> None:
    growth_on_paper = PAGE.partition("## Growth on paper")[2]
    prose = re.sub(growth.BLOCK, "", growth_on_paper, flags=re.DOTALL)
    assert re.findall(r"\d+\.\d+|\d ?%|\d hours", prose) == []


def test_figure_is_drawn(tmp_path: Any) -> None:
    growth.draw(RECORD, COLLECTIVES, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
