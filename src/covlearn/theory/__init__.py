"""The paper's theory as executable statements on finite problems; docs/theory.md has the proofs.

>>> from covlearn.theory import binary_decoupling, binary_decoupling_repaired, examples
>>> binary_decoupling(examples.noisier_class(), [1, 1]).holds
False
>>> binary_decoupling_repaired(examples.noisier_class(), [1, 1]).holds
True
"""

from covlearn.theory import examples, objectives
from covlearn.theory.binary import (
    Rates,
    binary_decoupling,
    binary_decoupling_repaired,
    class_rates,
    missing_covariance,
    optimality,
    optimality_condition,
    peer_bound,
    peer_bound_repaired,
    peer_on_bayes,
    rates,
    z1,
    z2,
)
from covlearn.theory.imperfect import (
    counted_risk,
    covariance_error,
    imperfect_bound,
    imperfect_bound_repaired,
    imperfect_bound_unrelated,
    refined_given_x,
    share_right,
    wrong_rate,
)
from covlearn.theory.multiclass import (
    bayes_peer_covariance,
    cal_optimality,
    class_dependent_risk,
    column_rates,
    covariance_terms,
    decoupling,
    decoupling_printed,
    decoupling_repaired,
    has_structure,
    invariance,
    peer_optimality,
)
from covlearn.theory.objectives import (
    counted_transition,
    error_price,
    minimisers,
    risk,
    worst_error,
)
from covlearn.theory.parts import (
    effective_weight,
    part_decoupling,
    part_decoupling_repaired,
    part_decoupling_within,
    part_rate,
)
from covlearn.theory.problem import Problem, Statement, binary_problem, one_hot, zero_one
from covlearn.theory.strength import (
    beta_interval,
    bounded_below,
    cut_off_minimiser,
    keeps_labels,
    one_hot_coefficients,
)

__all__ = [
    "Problem",
    "Rates",
    "Statement",
    "bayes_peer_covariance",
    "beta_interval",
    "binary_decoupling",
    "binary_decoupling_repaired",
    "binary_problem",
    "bounded_below",
    "cal_optimality",
    "class_dependent_risk",
    "class_rates",
    "column_rates",
    "counted_risk",
    "counted_transition",
    "covariance_error",
    "covariance_terms",
    "cut_off_minimiser",
    "decoupling",
    "decoupling_printed",
    "decoupling_repaired",
    "effective_weight",
    "error_price",
    "examples",
    "has_structure",
    "imperfect_bound",
    "imperfect_bound_repaired",
    "imperfect_bound_unrelated",
    "invariance",
    "keeps_labels",
    "minimisers",
    "missing_covariance",
    "objectives",
    "one_hot",
    "one_hot_coefficients",
    "optimality",
    "optimality_condition",
    "part_decoupling",
    "part_decoupling_repaired",
    "part_decoupling_within",
    "part_rate",
    "peer_bound",
    "peer_bound_repaired",
    "peer_on_bayes",
    "peer_optimality",
    "rates",
    "refined_given_x",
    "risk",
    "share_right",
    "worst_error",
    "wrong_rate",
    "z1",
    "z2",
    "zero_one",
]
