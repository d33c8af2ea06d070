# What one does with this repository. `make` alone lists it; anything longer than three lines is a script in packaging/.

MAKEFLAGS += --no-print-directory
BIN := .venv/bin
READY := .venv/ready

PYTHON ?= python3
DEMO_ARGS ?=
BENCH ?= fanout
BENCH_ARGS ?= --devices 1000
AGENT_ARGS ?=
SALT_ARGS ?=
PYTEST_ARGS ?=
FUZZ_ARGS ?=
CHAOS_ARGS ?=
TIMES ?= 10
ARCH ?= amd64
VERSION ?=
FAST ?=

.PHONY: help setup demo test check format unit bench bench-agent bench-salt bench-peers flakes fuzz chaos failover-time deb wheels appliance salt clean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help: ## list these targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## make .venv with everything in it, and install the Debian packages that are missing
	@packaging/debian-packages
	@$(MAKE) -s $(READY)

$(READY): pyproject.toml constraints.txt packaging/make-venv
	@packaging/make-venv "$(PYTHON)"
	@touch $@

demo: setup ## show the whole system on this machine, in under a minute (DEMO_ARGS="--devices 20 --keep")
	@$(BIN)/outstation demo $(DEMO_ARGS)

test: setup ## check, then run every test, in three processes; as root also those for which machines are booted
	@packaging/run-tests $(PYTEST_ARGS)

check: $(READY) ## format, lint, types and the import contract
	$(BIN)/ruff format --check . && $(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(READY) ## format the code and mend what the linter can mend safely
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

unit: $(READY) ## the quick tests: no broker, no second process
	@$(BIN)/pytest tests/unit $(PYTEST_ARGS)

bench: setup ## measure against a lean reference in the same run (BENCH_ARGS="--devices 10000 --repeat 3 --json")
	@$(BIN)/outstation bench $(BENCH) $(BENCH_ARGS)

bench-agent: setup ## measure the agent's package beside a stock Salt minion on booted machines; as root (AGENT_ARGS="--repeat 5")
	@packaging/make-bench-peers /usr/bin/python3
	@$(MAKE) -s deb FAST=1 && $(MAKE) -s deb FAST=1 VERSION=0.0.1
	@$(BIN)/python -m tests.appliance.agent_figures $(AGENT_ARGS)

bench-salt: setup ## measure a gateway below a stock Salt master beside a bare client and Salt's deltaproxy; as root (SALT_ARGS="--repeat 5")
	@$(BIN)/python -m tests.salt.fan_out $(SALT_ARGS)

bench-peers: ## get salt-ssh and pyinfra from PyPI, for "make bench BENCH=ssh BENCH_ARGS='--devices 500'"
	@packaging/make-bench-peers "$(PYTHON)"

flakes: setup ## repeat tests under load to find the unreliable (TIMES=10 PYTEST_ARGS="tests/integration -k spool")
	@packaging/flakes $(TIMES) $(PYTEST_ARGS)

fuzz: $(READY) ## feed every reader of others' bytes for two minutes; what breaks one is kept (FUZZ_ARGS="--times 30 proofs")
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	@$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

chaos: $(READY) ## break a whole system for 15 minutes and count what is lost; as root (CHAOS_ARGS="--minutes 3 --faults 10 --seed 7")
	@$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

failover-time: $(READY) ## time how long events need to reach the next master when one is lost; as root (FAILOVER_ARGS="--repeat 3 --types hot")
	@$(BIN)/python -m tests.chaos.failover_time $(FAILOVER_ARGS)

appliance: setup ## boot machines and try the packages on them: 40 minutes, as root (PYTEST_ARGS="-m short": 8)
	@packaging/appliance-packages
	@$(MAKE) -s deb FAST=1 && $(MAKE) -s deb FAST=1 VERSION=0.0.1
	@OUTSTATION_APPLIANCE=1 $(BIN)/pytest tests/appliance $(PYTEST_ARGS)

salt: setup ## stock Salt masters of three releases above a gateway: 30 minutes and 700 MB, as root (PYTEST_ARGS="-k 3008")
	@OUTSTATION_SALT=long $(BIN)/pytest -n 3 --dist loadgroup tests/salt $(PYTEST_ARGS)

deb: ## build the Debian packages into dist/ (ARCH=arm64; for tests FAST=1, and VERSION=0.0.9 for another version)
	@OUTSTATION_DEB_FAST=$(FAST) packaging/make-deb $(ARCH) dist $(VERSION)

wheels: $(READY) ## choose anew what the packages bundle, from pyproject.toml and constraints.txt
	@$(BIN)/python packaging/lock_wheels.py $(BIN)/pip

clean: ## remove all that these targets made
	rm -rf .cache .venv build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find device_agent upstream gateway tests -name __pycache__ -type d -prune -exec rm -rf {} +
