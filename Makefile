# Each target sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test test-k8s lint format constraints clean
help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## the whole job on the sample corpus, from text to report
	$(BIN)/python -m pipeline.run +corpus=sample

test: $(READY)  ## all tests
	$(BIN)/python -m pytest

test-k8s: $(READY)  ## run k8s/pretrain.yaml on a cluster of this machine's own (root, kubectl)
	$(BIN)/python -m pytest -m k8s tests/k8s

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## mend the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

constraints: $(READY)  ## pin what is installed now, after its tests passed
	@{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//'; } > .constraints.tmp
	@mv .constraints.tmp constraints.txt

clean:  ## remove what was built, never what was trained
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
