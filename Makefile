# `make help` lists what there is. Everything runs in .venv, which is made when it is needed.

# The first Python that is new enough; another one: make PYTHON=/path/to/python
PYTHON ?= $(shell for python in python3 python3.12 python3.11 python3.13; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest $(PYTEST_ARGS)
# Two processes, each with half of the files in their order: what one test has compiled or made
# serves its neighbours. Who is done first takes over half of what the other has left.
SHARED_OUT := -n 2 --dist worksteal
# One test that waits for ever must not hold the others: it fails, and says where it waited.
AT_MOST := --timeout
# Tests start the program many times: its modules are compiled the first time only.
unexport PYTHONDONTWRITEBYTECODE
# Threads of BLAS wait for each other by turning on the spot: one for each process, before NumPy is
# imported by whatever plugin.
export OPENBLAS_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help install demo docs test test-slow test-nightly arviz lint types format benchmark gpu clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/installed-with-tests  ## make .venv, with what the tests need

demo: $(VENV)/installed  ## run the shortest recipe from beginning to end
	$(BIN)/attention-posterior run runs/quickstart.toml

# Programs of the tests are small and many. Without its fusion emitters XLA compiles them in half of
# the time, and they are not worth cutting into parts that are compiled side by side. Arrays of the
# tests and of the site's tutorials are so small that compiling for speed costs more than it saves
# altogether. XLA ends where it does not know a flag, and from jaxlib 0.10 on it does
# not know the first one.
EMITTERS = $(shell $(BIN)/python -c 'from importlib.metadata import version; \
	print("--xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.9.") else "")')
COMPILED_SOON = XLA_FLAGS="$(EMITTERS) --xla_cpu_parallel_codegen_split_count=1"
UNOPTIMISED = JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(COMPILED_SOON)
test: $(VENV)/installed-with-tests  ## the fast tests
	$(UNOPTIMISED) $(PYTEST) $(SHARED_OUT) $(AT_MOST) 600 -m "not slow and not nightly"

test-slow: $(VENV)/installed-with-tests  ## the fast and the slow tests
	$(UNOPTIMISED) $(PYTEST) $(SHARED_OUT) $(AT_MOST) 1800 -m "not nightly"

arviz: $(VENV)/installed-with-tests  ## the tests of ArviZ's tools, in the release of this Python
	$(UNOPTIMISED) $(PYTEST) $(AT_MOST) 600 -m "not nightly" tests/test_arviz.py \
		tests/sampler/analysis/test_model_comparison.py tests/sampler/presentation/test_terminal.py

test-nightly: $(VENV)/installed-with-tests  ## what takes minutes: every study, every golden problem, a cluster
	$(COMPILED_SOON) $(PYTEST) $(AT_MOST) 3600 -m nightly

lint: $(VENV)/installed-with-tests  ## check format and style, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/installed-with-tests  ## check the types of both packages
	$(BIN)/python -m pyright --pythonpath $(BIN)/python

format: $(VENV)/installed-with-tests  ## put format and style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed-with-docs  ## build the site, docs/_build/html; its tutorials are executed
	$(UNOPTIMISED) $(BIN)/python -m sphinx --builder html --jobs 2 --fail-on-warning --keep-going docs docs/_build/html

benchmark: $(VENV)/installed-with-tests  ## time the default sampler beside other libraries, and commands
	$(BIN)/python -m runs.benchmarks.race
	$(BIN)/python -m runs.benchmarks.latency

gpu: $(VENV)/installed-with-tests  ## time NUTS in all weights and the collapsed sampler, on an accelerator
	$(BIN)/python -m runs.benchmarks.gpu

clean:  ## remove .venv and caches; results stay
	rm -rf $(VENV) .venv-* docs/_build docs/studies .pytest_cache .ruff_cache .hypothesis build *.egg-info

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/installed-with-tests: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-with-docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@
