# `make help` lists what there is. Everything runs in .venv, which `make setup` builds once from constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CONFIG ?= configs/wmt14_en_de_small.yaml
MODEL  ?= runs/demo
ARGS   ?=
export TEXT ?=

.DEFAULT_GOAL := help

ifneq ($(filter %.yaml %.yml,$(MAKECMDGOALS)),)
$(error a config must be given as CONFIG=$(firstword $(filter %.yaml %.yml,$(MAKECMDGOALS))): make train CONFIG=...)
endif
.PHONY: help setup demo train reproduce translate evaluate test test-long test-all gpu-check reference docs package lint format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20
	@echo
	@echo '  CONFIG=$(CONFIG)  MODEL=$(MODEL)  ARGS="key=value ..."  TEXT="a sentence"'

setup: $(VENV)/ready ## build .venv

$(VENV)/ready: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[plot,ctranslate2,huggingface,argos,serve,clean,metrics,alignment,documents,tensorboard,completion,docs,dev]'
	@touch $@

demo: setup ## train on the built-in toy language, score, translate three sentences: minutes on two cores
	$(BIN)/transformer-mt train configs/demo.yaml
	@echo; echo '== its score on sentences that ask for combinations it never saw'
	$(BIN)/transformer-mt evaluate runs/demo
	@echo; echo '== three translations'
	$(BIN)/translate runs/demo 'The old teacher sees a small bird in the garden.' \
	  'Because the child does not sleep, the mother sings.' 'Today three happy dogs bring the queen the red ball.'
	@echo; echo '== next'
	@echo '  $(BIN)/translate runs/demo                     translate what you type'
	@echo '  less runs/demo/report.md                          how the training went'
	@echo '  make train CONFIG=configs/multi30k_en_de.yaml     a real corpus, an hour on two cores'

train: setup ## train CONFIG, or resume its training; GPUS=n uses n of them
	$(BIN)/transformer-mt train $(CONFIG) $(ARGS) $(if $(GPUS),--gpus $(GPUS))

reproduce: setup ## train CONFIG again and compare with the receipt in its header
	$(BIN)/python scripts/reproduce.py $(CONFIG) $(ARGS)

translate: setup ## translate TEXT, or standard input, with MODEL
	@$(BIN)/translate $(MODEL) $${TEXT:+"$$TEXT"} $(ARGS)

evaluate: setup ## score MODEL on its test sets
	@$(BIN)/transformer-mt evaluate $(MODEL) $(ARGS)

# Workers of one thread each: the threads of several workers would wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

# PACKAGE=search runs the tests of one package.
test: setup ## run the test suite, or with PACKAGE=name the tests of a package
	$(PYTEST) $(if $(PACKAGE),$(wildcard tests/unit/$(PACKAGE) tests/integration/$(PACKAGE)))

test-long: setup ## run the long tests that a commit must pass, too
	$(PYTEST) -m long

test-all: setup ## run the slow tests too
	$(PYTEST) -m 'not gpu'

# GPU_PYTHON names a Python that has torch with CUDA and the other packages; by default .venv, whose torch may be the CPU's.
gpu-check: $(if $(GPU_PYTHON),,setup) ## measure and test on a GPU, all or PART=train|tests|run|translate; DATA=a folder of Multi30k
	$(or $(GPU_PYTHON),$(BIN)/python) scripts/gpu_check.py $(PART) $(if $(DATA),--data $(DATA)) $(ARGS)

reference: setup ## write docs/reference from the code
	$(BIN)/python scripts/write_reference.py

docs: setup ## write the documentation as a site to build/site, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/site

package: setup ## build the wheel and the source archive in build/dist, and check them
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist
	$(BIN)/twine check --strict build/dist/*

lint: setup ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and tool caches; runs/ stays
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './runs/*' -prune -exec rm -rf {} +
