# Every target prepares .venv by itself; nothing is reinstalled while pyproject.toml and constraints.txt are unchanged.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all bench bench-peers lint docs dist clean

demo: $(READY)
	$(BIN)/momentalign demo

test: lint
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term-missing:skip-covered

test-all: lint
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n 2 -m "not gpu" --cov --cov-report=term-missing:skip-covered

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-peers: $(READY)
	$(BIN)/python -m benchmarks.peers

docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group docs
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html

dist: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "build>=1.2"
	rm -rf dist && $(BIN)/python -m build --quiet
	$(BIN)/python -m pytest -q -m long tests/promises/test_distribution.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[deep,onnx,tables]" --group test --group lint
	touch $(READY)

clean:
	rm -rf $(VENV) build dist docs/_build docs/api docs/gallery .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
