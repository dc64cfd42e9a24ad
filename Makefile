# Each target does its own set-up with plain pip; the first run takes a few minutes, later ones none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NAME ?= gateway
# Files of tests at once: many start servers and poll, so two keep two cores busy (four took longer).
JOBS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without its bytecode every server and every instance of a test compiles Penstock anew: a second each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check mutants bench sim pictures setup setup-dev clean

run: $(VENV)/.run-ready
	@$(BIN)/penstock up --deploy query-intent=examples/query_intent/artifact --log-level warning $(FLAGS)

test: $(VENV)/.dev-ready
	@$(BIN)/python -m tools.environments
	@$(BIN)/python tests/wire/fetch_vectors.py
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=20

check: $(VENV)/.dev-ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@MYPYPATH=src $(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest tests/architecture

# Do the tests notice when a rule is broken? MODULE=core/batching/batcher.py or a folder; FLAGS='--diff main'.
mutants: $(VENV)/.dev-ready
	@$(BIN)/python -m tools.mutants $(MODULE) $(FLAGS)

bench: $(VENV)/.dev-ready
	@$(BIN)/python -m bench $(NAME)

sim: $(VENV)/.run-ready
	@$(BIN)/python -m penstock.sim scenarios

# The pictures in the docs, made anew from what runs; needs Chromium.
pictures: $(VENV)/.dev-ready
	@$(BIN)/python docs/pictures.py

setup: $(VENV)/.run-ready
setup-dev: $(VENV)/.dev-ready

$(BIN)/python:
	@echo "making the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "hint: on Debian and Ubuntu, 'apt-get install python3-venv' and try again"; exit 1; }

$(VENV)/.run-ready: pyproject.toml | $(BIN)/python
	@$(BIN)/python tools/install.py "Penstock into $(VENV)" --editable .
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.run-ready
	@$(BIN)/python tools/install.py "what checks and tests need" --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .venvs .cache build dist
