"""Draws the pictures of docs/theory.md and fills its tables, all from ``covlearn.theory``.

Run ``python docs/draw_theory.py`` after a change: it writes docs/figures/*.png, results/theory.json
and the blocks of docs/theory.md between ``<!-- example: name -->`` and ``<!-- end -->``. A test
holds page, file and code together.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from covlearn import theory
from covlearn.theory import Problem, Statement, examples, objectives
from covlearn.theory.objectives import worst_error
from covlearn.theory.problem import Floats

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "theory.md"
NUMBERS = ROOT / "results" / "theory.json"
FIGURES = ROOT / "docs" / "figures"
RED, BLUE, GREY, LIGHT = "#c0392b", "#2471a3", "#7f8c8d", "#d5d8dc"

Block = dict[str, Any]  # any of: columns and rows, statements, facts; each is one table
WEIGHTED = {"peer loss": objectives.peer, "CAL": objectives.cal, "clean labels": objectives.bayes}


# --- the numbers ---------------------------------------------------------------------------------


def numbers() -> dict[str, Block]:
    """Every table of the page by name, computed."""
    return peer_blocks() | decoupling_blocks() | part_blocks() | proxy_blocks() | strength_blocks()


def peer_blocks() -> dict[str, Block]:
    """Peer loss on D*, invariance, the peer bound, optimality."""
    one_class, flipped = examples.one_class(), examples.flipped()
    corner, _ = examples.noisy_corner()
    wrong_in_corner = theory.zero_one(corner, [0, 1, 1, 0])
    sharp, misled = examples.sharp_peer(), examples.misleading_counterfactual()
    z1 = theory.z1(misled)
    return {
        "one_class": points(one_class)
        | facts(
            worst_minimiser_of_peer_loss_on_Bayes_labels=theory.peer_optimality(one_class),
            worst_minimiser_of_printed_CAL_risk=theory.optimality(one_class),
        ),
        "invariance": points(corner, {"$f$": signed([0, 1, 1, 0])})
        | facts(
            invariance=theory.invariance(corner, wrong_in_corner),
            with_covariances=theory.decoupling(corner, wrong_in_corner),
        ),
        "flipped": points(flipped)
        | facts(
            peer_bound=theory.peer_bound(flipped),
            worst_minimiser_of_printed_CAL_risk=theory.optimality(flipped),
        ),
        "sharp_peer": points(sharp)
        | facts(printed=theory.peer_bound(sharp), repaired=theory.peer_bound_repaired(sharp)),
        "optimality": points(misled, {"$Z_1(x)$": z1})
        | facts(
            worst_minimiser_of_printed_CAL_risk=theory.optimality(misled),
            worst_minimiser_of_repaired_CAL_risk=theory.cal_optimality(misled),
            error_of_peer_loss=worst_error(misled, objectives.peer(misled)),
            mean_of_Z1=misled.mean(z1),
            mean_of_Z1_given_minus=misled.mean(z1, given=0),
        ),
    }


def decoupling_blocks() -> dict[str, Block]:
    """Binary and K-class decoupling, and what the structure of T is needed for."""
    blocks = {}
    for name in ("noisier_class", "other_counterfactuals"):
        problem = getattr(examples, name)()
        blocks[name] = points(problem, {"$f$": signed([1, 1])}) | facts(
            printed=theory.binary_decoupling(problem, [1, 1]),
            repaired=theory.binary_decoupling_repaired(problem, [1, 1]),
            δ=theory.missing_covariance(problem),
        )
    pairs, misled = examples.pair_flips(), examples.misleading_counterfactual()
    next_class, right = theory.zero_one(pairs, [1, 2, 0]), theory.zero_one(misled, misled.clean)
    bare = examples.no_structure()
    transition, prior = bare.class_transition, bare.noisy_prior
    return blocks | {
        "pair_flips": class_rows(pairs)
        | facts(
            printed=theory.decoupling_printed(pairs, next_class),
            repaired=theory.decoupling_repaired(pairs, next_class),
            mean_over_all_points_has_structure=theory.has_structure(pairs.mean_transition),
            mean_given_the_class_has_structure=theory.has_structure(pairs.class_transition),
        ),
        "two_means": points(misled, {"$f$": signed(misled.clean)})
        | facts(
            mean_over_all_points=theory.decoupling_printed(misled, right),
            mean_given_the_class=theory.decoupling(misled, right),
        ),
        "no_structure": class_rows(bare)
        | facts(
            worst_minimiser_of_CAL_risk=theory.cal_optimality(bare),
            T00_minus_T01=transition[0, 0] - transition[0, 1],
            π0_minus_π1=prior[0] - prior[1],
            highest_β=theory.beta_interval(transition, prior)[1],
        ),
    }


def part_blocks() -> dict[str, Block]:
    """Down-weighting, and the problems of the first two pictures."""
    parted, part = examples.two_parts()
    weight = theory.effective_weight(parted)
    regions, (_, boundary) = examples.regions(), examples.hard_boundary()
    price = [relative_price(regions, coefficient(regions)) for coefficient in WEIGHTED.values()]
    columns = [objectives.flips(regions)[0], theory.effective_weight(regions), *price]
    rows = np.array(columns).T[::2]  # the two classes of a region have the same numbers
    return {
        "two_parts": points(parted, {"part": ["I" if s == 1 else "II" for s in part]})
        | facts(
            printed=theory.part_decoupling(parted, part, parted.clean),
            repaired=theory.part_decoupling_repaired(parted, part, parted.clean),
            peers_within_the_part=theory.part_decoupling_within(parted, part, parted.clean),
            mean_of_the_rate_of_plus=theory.part_rate(parted, part),
            down_weighting_factor=weight[2] / weight[0],
        ),
        "regions": {
            "columns": ["region", "$e_+ = e_-$", "$Z_1/E[Z_1]$", *WEIGHTED],
            "rows": [[str(n), *rounded(row)] for n, row in enumerate(rows, start=1)],
        },
        "hard_boundary": facts(
            highest_noise_rate=objectives.flips(boundary)[0].max(),
            lowest_Z1=theory.z1(boundary).min(),
            noisy_share_of_plus=boundary.noisy_prior[1],
            error_of_peer_loss=worst_error(boundary, objectives.peer(boundary)),
            error_of_CAL=theory.cal_optimality(boundary).left,
        ),
    }


def proxy_blocks() -> dict[str, Block]:
    """CAL with an imperfect D̂."""
    corner, refined = examples.noisy_corner()
    plain, proxy = examples.class_noise_and_proxy()
    counted = objectives.cal_counted(plain, theory.refined_given_x(plain, proxy))
    return {
        "noisy_corner": points(corner, {r"$\hat Y$": signed(refined.argmax(axis=1))})
        | facts(
            printed=theory.imperfect_bound(corner, refined),
            repaired=theory.imperfect_bound_repaired(corner, refined),
            step_of_the_proof=theory.covariance_error(corner, refined, 1 - corner.clean),
            τ=theory.share_right(corner, refined),
            error_of_peer_loss=worst_error(corner, objectives.peer(corner)),
        ),
        "class_noise_and_proxy": points(plain, {r"$\hat Y$": signed(proxy.argmax(axis=1))})
        | facts(
            τ=theory.share_right(plain, proxy),
            printed_bound=theory.imperfect_bound(plain, proxy).right,
            error_of_counted_CAL=worst_error(plain, counted),
            error_of_peer_loss=worst_error(plain, objectives.peer(plain)),
        ),
    }


def strength_blocks() -> dict[str, Block]:
    """The interval of β, and what the cut-off makes of the cross-entropy."""
    even, uneven = np.full(3, 1 / 3), np.array([0.6, 0.3, 0.1])
    equal, unequal = np.full(3, 0.1), np.array([0.4, 0.1, 0.1])
    intervals = []
    for prior, e in [(even, equal), (uneven, equal), (even, unequal), (uneven, unequal)]:
        transition = e + (1 - e.sum()) * np.eye(3)
        interval = theory.beta_interval(transition, prior @ transition)
        intervals.append([listed(prior), listed(e), *rounded(interval)])
    row, noisy_prior, outputs = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6]), []
    cut_offs = (1e-5, 1e-1)
    for beta in (0.25, 1.0, 2.0):
        c = row - beta * noisy_prior
        best = [listed(theory.cut_off_minimiser(c, eps=eps)) for eps in cut_offs]
        outputs.append([beta, listed(c), theory.bounded_below(c), *best])
    one_hot = [theory.one_hot_coefficients((np.ones(1), eps))[0] for eps in (1e-8, 1e-5)]
    return {
        "beta": {
            "columns": ["$P$", "$e$", r"lowest $\beta$", r"highest $\beta$"],
            "rows": intervals,
        },
        "cut_off": {
            "columns": [
                r"$\beta$",
                "$c$",
                "bounded below",
                *(rf"$p$, $\epsilon=10^{{{math.log10(eps):.0f}}}$" for eps in cut_offs),
            ],
            "rows": outputs,
        },
        "two_cut_offs": facts(
            weight_of_the_first_term=one_hot[0],
            weight_of_the_other_terms=one_hot[1],
            ratio=one_hot[1] / one_hot[0],
        ),
    }


def points(problem: Problem, more: dict[str, Any] | None = None) -> Block:
    """One row a point: mass, Y*, e₊, e₋, and the columns that the example adds."""
    plus, minus = objectives.flips(problem)
    columns: dict[str, Any] = {"mass": problem.mass, "$Y^*$": signed(problem.clean)}
    columns |= {"$e_+(x)$": plus, "$e_-(x)$": minus} | (more or {})
    rows = [list(row) for row in zip(*map(rounded, columns.values()), strict=True)]
    return {"columns": list(columns), "rows": rows}


def class_rows(problem: Problem) -> Block:
    """One row a class: its share and its row of E[T(X) | Y*]."""
    rows = [[str(i), *rounded([problem.prior[i], *problem.class_transition[i]])] for i in range(3)]
    return {"columns": ["class $i$", "$P_i$", "$T_{i0}$", "$T_{i1}$", "$T_{i2}$"], "rows": rows}


def facts(**named: Any) -> Block:
    """Named statements (both sides, and whether they hold) and named numbers."""
    statements, single = {}, {}
    for key, value in named.items():
        name = key.replace("_", " ")
        if isinstance(value, Statement):
            relation = "=" if value.relation == "=" else "≤"
            statements[name] = [*rounded([value.left, relation, value.right]), value.holds]
        else:
            single[name] = value if isinstance(value, bool) else rounded([value])[0]
    return {"statements": statements, "facts": single}


def signed(labels: Any) -> list[str]:
    """The paper's names of the binary classes."""
    return ["+1" if label else "−1" for label in labels]


def rounded(values: Any) -> list[Any]:
    """Plain numbers free of rounding dust; text stays, infinity becomes text for JSON's sake."""
    named = {math.inf: "∞", -math.inf: "−∞"}
    return [
        v if isinstance(v, str) else named.get(float(v), round(float(v), 10) + 0.0) for v in values
    ]


def listed(values: Any) -> str:
    """A short vector as text."""
    return "(" + ", ".join(shown(value, digits=3) for value in rounded(values)) + ")"


def relative_price(problem: Problem, coefficient: Floats) -> Floats:
    """What an error at x costs, relative to its mean over all points."""
    price = theory.error_price(problem, coefficient)
    return price / problem.mean(price)


# --- the page ------------------------------------------------------------------------------------


def fill(page: str, blocks: dict[str, Block]) -> str:
    """The page with every block between its two marks written anew."""

    def written(match: re.Match[str]) -> str:
        return f"{match[1]}\n{markdown(blocks[match[2]])}\n{match[3]}"

    return re.sub(BLOCK, written, page, flags=re.DOTALL)


BLOCK = r"(<!-- example: (\w+) -->)\n.*?(<!-- end -->)"


def markdown(block: Block) -> str:
    """A block as Markdown tables."""
    tables = []
    if "rows" in block:
        tables.append(table(block["columns"], block["rows"]))
    if block.get("statements"):
        rows = [[name, *cells] for name, cells in block["statements"].items()]
        tables.append(table(["statement", "left", "", "right", "holds"], rows))
    if block.get("facts"):
        tables.append(table(["quantity", "value"], list(block["facts"].items())))
    return "\n\n".join(tables)


def table(columns: list[str], rows: Any) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *([shown(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(cell: Any, digits: int = 4) -> str:
    """A cell as the page prints it, with a true minus sign."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return cell if isinstance(cell, str) else f"{cell:.{digits}g}".replace("-", "−")


# --- the pictures --------------------------------------------------------------------------------


def draw_down_weighting(path: Path) -> None:
    """Noise by region, and what an error there costs under peer loss and under CAL."""
    problem, regions = examples.regions(), np.arange(1, 6)
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3), width_ratios=[1, 2])
    left.bar(regions, objectives.flips(problem)[0][::2], color=GREY)
    left.set(xlabel="region", ylabel="noise rate  $e_+ = e_-$", title="the noise", xticks=regions)
    for name, shift, colour in [("peer loss", -0.2, RED), ("CAL", 0.2, BLUE)]:
        weight = relative_price(problem, WEIGHTED[name](problem))[::2]
        bars = right.bar(regions + shift, weight, 0.38, color=colour, label=name)
        right.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
    right.axhline(1, color="black", lw=1, ls="--", label="clean labels", zorder=0)
    right.set(xlabel="region", ylabel="relative weight", title="weight of an error", ylim=(0, 2.1))
    right.legend(frameon=False)
    save(fig, path)


def draw_hard_boundary(path: Path) -> None:
    """Where peer loss picks the wrong class and CAL does not."""
    x, problem = examples.hard_boundary()
    share, levelled = problem.noisy_prior[1], problem.class_transition[problem.clean, 1]
    choice = {"Bayes label": problem.clean}
    choice |= {name: WEIGHTED[name](problem).argmax(axis=1) for name in ("peer loss", "CAL")}
    fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 4.4), sharex=True, height_ratios=[2.4, 1])
    jump = np.diff(problem.clean, prepend=0) != 0
    noisy = np.where(jump, np.nan, problem.noisy[:, 1])
    top.plot(x, noisy, color=RED, lw=3, label=r"$P(\tilde Y=+1\mid x)$")
    levelled = np.where(jump, np.nan, levelled)
    top.plot(x, levelled, color=BLUE, label="the same after the covariance terms")
    label = r"$P(\tilde Y=+1)$: above it, choose $+1$"
    top.axhline(share, color="black", ls="--", lw=1, label=label)
    top.set(ylabel="probability", ylim=(0.25, 1))
    top.legend(frameon=False, loc="upper left")
    for height, labels in enumerate(reversed(choice.values())):
        wrong = labels != problem.clean
        colours = np.where(wrong, RED, np.where(labels == 1, BLUE, LIGHT))
        bottom.bar(x, 0.8, 1 / len(x), height - 0.4, color=colours)
    keys = [Patch(color=colour) for colour in (BLUE, LIGHT, RED)]
    names = ["+1", "−1", "−1, wrong"]
    bottom.legend(keys, names, frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    bottom.set(xlabel="x", xlim=(0, 1), yticks=range(3), yticklabels=[*reversed(choice)])
    save(fig, path)


def draw_imperfect_bound(path: Path) -> None:
    """The printed bound against the truth, when the errors of D̂ sit where the noise is."""
    tau = np.arange(70, 101) / 100
    follows = [examples.growing_proxy(1 - t) for t in tau]
    random = [examples.growing_proxy(1 - t, follows_noise=False) for t in tau]
    truth = np.array([theory.imperfect_bound(*pair).left for pair in follows])
    printed = np.array([theory.imperfect_bound(*pair).right for pair in follows])
    repaired = [theory.imperfect_bound_repaired(*pair).right for pair in follows]
    fig, axes = plt.subplots(figsize=(8, 3.4))
    axes.plot(tau, repaired, color=BLUE, label="repaired bound")
    axes.plot(
        tau, truth, color="black", lw=2.5, label="error, $\\hat D$ wrong\nwhere noise is high"
    )
    axes.plot(tau, printed, color=RED, ls="--", label="bound as printed")
    error = [theory.imperfect_bound(*pair).left for pair in random]
    axes.plot(
        tau, error, color=GREY, lw=2.5, label="error, $\\hat D$ wrong\nat random", clip_on=False
    )
    style: Any = {"color": RED, "alpha": 0.15, "lw": 0, "label": "printed bound\nviolated"}
    axes.fill_between(tau, printed, truth, where=printed < truth, interpolate=True, **style)
    axes.set(xlabel=r"share $\tau$ of right labels in $\hat D$", ylabel=r"$P(f \neq Y^*)$ of CAL")
    axes.set(xlim=(0.7, 1), ylim=(-0.004, 0.18))
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5), labelspacing=0.9)
    save(fig, path)


def save(fig: Any, path: Path) -> None:
    """A small picture whose bytes carry no date."""
    for axes in fig.axes:
        axes.spines[["top", "right"]].set_visible(False)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(fig)


def main() -> None:
    """Write the file of numbers, the tables of the page and the pictures."""
    blocks = numbers()
    NUMBERS.parent.mkdir(exist_ok=True)
    NUMBERS.write_text(json.dumps(blocks, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    mpl.use("Agg")
    draw_down_weighting(FIGURES / "down_weighting.png")
    draw_hard_boundary(FIGURES / "hard_boundary.png")
    draw_imperfect_bound(FIGURES / "imperfect_bound.png")


if __name__ == "__main__":
    main()
