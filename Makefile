# Everything starts from a bare checkout: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test build wheel check bench soak clean help

help:
	@echo "make demo   a knowledge base on this Python's own documentation, and an answer from it"
	@echo "make test   the whole fast suite     make check  ruff, mypy, sizes, layers"
	@echo "make build  compile native/          make wheel  dist/*.whl"
	@echo "make bench  measure against peers    make clean  remove what these made"

$(READY): pyproject.toml tools/hatch_build.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

build: $(READY)
	$(BIN)/python tools/build_native.py

demo: $(READY)
	@$(BIN)/python tools/models.py demo
	@$(BIN)/python examples/demo.py

test: $(READY) build
	@$(BIN)/python tools/models.py test
	$(BIN)/python -m pytest tests

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/size.py

wheel: $(READY)
	$(BIN)/python -m pip wheel -q --no-deps --disable-pip-version-check -w dist .

bench: $(READY) build
	$(BIN)/python benchmarks/run.py

soak: $(READY) build
	CANDLE_SOAK=1 $(BIN)/python -m pytest tests -k "soak or mutations"

clean:
	rm -rf build dist $(VENV) .demo src/candle/_native/*.so src/candle/_native/_abi.py
