# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
UV_VERSION := 0.13.9

.PHONY: help setup demo test test-gpu lint lock clean

help:  ## say what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: .venv/.ready  ## create .venv with the locked versions and DICE itself

# Made again when the lock or the package list changes. Without uv (no such wheel for this platform) pip does it.
.venv/.ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "DICE needs Python 3.11 or newer"'
	$(PYTHON) -m venv .venv
	@echo "installing the locked environment (about 1-3 minutes, 2 GB) ..."
	if $(BIN)/pip install -q --disable-pip-version-check uv==$(UV_VERSION); then \
	  UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode \
	    --link-mode copy -r requirements.lock && \
	  $(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	else \
	  $(BIN)/pip install -q -r requirements.lock && $(BIN)/pip install -q --no-deps --no-build-isolation -e . ; \
	fi
	touch $@

demo: setup  ## run the whole chain on bundled data, no GPU needed (a few minutes)
	$(BIN)/dice demo

test: setup lint  ## run every check that needs no GPU
	$(BIN)/python -m pytest -m "not gpu"

test-gpu: setup  ## run the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

lint: setup  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/mypy

lock:  ## resolve requirements.in again into requirements.lock
	UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv pip compile -q --no-emit-index-url --no-emit-find-links --no-annotate \
	  --no-header requirements.in -o requirements.lock
	sed -i 's/+cpu$$//' requirements.lock

clean:  ## remove what DICE made here (not .venv)
	rm -rf .dice build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
