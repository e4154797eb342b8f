"""One TOML file is one table: its cells are run and set beside the paper's (``covlearn bench``)."""
