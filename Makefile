# On a machine with Python 3.10 or later, venv, git and make:
#   make demo      detect heartbeats with a CUDA graph, on a GPU or, without one, in the emulator
#   make test      all tests; those for a GPU are skipped where there is none
#   make lint      style, types, and the order of the stages
#   make gpu-test  what belongs on a GPU machine; writes docs/gpu/last-run.json
#   make driver-behaviour   asks the driver of the GPU for every rule that it has; writes docs/driver-behaviour.md
# Each makes .venv and installs the project there. VENV=0 runs PYTHON as it is instead, for a machine with no network.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=

ifeq ($(VENV),0)
BIN :=
RUN := $(PYTHON)
INSTALLED :=
else
BIN := $(VENV)/bin/
RUN := $(BIN)python
INSTALLED := $(VENV)/installed
endif

.PHONY: demo test gpu-test driver-behaviour lint lint-style lint-format lint-types lint-stages clean

demo: $(INSTALLED)
	$(RUN) docs/examples/ecg.py

test: $(INSTALLED)
	$(RUN) -m pytest -n auto $(PYTEST_ARGS)

gpu-test: $(INSTALLED)
	$(RUN) tests/gpu_run.py -n auto $(PYTEST_ARGS)

driver-behaviour: $(INSTALLED)
	$(RUN) -m tests.conformance.behaviour

lint: lint-style lint-format lint-types lint-stages

lint-style: $(INSTALLED)
	$(RUN) -m ruff check .

lint-format: $(INSTALLED)
	$(RUN) -m ruff format --check .

lint-types: $(INSTALLED)
	$(RUN) -m mypy

lint-stages: $(INSTALLED)
	$(BIN)lint-imports --no-cache

# Touched last, so that an install that failed is tried again; renewed when pyproject.toml has changed.
$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) out build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
