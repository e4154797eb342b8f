"""cleanlab: a run's probabilities and features for Datalab, and Datalab's issues as D̂."""

import os
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covlearn.evaluation import digest, said_of, unlabelled
from covlearn.fitted import Fitted, load
from covlearn.inputs import Examples, read_examples
from covlearn.integrations.extras import library
from covlearn.kinds import checked, shown
from covlearn.sieve import Refined

__all__ = ["refined_from_datalab", "to_datalab"]

CACHE = ".covlearn-cache"  # where ``covlearn fit`` keeps features of images, beside the run


@checked
def to_datalab(
    run: Fitted | str | os.PathLike[str],
    *,
    source: Any = None,
    features: bool = True,
    issue_types: dict[str, Any] | None = None,
) -> Any:
    """A ``cleanlab.Datalab`` that has looked for issues in the data of a run of ``covlearn fit``.

    It is handed the probabilities that the run's verdicts rest on, none of which comes from a
    network that was fitted to the label it is about, and the penultimate features of the run's
    network. For those the data is read again: from where it was, or from ``source``, anything that
    ``read_examples`` takes. ``features=False`` does without them, and so without near duplicates;
    outliers are then told by the probabilities.
    """
    datalab = library("cleanlab.datalab.datalab", extra="cleanlab", wanted="to_datalab").Datalab
    fitted = run if isinstance(run, Fitted) else load(run)
    labels, probs = fitted.labels, fitted.probs
    lab = datalab(
        data={"id": labels["id"], "label": labels["given"]}, label_name="label", verbosity=0
    )
    # Datalab has its own order of classes.
    order = [fitted.classes.index(name) for name in lab.class_names]
    probs = probs[:, order] / probs.sum(axis=1, keepdims=True)
    hidden = features_of(fitted, _inputs_again(fitted, source)) if features else None
    with warnings.catch_warnings():
        # What pandas has deprecated is cleanlab's to change, and as an error it would hide issues.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        lab.find_issues(pred_probs=probs, features=hidden, issue_types=issue_types)
    return lab


def features_of(fitted: Fitted, examples: Examples) -> NDArray[np.float32]:
    """What the head of a run's network sees of examples, (N, D)."""
    x = examples.x
    if fitted.standardizer is not None:
        x = torch.from_numpy(fitted.standardizer(x.numpy())).float()
    if not hasattr(fitted.model, "features"):
        raise ValueError(
            f"the network must have features(x), and {fitted.config['net']['name']} has none; pass "
            "features=False"
        )
    _, hidden = said_of(fitted.model, unlabelled(x, fitted.augmentation), features=True)
    assert hidden is not None
    return hidden.numpy()


@checked
def refined_from_datalab(lab: Any, *, classes: Collection[Any] | None = None) -> Refined:
    """D̂ from the label issues that a Datalab found.

    Labels without an issue are kept; those with one become cleanlab's predicted label. They are
    not dropped: of kept labels alone, T̂ is the identity and the covariance term is zero. Numbers
    are positions in ``classes``, which are Datalab's own where none are given: for labels 0…K−1
    the labels themselves. The score is minus cleanlab's label score, so that it is higher for a
    label that is likelier wrong.
    """
    if not hasattr(lab, "get_issues"):
        raise ValueError(f"lab must be a Datalab of cleanlab, got {shown(lab)}")
    try:
        issues = lab.get_issues("label")
    except ValueError as error:
        raise ValueError(
            "the Datalab must have looked for label issues; call lab.find_issues(pred_probs=…)"
        ) from error
    names = list(lab.class_names if classes is None else classes)
    try:
        number = {name: position for position, name in enumerate(names)}
    except TypeError:
        raise ValueError(f"classes must be a sequence of names, got {shown(classes)}") from None
    unknown = {*issues["given_label"], *issues["predicted_label"]} - number.keys()
    if unknown:
        raise ValueError(f"classes must hold every label, got {names} without {min(unknown)!r}")
    given, predicted = (
        torch.tensor([number[name] for name in issues[column]])
        for column in ("given_label", "predicted_label")
    )
    found = torch.from_numpy(issues["is_label_issue"].to_numpy(dtype=bool).copy())
    score = torch.from_numpy(-issues["label_score"].to_numpy(dtype=np.float32))
    return Refined(label=torch.where(found, predicted, given), keep=~found, score=score)


def _inputs_again(fitted: Fitted, source: Any) -> Examples:
    """The run's examples, read by its recipe; refused if they are others by now."""
    asked = fitted.config["source"]
    cache = fitted.folder.absolute().parent / CACHE
    if source is None:
        source = asked.get("path")
        if source is None or not Path(source).exists():
            raise ValueError(
                f"the data of {fitted.folder} must be read again for its features, and "
                f"{source or 'where it was'} is not there; pass source=, or features=False"
            )
    examples = read_examples(
        source,
        id=asked.get("id"),
        image=asked.get("image"),
        on_bad=asked.get("on_bad") or "refuse",
        recipe=fitted.recipe,
        cache=cache if cache.is_dir() else None,
    )
    x = examples.x
    if fitted.standardizer is not None:
        x = torch.from_numpy(fitted.standardizer(x.numpy())).float()
    if examples.ids != fitted.labels["id"] or digest(x) != fitted.config["data"].get("x"):
        raise ValueError(
            f"the data must be that of {fitted.folder}, {len(fitted.labels['id'])} examples, got "
            f"{len(examples)} that differ; pass the source as it was, or features=False"
        )
    return examples
