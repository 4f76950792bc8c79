# `make help` lists the targets. Everything runs in .venv, which `make setup` builds once from constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CONFIG ?= configs/multi30k_en_de.yaml
MODEL  ?= runs/demo
ARGS   ?=
export TEXT ?=

.DEFAULT_GOAL := help

ifneq ($(filter %.yaml %.yml,$(MAKECMDGOALS)),)
$(error a config must be given as CONFIG=$(firstword $(filter %.yaml %.yml,$(MAKECMDGOALS))): make train CONFIG=...)
endif
ifeq ($(origin config),command line)
$(error write CONFIG=$(config), in capitals)
endif
ifneq ($(filter-out cpu,$(TORCH)),)
$(error TORCH must be cpu, or left out for NVIDIA GPUs, but is $(TORCH))
endif
.PHONY: help setup setup-dev demo train reproduce translate evaluate test test-long test-all gpu-check reference demo-page docs package lint format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20
	@echo
	@echo '  CONFIG=$(CONFIG)  MODEL=$(MODEL)  ARGS="key=value ..."  TEXT="a sentence"'

# What is not the name of a target.
.DEFAULT:
	@near=$$("$(PYTHON)" -c 'import difflib, sys; print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:], 1))' \
	  '$@' $$($(MAKE) -s help | sed -nE 's/^  make ([a-z-]+) .*/\1/p') 2> /dev/null); \
	echo "make $@: there is no such target; $${near:+did you mean make $$near? }make help lists them" >&2; exit 2

# Users get compiled only what is imported: that saves time and 200 MB. TORCH=cpu takes PyTorch without CUDA.
INSTALL = $(BIN)/python scripts/install.py --editable $(if $(filter cpu,$(TORCH)),--cpu)

setup: $(VENV)/ready ## build .venv for users; TORCH=cpu leaves out CUDA

$(VENV)/ready: constraints.txt pyproject.toml scripts/install.py
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
	  for v in 3.14 3.13 3.12 3.11; do command -v python$$v > /dev/null && found=python$$v; done; \
	  echo "Python 3.11 or newer is needed, but $(PYTHON) is $$("$(PYTHON)" -V 2>&1 || true);" \
	    "$$(if [ "$$found" ]; then echo "try: make $(MAKECMDGOALS) PYTHON=$$found"; else echo "install one and name it: make $(MAKECMDGOALS) PYTHON=..."; fi)" >&2; exit 2; }
	@echo 'installing 71 packages into $(VENV): 1.4 GB with PyTorch for CPUs, several GB with CUDA'
	@"$(PYTHON)" -m venv $(VENV)
	@$(INSTALL) plot ctranslate2 serve clean alignment documents completion
	@rm -rf *.egg-info  # a second, ageing list of the companions
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import transformer_mt.training, transformer_mt.cli, ctranslate2, datasets, matplotlib.pyplot, starlette'
	@touch $@

setup-dev: $(VENV)/ready-dev ## add what tests, checks and the documentation need

$(VENV)/ready-dev: $(VENV)/ready
	@echo 'installing some 100 packages more for developers: .venv will have 2.7 GB'
	@$(INSTALL) huggingface argos browser teacher metrics ray tune s3 tensorboard sign docs dev
	@rm -rf *.egg-info
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

demo: setup ## train on the built-in toy language, score and translate: two minutes on two cores
	$(BIN)/python scripts/demo.py

train: setup ## train CONFIG (default: Multi30k from the hub), or resume it; GPUS=n uses n of them
	$(BIN)/transformer-mt train $(CONFIG) $(ARGS) $(if $(GPUS),--gpus $(GPUS))

reproduce: setup ## train CONFIG again and compare with the receipt in its header
	$(BIN)/python scripts/reproduce.py $(CONFIG) $(ARGS)

translate: setup ## translate TEXT, or standard input, with MODEL
	@$(BIN)/translate $(MODEL) $${TEXT:+"$$TEXT"} $(ARGS)

evaluate: setup ## score MODEL on its test sets
	@$(BIN)/transformer-mt evaluate $(MODEL) $(ARGS)

# Workers of one thread each: the threads of several workers would wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

# PACKAGE=search runs the tests of one package, PACKAGE=serving those of a companion.
test: setup-dev ## run the test suite, or with PACKAGE=name the tests of a package
	$(PYTEST) $(if $(PACKAGE),$(wildcard tests/unit/$(PACKAGE) tests/integration/$(PACKAGE) tests/companions/$(PACKAGE)))

test-long: setup-dev ## run the tests and the long ones
	$(PYTEST) -m 'not slow and not gpu'

test-all: setup-dev ## run the slow tests too
	$(PYTEST) -m 'not gpu'

# GPU_PYTHON names a Python that has torch with CUDA and the other packages; by default .venv, whose torch may be the CPU's.
gpu-check: $(if $(GPU_PYTHON),,setup-dev) ## measure and test on a GPU, all or PART=train|tests|run|translate; DATA=a folder of Multi30k
	$(or $(GPU_PYTHON),$(BIN)/python) scripts/gpu_check.py $(PART) $(if $(DATA),--data $(DATA)) $(ARGS)

reference: setup-dev ## write docs/reference and the picture of the Transformer from the code
	$(BIN)/python scripts/write_reference.py
	$(BIN)/python scripts/transformer_figure.py

demo-page: setup-dev ## export the demo as a page for browsers to build/demo-page; needs Node and npm
	@test -f runs/demo/model.safetensors || $(BIN)/transformer-mt train demo
	npm install --silent --prefix build/npm --ignore-scripts \
	  $$($(BIN)/python -c 'from transformer_mt.companions.browser.to_browser import npm_packages as p; print(*p())')
	rm -rf build/demo-page
	$(BIN)/transformer-mt export runs/demo build/demo-page --to browser --runtime build/npm/node_modules
	@echo 'try it: python3 -m http.server -d build/demo-page'

docs: setup-dev ## write the documentation as a site to build/site, and check its links
	@$(BIN)/python scripts/build_site.py

package: setup-dev ## build wheel, source archive, list of packages and hashes in build/dist, and check them
	@$(BIN)/python scripts/release.py

lint: setup-dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup-dev ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and tool caches; runs/ stays
	rm -rf $(VENV) build .cache *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './runs/*' -prune -exec rm -rf {} +
