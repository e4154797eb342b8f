"""Second-order statistics and the covariance term of CAL (paper, Sec. 4)."""

from covlearn.covariance.module import CALLoss
from covlearn.covariance.table import class_mean_loss, covariance_table
from covlearn.covariance.term import (
    SecondOrder,
    Weighting,
    batch_mass,
    cal,
    covariance_term,
    with_covariance,
)

__all__ = [
    "CALLoss",
    "SecondOrder",
    "Weighting",
    "batch_mass",
    "cal",
    "class_mean_loss",
    "covariance_table",
    "covariance_term",
    "with_covariance",
]
