"""Wrong kinds of value, one after the other for each argument, and where one of them is right."""

import os
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

import numpy as np
import torch

from covlearn.kinds import members

WRONG: dict[str, Any] = {
    "nothing": None,
    "text": "no such thing",
    "empty text": "",
    "true": True,
    "a negative number": -1,
    "a huge number": 10**30,
    "infinity": float("inf"),
    "no number": float("nan"),
    "an empty list": [],
    "a dict": {},
    "an object": object(),
    "an array of NaN": np.array([[np.nan]]),
    "a tensor of NaN": torch.full((2, 2), torch.nan),
    "a tensor of one NaN": torch.tensor(torch.nan),
}

# An annotation with one of these types lets the kind in; the value may be refused all the same.
LET_IN: dict[str, tuple[Any, ...]] = {
    "nothing": (types.NoneType,),
    "text": (str, Path, os.PathLike),
    "empty text": (str,),
    "true": (bool,),
    "an empty list": (list, tuple, Sequence, Iterable, Collection),
    "a dict": (dict, Mapping, Iterable, Collection),
}

# What else is right: why, which kinds, and of which arguments.
RIGHT: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "a threshold of scores has any sign, and may lie beyond all of them",
        ("a negative number", "infinity"),
        """
        methods.CAL:lower methods.CAL:upper methods.crossfit.CrossFittedCAL:lower
        methods.crossfit.CrossFittedCAL:upper sieve.refine:lower sieve.refine:upper
        sieve.refine_scores:lower sieve.refine_scores:upper
        """,
    ),
    (
        "no limit",
        ("infinity",),
        "calibration.calibrated_scale:spread calibration.label_posterior:spread "
        "data.Loaded:worker_seconds",
    ),
    (
        "the statements hold for every β",
        ("a negative number",),
        """
        theory.cal_optimality:beta theory.objectives.bayes_peer:beta theory.objectives.cal:beta
        theory.objectives.cal_counted:beta theory.objectives.peer:beta
        """,
    ),
    (
        "a seed is a key of a hash, and the run that is made with it checks it",
        ("a negative number",),
        """
        job.Job:seed reweight.kernel_mean_matching:seed reweight.median_bandwidth:seed
        run.held_out:seed
        """,
    ),
    (
        "a record of what was asked for, which is checked when it is used",
        ("a negative number",),
        "job.Job:holdout schedules.Steps:value schedules.Steps:factor",
    ),
    (
        "it is asked only how many there are, or whether there is one of that name",
        ("a negative number",),
        """
        methods.presets.Inside:num_classes methods.presets.Inside:num_examples
        methods.presets.for_classes:num_classes methods.presets.kind_of_images:num_classes
        methods.scaled.recommended:num_classes
        """,
    ),
    (
        "no file is published with that rate",
        ("a negative number", "infinity", "no number"),
        "noise.registry.published_with:rate",
    ),
    (
        "of use only where images stay in files",
        ("a negative number",),
        "data.batches_of:num_workers",
    ),
    ("a label that was dropped", ("a negative number",), "covariance.batch_mass:refined"),
    (
        "certain to flip",
        ("true",),
        """
        noise.instance_dependent_binary:e_minus noise.instance_dependent_binary:e_plus
        theory.binary_problem:flip_minus theory.binary_problem:flip_plus
        """,
    ),
    (
        "a NaN that came stays one, and is seen by who averages the losses",
        ("an array of NaN", "a tensor of NaN"),
        "losses.dmi_from_joint:joint",
    ),
    (
        "anything that can be gone through, or in which a name is looked for",
        ("an array of NaN", "a tensor of NaN"),
        "cells.write_cells:rows config.check_allowed:allow",
    ),
    (
        "any object that has examples by number",
        (
            *("text", "empty text", "an empty list", "a dict"),
            *("an array of NaN", "a tensor of NaN", "a tensor of one NaN"),
        ),
        "data.IndexedDataset:dataset",
    ),
    (
        "any value is made plain",
        (*(kind for kind in WRONG if kind != "an object"),),
        "config.plain:value",
    ),
    ("any integer", ("a negative number", "a huge number"), "config.typed:value"),
    (
        "an array of its own, which nothing need fit",
        ("one shorter", "one column fewer"),
        """
        diagnose.Smoother:features losses.per_class:logits reweight.median_bandwidth:features
        sieve.check_logits:logits theory.bounded_below:coefficient transition.project_rows:matrix
        """,
    ),
    (
        "one value an example, of so many examples",
        ("one shorter",),
        """
        covariance.batch_mass:refined losses.confidence:logits noise.class_dependent:y
        noise.instance_dependent_binary:y noise.pair:y noise.registry.label_digest:labels
        noise.symmetric:y sieve.SieveRecorder:noisy sieve.quantile_threshold:scores
        theory.minimisers:coefficient
        theory.objectives.minimisers:coefficient transition.anchor_transition:probs
        """,
    ),
    (
        "features, of any number",
        ("one column fewer",),
        """
        data.Split:x diagnose.instance_dependence_test:features noise.instance_dependent:x
        noise.registry.drawn_like:x reweight.kernel_mean_matching:features
        """,
    ),
)
ALSO_RIGHT = {
    (argument, kind) for _, kinds, names in RIGHT for argument in names.split() for kind in kinds
}


def let_in(kind: str, annotation: Any) -> bool:
    """Whether an annotation says that values of the kind may come."""
    types_of = {get_origin(member) or member for member in members(annotation)}
    return not types_of.isdisjoint(LET_IN.get(kind, ()))


def spoilt_arrays(good: Any) -> Iterator[tuple[str, Any]]:
    """A good array or tensor, each time with one thing wrong."""
    if not isinstance(good, torch.Tensor | np.ndarray) or not good.ndim:
        return
    yield "one shorter", good[:-1]
    if good.ndim > 1:
        yield "one column fewer", good[..., :-1]
    yield "as text", np.asarray(good).astype(str)
    yield "as objects", np.asarray(good).astype(object)
