# make demo    set up, then 200 episodes on plain uvicorn workers and on supervised ones
# make test    set up, then lint and every test but the soaks and the real clients
# make test-clients    real clients of the presets' servers, in environments of their own under .venv-clients (needs npm)
# make bench   set up, then measure beside nginx, HAProxy and plain workers; ARGS=--list shows what, ARGS=relay runs that
PYTHON ?= python3
VENV ?= .venv
TEST_PROCESSES ?= 3
BIN = $(VENV)/bin

.PHONY: demo test test-clients lint bench soak pictures setup clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("gym-supervise needs Python 3.11 or later, found " + sys.version.split()[0] + "; set PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/gym-supervise demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup lint
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile

test-clients: setup
	$(BIN)/python tests/clients/environments.py
	$(BIN)/pytest -m clients tests/clients --timeout=600

bench: setup
	benchmarks/install-peers
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks $(ARGS)

pictures: setup
	$(BIN)/python docs/pictures.py

soak: setup
	tests/install-spin
	$(BIN)/pytest -m soak -s --timeout=7200

clean:
	rm -rf $(VENV) .venv-clients build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
