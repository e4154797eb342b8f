"""The house checks: what every method must keep, shipped so that outside methods can use them.

``check_method(MyMethod())`` runs them all. Each is a function of a method that raises an
``AssertionError`` with a sentence; :data:`CHECKS` has them by name, to be parametrised over. They
train on a toy with plans that :func:`shortened` cuts to a few epochs.
"""

from covlearn.methods.base import RUN_MEMBERS
from covlearn.testing.checks import CHECKS, check_method
from covlearn.testing.processes import fit_in_processes, require_equal_one
from covlearn.testing.short import shortened
from covlearn.testing.toy import NET_OPTIONS, Toy, make_toy

__all__ = [
    "CHECKS",
    "NET_OPTIONS",
    "RUN_MEMBERS",
    "Toy",
    "check_method",
    "fit_in_processes",
    "make_toy",
    "require_equal_one",
    "shortened",
]
