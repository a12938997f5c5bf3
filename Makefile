# `make demo` and `make test` set up all that they need, in .venv.
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: demo test test-slow bench bench-examples format clean

demo: .venv/ready
	$(BIN)/lengthwise demo

test: .venv/ready
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow"

# What takes minutes: the whole demo, and more of what `test` samples.
test-slow: .venv/ready
	$(BIN)/pytest -m slow -n 0

# Speed against Hugging Face's models, in an environment with transformers that it makes; leave the machine alone
# meanwhile. Then the examples that training takes, against the defaults.
bench: .venv/ready
	$(BIN)/python bench/bench.py

bench-examples: .venv/ready
	$(BIN)/python bench/examples.py

format: .venv/ready
	$(BIN)/ruff check --fix src tests bench
	$(BIN)/ruff format src tests bench

# torch first and by its exact version: a range would pull gigabytes of CUDA.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-huggingface .venv-huggingface.lock
