"""A run as one page of HTML that opens offline: look, decide, and feed the decisions back.

Everything on the page is read from the files of a run folder, gathered as plain JSON
(:mod:`covlearn.report.collect`) and shown by the scripts in ``assets``, which set text and never
markup: names of files and labels cannot run anything.
"""

from covlearn.report.page import write_comparison, write_report

__all__ = ["write_comparison", "write_report"]
