# `make test` and `make demo` need Python >= 3.11 and make; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: test demo lint types figures notebooks matrix docs clean

test: lint types
	$(BIN)/pytest

demo: $(INSTALLED)
	$(BIN)/python -m covlearn.demo

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

figures: $(INSTALLED)
	$(BIN)/python docs/draw_theory.py

notebooks: $(INSTALLED)
	$(BIN)/python -m examples.notebooks.run

# The oldest and the newest versions, each in an empty environment.
matrix: $(INSTALLED)
	$(BIN)/python -m tools.matrix oldest newest

docs: $(INSTALLED)
	$(BIN)/python -m tools.pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# Installed once, and again only when what is to be installed has changed.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "covlearn needs Python >= 3.11; name one with 'make PYTHON=python3.12 ...'"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis
