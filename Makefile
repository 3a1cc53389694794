# Each target sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DESELECTED := not consumers and not k8s and not image and not ssh and not slurm and not engines and not netns

.PHONY: help install demo test test-slow test-all test-k8s test-hosts test-ssh test-slurm test-image test-engines test-store test-consumers test-versions coverage lint format docs docs-serve readme fuzz crashes mutants benchmark bench-check audit sbom images release hooks constraints clean
help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	@echo "installing into $(VENV), a minute or a few; downloads up to 3 GB"
	$(PYTHON) -m venv $(VENV)
	$(call install_into_venv,.[dev])
	@touch $@

# By uv, in a fifth of pip's time, with the indexes that pip is set to. Where they are not all that it needs,
# as behind a proxy of pip's own, by pip. Imports compile what they need, unless Python may not write it.
UV := build/uv/bin/uv
INDEXES = $(BIN)/pip config list | sed -nE "s/^.*\.(index-url|extra-index-url|find-links)='([^' \\]+)'$$/--\1=\2/p"
define install_into_venv
{ $(MAKE) --silent $(UV) && $(UV) pip install --quiet --python $(BIN)/python $$($(INDEXES)) \
	$(if $(PYTHONDONTWRITEBYTECODE),--compile-bytecode) -c constraints.txt -e '$(1)'; } \
	|| $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '$(1)'
endef

$(UV):
	$(PYTHON) -m venv build/uv
	build/uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9'

install: $(READY)  ## .venv with all that the other targets need, from the network
	@echo "ready: source $(BIN)/activate"

demo: $(READY)  ## the whole job on the sample corpus, from text to report
	$(BIN)/python -m pipeline.run +corpus=sample

# Tests that a change needs, and all that need no root or service of their own. Files stay whole, as
# their tests share what they made; the slow ones start first. Three workers keep two cores busy while tests wait.
WORKERS ?= 3

test: $(READY)  ## what every change needs, in minutes: not the tests marked slow
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "$(DESELECTED) and not slow"

test-slow: $(READY)  ## what `make test` leaves out: real training processes, whole runs
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "$(DESELECTED) and slow and not store"

test-all: $(READY)  ## both, with as many random examples as the properties want
	SUITE=test-all $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# What kubectl and the control plane need, built once from Go's module proxy and kept in ~/.cache. Tini is every
# pod's first process, as in the images: without it a pod that is told to end while Python starts does not.
CONTROL_PLANE = @{ command -v etcd && command -v tini; } >/dev/null || \
		{ apt-get update && apt-get install -y etcd-server tini; }; \
	tests/k8s/build-control-plane

test-k8s: $(READY)  ## run k8s/pretrain.yaml on a real control plane on this machine (root, Go)
	$(CONTROL_PLANE)
	tests/k8s/build-kubeflow
	SUITE=test-k8s $(BIN)/python -m pytest -m k8s tests/k8s

test-hosts: $(READY)  ## faults of two nodes (link, node, rank, folder) in network namespaces (root)
	SUITE=test-hosts $(BIN)/python -m pytest -m netns tests/model

test-ssh: $(READY)  ## train on two machines of namespaces by a real sshd (root; installs Debian's packages)
	@{ command -v sshd && command -v pdsh && command -v ip; } >/dev/null || \
		{ apt-get update && apt-get install -y --no-install-recommends openssh-server openssh-client pdsh iproute2; }
	SUITE=test-ssh $(BIN)/python -m pytest -m ssh tests/nodes

test-slurm: $(READY)  ## run the graph on a real Slurm of two machines (root; installs Debian's packages)
	@{ command -v slurmd && command -v munged && command -v ip; } >/dev/null || \
		{ apt-get update && apt-get install -y --no-install-recommends slurm-wlm munge iproute2; }
	SUITE=test-slurm $(BIN)/python -m pytest -m slurm tests/nodes

test-image: $(READY)  ## build both images, run the graph in them, push to a registry (root, Go; installs what builds them)
	@{ command -v buildah && command -v mmdebstrap && command -v docker-registry; } >/dev/null || \
		{ apt-get update && apt-get install -y buildah mmdebstrap docker-registry; }
	$(CONTROL_PLANE)
	SUITE=test-image $(BIN)/python -m pytest -m image tests/k8s

test-engines: $(READY)  ## prepare on Flink, Spark and Prism as processes of this machine, fetched once (Java, Maven, Go)
	SUITE=test-engines $(BIN)/python -m pytest -m engines tests/pipeline/beam -rs

$(VENV)/.stores: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,gcs,azure]'
	@touch $@

test-store: $(VENV)/.stores  ## a run in s3://, gs:// and abfs:// against versitygw, fake-gcs-server and Azurite, built once (Go, npm)
	VERSITYGW=$$(tests/support/servers/build-versitygw | tail -n 1) FAKE_GCS=$$(tests/support/servers/build-fake-gcs | tail -n 1) \
		AZURITE=$$(tests/support/servers/build-azurite | tail -n 1) SUITE=test-store $(BIN)/python -m pytest -m store -rs

test-consumers: $(READY)  ## folders of ours in other people's programs, each in an environment of its own, fetched once (npm)
	SUITE=test-consumers $(BIN)/python -m pytest -m consumers tests/consumers -rs

# Made by uv, which downloads a Python that neither PATH nor pyenv has: 6.5 GB each, with the wheel of PyTorch for
# GPUs; UV_TORCH_BACKEND=cpu asks PyTorch's own index for a smaller one.
VERSIONS ?= 3.11-oldest 3.12-newest 3.13-newest
TESTS ?= tests
oldest := lowest-direct
newest := highest
build/versions/%/.ready: pyproject.toml | $(UV)
	name=$*; python=$${name%-*}; $(UV) venv --quiet --clear --seed \
		--python "$$(pyenv prefix $$python 2>/dev/null || echo $$python)" $(@D)
	$(UV) pip install --quiet --python $(@D)/bin/python \
		--resolution $($(lastword $(subst -, ,$*))) -e '.[dev]'
	@touch $@

test-versions: $(VERSIONS:%=build/versions/%/.ready)  ## make test on the oldest and newest Python and packages allowed; TESTS=tests/model of it
	for each in $(VERSIONS); do HYPOTHESIS_PROFILE=quick build/versions/$$each/bin/python -m pytest \
		-n $(WORKERS) --dist loadfile -m "$(DESELECTED) and not slow" $(TESTS) || exit 1; done

coverage: $(READY)  ## all tests, and the share of lines that they run: build/coverage.md
	mkdir -p build
	COVERAGE_FILE=build/.coverage $(BIN)/python -m pytest --cov --cov-report=
	COVERAGE_FILE=build/.coverage $(BIN)/coverage report --format=markdown > build/coverage.md
	@tail -n 1 build/coverage.md
	COVERAGE_FILE=build/.coverage $(BIN)/coverage report --fail-under=90 > /dev/null

lint: $(READY)  ## style, types, import directions, plain English, figures that may only fall
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/plain_english.py
	$(BIN)/python tests/ratchet.py

format: $(READY)  ## mend the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the documentation as pages without a network, into build/docs; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/docs

readme: $(READY)  ## the README's quoted lines and its picture, from one run of the demo (root, or chromium)
	@command -v chromium || { apt-get update && apt-get install -y --no-install-recommends chromium; }
	@mkdir -p build && rm -rf build/readme
	$(BIN)/python -m pipeline.run +corpus=sample workdir=build/readme > build/readme.txt
	$(BIN)/python docs/hooks/readme.py build/readme.txt build/readme $$(command -v chromium)

docs-serve: $(READY)  ## the documentation at localhost:8000, following what you edit
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

SECONDS ?= 600
fuzz: $(READY)  ## SECONDS=600 of hostile input at each reader, and of stories of stages (the tests do it briefly)
	FUZZ_SECONDS=$(SECONDS) $(BIN)/python -m pytest tests -m fuzz --timeout 0

CASES ?=
crashes: $(READY)  ## kill each stage, or let its disk fail, at every system call; CASES=60 of each (root, strace)
	@command -v strace >/dev/null || { apt-get update && apt-get install -y --no-install-recommends strace; }
	$(BIN)/python -m tests.support.crash_points $(CASES:%=--cases %)

MUTANTS ?= 400
SEED ?= 0
mutants: $(READY)  ## MUTANTS=400 changes of the code, drawn by SEED=0: which does no test notice? Goes on where it stopped
	MUTANTS=$(MUTANTS) SEED=$(SEED) $(BIN)/python -m tests.mutants

# What the peers of prepare, finetune and minimal_pairs need, installed once.
$(VENV)/.benchmarks: $(READY)
	$(call install_into_venv,.[dev,benchmarks])
	@touch $@

NAME ?=
benchmark: $(VENV)/.benchmarks  ## one of benchmarks/ next to its peer: make benchmark NAME=loader
	$(BIN)/python -m $(subst /,.,$(basename $(or $(wildcard benchmarks/*/$(NAME).py $(NAME:%=benchmarks/%/__main__.py)),$(error say which: NAME=loader, or another of benchmarks/))))

bench-check: $(VENV)/.benchmarks  ## the ratios of a minute each, next to the last ones of this kind of processor
	$(BIN)/python -m benchmarks.check

audit: $(READY)  ## licences of what is installed; known weaknesses in it, where the network has the list
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[audit]'
	$(BIN)/pip-licenses --order=license --format=markdown --with-urls --ignore-packages bert-pipeline
	for pins in constraints.txt docker/requirements-trainer-cuda.txt; do \
		$(BIN)/pip-audit --requirement $$pins --no-deps --disable-pip --progress-spinner off || exit 1; done

# Of Python's packages, with their hashes; Debian's are in the one that BuildKit adds to an image.
SBOM ?= build/sbom
$(SBOM)/%.cdx.json: docker/requirements-%.txt
	@mkdir -p $(@D)
	$(BIN)/cyclonedx-py requirements $< --pyproject pyproject.toml --output-reproducible --output-file $@

sbom: $(READY)  ## a CycloneDX software bill of materials for each image, in build/sbom
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[audit]'
	$(MAKE) -o $(READY) $(patsubst docker/requirements-%.txt,$(SBOM)/%.cdx.json,$(wildcard docker/requirements-*.txt))

REGISTRY ?=
VARIANT ?= cuda
BUILDER ?= docker
BUILD_OPTIONS ?=
TARGETS ?= prepare trainer
images:  ## build both images and push them: make images REGISTRY=registry.example/team (VARIANT=cpu, BUILDER=podman)
	@test -n "$(REGISTRY)" || { echo "error: name the registry: make images REGISTRY=registry.example/team"; exit 2; }
	for target in $(TARGETS); do \
		name=$(REGISTRY)/bert-pipeline/$$target:$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' pipeline/__init__.py); \
		$(BUILDER) build $(BUILD_OPTIONS) --build-arg VARIANT=$(VARIANT) \
			-f docker/Dockerfile --target $$target -t $$name . \
		&& $(BUILDER) push $$name || exit 1; \
	done

release: $(READY)  ## build the wheel and sdist, check them in an empty environment, print what is left to type
	@$(BIN)/python -m tests.release

hooks: $(READY)  ## run the linters before every commit
	$(BIN)/pre-commit install

constraints: $(READY)  ## pin what is installed now, after its tests passed
	@{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//'; } > .constraints.tmp
	@mv .constraints.tmp constraints.txt

clean:  ## remove what was built, never what was trained
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
