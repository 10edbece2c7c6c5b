# Needs Python 3.11 or newer, make and git; everything else is installed into .venv.
#
#   make demo                      the whole way of an event, on a server of its own
#   make test ARGS="-k writer"     ARGS goes to the command behind the target
#   PYTHON=python3.12 make demo    another Python than python3

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help

# LANGUAGE is also a variable of many desktops, so only the one typed behind `make demo` counts.
ifeq ($(origin LANGUAGE),command line)
DEMO_LANGUAGE := --lang $(LANGUAGE)
endif

.PHONY: help
help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
	while IFS='|' read -r target text; do printf 'make %-9s %s\n' "$$target" "$$text"; done

.PHONY: demo
demo: install ## Show the whole way of an event; in Chinese: make demo LANGUAGE=zh
	@$(BIN)/remq demo $(DEMO_LANGUAGE) $(ARGS)

.PHONY: up
up: install ## Start everything for real use on this machine
	@$(BIN)/remq up $(ARGS)

.PHONY: test
test: install ## Run the tests; one file: make test ARGS=tests/test_event.py
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: check
check: check-format check-lint check-types check-arrows ## Check format, lint, types and the arrows between modules

.PHONY: check-format check-lint check-types check-arrows
check-format: install
	$(BIN)/ruff format --check .

check-lint: install
	$(BIN)/ruff check .

check-types: install
	$(BIN)/mypy producer worker tests bench $(wildcard examples/*.py)

check-arrows: install
	$(BIN)/python -m pytest --quiet tests/test_arrows.py

.PHONY: bench
bench: install ## Measure the writer and a pass
	@$(BIN)/python -m bench $(ARGS)

# What builds the project is locked too (for an editable one hatchling wants editables), so that an
# installation fetches nothing unpinned.
COMPILE = $(BIN)/python -c 'import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n"); \
	print("editables>=0.6")' | \
	$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
	--extra embedded --extra dashboard $(ARGS)

.PHONY: lock
lock: install ## Write both lock files for pyproject.toml; newest versions: make lock ARGS=--upgrade
	$(COMPILE) --output-file requirements.lock pyproject.toml -
	$(COMPILE) --output-file requirements-dev.lock --extra dev \
		--constraint requirements.lock pyproject.toml -

.PHONY: clean
clean: ## Remove the virtual environment and all caches, never data
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is named after what it was made from and written last. So the environment is made anew
# when the Python, this folder's place or the lock changes, or when it was left half made; another
# project file installs only the project.
LOCKED := $(VENV)/.locked-$(shell \
	{ $(PYTHON) -V; pwd; cat requirements-dev.lock; } 2>&1 | cksum | tr ' ' -)
PROJECT := $(VENV)/.project-$(shell cksum < pyproject.toml | tr ' ' -)

# An environment whose interpreter has gone is made anew too.
ifneq ($(shell $(BIN)/python -c '' 2>/dev/null || echo gone),)
.PHONY: $(LOCKED)
endif

.PHONY: install
install: $(PROJECT)

$(PROJECT): $(LOCKED)
	@rm -f $(VENV)/.project-*
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(LOCKED): | python
	@echo "Installing into $(VENV), once; this takes about a minute." >&2
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes --requirement requirements-dev.lock
	@touch $@

.PHONY: python
python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found="$$($(PYTHON) -V 2>&1)" || found='not there'; \
		echo "remq needs Python 3.11 or newer; $(PYTHON) is $$found." \
			"Name another one: PYTHON=python3.12 make demo" >&2; \
		exit 1; }
