# `make demo` and `make test` are the first two to try: README.md. All targets need python3
# (3.10 or newer, with venv) and fetch the rest once, into .venv and .tox.

PYTHON ?= python3
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --retries 2

# What pip prints, warnings included, is shown if it fails.
quietly = log=$$(mktemp) && { $(1) >"$$log" 2>&1 || { cat "$$log" >&2; false; }; }; \
	status=$$?; rm -f "$$log"; exit $$status

# Or each process compiles all Python code of torch again, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

NO_NETWORK := make: pip failed, for the reason above; the first run needs PyPI, later ones no network
GPU := $(shell command -v nvidia-smi)
PYENV := $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/3.1[0-9]*/bin/python3)
PINNED := $(shell sed -n 's/^torch==//p' constraints.txt)

# What to install for torch: the wheel that was fetched, or the name.
torch = $(or $(shell ls $(VENV)/wheels/torch-$(PINNED)*.whl 2>/dev/null),torch)

DISCOVER := $(if $(PYENV),--discover $(PYENV))
TOX = TORCH_WHEEL="$(torch)" $(VENV)/bin/tox run $(DISCOVER)
# Installing takes one core: two environments beside each other. What fails is shown in full.
TOX_BESIDE = TORCH_WHEEL="$(torch)" $(VENV)/bin/tox run-parallel --parallel 2 --parallel-no-spinner $(DISCOVER)

.PHONY: check test test-all matrix interpreters release nightly docs coverage cuda agreement demo demo-time clean

# Of a change, before it is committed: minutes.
check: $(VENV)/wheels $(VENV)/bin/tox
	$(TOX) -e lint,types,core

# Five minutes on two cores, and some more for the environments the first time.
test: $(VENV)/wheels $(VENV)/bin/tox
	$(TOX) -e lint,types,tests
	$(if $(GPU),$(VENV)/bin/tox run -e gpu)

# All other tests that need no GPU, in the environment of `test`.
test-all: $(VENV)/wheels $(VENV)/bin/tox
	$(TOX) -e tests --override 'testenv:tests.commands={[others]commands}'

# What seldom fails alone: real trainers, the oldest and the newest interpreter, the site of
# docs, the archives of a release, other versions of torch.
matrix: $(VENV)/wheels $(VENV)/bin/tox
	$(TOX_BESIDE) -e trainers$(TORCHES),release,core-py310,core-py313,docs

TORCHES ?= ,torches

# All cases of the tests of which `matrix` runs one each, as `check` does on its interpreter.
interpreters: $(VENV)/bin/tox
	$(TOX_BESIDE) -e core-py310,core-py313 -- -m "not slow"

# What a release uploads, checked: a wheel and a source archive in dist/.
release: $(VENV)/wheels $(VENV)/bin/tox
	$(TOX) -e release

# On the torch of tomorrow, from PyTorch's own index.
nightly: $(VENV)/bin/tox
	$(VENV)/bin/tox run -e nightly

# The pages of docs as a site that opens from a disk: site/index.html is its first page.
docs: $(VENV)/bin/tox
	$(VENV)/bin/tox run -e docs

# Before a release, and for who wonders: more than twice as long as `test`.
coverage: $(VENV)/wheels $(VENV)/bin/tox
	$(TOX) -e coverage

# What needs a GPU, on real torch over stub libraries of CUDA: no GPU is used. TORCH asks
# for another version than the pinned one, here and below.
cuda: $(VENV)/bin/tox
	$(VENV)/bin/tox run -e cuda

# All operations of torch: the simulated GPU beside the same. Writes to benchmarks/evidence. A version
# that a constraint of pip's configuration excludes needs PIP_CONFIG_FILE=/dev/null in front of make.
agreement: $(VENV)/bin/tox
	$(VENV)/bin/tox run -e agreement

demo: $(VENV)/bin/gpuperf
	@$(VENV)/bin/python examples/demo.py

# What needs a clock, and so a quiet machine; it first says whether this one is.
demo-time: $(VENV)/bin/gpuperf
	@$(VENV)/bin/python examples/demo_time.py

clean:
	rm -rf $(VENV) .tox site

$(VENV)/pyvenv.cfg:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo 'make: there is no $(PYTHON): install Python 3.10 or newer, or name it with PYTHON=' >&2; exit 1; }
	@"$(PYTHON)" tools/environment.py $(VENV)

$(VENV)/bin/tox: constraints.txt | $(VENV)/pyvenv.cfg
	@($(call quietly,$(PIP) install --quiet --constraint constraints.txt tox)) \
	|| { echo '$(NO_NETWORK)' >&2; exit 1; }
	@touch $@

# torch warns at its import where numpy is absent. To compile all of torch takes longer than
# to compile what is imported of it.
$(VENV)/bin/gpuperf: $(VENV)/wheels pyproject.toml
	@echo 'installing torch $(PINNED), pytest and this package into $(VENV): 1 GB, about a minute'
	@($(call quietly,$(PIP) install --quiet --no-compile --constraint constraints.txt "$(torch)" numpy --editable .)) \
	|| { echo '$(NO_NETWORK)' >&2; exit 1; }
	@touch $@

# The CUDA build of torch is many times larger than the CPU build, and useless without
# a driver. The CPU build is fetched where pip would not find one by itself, once for
# all environments; an index that does not answer at once is left alone.
$(VENV)/wheels: constraints.txt | $(VENV)/pyvenv.cfg
	@mkdir -p $@
ifeq ($(GPU)$(shell uname -s),Linux)
	@$(PIP) index versions torch 2>/dev/null | grep -qF '$(PINNED)+cpu' \
	|| $(PIP) download --no-deps --retries 1 --timeout 10 --dest $@ \
	   --index-url $(TORCH_CPU_INDEX) 'torch==$(PINNED)+cpu' >/dev/null 2>&1 \
	|| echo 'no CPU build of torch $(PINNED) to be had: taking the default build'
endif
	@touch $@
