# Everything runs from a clean clone: Python 3.10 or newer and pip are all that must be there.
#
#   make demo         handwritten digits: per-example gradients, a picture, a table of times
#   make test         the tests: some cases of each function, the same ones on any day
#   make test ROOM=lists  all tests of one room: the folders of tests/ are the rooms
#   make test-all     all tests; SHARD=3/20 is the third of twenty shards
#   make test-oldest  a smoke test on the oldest TensorFlow that we support
#   make bench        the figures in small sizes; PEERS=PYTHON has JAX and torch, if .venv has not
#   make bench-full   the figures in all sizes, and all other benchmarks: hours
#   make bench-compare OLD=old NEW=new  what got 10% worse or better: two folders of results, or files
#   make lint         ruff (lint, format), plain English (tools/prose.py), spelling (codespell) and pyright
#   make docs         the coverage page, a check of all links, and the site: docs/_build/html
#   make release-check  builds wheel and sdist, and tries them in clean environments

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
DOCS := $(VENV)/.installed-docs
OLDEST_VENV := .venv-oldest
OLDEST := $(OLDEST_VENV)/.installed
PIP := -m pip install --quiet --disable-pip-version-check

WORKERS ?= 2
# ROOM=lists runs all tests of one room, and nothing else.
ROOM ?=
# SHARD=3/20 runs the third of twenty shards of all tests.
SHARD ?=
PYTEST := $(RUN) -m pytest -q -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --maxfail 25
SMOKE := tests/project/test_smoke.py tests/core/test_graphs.py

.PHONY: bench bench-compare bench-full demo docs help install lint release-check test test-all test-oldest

help:
	@sed -n 's/^#   //p' Makefile

install: $(INSTALLED)

$(INSTALLED): setup.py pyproject.toml
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): some minutes the first time, nothing after that."
	@$(RUN) $(PIP) --editable ".[cpu,demo,lint,test]"
	@touch $@

$(OLDEST): setup.py pyproject.toml
	@test -x $(OLDEST_VENV)/bin/python || $(PYTHON) -m venv $(OLDEST_VENV)
	@echo "Installing the oldest TensorFlow into $(OLDEST_VENV)."
	@$(OLDEST_VENV)/bin/python $(PIP) --editable ".[cpu,test]" "tensorflow-cpu==2.16.*"
	@touch $@

demo: $(INSTALLED)
	@$(RUN) -m examples.demo_digits

test: $(INSTALLED)
	$(PYTEST) $(if $(ROOM),tests/$(ROOM),--chosen)

test-all: $(INSTALLED)
	$(PYTEST) $(if $(SHARD),--shard $(SHARD))

test-oldest: $(OLDEST)
	$(OLDEST_VENV)/bin/python -m pytest -q -p no:cacheprovider -W default $(SMOKE)

bench: $(INSTALLED)
	$(RUN) -m benchmarks

bench-full: $(INSTALLED)
	$(RUN) -m benchmarks --full

bench-compare: $(INSTALLED)
	$(RUN) -m benchmarks.compare "$(OLD)" "$(NEW)"

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(RUN) -m tools.prose
	$(VENV)/bin/codespell
	$(VENV)/bin/pyright

$(DOCS): $(INSTALLED)
	@$(RUN) $(PIP) --editable ".[docs]"
	@touch $@

# Warnings are errors. Tutorials run, and are kept in docs/_build until they change.
docs: $(DOCS)
	$(RUN) -m tools.coverage
	$(RUN) -m tools.check_links
	$(RUN) -m sphinx -q -W --keep-going -b html -c docs -d docs/_build/doctrees . docs/_build/html
	@echo "The site is docs/_build/html/docs/index.html."

release-check: $(INSTALLED)
	$(RUN) -m tools.release_check
