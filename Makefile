# Each target does its own set-up with plain pip; the first run takes a few minutes, later ones none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NAME ?= gateway
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test check bench sim setup setup-dev clean

run: $(VENV)/.run-ready
	@$(BIN)/penstock up --deploy query-intent=examples/query_intent/artifact --log-level warning $(FLAGS)

test: $(VENV)/.dev-ready
	@$(BIN)/python tests/clients/set_up.py
	@$(BIN)/python tests/wire/fetch_vectors.py
	@$(BIN)/python tests/compile/set_up.py
	@$(BIN)/python -m pytest

check: $(VENV)/.dev-ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@MYPYPATH=src $(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest tests/architecture

bench: $(VENV)/.dev-ready
	@$(BIN)/python -m bench $(NAME)

sim: $(VENV)/.run-ready
	@$(BIN)/python -m penstock.sim scenarios

setup: $(VENV)/.run-ready
setup-dev: $(VENV)/.dev-ready

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) || { echo "hint: on Debian and Ubuntu, 'apt-get install python3-venv' and try again"; exit 1; }

$(VENV)/.run-ready: pyproject.toml | $(BIN)/python
	@echo "installing Penstock into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.run-ready
	@echo "installing what checks and tests need ..."
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .venvs .cache build dist
