"""A call of every public function that goes well, to be spoilt one argument at a time.

``BY_NAME`` has a good value for an argument of that name, ``CALLS`` where a function needs others.
"""

import datetime
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import Dataset

from covlearn import data, fitted, losses, noise, sieve, theory
from covlearn.covariance import SecondOrder
from covlearn.data import sources
from covlearn.data.cifar import CIFAR
from covlearn.engine import Plan
from covlearn.estimator import NoisyLabelClassifier
from covlearn.inputs import read_examples
from covlearn.job import Job
from covlearn.methods import METHODS
from covlearn.noise import registry
from covlearn.noise.files import LabelFile
from covlearn.theory import examples
from covlearn.verdicts import judge

PROBLEM = examples.noisier_class()
POINTS, CLASSES = PROBLEM.noisy.shape
ONE_HOT = theory.one_hot(PROBLEM.clean, CLASSES)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
LOGITS = torch.nn.functional.one_hot(LABELS, 3).float() + torch.linspace(0, 1, 18).view(6, 3)
PROBS = LOGITS.softmax(dim=1)
T = torch.full((3, 3), 0.1) + 0.7 * torch.eye(3)
X = torch.linspace(0, 1, 24).view(6, 4)
SPLIT = data.Split(X, LABELS, 3)
VERDICTS = judge(LABELS, LOGITS, evidence=True)
REFINED = sieve.Refined(LABELS, LABELS >= 0, LOGITS[:, 0])
PUBLISHED = next(iter(registry.PUBLISHED.values()))
NOISY = noise.symmetric(LABELS, rate=0.3, num_classes=3, seed=0)
HISTORY = [{"epoch": 0.0, "test_accuracy": 0.5, "holdout_accuracy": 0.5}]


class Rows(Dataset[torch.Tensor]):
    """A map-style dataset."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return X[index]

    def __len__(self) -> int:
        return len(X)


class Lab:
    """As much of a Datalab as is looked at."""

    class_names = (0, 1, 2)

    def get_issues(self, _name: str) -> pd.DataFrame:
        """One label that is no issue."""
        columns = ("given_label", "predicted_label", "is_label_issue", "label_score")
        return pd.DataFrame([[0, 0, False, 0.9]], columns=columns)


CLASSIFIER = NoisyLabelClassifier()
CLASSIFIER.label_issues_ = pd.DataFrame({"given": [0, 1]})  # fitted to others than X

BY_NAME: dict[str, Any] = {
    "alpha": 1.0,
    "beta": 1.0,
    "clean": LABELS,
    "confidence": 0.9,
    "coefficient": PROBLEM.noisy,
    "e_minus": 0.1,
    "e_plus": 0.2,
    "eps": 1e-3,
    "given": LABELS,
    "joint": ONE_HOT[:, :, None] * PROBLEM.noisy[:, None, :],
    "kept": 0.5,
    "logits": LOGITS,
    "loss": PROBLEM.noisy,
    "lower": -1.0,
    "name": "digits",
    "noisy": LABELS,
    "noisy_prior": PROBLEM.noisy_prior,
    "num_classes": 3,
    "part": np.arange(POINTS),
    "prediction": PROBLEM.clean,
    "prior": torch.full((3,), 1 / 3),
    "probs": PROBS,
    "problem": PROBLEM,
    "rate": 0.3,
    "refined": ONE_HOT,
    "scores": LOGITS[:, 0],
    "seed": 0,
    "source": sources.digits(),
    "spec": "symmetric:0.2",
    "split": SPLIT,
    "stats": SecondOrder.from_labels(LABELS, LABELS, 3),
    "threshold": 0.5,
    "transition": T,
    "upper": 1.0,
    "value": Plan(3),
    "weight": PROBLEM.noisy_prior,
    "x": X,
    "y": LABELS,
}
ARRAY = LABELS.numpy()
MISSING = Path("not-there")
LITTLE: dict[str, Any] = {"noisy": 14, "clean": 14, "drawn": 14, "sizes": [(8, 8)]}
FITTED = fitted.load(Path(__file__).resolve().parents[1] / "fixtures/old_run/format_1/fit")
FULL = Path(__file__).resolve().parent
CALLS: dict[str, dict[str, Any]] = {
    "calibration.calibrated_scale": {"transition": T},
    "cells.write_cells": {"path": MISSING / "a.csv", "names": ["a"], "rows": [["b"]]},
    "cells.defused": {"text": "a"},
    "cells.read_cells": {"path": MISSING},
    "cells.restored": {"cell": "a"},
    "cells.safe_name": {"text": "a"},
    "config.check_allowed": {"name": "a", "allow": [], "where": "a table"},
    "config.override": {"tree": {"epochs": "3"}},
    "config.parse_settings": {"settings": ["a=1"]},
    "config.plain": {"value": 1},
    "config.typed": {"hint": int, "value": "1"},
    "covariance.with_covariance": {"base_loss": losses.cross_entropy},
    "losses.one_class_at_a_time": {"loss": losses.cross_entropy},
    "schedules.Steps": {"value": 1.0},
    "covariance.batch_mass": {"refined": LABELS},
    "covariance.cal": {"refined": LABELS},
    "covariance.class_mean_loss": {"refined": LABELS},
    "covariance.covariance_table": {"refined": LABELS},
    "covariance.covariance_term": {"refined": LABELS},
    "covariance.CALLoss": {"refined": LABELS},
    "data.sources.Source": {"name": "a", "train": SPLIT, "test": SPLIT},
    "job.Job": {"data": "digits", "method": "ce"},
    "data.sources.from_store": {"facts": CIFAR["cifar10"], "path": MISSING},
    "data.sources.from_npz": {"path": MISSING},
    "data.sources.from_clothing1m": {"root": MISSING},
    "data.clothing1m.read_part": {"root": MISSING, "name": "noisy_train"},
    "data.clothing1m.read_split": {"root": MISSING, "name": "noisy_train"},
    "data.clothing1m.check_layout": {"root": MISSING},
    "data.Loaded": {"dataset": Rows(), "num_workers": 0, "batch_size": 2},
    "data.Resident": {"batch_size": 2},
    "data.batches_of": {"batch_size": 2},
    "data.IndexedDataset": {"dataset": list(zip(X, LABELS, strict=True))},
    "diagnose.instance_dependence_test": {"features": X, "draws": 19},
    "diagnose.check_draws": {"draws": 19},
    "diagnose.diagnose_classifier": {"model": CLASSIFIER, "X": X},
    "distributed.join": {"backend": "gloo", "timeout": datetime.timedelta(seconds=1)},
    "data.Augmentation": {"mean": (0.5,), "std": (0.5,)},
    "diagnose.Smoother": {"features": X},
    "engine.Plan": {"epochs": 3},
    "exports.clean_table": {"fitted": FITTED},
    "exports.id_column": {"fitted": FITTED},
    "exports.export": {"fitted": FITTED, "folder": FULL, "kind": "csv"},
    "diagnose.diagnose_run": {"fitted": FITTED, "draws": 19},
    "fitted.fit_examples": {
        "examples": read_examples((X, LABELS)),
        "folder": MISSING,
        "source": {},
        "method": "no such method",
    },
    "fitted.load": {"folder": MISSING},
    "inputs.read_examples": {"source": (X, LABELS)},
    "integrations.datalab.refined_from_datalab": {"lab": Lab()},
    "integrations.datalab.to_datalab": {"run": FITTED, "source": MISSING},
    "integrations.onnx.to_onnx": {"run": MISSING, "path": MISSING},
    "integrations.tensorboard.TensorBoard": {"folder": MISSING},
    "integrations.tensorboard.write_tensorboard": {"run": MISSING, "folder": MISSING},
    "integrations.transformers.IndexCollator": {"collator": list},
    "job.make_machine": {"device": "cpu", "settings": {}},
    "job.make_method": {"name": "ce"},
    "job.resolve_device": {"device": "cpu"},
    "job.run_job": {"job": Job("digit", "ce"), "folder": MISSING, "device": "cpu"},
    "job.settled": {"job": Job("digits", "ce")},
    "losses.dmi_from_joint": {"joint": T},
    "losses.joint": {"logits_1": LOGITS, "logits_2": LOGITS, "weight": 0.5},
    "losses.peer": {"peer_logits": LOGITS, "peer_y": LABELS},
    "losses.per_class": {"loss": losses.cross_entropy},
    "methods.presets.data_kind": {"name": "cifar10"},
    "methods.presets.Inside": {"num_examples": 60, "num_classes": 3, "shape": (3,)},
    "methods.presets.inside": {"path": Path("images.npz")},
    "methods.presets.for_classes": {"method": METHODS["ptd"](), "num_classes": 50},
    "methods.presets.preset": {"name": "paper", "method": "cal", "data": "cifar10"},
    "methods.presets.protocol": {"name": "paper", "data": "cifar10"},
    "methods.scaled.recommended": {"method": "ce", "num_examples": 60, "shape": (3,)},
    "metrics.accuracy": {"prediction": LABELS, "true": LABELS},
    "metrics.accuracy_of": {"history": HISTORY},
    "metrics.average_precision": {"score": LOGITS[:, 0], "wrong": LABELS > 1},
    "metrics.calibration_error": {"rows": [(2, 0.5, 0.4)]},
    "metrics.label_quality": {"refined": LABELS},
    "metrics.memorisation": {"prediction": LABELS},
    "metrics.reliability": {"stated": PROBS[:, 0], "right": LABELS > 1},
    "nets.build_net": {"name": "mlp", "input_shape": (4,)},
    "nets.check_options": {"name": "mlp", "options": {}},
    "nets.load_pretrained": {"net": torch.nn.Linear(1, 1), "path": MISSING},
    "nets.num_parameters": {"name": "mlp", "input_shape": (4,), "options": {}},
    "noise.instance_dependent": {"variant": "cal"},
    "noise.instance_dependent_binary": {"y": LABELS % 2},
    "noise.part_dependent": {"part": LABELS % 2, "transitions": [T, T]},
    "noise.files.chosen_name": {"file": LabelFile(MISSING, ARRAY, {"worse_label": ARRAY})},
    "noise.files.path_and_name": {"place": "a.pt"},
    "noise.files.labels_from_file": {"place": "a.npz", "clean": ARRAY, "data": "digits"},
    "noise.files.read_label_file": {"path": MISSING},
    "noise.files.write_labels": {"path": Path("a.txt"), "labels": NOISY, "clean": ARRAY},
    "noise.registry.check_can_be_drawn": {"entry": PUBLISHED},
    "noise.registry.published_with": {"data": "cifar10", "rate": 0.2},
    "noise.registry.drawn_like": {"entry": PUBLISHED, "clean": ARRAY},
    "noise.registry.label_digest": {"labels": ARRAY},
    "noise.registry.published_entry": {"data": "cifar10", "rate": 0.2},
    "noise.registry.published_labels": {"entry": PUBLISHED, "clean": ARRAY, "noisy": ARRAY},
    "noise.registry.regenerated": {"entry": PUBLISHED, "clean": ARRAY},
    "records_frame.read_runs": {"folder": MISSING},
    "report.write_comparison": {"folders": [MISSING], "file": MISSING / "a.html"},
    "report.write_report": {"folder": MISSING, "file": MISSING / "a.html"},
    "reweight.kernel_mean_matching": {"features": X, "kept": LABELS > 0},
    "reweight.median_bandwidth": {"features": X},
    "run.fit_and_evaluate": {
        "method": METHODS["ce"](),
        "test": data.Split(X[:, :2], LABELS, 3),  # of another shape: refused at the end
        "clean": LABELS,
        "folder": MISSING,
    },
    "run.held_out": {"num_examples": 10, "share": 0.2},
    "run.method_name": {"method": METHODS["ce"]()},
    "schedules.Ramp": {"value": 1.0},
    "sieve.auto_threshold": {"scores": torch.linspace(-1, 1, 60) ** 3},
    "sieve.SieveRecorder": {"noisy": LABELS},
    "sieve.hold_fixed": {"refined": REFINED, "trusted": LABELS > 0},
    "sieve.keep_share": {"epoch": 1},
    "sieve.quantile_threshold": {"kept": 0.5},
    "sieve.refine_scores": {"score": LOGITS[:, 0], "prediction": LABELS},
    "testing.check_method": {"method": METHODS["ce"]},  # not an instance: refused at the end
    "testing.clothing.write_lookalike": {"root": MISSING, **LITTLE},
    "testing.fit_in_processes": {"methods": {"ce": METHODS["ce"]()}, "number": 0},
    "testing.shortened": {"method": METHODS["ce"]()},
    "testing.require_equal_one": {"method": METHODS["ce"](), "outcomes": []},
    "theory.Rates": {"plus": 0.1, "minus": 0.1, "spread_plus": 0.0, "spread_minus": 0.0},
    "theory.Statement": {"left": 0.0, "right": 0.0},
    "theory.beta_interval": {"transition": PROBLEM.class_transition},
    "theory.bounded_below": {"coefficient": PROBLEM.noisy},
    "theory.column_rates": {"transition": PROBLEM.class_transition},
    "theory.has_structure": {"transition": PROBLEM.class_transition},
    "theory.keeps_labels": {"transition": PROBLEM.class_transition},
    "theory.cut_off_minimiser": {"coefficient": [0.6, 0.2]},
    "theory.one_hot": {"labels": [0, 1]},
    "theory.binary_problem": {
        "mass": [0.5, 0.5],
        "clean": [1, 0],
        "flip_plus": [0.2, 0.2],
        "flip_minus": [0.1, 0.1],
    },
    "theory.Problem": {
        "mass": PROBLEM.mass,
        "clean": PROBLEM.clean,
        "transition": PROBLEM.transition,
    },
    "theory.examples.growing_proxy": {"wrong": 0.2},
    "transition.count_transition": {"refined": LABELS},
    "transition.project_rows": {"matrix": T},
    "transition.revised_transition": {"slack": torch.zeros(3, 3)},
    "transition.transition_error": {"estimated": T, "true": T},
    "verdicts.decided": {"verdicts": VERDICTS, "trusted": ARRAY > 0},
    "verdicts.judge": {"evidence": True},
}


def good_call(name: str, function: Callable[..., Any]) -> dict[str, Any] | None:
    """All that the function must be given, by name, and None where no good value is known."""
    known = BY_NAME | CALLS.get(name, {})
    needed = {
        key: parameter
        for key, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and (parameter.default is parameter.empty or key in CALLS.get(name, {}))
    }
    if not needed.keys() <= known.keys():
        return None
    return {key: known[key] for key in needed} | CALLS.get(name, {})
