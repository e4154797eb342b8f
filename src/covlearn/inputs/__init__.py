"""Users' own data: images, tables, features and datasets as examples with labels.

:func:`read_examples` takes any of them. Its rules are written where they are kept:
`covlearn.inputs.labels`, `covlearn.inputs.tables`, `covlearn.inputs.images`,
`covlearn.inputs.folders`, `covlearn.inputs.manifests`, `covlearn.inputs.arrays` and
`covlearn.inputs.extractors`. Nothing that is read is ever executed or unpickled.
"""

from covlearn.inputs.examples import Examples, Progress, Skipped
from covlearn.inputs.read import read_examples

__all__ = ["Examples", "Progress", "Skipped", "read_examples"]
