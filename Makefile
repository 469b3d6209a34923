# make demo    a model running, hybridized and not
# make test    lint, types and tests;  PYTEST_ARGS="-k fold" narrows it
# make soak    those tests that try random programs, damaged files, whole networks and targets in turn, with SOAK=10
#              times as many
# make lint    lint and types alone
# make bench   gluonjit and other engines on the same models;  BENCH_ARGS="--workloads W3 --threads 1" narrows it
# make kernels compiles what models of the zoo consist of, for each of KERNELS, to files that a wheel then contains
# make site    the documentation as a web site, in build/site
# make clean   removes everything that make made
#
# All of it happens in .venv (make bench: .venv-bench), which is made with $(PYTHON) and sees nothing of what else is
# installed. make demo puts gluonjit and what it needs there (300 MB); the others add what tests need (0.8 GB).

PYTHON ?= python3
PYTEST_ARGS ?=
SOAK ?= 10
BENCH_ARGS ?=
KERNELS ?= x86-64-v3 x86-64-v4 znver3 znver4 znver5
VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
TYPECHECK := build/typecheck/gluonjit
MYPY := $(BIN)/python -m mypy
PYTEST = $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal $(PYTEST_ARGS)

# Either would put foreign packages in front of the venv's own.
unexport PYTHONPATH
unexport PYTHONHOME
# Each of the many processes would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test soak lint style packages bench kernels site clean

demo: $(VENV)/stamp
	$(BIN)/python examples/demo.py

# mypy uses one core for half a minute, so tests run beside it; what it says comes last.
test: style packages
	@$(MYPY) >build/mypy.txt 2>&1 & mypy=$$!; trap 'kill $$mypy; exit 130' INT TERM; \
	  echo '$(MYPY) &' && $(PYTEST); tests=$$?; \
	  wait $$mypy; types=$$?; cat build/mypy.txt; exit $$((tests | types))

soak: $(VENV)/test-stamp
	SOAK=$(SOAK) $(PYTEST) $$(grep -rlwE --include='test_*.py' 'soak|in_turn' tests)

lint: style packages
	$(MYPY)

style: $(VENV)/test-stamp
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

packages:
	@mkdir -p $(TYPECHECK)
	@ln -sfn "$(CURDIR)"/frontend/* $(TYPECHECK)/
	@ln -sfn "$(CURDIR)"/ir "$(CURDIR)"/passes "$(CURDIR)"/codegen "$(CURDIR)"/runtime $(TYPECHECK)/
	@ln -sfn "$(CURDIR)"/tests/frontend/typed_program.py build/typecheck/
	@find build/typecheck -xtype l -delete

kernels: $(VENV)/stamp
	@mkdir -p runtime/kernels
	for cpu in $(KERNELS); do $(BIN)/gluonjit warm --target $$cpu --output runtime/kernels/$$cpu.kernels || exit 1; done

site: $(VENV)/test-stamp
	$(BIN)/python docs/site/build.py

bench: $(BENCH_VENV)/stamp
	$(BENCH_VENV)/bin/python -m benchmarks.run $(BENCH_ARGS)

define make_venv
@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
  { echo '$(PYTHON) is not a Python >= 3.10 that can make virtual environments.'; \
    echo 'On Debian: apt install make python3-venv; or name another: make PYTHON=python3.12 ...'; exit 1; }
$(PYTHON) -m venv --clear $(@D)
@# That of Python 3.11 takes twice as long to choose among versions. Where there is no newer one, it does as well.
-@$(PIP_INSTALL) --quiet 'pip>=26'
endef
# Not all modules are ever imported; those that are, Python compiles then.
PIP_INSTALL = $(@D)/bin/python -m pip install --disable-pip-version-check --no-compile

# The install is editable, so only pyproject.toml (dependencies, package roots) makes it out of date.
$(VENV)/stamp: pyproject.toml
	$(make_venv)
	@echo 'Installing gluonjit, llvmlite, NumPy and networkx into $(VENV):'
	$(PIP_INSTALL) --editable .
	@touch $@

# By one call of pip, as each makes an environment to build gluonjit in. Tests drive pages in Chromium where it is.
comma := ,
TEST_EXTRAS = test$(if $(shell command -v chromium || command -v google-chrome),$(comma)browser)
$(VENV)/test-stamp: pyproject.toml
	$(if $(shell [ $(VENV)/stamp -nt pyproject.toml ] && echo is there),,$(make_venv))
	@echo 'Installing gluonjit and what tests need into $(VENV); a minute or two:'
	$(PIP_INSTALL) --editable '.[$(TEST_EXTRAS)]'
	@touch $(VENV)/stamp $@

# An engine that does not install here must not keep the others out.
$(BENCH_VENV)/stamp: pyproject.toml
	$(make_venv)
	$(PIP_INSTALL) --editable '.[bench]' || { \
	  $(PIP_INSTALL) --editable . && \
	  for engine in $$($(@D)/bin/python -m benchmarks.requirements); do \
	    $(PIP_INSTALL) "$$engine" || echo "without $$engine"; \
	  done; }
	@touch $@

clean:
	rm -rf $(VENV) $(BENCH_VENV) runtime/kernels build dist gluonjit.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
