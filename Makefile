# Every target sets up the environment it needs by itself; a second call does not reinstall.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
CISR := .venv-cisr
REAL := .venv-real
WHEEL := $(VENV)-wheel
BUILD := pyproject.toml setup.py build_backend.py build_kernels.py
# The versions in constraints.txt, also for what builds need; from pip 25.3 on that is a variable of its own.
PINNED := env PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
QUIETLY := --quiet --disable-pip-version-check
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Bytecode is kept: some hundred interpreters that tests start would each compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: reproduce figures figures-write figures-benchmarks figures-real test test-slow test-pythons test-cisr cisr real test-real kernels wheel lint bench bench-live bench-peers docs lock clean

reproduce: kernels
	$(BIN)/tether reproduce all

# Every table, number and picture of README and docs, written from docs/results. Studies go on where they stopped.
# One of them alone: make figures-figure2. Only the pages, from what is stored: make figures-write.
figures: figures-all figures-real
	$(BIN)/python tools/figures.py outputs
	$(BIN)/python tools/figures.py check

figures-write: kernels
	$(BIN)/python tools/figures.py write

# Those of benchmarks/ that pages show: about ten minutes on two quiet cores, which timings want.
figures-benchmarks: kernels
	$(BIN)/python tools/figures.py run benchmarks

figures-%: kernels
	$(BIN)/python tools/figures.py run $*

# What needs the simulators of other people.
figures-real: $(REAL)/.ready kernels
	$(REAL)/bin/python tools/figures.py run all --environment real
	$(REAL)/bin/python tools/figures.py outputs

test: kernels
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test-slow: kernels
	$(BIN)/pytest -n 2 --dist loadgroup -m slow

# The default suite on every Python that is found here, each with an environment of its own.
test-pythons:
	@.ci/test-pythons 3.11 3.12 3.13

# Compile what was edited since the last time, for use in place; quick when nothing was.
kernels: $(READY)
	@$(BIN)/python setup.py --quiet build_ext --inplace

# A wheel that needs no compiler, into dist/. zig compiles it for an old C library, so it runs on systems older than this one.
wheel: $(WHEEL)/.ready
	rm -rf build/wheel
	TETHER_ZIG=1 $(PINNED) $(WHEEL)/bin/pip wheel $(QUIETLY) --no-deps --wheel-dir build/wheel .
	PATH="$(CURDIR)/$(WHEEL)/bin:$$PATH" $(WHEEL)/bin/auditwheel repair --wheel-dir dist build/wheel/*.whl

test-cisr: $(CISR)/.ready kernels
	$(CISR)/bin/pytest tests/lab/cisr tests/agents/relatives/test_ppo_lagrangian.py

# Train the CISR students of the lake study anew. It goes on where it stopped.
cisr: $(CISR)/.ready kernels
	$(CISR)/bin/python -m tether.lab.cisr.train students
	$(CISR)/bin/python -m tether.lab.cisr.train collect

# Worlds that nobody here wrote, in an environment of their own. It goes on where it stopped, and writes their pages.
real: $(REAL)/.ready kernels
	$(REAL)/bin/python tools/figures.py run real real-buildings real-patients

test-real: $(REAL)/.ready kernels
	$(REAL)/bin/pytest tests/lab/real -m "slow or not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: kernels
	$(BIN)/python benchmarks/run.py

# The live figures: a decision in process, and over HTTP on SQLite and PostgreSQL. Kills, soak and fuzz have no ratio:
# benchmarks/live_kill.py, live_soak.py and fuzz.py, short in `make test-slow`.
bench-live: kernels
	$(BIN)/python benchmarks/live_decide.py
	$(BIN)/python benchmarks/live_http.py --postgres

bench-peers: kernels $(PEERS)/.ready
	$(BIN)/python benchmarks/run.py --peers $(PEERS)/bin/python

# Not --quiet: with it, warnings are not counted, and --strict fails on none.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# New versions on purpose: resolve afresh, then write down what was resolved.
lock:
	rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e ".[dev]"
	$(BIN)/pip freeze --all --exclude-editable --exclude pip > constraints.txt

clean:
	rm -rf .venv .venv-* build dist out src/*.egg-info src/tether/kernels/*.so

$(READY): $(BUILD) constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PINNED) $(BIN)/pip install $(QUIETLY) -e ".[dev]"
	$(BIN)/python build_backend.py | xargs -r $(PINNED) $(BIN)/pip install $(QUIETLY)
	touch $@

$(WHEEL)/.ready: requirements-wheel.txt
	test -x $(WHEEL)/bin/python || $(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/pip install $(QUIETLY) -r $<
	touch $@

$(PEERS)/.ready: benchmarks/peers/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install $(QUIETLY) --no-deps -r $<
	touch $@

$(CISR)/.ready: requirements-cisr.txt constraints.txt $(BUILD)
	test -x $(CISR)/bin/python || $(PYTHON) -m venv $(CISR)
	$(PINNED) $(CISR)/bin/pip install $(QUIETLY) -r requirements-cisr.txt -e ".[experiments]"
	touch $@

# Without dependencies first, in the versions that were tried; then Tether with its own, which changes none of them.
$(REAL)/.ready: requirements-real.txt requirements-real-ppo.txt constraints.txt $(BUILD)
	test -x $(REAL)/bin/python || $(PYTHON) -m venv $(REAL)
	$(REAL)/bin/pip install $(QUIETLY) --no-deps -r requirements-real.txt
	$(REAL)/bin/pip install $(QUIETLY) --no-deps -r requirements-real-ppo.txt || echo "torch was not installed: the study skips PPO."
	$(PINNED) $(REAL)/bin/pip install $(QUIETLY) -e ".[experiments]" pytest filelock Jinja2 joblib requests setuptools threadpoolctl
	touch $@
