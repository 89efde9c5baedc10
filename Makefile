# Everything starts from a bare checkout: `make demo`, `make test`. PYTHON=... chooses another one,
# VENV=... another folder for it, QUESTION="..." asks the demo something else.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
FOUND := yes
endif
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BASE := $(VENV)/.base
READY := $(VENV)/.ready
DEV := $(VENV)/.dev

# What pyproject.toml's [build-system] names, in the environment itself: unpacked once, not twice.
BUILD := 'hatchling>=1.24' 'editables>=0.5' 'cffi>=1.16' 'ziglang==0.17.1'

.PHONY: demo test build wheel check docs bench soak clean help python sizes

help:
	@echo "make demo   a knowledge base on this Python's own documentation, and an answer from it"
	@echo "make test   the whole fast suite     make check  ruff, mypy, sizes, generated pages"
	@echo "make build  compile native/          make wheel  dist/*.whl"
	@echo "make docs   generate docs/reference/cli.md"
	@echo "make bench  measure against peers    make soak   the long tests"
	@echo "make clean  remove what these made"

# A Python that was found and not given need not be the one that $(VENV) was made with.
python:
	@tools/check_python.sh $(VENV) $(if $(and $(FOUND),$(wildcard $(BASE))),,"$(PYTHON)")

sizes: | python
	@echo "Once, from PyPI: about 280 MB for the demo, 700 MB for the tests; $(VENV) takes 0.7 GB."

# .making stands in $(VENV) until it is whole: what an interrupted run left is made anew.
$(BASE): | python
	@mkdir -p $(VENV) && touch $(VENV)/.making
	@find $(VENV) -mindepth 1 -maxdepth 1 ! -name .making -exec rm -rf {} +
	@echo "making $(VENV) with $(PYTHON) ..."
	@"$(PYTHON)" -m venv $(VENV)
	@echo "installing the build tools, with a C compiler (101 MB) ..."
	@$(PIP) install -q $(BUILD)
	@mv $(VENV)/.making $@

# $(VENV)/.installing: an earlier installation was interrupted, and what is there is not trusted.
INSTALL = again=; test ! -e $(VENV)/.installing || again=--ignore-installed; \
	touch $(VENV)/.installing && \
	$(PIP) install -q $$again --no-build-isolation -e $(1) && rm $(VENV)/.installing

$(READY): $(BASE) pyproject.toml tools/hatch_build.py
	@echo "compiling the kernels and installing candle ..."
	@$(call INSTALL,.)
	@touch $@

$(DEV): $(READY)
	@echo "installing what tests and checks need ..."
	@$(call INSTALL,'.[dev]')
	@touch $@

build: $(READY)
	$(BIN)/python tools/build_native.py

demo: $(if $(wildcard $(READY)),python,sizes) $(READY)
	@$(BIN)/python tools/models.py demo
	@$(BIN)/python examples/demo.py $(if $(QUESTION),"$$QUESTION")

test: $(if $(wildcard $(READY)),python,sizes) $(DEV) build
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
	rm -rf build dist .demo
	test ! -e $(BASE) -a ! -e $(VENV)/.making || rm -rf $(VENV)
	rm -f src/candle/_native/*.so src/candle/_native/*.dylib src/candle/_native/_abi.py
