#!/usr/bin/env bash
# The proof on a GPU, in one command and under ten minutes: build, compute-sanitizer, the tests that
# need a card, benchmarks. Needs nvcc, a CUDA build of torch, pytest and a GPU; no network.
#
#   benchmarks/gpu.sh [--help | --dry-run]
#
# Environment:
#   OUT         where the results are written (benchmarks/results/local/gpu): stages.txt, log.txt,
#               gpu.jsonl and gpu.txt
#   WORK        where the tests without torch are compiled (build/gpu)
#   BUDGET      seconds for all stages together (570)
#   PYTHON      the Python that holds torch (python3)
#   STAGES      which stages to run ("build kernels shuffle digest memcheck racecheck tests
#               initcheck bench"); tests and bench need what build has made, in this run or before
#   CUDA_ARCH   the compute capability to build for (the card's, such as 9.0)
#   CUDA_HOME   the toolkit (where the nvcc on the PATH is, or /usr/local/cuda)
#
# Exit status: 0, or 1 when the build, a test, a sanitizer's finding or a wrong answer fails.
# A missed target is reported only; so is a stage that runs out of time, except the build and the tests.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

OUT=${OUT:-benchmarks/results/local/gpu}
WORK=${WORK:-$PWD/build/gpu}
BUDGET=${BUDGET:-570}
PYTHON=${PYTHON:-python3}
STAGES=${STAGES:-build kernels shuffle digest memcheck racecheck tests initcheck bench}
BENCH=230 # seconds kept for the benchmarks: initcheck runs only if more than that is left
DRY=0
FAILED=0
declare -A COMPILED # the status of compiling a torch-free program, once it was tried

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
  mkdir -p "$OUT" "$WORK/lib" || exit 1
  OUT=$(cd "$OUT" && pwd)
  WORK=$(cd "$WORK" && pwd)
  : >"$OUT/stages.txt"
  : >"$OUT/log.txt"
fi
PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH PYTHONUNBUFFERED=1
ARCH=${CUDA_ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)}
ARCH=${ARCH:-9.0}
JOBS=$(nproc)

# Where the toolkit is. torch takes the folder above the nvcc on the PATH, which may be a script that
# calls another; and it looks for libcudart.so in lib64 alone.
toolkit() {
  local home at
  for home in "${CUDA_HOME:-}" "$(readlink -f "$(command -v nvcc)" 2>/dev/null | sed 's|/bin/nvcc$||')" \
    /usr/local/cuda; do
    [ ! -e "$home/include/cuda_runtime.h" ] || break
  done
  [ -x "$home/bin/nvcc" ] || return 0 # torch may know better, or says what is missing
  export CUDA_HOME=$home
  PATH=$PATH:$home/bin:$home/compute-sanitizer
  for at in "$home"/lib64 "$home"/lib "$home"/targets/*/lib; do
    if [ -e "$at/libcudart.so" ]; then
      export LIBRARY_PATH=$at${LIBRARY_PATH:+:$LIBRARY_PATH}
      return 0
    fi
  done
  for at in "$home"/lib*/libcudart.so.* "$home"/targets/*/lib/libcudart.so.*; do
    if [ -e "$at" ] && [ "$DRY" = 0 ]; then # only what programs load, not what they are linked to
      ln -sf "$at" "$WORK/lib/libcudart.so"
      export LIBRARY_PATH=$WORK/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
      return 0
    fi
  done
}

machine() { # what the log begins with
  echo "$JOBS processors, compute capability $ARCH, CUDA_HOME ${CUDA_HOME:-unknown}"
  nvidia-smi
  nvcc --version
  g++ --version
  command -v compute-sanitizer
} >>"$OUT/log.txt" 2>&1

toolkit
[ "$DRY" = 1 ] || machine

left() { echo $((BUDGET - SECONDS)); }

note() { # stage, what came of it
  echo "== $1: $2 (${SECONDS} s of $BUDGET)"
  [ "$DRY" = 1 ] || echo "$1: $2" >>"$OUT/stages.txt"
}

# stage NAME SECONDS COMMAND...: runs it with at most so many of the seconds that are left, its output
# at the end of OUT/log.txt. Returns its status; 124 when time ran out.
stage() {
  local name=$1 box=$2 begin
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
  printf '\n== %s\n' "$name" >>"$OUT/log.txt"
  begin=$(wc -l <"$OUT/log.txt")
  timeout --kill-after=5 "$box" "$@" >>"$OUT/log.txt" 2>&1
  local status=$?
  case $status in
    0) note "$name" ok ;;
    124 | 137)
      note "$name" "ran out of its $box s"
      tail -n "+$((begin + 1))" "$OUT/log.txt" | tail -n 3
      status=124
      ;;
    *)
      note "$name" "failed with $status"
      tail -n "+$((begin + 1))" "$OUT/log.txt" | tail -n 30
      ;;
  esac
  return $status
}

# In place, because that needs no network, writes nothing into site-packages and asks pip nothing.
build() {
  stage build 130 env FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST="$ARCH" MAX_JOBS="$JOBS" \
    "$PYTHON" setup.py build_ext --inplace
}

# The tests of the kernels without torch, each compiled once: as setup.py compiles them.
compiled() { # stage, seconds, target, sources...
  local name=$1 box=$2 target=$3
  shift 3
  if [ "${COMPILED[$name]:-}" = "" ]; then
    stage "$name" "$box" nvcc -std=c++17 -O3 -lineinfo -fmad=false --expt-relaxed-constexpr \
      -arch="sm_${ARCH//./}" -t "$JOBS" "$@" -o "$WORK/$target"
    COMPILED[$name]=$?
  fi
  return "${COMPILED[$name]}"
}

program() { compiled program 50 cuda_test tests/csrc/test_cuda.cu csrc/kernels/*.cu; }

shuffle_program() {
  compiled shuffle_program 20 cuda_shuffle tests/csrc/shuffle/test_cuda_shuffle.cu \
    csrc/cuda/shuffle.cu
}

digest_program() {
  compiled digest_program 20 cuda_digest tests/csrc/test_cuda_digest.cu csrc/cuda/digest.cu
}

KNOWN=(tests/vectors/vectors.txt tests/vectors/draws.txt) # answers

kernels() { program && stage kernels 15 "$WORK/cuda_test" "${KNOWN[@]}"; }

shuffle() { shuffle_program && stage shuffle 10 "$WORK/cuda_shuffle" tests/vectors/shuffle.txt; }

digest() { digest_program && stage digest 10 "$WORK/cuda_digest"; }

sanitize() { # tool, seconds
  local check=(compute-sanitizer --tool "$1" --error-exitcode 9)
  if [ "$DRY" = 0 ] && ! command -v compute-sanitizer >/dev/null; then
    note "$1" "skipped, there is no compute-sanitizer"
    return 0
  fi
  if [ "$DRY" = 0 ] && [ "$1" = initcheck ] && [ "$(left)" -lt $((BENCH + $2)) ]; then
    note initcheck "skipped, no time left"
    return 0
  fi
  program && shuffle_program && digest_program || return
  # shellcheck disable=SC2016 # the inner shell's
  stage "$1" "$2" "$BASH" -c '"${@:4}" "$1" && "${@:4}" "$2" tests/vectors/shuffle.txt &&
    "${@:4}" "$3" tests/vectors/vectors.txt tests/vectors/draws.txt' "$1" \
    "$WORK/cuda_digest" "$WORK/cuda_shuffle" "$WORK/cuda_test" "${check[@]}"
}

# -v names a test that hangs. Only files with a `cuda` mark are collected: others may import what is not installed here. Without
# pytest-timeout, its setting in pyproject.toml is unknown: hence no --strict-config.
tests() {
  local files
  mapfile -t files < <(grep -rlE 'mark\.cuda' tests --include='test_*.py' | sort)
  if [ "${#files[@]}" = 0 ]; then
    note tests "failed, no test has the mark cuda"
    return 1
  fi
  stage tests 140 env FAIL_WITHOUT_CUDA=1 FASTSEED_BACKEND=native "$PYTHON" -m pytest -m cuda -v \
    --tb=short --durations=10 -o addopts="-ra --strict-markers" -p no:cacheprovider \
    --continue-on-collection-errors "${files[@]}"
}

bench() {
  local seconds=$(($(left) - 10))
  [ "$DRY" = 0 ] || seconds=$((BUDGET - 10))
  stage bench "$((seconds + 5))" "$PYTHON" -m benchmarks.gpu --out "$OUT/gpu.jsonl" \
    --log "$OUT/log.txt" --seconds "$seconds"
}

for name in $STAGES; do
  case $name in
    build) build ;;
    kernels) kernels ;;
    shuffle) shuffle ;;
    digest) digest ;;
    memcheck) sanitize memcheck 35 ;;
    racecheck) sanitize racecheck 35 ;;
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
