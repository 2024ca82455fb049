# Two jobs for a fresh machine that has Python >= 3.11 and make:
#   make demo   sets up .venv, fits SuMo-net to real data, prints its scores, writes pictures to demo/
#   make test   sets up .venv, runs lint, types and all tests
# More tests, each in an environment of its own, of everything but torch, whose CPU build is pinned:
#   make test-lowest   with the lower bounds of pyproject.toml (.venv-lowest)
#   make test-slow     those of several processes and of a Ray cluster on this machine, which "make test" leaves out
#   make test-cuda     those that need a GPU
#   make test-newest   with the newest versions there are (.venv-newest); without lifelines, which wants pandas < 3
# The documentation site, with warnings as errors, in docs/_build/html:
#   make docs          everything, the gallery's scripts included
#   make docs-quick    without running the gallery
# The distributions, in dist/:
#   make wheel
# Results of R that tests compare with, computed anew (a minute); needs Rscript with jsonlite, survival, cmprsk, prodlim,
# riskRegression, geepack, rms, glmnet and numDeriv:
#   make r-records
# Coverage of intervals in simulations, in results/coverage.json, and docs/validation.md (half an hour on one core):
#   make coverage
# And the paper's tables and figures (paper/README.md):
#   make paper ARGS="table3 --stored"
PYTHON ?= python3
ARGS ?= --help
MUTANTS ?= --sample 200 --seed 1 --jobs 2
# one process for each core; the tests of a file stay together, since they share what they fit
WORKERS := -n auto --dist loadfile
VENV := .venv
BIN := $(VENV)/bin
TORCH := $(shell grep ^torch== constraints.txt)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: r-records coverage demo paper docs docs-quick wheel test test-slow test-cuda test-lowest test-newest lint types check fuzz mutants format clean

demo: $(VENV)/.demo-ready
	$(BIN)/python examples/demo.py --out demo

paper: $(VENV)/.paper-ready
	$(BIN)/python -m paper $(ARGS)

SITE := $(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
docs: $(VENV)/.docs-ready
	$(SITE)
	@echo "the site: docs/_build/html/index.html"

docs-quick: $(VENV)/.docs-ready
	$(SITE) -D plot_gallery=0

wheel: $(VENV)/bin/python
	$(PIP) build
	$(BIN)/python -m build

test: lint types check

# one after the other: each starts processes of its own
test-slow: $(VENV)/.test-ready
	$(BIN)/python -m pytest -m slow

test-cuda: $(VENV)/.test-ready
	SUMOSURV_TEST_CUDA=1 $(BIN)/python -m pytest -m cuda tests

# old versions warn of each other: only here warnings are not errors
test-lowest: $(VENV)-lowest/.ready
	$(VENV)-lowest/bin/python -m pytest $(WORKERS) -W default --disable-warnings

test-newest: $(VENV)-newest/bin/python
	$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager \
		--editable ".[all,forest]" $(TORCH) pytest pytest-xdist hypothesis
	$(VENV)-newest/bin/python -m pytest $(WORKERS)

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test-ready
	$(BIN)/mypy

check: $(VENV)/.test-ready
	$(BIN)/python -m pytest $(WORKERS)

# tests/fuzz for longer and with other examples each time; a short fixed run of it is part of "check"
FUZZ ?= 5000
fuzz: $(VENV)/.test-ready
	SUMOSURV_FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/fuzz

# a random sample of small changes of the source, and which of them no test notices (resumes from .mutation/)
mutants: $(VENV)/.test-ready
	$(BIN)/python tools/mutate.py $(MUTANTS)

coverage: $(VENV)/.test-ready
	$(BIN)/python tools/coverage.py
	$(BIN)/python tools/validation.py

r-records:
	cd tests/r && for script in data coxph finegray curves concordance parametric glmnet formula spells scores; do Rscript $$script.R || exit 1; done

format: $(VENV)/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python $(VENV)-lowest/bin/python $(VENV)-newest/bin/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'sumosurv needs Python 3.11 or newer')"
	$(PYTHON) -m venv $(@:/bin/python=)

READY := $(VENV)/.demo-ready $(VENV)/.paper-ready $(VENV)/.test-ready $(VENV)/.docs-ready
$(VENV)/.paper-ready: EXTRA := [paper]
$(VENV)/.test-ready: EXTRA := [test]
$(VENV)/.docs-ready: EXTRA := [docs]
$(READY): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) (a minute or two the first time) ..."
	$(PIP) --editable ".$(EXTRA)"
	touch $@

$(VENV)-lowest/.ready: pyproject.toml constraints-lowest.txt | $(VENV)-lowest/bin/python
	@echo "installing into $(VENV)-lowest (some minutes the first time) ..."
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt \
		--editable ".[all,forest]" pytest pytest-xdist hypothesis lifelines
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-newest demo dist build docs/_build docs/gallery docs/api/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutation
