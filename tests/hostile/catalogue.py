"""Bad input to public functions and classes: a row for each, or a word on why it has none.

``ANY_KIND`` take every wrong kind of value and answer each with a ValueError. ``ROWS`` have inputs
of the right type and a wrong value. ``CHECKED_ELSEWHERE`` take objects of covlearn that were checked
when they were made, or results that covlearn made: a wrong Python type is a TypeError there, as the
annotations say.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from covlearn import covariance, data, engine, fitted, losses, metrics, nets, noise, reweight, sieve
from covlearn import theory as th
from covlearn.config import check_allowed, override, parse_settings, typed, with_settings
from covlearn.covariance import CALLoss, SecondOrder
from covlearn.data import clothing1m, sources
from covlearn.data.cifar import CIFAR10
from covlearn.engine import Machine, Plan
from covlearn.estimator import NoisyLabelClassifier
from covlearn.exports import export
from covlearn.inputs import read_examples
from covlearn.integrations.datalab import to_datalab
from covlearn.integrations.onnx import to_onnx
from covlearn.integrations.tensorboard import write_tensorboard
from covlearn.job import (
    Job,
    augmented,
    group,
    make_machine,
    make_method,
    pretrained_weights,
    resolve_device,
    run_job,
    settled,
)
from covlearn.methods import METHODS, presets, scaled
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.noise import files, registry
from covlearn.records_frame import read_runs
from covlearn.report import write_comparison, write_report
from covlearn.run import fit_and_evaluate, held_out
from covlearn.schedules import Ramp
from covlearn.testing import check_method
from covlearn.theory import examples as th_examples
from covlearn.theory import objectives
from tests.runs import NOISY, TEST

NAN = float("nan")
WRONG_WORD: Any = "x"
NO_RUN: Any = SimpleNamespace()
LOGITS, LABELS = torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])
STATS = SecondOrder.from_labels(LABELS, LABELS, num_classes=3)
HOW: dict[str, Any] = {"prior": torch.full((3,), 1 / 3), "beta": 1.0}
EMPTY = Path("nothing-here")
DIGITS = sources.digits()
PROBLEM = th_examples.noisier_class()

Row = tuple[Callable[[], Any], str]

ANY_KIND = [
    "calibration.surest_transition",
    "calibration.calibrated_scale",
    "calibration.label_posterior",
    "config.plain",
    "covariance.CALLoss",
    "data.IndexedDataset",
    "data.Loaded",
    "diagnose.Smoother",
    "diagnose.check_draws",
    "diagnose.diagnose_classifier",
    "diagnose.instance_dependence_test",
    "distributed.join",
    "evidence.noise_evidence",
    "inputs.read_examples",
    "losses.cross_entropy",
    "losses.generalized_cross_entropy",
    "losses.truncated_generalized_cross_entropy",
    "losses.forward_corrected",
    "losses.reweighted",
    "losses.dmi",
    "losses.confidence",
    "losses.cores",
    "metrics.accuracy",
    "metrics.memorisation",
    "metrics.label_quality",
    "metrics.average_precision",
    "nets.build_net",
    "noise.class_dependent",
    "noise.instance_dependent_binary",
    "noise.pair",
    "noise.symmetric",
    "reweight.kernel_mean_matching",
    "reweight.median_bandwidth",
    "sieve.adjusted_loss",
    "sieve.refine",
    "sieve.quantile_threshold",
    "sieve.auto_threshold",
    "sieve.refine_by_confidence",
    "sieve.refine_by_likelihood",
    "sieve.refine_by_small_loss",
    "sieve.keep_share",
    "sieve.SieveRecorder",
    "testing.check_method",
    "theory.one_hot",
    "transition.count_transition",
    "transition.anchor_transition",
    "transition.confident_joint",
    "transition.confident_transition",
    "transition.dual_transition",
    "transition.revised_transition",
    "transition.project_rows",
    "transition.transition_error",
    "verdicts.judge",
]

ROWS: dict[str, list[Row]] = {
    # Losses and terms
    "covariance.CALLoss": [
        (lambda: CALLoss(LABELS, None, num_classes=3), "needs refined labels"),
        (lambda: CALLoss(LABELS, LABELS, num_classes=3, reduction=WRONG_WORD), "reduction must be"),
        (lambda: CALLoss(LABELS, LABELS, num_classes=2), "must lie in"),
    ],
    "covariance.SecondOrder": [
        (lambda: SecondOrder.from_labels(LABELS, LABELS - 1, num_classes=3), "class"),
    ],
    "covariance.cal": [
        (lambda: covariance.cal(LOGITS, LABELS + 1, LABELS, STATS, **HOW), "must lie in"),
        (lambda: covariance.cal(LOGITS[:2], LABELS, LABELS, STATS, **HOW), "must"),
        (
            lambda: covariance.cal(LOGITS, LABELS, LABELS, STATS, weighting=WRONG_WORD, **HOW),
            "weighting must be",
        ),
    ],
    "covariance.covariance_term": [
        (lambda: covariance.covariance_term(LOGITS, LABELS, LABELS[:3], STATS), "must"),
        (lambda: covariance.covariance_term(LOGITS * NAN, LABELS, LABELS + 9, STATS), "must"),
    ],
    "covariance.covariance_table": [
        (lambda: covariance.covariance_table(LOGITS, LABELS + 1, LABELS, STATS), "must lie in"),
    ],
    "covariance.class_mean_loss": [
        (
            lambda: covariance.class_mean_loss(LOGITS, LABELS, LABELS, STATS, block_size=0),
            "block_size must be positive",
        ),
    ],
    "covariance.with_covariance": [
        (
            lambda: covariance.with_covariance(losses.cross_entropy)(
                LOGITS, LABELS + 1, LABELS, STATS
            ),
            "must lie in",
        ),
    ],
    "losses.peer": [
        (lambda: losses.peer(LOGITS, LABELS, LOGITS[:2], LABELS, alpha=1.0), "must"),
        (lambda: losses.peer(LOGITS, LABELS + 1, LOGITS, LABELS, alpha=1.0), "must lie in"),
    ],
    "losses.joint": [
        (lambda: losses.joint(LOGITS, LOGITS, LABELS, weight=2.0), r"weight must lie in \[0, 1\]"),
        (lambda: losses.joint(LOGITS, LOGITS[:2], LABELS, weight=0.5), "shape of the logits"),
    ],
    "losses.dmi_from_joint": [
        (lambda: losses.dmi_from_joint(torch.eye(3), eps=0.0), "eps must be positive"),
    ],
    "losses.per_class": [
        (lambda: losses.per_class(lambda logits, y: logits.sum(), LOGITS), "one value an example"),
    ],
    "losses.generalized_cross_entropy": [
        (
            lambda: losses.generalized_cross_entropy(LOGITS, LABELS, q=2.0),
            r"q must lie in \(0, 1\]",
        ),
        (lambda: losses.generalized_cross_entropy(LOGITS.long(), LABELS), "floating point"),
    ],
    "sieve.rival_margin": [
        (lambda: sieve.rival_margin(LOGITS.softmax(dim=1), LABELS + 9), "must lie in"),
    ],
    "sieve.refine_by_argmax": [
        (lambda: sieve.refine_by_argmax(LOGITS.softmax(dim=1), LABELS + 9), "must lie in"),
    ],
    "metrics.reliability": [
        (lambda: metrics.reliability(LOGITS[:, 0] + 9, LABELS), "between 0 and 1"),
    ],
    "sieve.refine_scores": [
        (
            lambda: sieve.refine_scores(LOGITS[:, 0], LABELS, LABELS, lower=1.0, upper=0.0),
            "expected lower ≤ upper",
        ),
    ],
    "sieve.SieveRecorder": [
        (
            lambda: sieve.SieveRecorder(LABELS, num_classes=3).refine(),
            "every example must have been",
        ),
    ],
    "reweight.kernel_mean_matching": [
        (
            lambda: reweight.kernel_mean_matching(LOGITS, LABELS == 0, lower=2.0),
            "bounds must satisfy",
        ),
        (lambda: reweight.kernel_mean_matching(LOGITS, LABELS > 5), "at least one example"),
        (
            lambda: reweight.kernel_mean_matching(LOGITS * NAN, LABELS == 0),
            "features must be finite",
        ),
    ],
    "schedules.Ramp": [(lambda: Ramp(1.0, 5, 2), "expected 0 ≤ start ≤ end")],
    "metrics.accuracy": [(lambda: metrics.accuracy(LABELS, LABELS[:2]), "same length")],
    # Noise
    "noise.symmetric": [
        (lambda: noise.symmetric(LABELS, rate=1.5, num_classes=3, seed=0), "rate must"),
        (lambda: noise.symmetric(LABELS, rate=NAN, num_classes=3, seed=0), "rate must"),
        (lambda: noise.symmetric(LABELS, rate=0.2, num_classes=2, seed=0), "must lie in"),
        (lambda: noise.symmetric(LABELS, rate=0.2, num_classes=3, seed=-1), "seed must"),
        (lambda: noise.symmetric(LABELS[:0], rate=0.2, num_classes=3, seed=0), "must"),
    ],
    "noise.instance_dependent": [
        (
            lambda: noise.instance_dependent(
                LOGITS, LABELS, rate=0.2, num_classes=3, variant="x", seed=0
            ),
            "variant must be",
        ),
        (
            lambda: noise.instance_dependent(
                LOGITS * NAN, LABELS, rate=0.2, num_classes=3, variant="cal", seed=0
            ),
            "finite",
        ),
    ],
    "noise.part_dependent": [
        (
            lambda: noise.part_dependent(LABELS, LABELS, transitions=[torch.eye(3)] * 2, seed=0),
            "part",
        ),
    ],
    "noise.NoiseCard": [(lambda: noise.NoiseCard.from_dict({}), "a noise card must be an object")],
    "noise.files.read_label_file": [
        (lambda: files.read_label_file(EMPTY), "does not exist"),
        (lambda: files.read_label_file(Path(__file__)), "must end in .pt or .npz"),
    ],
    "noise.files.write_labels": [
        (
            lambda: files.write_labels(
                Path("a.txt"),
                noise.symmetric(LABELS, rate=0.2, num_classes=3, seed=0),
                LABELS.numpy(),
            ),
            "ends in .npz",
        ),
    ],
    "noise.files.labels_from_file": [
        (
            lambda: files.labels_from_file("nope.npz#x", LABELS.numpy(), num_classes=3, data="d"),
            "does not exist",
        ),
    ],
    "noise.registry.published_entry": [
        (lambda: registry.published_entry("cifar10", 0.3), "are published with the rates"),
    ],
    "noise.registry.regenerated": [
        (
            lambda: registry.regenerated(
                next(entry for entry in registry.PUBLISHED.values() if not entry.bit_for_bit),
                LOGITS,
                LABELS.numpy(),
            ),
            "cannot be drawn again",
        ),
    ],
    # Data
    "data.Split": [
        (lambda: data.Split(LOGITS, LABELS + 1, 3), "must lie in"),
        (lambda: data.Split(LOGITS, LABELS[:2], 3), "must"),
        (lambda: data.Split(LOGITS, LABELS, 1), "must"),
    ],
    "data.Augmentation": [
        (lambda: data.Augmentation(mean=(0.0,), std=(1.0,), crop=1, window=4), "either a window"),
    ],
    "data.Resident": [(lambda: data.Resident(NOISY, batch_size=0), "batch_size must")],
    "data.batches_of": [(lambda: data.batches_of(NOISY, batch_size=0), "batch_size must")],
    "data.sources.load_data": [
        (lambda: sources.load_data("digit"), "did you mean 'digits'"),
        (lambda: sources.load_data("nope.npz"), "does not exist"),
        (lambda: sources.load_data(""), "text files of Clothing1M"),  # the folder one is in
    ],
    "data.sources.check_data_name": [(lambda: sources.check_data_name("x"), "data must be")],
    "data.sources.from_npz": [(lambda: sources.from_npz(EMPTY), "does not exist")],
    "data.sources.from_store": [
        (lambda: sources.from_store(CIFAR10, EMPTY), "is not on this machine")
    ],
    "data.sources.from_clothing1m": [
        (lambda: sources.from_clothing1m(EMPTY), "must hold the text files")
    ],
    "data.sources.with_noise": [
        (lambda: sources.with_noise(DIGITS, "symetric:0.2", seed=0), "did you mean 'symmetric'"),
        (lambda: sources.with_noise(DIGITS, "symmetric", seed=0), "KIND:RATE"),
        (lambda: sources.with_noise(DIGITS, "symmetric:2", seed=0), "rate must"),
        (lambda: sources.with_noise(DIGITS, "published:0.2", seed=0), "in the official order"),
        (lambda: sources.with_noise(DIGITS, "file:", seed=0), "file:PATH"),
    ],
    "data.sources.noisy_labels": [
        (lambda: sources.noisy_labels(DIGITS, "x", seed=0), "noise must be")
    ],
    "data.sources.check_noise": [(lambda: sources.check_noise("none:1"), "none has no rate")],
    "data.clothing1m.read_part": [
        (lambda: clothing1m.read_part(EMPTY, "train"), "part must be one of"),
        (lambda: clothing1m.read_part(EMPTY, "noisy_train"), "must hold the text files"),
    ],
    "data.clothing1m.read_split": [
        (lambda: clothing1m.read_split(EMPTY, "x"), "part must be one of")
    ],
    "data.clothing1m.check_layout": [(lambda: clothing1m.check_layout(EMPTY), "is no folder")],
    "inputs.read_examples": [
        (lambda: read_examples(EMPTY), "does not exist"),
        (lambda: read_examples((LOGITS, LABELS), on_bad=WRONG_WORD), "on_bad must be"),
        (lambda: read_examples((LOGITS, LABELS[:2])), "one label an example"),
        (lambda: read_examples((LOGITS, LABELS), recipe={"kind": "x"}), "recipe must be"),
    ],
    # Methods and training
    "config.typed": [(lambda: typed(int, "x"), "expected an integer")],
    "config.with_settings": [(lambda: with_settings(Plan(3), ["epoch=3"]), "no such field")],
    "config.override": [(lambda: override(Plan(3), {"epochs": "x"}), "expected an integer")],
    "config.parse_settings": [(lambda: parse_settings(["epochs"]), "=")],
    "config.check_allowed": [(lambda: check_allowed("a.b:c", [], where="t"), "--allow a.b:c")],
    "engine.Plan": [
        (lambda: Plan(epochs=-1), "expected epochs ≥ 0"),
        (lambda: Plan(3, optimizer=WRONG_WORD), "optimizer must be"),
    ],
    "engine.Machine": [(lambda: Machine(workers=-1), "workers must be at least 0")],
    "engine.mean_loss": [
        (lambda: engine.mean_loss(torch.tensor([1.0, NAN]), 3), "the loss must be finite"),
    ],
    "estimator.NoisyLabelClassifier": [
        (lambda: NoisyLabelClassifier().fit([[1.0], [2.0]], [0]), "inconsistent|length|samples"),
        (lambda: NoisyLabelClassifier().fit([[NAN]] * 4, [0, 1, 0, 1]), "NaN"),
        (
            lambda: NoisyLabelClassifier(method="x").fit(LOGITS.numpy(), [0, 1, 0, 1]),
            "method must be",
        ),
    ],
    "job.make_method": [
        (lambda: make_method("ca"), "did you mean 'cal'"),
        (lambda: make_method("os:getcwd"), "must be a dataclass"),
        (lambda: make_method("no.such:Thing"), "cannot make the method"),
    ],
    "job.resolve_device": [(lambda: resolve_device("tpu"), "device must be auto, cpu or cuda")],
    "job.make_machine": [(lambda: make_machine("cpu", {"device": "x"}), "choose it with --device")],
    "job.settled": [(lambda: settled(Job("digits", "ce", settings=("x=1",))), "no such field")],
    "job.run_job": [(lambda: run_job(Job("digit", "ce"), EMPTY, device="cpu"), "data must be")],
    "job.augmented": [(lambda: augmented(NOISY, {}, {"flip": "true"}), "is for uint8 images")],
    "job.group": [(lambda: group({"net": "x"}, "net"), "not as a whole")],
    "job.pretrained_weights": [
        (lambda: pretrained_weights("papr", "digits"), "must be one of"),
    ],
    "methods.presets.preset": [
        (lambda: presets.preset("papr", "cal", "cifar10"), "did you mean 'paper'"),
        (lambda: presets.preset("paper", "ca", "cifar10"), "must be one of"),
    ],
    "methods.presets.protocol": [(lambda: presets.protocol("x", "cifar10"), "must be one of")],
    "methods.scaled.recommended": [
        (
            lambda: scaled.recommended("x", num_examples=10, num_classes=2, shape=(3,)),
            "must be one of",
        ),
    ],
    "methods.crossfit.CrossFittedCAL": [
        (lambda: CrossFittedCAL(folds=1), "folds must be at least 2")
    ],
    "nets.build_net": [
        (
            lambda: nets.build_net("resnet", num_classes=2, input_shape=(3, 8, 8), seed=0),
            "did you mean",
        ),
        (lambda: nets.build_net("mlp", num_classes=2, input_shape=(0,), seed=0), "input_shape"),
        (
            lambda: nets.build_net("mlp", num_classes=2, input_shape=(3,), seed=2**32),
            "seed must be",
        ),
        (
            lambda: nets.build_net(
                "mlp", num_classes=2, input_shape=(3,), seed=0, options={"hiden": [2]}
            ),
            "takes the options",
        ),
    ],
    "nets.num_parameters": [
        (
            lambda: nets.num_parameters("mlp", num_classes=2, input_shape=(3,), options={"x": 1}),
            "cannot be made",
        ),
    ],
    "nets.load_pretrained": [
        (lambda: nets.load_pretrained(torch.nn.Linear(1, 1), "a.txt"), "must be in a .pt"),
    ],
    "run.held_out": [(lambda: held_out(10, 1.0, 0), "holdout must lie in")],
    "run.fit_and_evaluate": [
        (
            lambda: fit_and_evaluate(
                METHODS["ce"](), NOISY, test=DIGITS.test, folder=EMPTY, seed=0
            ),
            "must hold examples as the training split does",
        ),
        (
            lambda: fit_and_evaluate(
                METHODS["ce"](), NOISY, test=TEST, clean=NOISY.y[:2], folder=EMPTY
            ),
            "clean must",
        ),
    ],
    "testing.check_method": [
        (lambda: check_method(METHODS["ce"](), checks=["x"]), "a check must be")
    ],
    # Runs and reports
    "fitted.load": [(lambda: fitted.load(EMPTY), "is not the folder of a run")],
    "fitted.check_place": [(lambda: fitted.check_place(Path(__file__)), "must be a folder")],
    "exports.export": [
        (
            lambda: export(NO_RUN, Path(__file__), "csv"),
            "must be new or an empty folder",
        ),
    ],
    "records_frame.read_runs": [
        (lambda: read_runs(EMPTY), "must hold runs of covlearn"),
        (lambda: read_runs(EMPTY, by=WRONG_WORD), "by must be run or epoch"),
    ],
    "report.write_report": [(lambda: write_report(EMPTY), "is not the folder of a run")],
    "report.write_comparison": [
        (lambda: write_comparison([EMPTY, EMPTY], Path("x.html")), "is not the folder of a run"),
    ],
    "integrations.onnx.to_onnx": [(lambda: to_onnx(EMPTY, "a.onnx"), "is not the folder of a run")],
    "integrations.datalab.to_datalab": [(lambda: to_datalab(EMPTY), "is not the folder of a run")],
    "integrations.tensorboard.write_tensorboard": [
        (lambda: write_tensorboard(EMPTY, "board"), "is not the folder of a run"),
    ],
    # Theory
    "theory.Problem": [
        (
            lambda: th.Problem([], np.zeros(0, int), np.zeros((0, 2, 2))),
            "mass must be a non-empty vector",
        ),
        (lambda: th.Problem([2.0], [0], [np.eye(2)]), "masses must sum to 1"),
        (lambda: th.Problem([1.0], [5], [np.eye(2)]), "labels must lie in"),
        (lambda: th.Problem([1.0], [0], [np.ones((2, 2))]), "rows of transition"),
    ],
    "theory.objectives.check_refined": [
        (lambda: objectives.check_refined(PROBLEM, np.ones((1, 9))), "refined must be"),
    ],
    "theory.objectives.check_joint": [
        (lambda: objectives.check_joint(PROBLEM, np.ones((1, 9))), "joint must be"),
    ],
    "theory.risk": [
        (lambda: th.risk(PROBLEM, PROBLEM.noisy, np.ones((1, 9))), "one row a point"),
        (lambda: th.risk(PROBLEM, PROBLEM.noisy, PROBLEM.noisy * NAN), "must be finite"),
    ],
}

CHECKED_ELSEWHERE: dict[str, str] = {
    "what covlearn made, as it made it": """
        config.Leaf config.leaves config.meanings config.as_text config.nearest config.describe
        cells.defused cells.restored cells.safe_name cells.write_cells cells.read_cells
        covariance.Weighting covariance.batch_mass data.Batch data.Batches data.ImageFiles data.Mix
        data.clothing1m.Part data.clothing1m.Report data.sources.Source data.sources.is_folder
        data.sources.still diagnose.Diagnosis diagnose.Finding diagnose.diagnose_run
        evidence.Evidence evidence.fits_by_chance evidence.surest_mask exports.Exported
        exports.clean_table fitted.FitResult fitted.Fitted fitted.check_net fitted.fit_examples inputs.Examples
        inputs.Progress inputs.Skipped integrations.datalab.features_of
        integrations.datalab.refined_from_datalab integrations.onnx.Pixels
        integrations.onnx.Probabilities integrations.onnx.Standardized
        integrations.onnx.random_inputs integrations.onnx.source_scaling
        integrations.onnx.whole_graph integrations.tensorboard.TensorBoard
        integrations.transformers.IndexCollator job.Job job.json_or_text job.other_than ledger.Ledger losses.Rows
        losses.one_class_at_a_time losses.pick losses.weighted_logs metrics.LabelQuality
        metrics.accuracy_of metrics.calibration_error methods.Method methods.Run methods.crossfit.stratified_folds
        methods.crossfit.sure_labels methods.presets.Protocol methods.presets.data_kind
        methods.scaled.Choice methods.scaled.cross_fitted methods.scaled.gentler
        methods.scaled.network methods.scaled.schedule methods.scaled.stretch noise.NoisyLabels
        noise.files.LabelFile noise.registry.Generator noise.registry.Human
        noise.registry.Published noise.registry.drawn_like noise.registry.label_digest
        noise.registry.published_labels reweight.MeanMatching reweight.project_weights run.LocalRun
        run.input_shape run.machine_config run.method_name schedules.Steps
        sieve.Refined sieve.hold_fixed testing.Toy testing.clothing.write_lookalike
        testing.fit_in_processes testing.make_toy testing.require_equal_one testing.shortened
        testing.toy_for verdicts.Verdicts verdicts.decided verdicts.reason
    """,
    "fields of a method: each is checked as --set gives it (tests/methods), by __post_init__": """
        methods.CAL methods.CE methods.CORES methods.CoTeaching methods.CoTeachingPlus methods.DMI
        methods.Forward methods.GCE methods.JoCoR methods.PTD methods.Peer methods.ReweightR
    """,
    "parts of the training loop, called by covlearn itself": """
        distributed.SharedBatchNorm distributed.active distributed.average_buffers
        distributed.gathered distributed.in_turns distributed.max_of distributed.num_processes
        distributed.of_first distributed.process distributed.share_batch_norm
        distributed.sum_gradients distributed.sum_of engine.AfterEpoch engine.Objective
        engine.Outputs engine.Record engine.forward engine.make_ledger engine.make_optimizer
        engine.predict engine.reduced engine.train
    """,
    "takes nothing": "data.sources.digits",
}
