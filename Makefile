# Needs Python 3.11 or newer with pip and venv, and make. Everything else is installed into .venv.
#
#   make PYTHON=python3.12 test     uses another interpreter
#   make test ARGS='-k meta_fl'     hands arguments on to the command

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
# The tests of a file stay together on one of two workers, which has their fixtures and compiled programs.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
AXE    := .cache/axe/node_modules/axe-core/axe.min.js

.PHONY: help demo journey fuzz browser test test-slow lint format docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.run ## install, train on the embedded data and compare the methods
	$(BIN)/headstart run $(ARGS)

journey: ## install afresh and go from two tables to a new client's model: train, look, adapt, predict, export
	$(PYTHON) tools/journey.py $(ARGS)

fuzz: $(VENV)/.dev ## try 2,000 broken and odd configurations, tables and model files
	$(BIN)/python -m tools.fuzzing $(ARGS)

browser: ## find or install what tests of pages use: Chromium, its driver, axe-core; without them those tests are skipped
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; } || \
	  echo "Chromium and chromedriver are not here and cannot be installed: tests of pages will be skipped."
	@[ -f $(AXE) ] || { command -v npm >/dev/null && mkdir -p .cache/axe && \
	  npm install --silent --no-audit --no-fund --prefix .cache/axe axe-core@4 >/dev/null 2>&1; } || \
	  echo "axe-core is not here and cannot be installed: tests of accessibility will be skipped."

test: $(VENV)/.dev browser ## install what the tests need and run all but the slow ones
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(VENV)/.dev ## run the slow tests only
	$(PYTEST) -m slow $(ARGS)

lint: $(VENV)/.dev ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## rewrite the code in the common style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs ## build the documentation as a site that works offline; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet $(ARGS)
	@echo "The site: .cache/site/index.html"

bench: $(VENV)/.bench ## measure speed and memory beside PyTorch, and hold them to bars
	$(BIN)/headstart bench $(ARGS)

clean: ## remove the environment and every cache; runs are kept
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is newer than pyproject.toml once its installation has succeeded. The package is installed in
# editable mode, so a change of code needs no new installation.

$(VENV)/.pip:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	  "headstart needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Try: make PYTHON=python3.11 ..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # the first that reads dependency groups
	@touch $@

$(VENV)/.run: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[deploy,flax,plot,report,track]' --group test --group lint --group docs
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[report]' --group docs
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[bench,plot]'
	@touch $@
