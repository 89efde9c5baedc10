# Everything starts from a bare checkout: `make demo`, `make test`. PYTHON=... chooses another one,
# QUESTION="..." asks the demo something else.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BASE := $(VENV)/.base
READY := $(VENV)/.ready
DEV := $(VENV)/.dev

# What pyproject.toml's [build-system] names, in the environment itself: unpacked once, not twice.
BUILD := 'hatchling>=1.24' 'editables>=0.5' 'cffi>=1.16' 'ziglang==0.17.1'

.PHONY: demo test build wheel check docs bench soak clean help

help:
	@echo "make demo   a knowledge base on this Python's own documentation, and an answer from it"
	@echo "make test   the whole fast suite     make check  ruff, mypy, sizes, generated pages"
	@echo "make build  compile native/          make wheel  dist/*.whl"
	@echo "make docs   generate docs/reference/cli.md"
	@echo "make bench  measure against peers    make soak   the long tests"
	@echo "make clean  remove what these made"

$(BASE):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual" \
		"environments: install python3-venv (Debian, Ubuntu), or make PYTHON=/path/to/another"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing the build tools ..."
	@$(PIP) install -q $(BUILD)
	@touch $@

$(READY): $(BASE) pyproject.toml tools/hatch_build.py
	@echo "compiling the kernels and installing candle ..."
	@$(PIP) install -q --no-build-isolation -e .
	@touch $@

$(DEV): $(READY)
	@echo "installing what tests and checks need ..."
	@$(PIP) install -q 'candle[dev]'
	@touch $@

build: $(READY)
	$(BIN)/python tools/build_native.py

demo: $(READY)
	@$(BIN)/python tools/models.py demo
	@$(BIN)/python examples/demo.py $(if $(QUESTION),"$$QUESTION")

test: $(DEV) build
	@$(BIN)/python tools/models.py test
	$(BIN)/python -m pytest tests

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/size.py
	$(BIN)/python tools/gen_cli_docs.py --check
	$(BIN)/python tools/results_table.py --check

docs: $(READY)
	$(BIN)/python tools/gen_cli_docs.py

wheel: $(BASE)
	$(PIP) wheel -q --no-deps --no-build-isolation -w dist .

bench: $(DEV) build
	@$(BIN)/python tools/models.py bench
	$(BIN)/python benchmarks/run.py

soak: $(DEV) build
	CANDLE_SOAK=1 $(BIN)/python -m pytest tests -k "soak or mutations"

clean:
	rm -rf build dist $(VENV) .demo
	rm -f src/candle/_native/*.so src/candle/_native/*.dylib src/candle/_native/_abi.py
