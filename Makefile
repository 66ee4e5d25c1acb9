# Every target sets up .venv by itself; a second call does not reinstall.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
PEERS := .venv-peers
CISR := .venv-cisr
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: reproduce test test-slow test-cisr cisr lint bench bench-live bench-peers docs lock clean

reproduce: $(READY)
	$(BIN)/tether reproduce all

test: $(READY)
	$(BIN)/python -m tether.warm
	$(BIN)/pytest -n 2 -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m tether.warm
	$(BIN)/pytest -n 2 -m slow

test-cisr: $(CISR)/.ready
	$(CISR)/bin/pytest tests/cisr

# Train the CISR students of the lake study anew: about 90 s each, one core. It goes on where it stopped.
cisr: $(CISR)/.ready
	$(CISR)/bin/python -m tether.cisr.train students
	$(CISR)/bin/python -m tether.cisr.train collect

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# The live figures: a decision in process, and over HTTP on SQLite and PostgreSQL. Kills, soak and fuzz have no ratio:
# benchmarks/live_kill.py, live_soak.py and fuzz.py, short in `make test-slow`.
bench-live: $(READY)
	$(BIN)/python benchmarks/live_decide.py --sqlite
	$(BIN)/python benchmarks/live_http.py --postgres

bench-peers: $(READY) $(PEERS)/.ready
	$(BIN)/python benchmarks/run.py --peers $(PEERS)/bin/python

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# New versions on purpose: resolve afresh, then write down what was resolved.
lock:
	rm -rf .venv && $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -e ".[dev]"
	$(BIN)/pip freeze --exclude-editable --exclude pip --exclude setuptools > constraints.txt

clean:
	rm -rf .venv $(PEERS) $(CISR) out

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(PEERS)/.ready: benchmarks/peers/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	touch $@

$(CISR)/.ready: requirements-cisr.txt constraints.txt
	test -x $(CISR)/bin/python || $(PYTHON) -m venv $(CISR)
	$(CISR)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-cisr.txt -e ".[experiments]"
	touch $@
