"""covlearn: noisy labels in; a robust classifier, the wrong labels and their repairs out."""

__version__ = "0.1.0.dev0"
