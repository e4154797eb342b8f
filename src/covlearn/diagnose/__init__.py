"""Is the noise instance-dependent, and which method does that speak for?"""

from covlearn.diagnose.dependence import Finding, Smoother, check_draws, instance_dependence_test
from covlearn.diagnose.runs import DIAGNOSIS, Diagnosis, diagnose_classifier, diagnose_run

__all__ = [
    "DIAGNOSIS",
    "Diagnosis",
    "Finding",
    "Smoother",
    "check_draws",
    "diagnose_classifier",
    "diagnose_run",
    "instance_dependence_test",
]
