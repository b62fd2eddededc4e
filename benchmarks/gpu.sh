#!/usr/bin/env bash
# The proof on a GPU, in one command and under ten minutes: build, compute-sanitizer, the tests that
# need a card, benchmarks. Needs nvcc, a CUDA build of torch, pytest and a GPU; no network.
#
#   benchmarks/gpu.sh [--help | --dry-run]
#
# Environment:
#   OUT         where everything is written (benchmarks/results/local/gpu)
#   BUDGET      seconds for all stages together (570)
#   PYTHON      the Python that holds torch (python3)
#   STAGES      which stages to run ("build kernels memcheck racecheck tests initcheck bench")
#   CUDA_ARCH   the compute capability to build for (the card's, such as 9.0)
#
# Exit status: 0, or 1 when the build, a test, a sanitizer's finding or a wrong answer says so. A bar
# that is missed is reported and fails nothing; so is a stage that runs out of time, except the build
# and the tests.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

OUT=${OUT:-benchmarks/results/local/gpu}
BUDGET=${BUDGET:-570}
PYTHON=${PYTHON:-python3}
STAGES=${STAGES:-build kernels memcheck racecheck tests initcheck bench}
BENCH=230 # seconds kept for the benchmarks: initcheck runs only if more than that is left
DRY=0
FAILED=0
COMPILED= # the status of compiling the torch-free program, once it was tried

case "${1:-}" in
  -h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  --dry-run) DRY=1 ;;
  "") ;;
  *)
    echo "gpu.sh: unknown option $1; --help lists what there is" >&2
    exit 2
    ;;
esac

if [ "$DRY" = 0 ]; then
  mkdir -p "$OUT" || exit 1
  OUT=$(cd "$OUT" && pwd)
  : >"$OUT/stages.txt"
fi
PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH PYTHONUNBUFFERED=1
ARCH=${CUDA_ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)}
ARCH=${ARCH:-9.0}
JOBS=$(nproc)

left() { echo $((BUDGET - SECONDS)); }

note() { # stage, what came of it
  echo "== $1: $2 (${SECONDS} s of $BUDGET)"
  [ "$DRY" = 1 ] || echo "$1: $2" >>"$OUT/stages.txt"
}

# stage NAME SECONDS COMMAND...: runs it with at most so many of the seconds that are left, its output
# in OUT/NAME.log. Returns its status; 124 when time ran out.
stage() {
  local name=$1 box=$2
  shift 2
  if [ "$DRY" = 1 ]; then
    echo "$name (at most $box s): $*"
    return 0
  fi
  [ "$box" -le "$(left)" ] || box=$(left)
  if [ "$box" -lt 5 ]; then
    note "$name" "skipped, no time left"
    return 124
  fi
  timeout --kill-after=5 "$box" "$@" >"$OUT/$name.log" 2>&1
  local status=$?
  case $status in
    0) note "$name" ok ;;
    124 | 137)
      note "$name" "ran out of its $box s"
      status=124
      ;;
    *)
      note "$name" "failed with $status"
      tail -n 25 "$OUT/$name.log"
      ;;
  esac
  return $status
}

# In place, because that needs no network, writes nothing into site-packages and asks pip nothing.
build() {
  stage build 170 env FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST="$ARCH" MAX_JOBS="$JOBS" \
    "$PYTHON" setup.py build_ext --inplace
}

# The kernels and their test without torch, compiled once: as setup.py compiles them.
program() {
  if [ "$COMPILED" = "" ]; then
    stage program 60 nvcc -std=c++17 -O3 -lineinfo -fmad=false --expt-relaxed-constexpr \
      -arch="sm_${ARCH//./}" -t "$JOBS" tests/csrc/*.cu csrc/kernels/*.cu -o "$OUT/cuda_test"
    COMPILED=$?
  fi
  return "$COMPILED"
}

kernels() {
  program && stage kernels 20 "$OUT/cuda_test" tests/data/vectors.txt tests/data/draws.txt
}

sanitize() { # tool, seconds
  if [ "$DRY" = 0 ] && ! command -v compute-sanitizer >/dev/null; then
    note "$1" "skipped, there is no compute-sanitizer"
    return 0
  fi
  if [ "$DRY" = 0 ] && [ "$1" = initcheck ] && [ "$(left)" -lt $((BENCH + $2)) ]; then
    note initcheck "skipped, no time left"
    return 0
  fi
  program && stage "$1" "$2" compute-sanitizer --tool "$1" --error-exitcode 9 \
    "$OUT/cuda_test" tests/data/vectors.txt tests/data/draws.txt
}

# Only files with a `cuda` mark are collected: others may import what is not installed here. Without
# pytest-timeout, its setting in pyproject.toml is unknown: hence no --strict-config.
tests() {
  local files
  mapfile -t files < <(grep -rlE 'mark\.cuda' tests --include='test_*.py' | sort)
  if [ "${#files[@]}" = 0 ]; then
    note tests "failed, no test has the mark cuda"
    return 1
  fi
  stage tests 140 env FAIL_WITHOUT_CUDA=1 FASTSEED_BACKEND=native "$PYTHON" -m pytest -m cuda -q \
    -o addopts="-ra --strict-markers" -p no:cacheprovider "${files[@]}"
}

bench() {
  local seconds=$(($(left) - 10))
  [ "$DRY" = 0 ] || seconds=$((BUDGET - 10))
  stage bench "$((seconds + 5))" "$PYTHON" -m benchmarks.gpu --out "$OUT/gpu.jsonl" \
    --log "$OUT/contenders.log" --seconds "$seconds"
}

for name in $STAGES; do
  case $name in
    build) build ;;
    kernels) kernels ;;
    memcheck) sanitize memcheck 40 ;;
    racecheck) sanitize racecheck 40 ;;
    initcheck) sanitize initcheck 30 ;;
    tests) tests ;;
    bench) bench ;;
    *)
      echo "gpu.sh: no stage is called $name" >&2
      exit 2
      ;;
  esac
  status=$?
  case "$name:$status" in
    *:0) ;;
    memcheck:124 | racecheck:124 | initcheck:124 | bench:124) ;; # reported, nothing more
    *) FAILED=1 ;;
  esac
  [ "$name:$FAILED" != build:1 ] || break # without a build there is nothing to run
done

[ "$DRY" = 0 ] || exit 0
[ ! -s "$OUT/gpu.jsonl" ] || "$PYTHON" -m benchmarks.gpu.report "$OUT/gpu.jsonl" | tee "$OUT/gpu.txt"
cat "$OUT/stages.txt"
exit "$FAILED"
