"""What came out of a run, in sentences for a reader who does not train networks."""

from typing import TYPE_CHECKING

from covlearn.records import Result

if TYPE_CHECKING:
    from covlearn.fitted import FitResult

CROSS_FITTED = "covlearn.methods.crossfit:CrossFittedCAL"


def of_fit(result: "FitResult") -> list[str]:
    """The outcome of ``covlearn fit``."""
    count = result.decisions
    lines = [f"{result.examples:,} examples, {result.classes:,} classes."]
    if result.evidence["found"]:
        lines += [
            f"About {percent(result.noise_rate, 0)} of the labels look wrong.",
            f"{labels(count['relabel'])} could be repaired, {count['drop']:,} should be dropped, "
            f"{count['review']:,} should be looked at by a person.",
        ]
        if 2 * result.evidence.get("contradicted", 0) > result.evidence.get("surest", 0):
            lines.append(
                "Look at some before you believe it: where the model is surest, most labels are "
                "others. Either most are wrong, or the inputs do not tell the classes apart."
            )
    else:
        learned = result.evidence.get("learned", True)
        what = "No evidence that labels are wrong" if learned else "The labels could not be judged"
        lines.append(f"{what}: none was changed.")
        if count["review"]:
            verb = "stands" if count["review"] == 1 else "stand"
            few = percent(result.evidence.get("tolerated", 0.02), 1).replace(".0", "")
            lines.append(
                f"{labels(count['review'])} {verb} out and should be looked at by a person."
            )
            if learned:
                lines.append(
                    f"Where {few} or fewer of the labels are wrong, that cannot be told from "
                    "errors of the model: such labels would be among these."
                )
    return [*lines, f"Why: {result.evidence['sentence']}."]


def of_train(result: Result | None, noise_rate: float | None) -> list[str]:
    """The outcome of ``covlearn train``."""
    if result is None:
        return ["The run is not finished: this is what it has written so far."]
    lines = [
        f"The network that {method(result.method)} returned is right on "
        f"{percent(result.returned.value, 1)} of the test examples."
    ]
    if noise_rate is not None:
        lines.append(f"{percent(noise_rate, 1)} of the training labels are wrong.")
    if result.memorisation is not None:
        lines.append(
            f"It learned {percent(result.memorisation, 1)} of the wrong labels by heart, as of the "
            "last epoch."
        )
    if result.labels is not None:
        quality = result.labels["quality"]
        lines.append(f"{percent(result.labels['changed'], 1)} of the labels were changed.")
        if quality is not None:
            lines.append(
                f"Of the labels called wrong {percent(quality['precision'], 1)} are wrong, and of "
                f"those that are wrong {percent(quality['recall'], 1)} were found."
            )
    return lines


def method(name: str) -> str:
    """A method as one calls it.

    >>> method("covlearn.methods.crossfit:CrossFittedCAL"), method("ce")
    ('cal, cross-fitted', 'ce')
    """
    return "cal, cross-fitted" if name == CROSS_FITTED else name


def labels(count: int) -> str:
    """``1 label``, ``2 labels``."""
    return "1 label" if count == 1 else f"{count:,} labels"


def percent(share: float | None, digits: int) -> str:
    """A share in per cent, with a space before the sign.

    >>> percent(0.1234, 1)
    '12.3 %'
    """
    return "unknown" if share is None else f"{100 * share:.{digits}f} %"
