# Two jobs for a fresh machine that has Python >= 3.11 and make:
#   make demo   sets up .venv, fits SuMo-net to real data, prints its scores, writes pictures to demo/
#   make test   sets up .venv, runs lint, types and all tests
# And the paper's tables and figures (paper/README.md):
#   make paper ARGS="table3 --stored"
PYTHON ?= python3
ARGS ?= --help
MUTANTS ?= --sample 200 --seed 0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo paper test lint types check fuzz faults mutants format clean

demo: $(VENV)/.demo-ready
	$(BIN)/python examples/demo.py --out demo

paper: $(VENV)/.demo-ready
	$(BIN)/python -m paper $(ARGS)

test: lint types check

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test-ready
	$(BIN)/mypy

check: $(VENV)/.test-ready
	$(BIN)/python -m pytest

# tests/fuzz for longer and with other examples each time; a short fixed run of it is part of "check"
FUZZ ?= 5000
fuzz: $(VENV)/.test-ready
	SUMOSURV_FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/fuzz

# faults that once went unseen, planted one by one: every one of them must make its test fail
faults: $(VENV)/.test-ready
	$(BIN)/python tools/faults.py

# a random sample of small changes of the source, and which of them no test sees (resumes: .mutation/)
mutants: $(VENV)/.test-ready
	$(BIN)/python tools/mutate.py $(MUTANTS)

format: $(VENV)/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'sumosurv needs Python 3.11 or newer')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) (a minute or two the first time) ..."
	$(PIP) --editable ".[all]"
	touch $@

$(VENV)/.test-ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) (a minute or two the first time) ..."
	$(PIP) --editable ".[test]"
	touch $@ $(VENV)/.demo-ready

clean:
	rm -rf $(VENV) demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutation
