# Everything runs in .venv, which is made when it is missing and brought up to date when pyproject.toml changes.
#   make demo     a comparison report in reports/demo, from a clean clone
#   make test     the tests              make lint     style, types, layers
#   make test-all also those that take long: every failure in every version of TensorRT-LLM
#   make schemas  the JSON Schemas       make clean    removes what the others made
#   make gallery  the demo's findings and picture in reports/gallery (needs Chromium)
# `make test PYTHON=python3.12 VENV=.venv312` uses another interpreter; PYTEST_ARGS="-k price" passes options on.

SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= reports/demo
PYTEST_ARGS ?=

# The tables' wheels exist for 3.11 to 3.13: those first, then any that can run the harness.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python3.10; do \
	if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; \
	then echo $$python; break; fi; done)

.PHONY: demo test test-all lint schemas gallery clean FORCE

demo: $(VENV)/.with-tables
	$(BIN)/trtllm-harness run demo --replace --out $(OUT)

test: $(VENV)/.with-dev $(VENV)/.with-checkpoints
	@five="$(abspath $(VENV)/transformers5/bin/python)"; if [ -x "$$five" ]; then export HARNESS_TRANSFORMERS5_PYTHON="$$five"; fi; \
	set -x; $(BIN)/python -m pytest --numprocesses auto --dist worksteal $(PYTEST_ARGS)

test-all:
	$(MAKE) test PYTEST_ARGS='-m "thorough or not thorough" $(PYTEST_ARGS)'

lint: $(VENV)/.with-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

schemas: $(VENV)/.with-dev
	$(BIN)/python -m harness.spec.schema

gallery: demo
	$(BIN)/python reports/gallery/make.py $(OUT) reports/gallery/demo

clean:
	test ! -f $(VENV)/.python || rm -rf $(VENV)
	rm -rf build dist reports/demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find harness tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Made anew when the interpreter is another one than the last time; an environment that somebody else made is left alone.
$(VENV)/.python: FORCE
	@test -n "$(PYTHON)" || { echo "no Python 3.10 or later with venv and pip found; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@version="$$($(PYTHON) -c 'import sys; print(sys.version)')" || { echo "$(PYTHON) does not run" >&2; exit 1; }; \
	if [ "$$version" != "$$(cat $@ 2>/dev/null)" ]; then \
		if [ -e $(VENV) ] && [ ! -e $@ ] && [ ! -e $(VENV)/.unfinished ]; then \
			echo "$(VENV) was not made by this Makefile: remove it, or name another one: make VENV=.venv-harness" >&2; exit 1; \
		fi; \
		echo "$(PYTHON) -m venv $(VENV)"; \
		rm -rf $(VENV) && mkdir -p $(VENV) && touch $(VENV)/.unfinished && $(PYTHON) -m venv $(VENV) \
			&& printf '%s\n' "$$version" > $@ && rm $(VENV)/.unfinished; \
	fi

$(VENV)/.with-tables: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[tables]'
	@touch $@

$(VENV)/.with-dev: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[tables,dev]'
	@touch $@ $(VENV)/.with-tables

# PyTorch and Model Optimizer, and a second environment that reads the same checkpoints with transformers 5, borrowing that
# torch. Only on Python 3.11 (CPU wheels), or with CHECKPOINTS=yes; the tests that need them are skipped where they are not.
$(VENV)/.with-checkpoints: $(VENV)/.with-dev tests/checkpoint-requirements.txt
	@if [ "$(CHECKPOINTS)" = yes ] || $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/checkpoint-requirements.txt && \
		rm -rf $(VENV)/transformers5 && $(BIN)/python -m venv $(VENV)/transformers5 && \
		$(VENV)/transformers5/bin/python -m pip install --quiet --disable-pip-version-check transformers==5.24.0 && \
		$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
			> $(VENV)/transformers5/lib/python3.11/site-packages/zz_torch.pth; \
	fi
	@touch $@

FORCE:
