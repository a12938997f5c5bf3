# `make demo` and `make test` set up all that they need, in .venv.
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: demo test test-slow format clean

demo: .venv/ready
	$(BIN)/lengthwise demo

test: .venv/ready
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow"

# What takes minutes: the whole demo, and more of what `test` samples.
test-slow: .venv/ready
	$(BIN)/pytest -m slow -n 0

format: .venv/ready
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

# torch first and by its exact version: a range would pull gigabytes of CUDA.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-huggingface
