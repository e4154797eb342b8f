"""Wrong values for data, training, runs and reports: a call, and words of its refusal."""

import math
from pathlib import Path

import torch

from covlearn import data, engine, fitted, nets
from covlearn.config import check_allowed, override, parse_settings, typed
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
    make_machine,
    make_method,
    resolve_device,
    run_job,
    settled,
)
from covlearn.methods import CAL, CORES, DMI, METHODS, PTD, presets, scaled
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.records_frame import read_runs
from covlearn.report import write_comparison, write_report
from covlearn.run import fit_and_evaluate, held_out
from covlearn.testing import check_method
from tests.hostile.rows_formulas import EMPTY, LABELS, LOGITS, NAN, WRONG_WORD, Row
from tests.runs import NOISY, TEST

FITTED = fitted.load(Path(__file__).resolve().parents[1] / "fixtures/old_run/format_1/fit")
DIGITS = sources.digits()

RUNS: dict[str, list[Row]] = {
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
    "config.override": [(lambda: override(Plan(3), {"epochs": "x"}), "expected an integer")],
    "config.parse_settings": [(lambda: parse_settings(["epochs"]), "=")],
    "config.check_allowed": [(lambda: check_allowed("a.b:c", [], where="t"), "--allow a.b:c")],
    "engine.Plan": [
        (lambda: Plan(epochs=-1), "expected epochs from 0 to 1,000,000"),
        (lambda: Plan(epochs=10**12), "expected epochs from 0 to 1,000,000"),
        (lambda: Plan(epochs=1, batch_size=10**12), "batch_size from 1 to 2,147,483,647, got"),
        (lambda: Plan(epochs=1, lr_milestones=(3, -1)), "epochs, which count from 0, got -1"),
        (lambda: Plan(epochs=1, lr=math.inf), "lr must be a finite number, got inf"),
        (lambda: Plan(epochs=1, weight_decay=math.inf), "weight_decay must be a finite"),
        (lambda: Plan(3, optimizer=WRONG_WORD), "optimizer must be"),
    ],
    "methods.CAL": [
        (lambda: CAL(sieve_regularizer_eps=-1), "sieve_regularizer_eps must lie in"),
    ],
    "methods.CORES": [(lambda: CORES(sieve_from=-3), "sieve_from must be an epoch")],
    "methods.DMI": [(lambda: DMI(eps=0), "eps must be positive, .* the paper has 1e-3")],
    "methods.PTD": [(lambda: PTD(anchors=10**12), "anchors from 1 to 1,000,000")],
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
    "job.settled": [
        (lambda: settled(Job("digits", "ce", settings=("x=1",))), "no such field"),
        (lambda: settled(Job("digits", "ce", settings=("net=x",))), "not as a whole"),
        (lambda: settled(Job("digits", "ce", preset="papr")), "must be one of"),
    ],
    "job.run_job": [
        (lambda: run_job(Job("digit", "ce"), EMPTY, device="cpu"), "data must be"),
        (
            lambda: run_job(
                Job("digits", "ce", settings=("augmentation.flip=true",)), EMPTY, device="cpu"
            ),
            "is for uint8 images",
        ),
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
    "exports.export": [
        (
            lambda: export(FITTED, Path(__file__), "csv"),
            "must be new or an empty folder",
        ),
        (lambda: export(FITTED, EMPTY, "word"), "kind must be one of csv"),
    ],
    "records_frame.read_runs": [
        (lambda: read_runs(EMPTY), "must hold runs of covlearn"),
        (lambda: read_runs(EMPTY, by=WRONG_WORD), "by must be one of run, epoch"),
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
}
