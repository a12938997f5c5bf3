# `make demo` and `make test` set up all that they need in .venv.
PYTHON ?= python3.11
BIN := .venv/bin
CODE := src tests bench examples

.PHONY: demo page test test-page test-slow test-ray test-slurm test-sanitizers test-faults bench bench-examples bench-page bench-cluster bench-large format clean

demo: .venv/ready
	$(BIN)/lengthwise demo

# The laboratory in a browser, on this machine only.
page: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[page]"
	$(BIN)/lengthwise page

test: .venv/ready
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow and not ray and not slurm"

# The page in a real browser. Debian's chromium is installed where that is allowed.
test-page: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright
	command -v chromium >/dev/null || apt-get install --yes --quiet chromium
	$(BIN)/pytest tests/page/browser.py tests/page/test_*.py -n 0

# Tests that take minutes: the whole demo, and more of what `test` samples.
test-slow: .venv/ready
	$(BIN)/pytest -m slow -n 0

# Two Ray nodes on this machine, whose workers, nodes and drivers are killed.
test-ray: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[ray]"
	$(BIN)/pytest tests/test_ray.py -m ray -n 0

# A real SLURM of one machine, whose jobs and daemons are killed. It needs root, and installs
# Debian's packages where they are missing.
test-slurm: .venv/ready
	which slurmctld slurmd munged || apt-get install --yes --no-install-recommends slurm-wlm munge
	$(BIN)/pytest tests/test_slurm.py -m slurm -n 0

# The C code under AddressSanitizer and UndefinedBehaviorSanitizer, over random shapes.
test-sanitizers: .venv/ready
	$(BIN)/python tests/sanitize.py

# Kills, damage, races, full disks and absurd input; writes the table of docs/faults.md.
# SHARE=0.1 tries a tenth of each.
SHARE ?= 1
test-faults: .venv/ready
	$(BIN)/python tests/faults --share $(SHARE)

# Speed against Hugging Face's models, in an environment that it makes; leave the machine alone
# meanwhile. `bench-examples` counts the examples that training needs, against the defaults.
bench: .venv/ready
	$(BIN)/python bench/bench.py

bench-examples: .venv/ready
	$(BIN)/python bench/examples.py

# The page's first paint and its answers, in chromium; leave the machine alone meanwhile.
bench-page: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright
	command -v chromium >/dev/null || apt-get install --yes --quiet chromium
	$(BIN)/python bench/page.py

# Engines against the local one, and two processes against one; leave the machine alone meanwhile.
# `bench-large` is a sweep of 10,000 runs that sleep.
bench-cluster bench-large: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[ray]"
	$(BIN)/python bench/$(@:bench-%=%).py

format: .venv/ready
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# torch first and by its exact version: a range would pull gigabytes of CUDA.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-huggingface .venv-huggingface.lock
