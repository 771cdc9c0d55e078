# Each target makes its own virtual environment when there is none: a fresh machine needs python3, pip and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-gpu lint check docs bench tables reproduce-quick wheel wheel-check outside-checks clean

.venv/ready: pyproject.toml constraints/cpu.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints/cpu.txt -e '.[all,dev]'
	touch $@

demo: .venv/ready
	rm -rf demo-out
	$(BIN)/mixveil demo --out demo-out

test: .venv/ready
	$(BIN)/python -m pytest -n auto

# Kernels on the GPU of this machine; it needs Triton, which comes with torch for CUDA.
test-gpu: .venv/ready
	$(BIN)/python -m pytest -m gpu

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

# The documentation as a site: build/docs/index.html.
docs: .venv/ready
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

bench: .venv/ready
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.page

wheel: .venv/ready
	rm -rf dist
	$(BIN)/python -m build --outdir dist

# What a user gets: the wheel alone, in an environment that has nothing else, runs the demonstration.
wheel-check: wheel
	rm -rf build/empty
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check -c constraints/cpu.txt \
		"$$(ls dist/*.whl)[images,digits]"
	cd build/empty && bin/mixveil demo --out demo-out

# Pages of docs/results, from stored results alone.
tables: .venv/ready
	$(BIN)/python -m reproduce.tables

# A small version of every table, on two cores and without downloads; into build/reproduce-quick/.
reproduce-quick: .venv/ready
	$(BIN)/python -m reproduce --quick

.outside/ready: pyproject.toml constraints/cpu.txt outside_checks/requirements.txt
	test -x .outside/bin/python || $(PYTHON) -m venv .outside
	.outside/bin/python -m pip install --quiet --disable-pip-version-check -c constraints/cpu.txt \
		-r outside_checks/requirements.txt -e '.[dp]'
	touch $@

outside-checks: .outside/ready
	.outside/bin/python -m outside_checks

clean:
	rm -rf .venv .outside demo-out build dist docs/repository
