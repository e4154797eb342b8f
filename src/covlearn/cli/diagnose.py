"""``covlearn diagnose``."""

import argparse
import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covlearn.cli.progress import step_bars
from covlearn.cli.say import add_allow, one_line, say

if TYPE_CHECKING:
    from covlearn.diagnose import Diagnosis
    from covlearn.fitted import Fitted

NAMES = {"ce": "CE", "forward": "Forward", "cores": "CORES²", "cal": "CAL"}
WIDEST = 10  # classes of a table that is printed
EXAMPLE = """\
example:
  covlearn diagnose runs/cells
  covlearn diagnose runs/flowers --draws 999 --json

Tests whether the flips within a class depend on the features, beyond what errors of the sieve would
bring about: the refined labels are made noisy again by T̂, and the same sieve is run on them. The
source that the run was fitted to must be where it was, and unchanged; a table that is gone is read
from the run itself. Features of images are taken from .covlearn-cache beside the run if they are
there. diagnosis.json in the run folder has the test, the covariances, and of CE, Forward, CORES²
and CAL which one the evidence speaks for, and why.
"""


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "diagnose",
        help="test whether label noise depends on the instance",
        description="Is my noise instance-dependent? A test, and the method that it speaks for.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=diagnose)
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="folder of a run of covlearn fit")
    add("--draws", type=int, default=199, help="of class-dependent noise (default: 199)")
    add("--seed", type=int, default=0, help="of the draws (default: 0)")
    add_allow(parser, "run")
    add("--dry-run", action="store_true", help="say what would be done, and stop")
    add("--json", action="store_true", help="print the diagnosis as one JSON object")


def diagnose(args: argparse.Namespace) -> int:
    """Tests, records and says what it means."""
    from covlearn import records  # noqa: PLC0415
    from covlearn.diagnose import DIAGNOSIS, check_draws, diagnose_run  # noqa: PLC0415
    from covlearn.diagnose.dependence import generator  # noqa: PLC0415
    from covlearn.fitted import load  # noqa: PLC0415
    from covlearn.locks import held  # noqa: PLC0415

    check_draws(args.draws)
    generator(args.seed)  # says no to a seed before data are read
    fitted = load(args.run, allow=args.allow)
    if args.dry_run:
        say(
            f"{fitted.result.examples:,} examples, {fitted.result.classes:,} classes, read from "
            f"{fitted.config['source'].get('path')}; {args.draws} draws of class-dependent noise\n"
            f"nothing was written; without --dry-run it would be in {args.run / DIAGNOSIS}"
        )
        return 0
    with held(args.run), step_bars() as show:
        found = diagnose_run(
            fitted,
            draws=args.draws,
            seed=args.seed,
            progress=lambda done, total: show("draws of noise", done, total),
            reading=lambda done, total, what: show(what, done, total),
        )
        records.write_json(args.run / DIAGNOSIS, found.json())
    said = [*summary(found), f"All numbers: {args.run / DIAGNOSIS}", *next_lines(found, fitted)]
    say(json.dumps(found.json()) if args.json else "\n".join(said))
    return 0


def next_lines(found: "Diagnosis", fitted: "Fitted") -> list[str]:
    """The command that fits with the method that the evidence speaks for.

    The sieves of ``fit`` refine labels by one T̂, whatever flips depend on, and what learns from
    them needs no covariance: where Forward or CAL would do, they do, too.
    """
    from covlearn.report.again import fit_with, option  # noqa: PLC0415
    from covlearn.report.words import CROSS_FITTED  # noqa: PLC0415
    from covlearn.saved import TRUSTED  # noqa: PLC0415

    if not fitted.result.evidence.get("learned", True):
        return [
            f"{fitted.folder} could not judge the labels, since it learned too little from the "
            "inputs: look at these."
        ]
    method = found.recommended
    fitted_by = fitted.config["method"]["name"]
    if method == fitted_by:
        return [f"{fitted.folder} was fitted with {NAMES[method]}: there is nothing to do."]
    if method in ("forward", "cal") and fitted_by == CROSS_FITTED:
        return [
            f"{fitted.folder} was fitted to labels that sieves had refined, which suits either "
            "kind of noise: there is nothing to do."
        ]
    if method == "ce" and fitted_by == CROSS_FITTED and not fitted.result.evidence["found"]:
        return [f"{fitted.folder} was trained on all labels as they are: there is nothing to do."]
    method = "cal" if method == "forward" else method
    (words, note), folder = fit_with(fitted, method), fitted.folder
    if (folder / TRUSTED).exists():
        words += option("trusted", str(folder / TRUSTED))
    words += option("out", str(folder.with_name(f"{folder.name}-{method}")))
    said = ["Next:", f"  {one_line(shlex.join(words))}"]
    return said if note is None else [*said, one_line(note)]


def summary(found: "Diagnosis") -> list[str]:
    """The diagnosis for a reader."""
    test = found.test
    if test.p_value is None or test.statistic is None:
        answer = "Is the noise instance-dependent? It cannot be tested on these data."
    elif test.p_value <= found.level and found.noise_rate == 0:
        answer = (
            "Is the noise instance-dependent? There is no evidence that labels are wrong; what "
            "contradicts them depends on the features."
        )
    elif test.p_value <= found.level and found.doubtful:
        answer = (
            "Is the noise instance-dependent? Perhaps: flips depend on the features, or errors of "
            "the model do, which tells classes apart badly."
        )
    elif test.p_value <= found.level:
        answer = "Is the noise instance-dependent? Yes: flips depend on the features."
    else:
        answer = "Is the noise instance-dependent? No evidence that it is."
    lines = [answer]
    if test.p_value is not None and test.statistic is not None:
        lines.append(
            f"Test: statistic {test.statistic:.2f}, p = {test.p_value:.3g}; {test.draws} draws of "
            f"class-dependent noise had a mean of {test.null_mean:.2f}."
        )
    lines += [
        f"Looked at: {found.features}; {test.sure:,} of {test.examples:,} examples whose class is "
        "sure.",
        "",
        *table(found),
        "",
        *(
            f"{'→' if advice.supported else ' '} {NAMES[advice.method]}: {advice.sentence}."
            for advice in found.methods
        ),
    ]
    lines += [f"Note: {one_line(sentence)}." for sentence in found.cautions]
    return lines


def table(found: "Diagnosis") -> list[str]:
    """The covariances, a row a refined class; of many classes the largest entries only."""
    head = "Cov(T_ij(X), ℓ_j(X) | ŷ = i)"
    classes, rows = [one_line(name) for name in found.classes], found.covariance
    if len(classes) > WIDEST:
        entries = [
            (value, i, j)
            for i, row in enumerate(rows)
            for j, value in enumerate(row)
            if not math.isnan(value)
        ]
        largest = sorted(entries, key=lambda entry: -abs(entry[0]))[:WIDEST]
        return [
            f"{head}, the {len(largest)} largest of {len(classes)}×{len(classes)}:",
            *(f"  {value:+.4f}  ŷ = {classes[i]}, j = {classes[j]}" for value, i, j in largest),
        ]
    width = max(7, *(len(name) for name in classes))
    return [
        f"{head}, ŷ down, j across:",
        " ".join(f"{name:>{width}}" for name in ("", *classes)),
        *(
            " ".join([f"{name:>{width}}", *(f"{value:>{width}.4f}" for value in row)])
            for name, row in zip(classes, rows, strict=True)
        ),
    ]
