# `make run` and `make test` are all that a newcomer needs; each installs what it wants, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
INSTALLED := $(VENV)/.installed

.PHONY: run test unit clusters examples cards lint format clean

run: $(BASE)
	$(BIN)/favor run

test: unit clusters examples

# One thread in each of the two workers: with more they would wait for each other. A file's tests stay in one worker, so that
# what they share is made once.
unit: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope tests --ignore=tests/cluster

# A real Slurm and a real Ray on this machine. They start many processes at once, which would disturb the clocks of other tests.
clusters: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster

# The examples in docstrings.
examples: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --doctest-modules src

# The zoo's cards as data, after a change in src/favor/zoo.
cards: $(INSTALLED)
	$(BIN)/python benchmarks/make_cards.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)

# A stamp is newer than what decides the installation, so a second call installs nothing.
# Modules are compiled here, without tests, and not by pip, which would compile everything: where PYTHONDONTWRITEBYTECODE is set,
# as in many containers, every call would compile them again.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests/|torch/testing' src/favor $(VENV)/lib/python*/site-packages

$(BASE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	$(COMPILE)
	touch $@

# What the tests need besides, in one go where nothing is there yet.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[dev]'
	$(COMPILE)
	touch $(BASE) $@
