# `make help` lists the targets. Variables come from make's command line only: HOST or MODEL in the environment
# may belong to another program, ours are PIE_HOST, PIE_PORT and PIE_MODEL.

PYTHON ?= python3
BIN := .venv/bin

# $(call flag,--name,VARIABLE): the flag with the variable's value, quoted, when `make VARIABLE=value` was said.
given = $(filter command line,$(origin $(1)))
flag = $(if $(call given,$(2)),$(1) '$(subst ','\'',$($(2)))')

.PHONY: help install install-dev serve check test soak bench clean
.DEFAULT_GOAL := help

help:
	@echo 'make serve [HOST=127.0.0.1] [PORT=8000] [MODEL=file.gguf]'
	@echo '               install what is missing into .venv and start the server'
	@echo 'make install   the same without starting'
	@echo 'make check     lint, types, architecture and unit tests'
	@echo 'make test      everything: check, simulator, API and model tests'
	@echo 'make soak      the long tests'
	@echo 'make bench     the benchmarks'
	@echo 'make clean     remove what tools left behind; `rm -r .venv` removes the installation'

install:
	@$(PYTHON) scripts/install.py

install-dev:
	@$(PYTHON) scripts/install.py --dev

serve: install
	@exec $(BIN)/pie serve $(call flag,--host,HOST) $(call flag,--port,PORT) $(call flag,--model,MODEL)

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/unit

test: check
	$(BIN)/pytest -q -m 'not soak' --ignore=tests/unit

soak: install-dev
	$(BIN)/pytest -q -m soak

bench: install-dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist src/*.egg-info
	find src tests scripts benchmarks -name __pycache__ -type d -exec rm -rf {} + 2>/dev/null || true
