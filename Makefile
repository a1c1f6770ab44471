# Everything from a fresh checkout:  make serve   or   make test
# A package registry is all that is needed; neither a model hub nor a git host.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
PORT ?= 8000
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help serve test quick check audit sbom bench browser attack soak screenshots lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing what the app needs (once, about a minute) ..."
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml requirements.lock | $(BIN)/python
	@echo "Installing what the app and its tests need (once, about a minute) ..."
	$(PIP) --editable '.[dev]'
	@touch $(VENV)/.serve $@

serve: $(VENV)/.serve ## set up and run the app on http://127.0.0.1:8000
	$(BIN)/tensor-provenance serve --port $(PORT)

test: $(VENV)/.dev browser check ## set up and run every test, in a real browser too
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

quick: $(VENV)/.dev ## run the quick tests only
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'not browser and not package and not slow'

check: $(VENV)/.dev build/audit/bin/pip-audit ## format, lint, types, import contracts, known faults of packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py
	$(BIN)/python -m tests.audit build/audit/bin/pip-audit requirements.lock

bench: $(VENV)/.dev ## measure everything beside its peers (half an hour, on a quiet machine); BENCH=… for options
	$(BIN)/python -m benchmarks --out build/bench $(BENCH)

browser: ## install Debian's Chromium where no Chromium is found
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { echo "Installing Chromium (once) ..."; apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

attack: $(VENV)/.dev ## ask every operation of the API for what it does not expect, a hundred times
	ATTACK_EXAMPLES=100 $(BIN)/python -m pytest -q -s --timeout 7200 tests/test_attack_openapi.py

soak: $(VENV)/.dev ## five minutes of readers, writers and cancellations against a server
	$(BIN)/python tests/soak.py --seconds 300

build/audit/bin/pip-audit:
	@$(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install --quiet --disable-pip-version-check \
	  'pip-audit>=2.9,<3' || echo "pip-audit cannot be installed from here."

audit: $(VENV)/.dev build/audit/bin/pip-audit ## look for known faults of the pinned packages, where the network allows it
	$(BIN)/python -m tests.audit build/audit/bin/pip-audit requirements.lock

sbom: ## write build/sbom.json, what the installed app consists of (CycloneDX)
	@test -x build/sbom/bin/cyclonedx-py || { $(PYTHON) -m venv build/sbom \
	&& build/sbom/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'; }
	build/sbom/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible \
	  --of JSON -o build/sbom.json

screenshots: $(VENV)/.dev browser ## take the pictures of the README from the running app
	$(BIN)/python -m tests.browser.screenshots

lock: ## write requirements.lock anew from pyproject.toml
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0' '.[dev]'
	{ echo "# Exact versions of everything that is installed; made by 'make lock'."; \
	  build/lock/bin/python -m pip freeze --exclude tensor-provenance | sed 's/^\(torch==[^+]*\)+.*/\1/'; } > requirements.lock

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist test-artefacts
