"""What ``covlearn diagnose`` found of a run, where it was asked."""

from pathlib import Path

from covlearn.diagnose.runs import AGREES, DIAGNOSIS
from covlearn.plain_files import read_json


def diagnosed(folder: Path) -> list[str] | None:
    """The verdict in sentences; None where there is no diagnosis in the folder."""
    path = folder / DIAGNOSIS
    if not path.exists():
        return None
    found = read_json(path)
    test, level, cautions = found.get("test"), found.get("level"), found.get("cautions")
    agreement = found.get("agreement")
    numbers = (
        [
            level,
            agreement,
            *(test.get(name, "") for name in ("p_value", "statistic", "null_mean", "draws")),
        ]
        if isinstance(test, dict)
        else [""]
    )
    if (
        not all(isinstance(number, float | int | None) for number in numbers)
        or level is None
        or not isinstance(cautions, list)
        or not all(isinstance(line, str) for line in cautions)
    ):
        raise ValueError(f"{path} must hold a diagnosis of covlearn diagnose; it is damaged")
    _, _, p_value, statistic, null_mean, draws = numbers
    said = [f"{caution}." for caution in cautions]
    if p_value is None or statistic is None or null_mean is None:
        return ["Whether noise depends on the example cannot be tested on these data.", *said]
    answer = "There is no evidence that noise depends on the example."
    if p_value <= level:
        # What casts doubt on it is among the cautions, too.
        doubtful = agreement is not None and agreement < AGREES
        answer = "Noise seems to depend" if doubtful else "Noise depends"
        answer += " on the example: flips depend on the features."
    return [
        f"{answer} Statistic {statistic:.2f}, p = {p_value:.3g}; {draws:,} draws of "
        f"class-dependent noise had a mean of {null_mean:.2f}.",
        *said,
    ]
