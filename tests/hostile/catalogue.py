"""Bad input to public functions and classes: what each is held to, or a word on why it is not.

Every public name is held to every wrong kind of value for each of its arguments (``good_calls.py``
has the calls that are spoilt), a new name too. ``ROWS`` have inputs of the right kind and a wrong
value. What is named below is not held to wrong kinds.
"""

from tests.hostile.rows_formulas import FORMULAS, Row
from tests.hostile.rows_runs import RUNS

ROWS: dict[str, list[Row]] = {**FORMULAS, **RUNS}
assert len(ROWS) == len(FORMULAS) + len(RUNS)

# Dataclasses and named tuples in which covlearn hands out what it made: they compute nothing.
RECORDS = """
    covariance.SecondOrder data.Batch data.ImageFiles data.Mix data.clothing1m.Part
    data.clothing1m.Report diagnose.Diagnosis diagnose.Finding engine.Outputs evidence.Evidence
    exports.Exported fitted.FitResult fitted.Fitted inputs.Examples inputs.Skipped losses.Rows
    methods.presets.Protocol methods.scaled.Choice metrics.LabelQuality noise.NoiseCard
    noise.NoisyLabels noise.files.LabelFile noise.registry.Generator noise.registry.Human
    noise.registry.Published reweight.MeanMatching run.LocalRun sieve.Refined testing.Toy
    theory.Rates theory.Statement verdicts.Verdicts
"""

# Protocols and names of types: they say what an object must look like, and are not called.
FORMS = """
    covariance.Weighting data.Batches engine.AfterEpoch engine.Record inputs.Progress
    methods.Method methods.Run
"""

# Whose messages do not name the argument: who calls it puts the path of the setting before them.
UNNAMED = ("config.typed",)

ELSEWHERE = {
    "parts of training, which covlearn calls with tensors, networks and batches that it made": [
        "distributed.SharedBatchNorm",
        "distributed.average_buffers",
        "distributed.gathered",
        "distributed.in_turns",
        "distributed.max_of",
        "distributed.of_first",
        "distributed.share_batch_norm",
        "distributed.sum_gradients",
        "distributed.sum_of",
        "engine.Objective",
        "engine.forward",
        "engine.make_ledger",
        "engine.make_optimizer",
        "engine.mean_loss",
        "engine.predict",
        "engine.reduced",
        "engine.train",
        "ledger.Ledger",
        "losses.pick",
        "losses.weighted_logs",
        "reweight.project_weights",
    ],
    "an estimator of scikit-learn, whose parameters are checked in fit, by tests of its own": [
        "estimator.NoisyLabelClassifier",
    ],
}
