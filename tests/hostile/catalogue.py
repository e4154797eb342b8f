"""Bad input to public functions and classes: a row for each, or a word on why it has none.

``ANY_KIND`` take every wrong kind of value and answer each with a ValueError. ``ROWS`` have inputs
of the right type and a wrong value. ``CHECKED_ELSEWHERE`` take objects of covlearn that were checked
when they were made, or results that covlearn made: a wrong Python type is a TypeError there, as the
annotations say.
"""

from tests.hostile.rows_formulas import FORMULAS, Row
from tests.hostile.rows_runs import RUNS

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

ROWS: dict[str, list[Row]] = {**FORMULAS, **RUNS}
assert len(ROWS) == len(FORMULAS) + len(RUNS)

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
