#!/usr/bin/env bash
# shellcheck disable=SC2317  # parts are called by their names
#
# What only a GPU can show of the library, on a machine that has one and needs no network. Two steps:
#
#   tar czf gpu.tgz $(scripts/gpu_suite.sh files)   here, after a build: what it takes there beside the sources
#   scripts/gpu_suite.sh [part ...]                 there: runs the parts, all within a limit; results go to $OUT
#
# Parts, those first that find the most in the least time. Default: all.
#   threads         tests of threads and streams side by side, again and again
#   instructions    every instruction that kernels are written in, alone
#   conformance     tests/conformance with all kernels, with the portable ones alone, and with forced knobs
#   fuzz_backward   20,000 random problems of 60 kinds: gradients
#   fuzz_forward    the same: O and LSE
#   portable        5,000 of each with the kernels of every other GPU
#   determinism     1,000 runs, forward and backward: the same bits
#   sanitizer       compute-sanitizer's memcheck and synccheck over a problem or two of each kernel and pipeline
#   grids           bench/compare_gpu.py, forward and backward: needs torch
#   features        bench/features_gpu.py: needs torch and a wheel of heed (scripts/python_test.sh builds it)
#
# In $OUT there are two files, whole after every part: summary.txt, a line for each part, and results.tgz, logs and tables.
#
#   OUT=folder                     where they go (default build/gpu-suite)
#   HEED_TOTAL_LIMIT=540           seconds for all parts together, shared out among them; one that is out of time says what
#                                  it did not reach
#   HEED_PART_LIMIT=60             seconds for each part, where that is less than its share
#   HEED_SEED=1                    which random problems: another number, other problems
#   HEED_TEST_WORKERS=8            processes at once, of the tests and under the sanitizer
#   HEED_SANITIZER=path            compute-sanitizer, where it is neither on the path nor in /usr/local/cuda
#                                  (the wheel nvidia-cuda-sanitizer-api has one)
#   HEED_TORCH_PYTHON=python       the Python that has torch (default python3)
#   HEED_GRID_ARGUMENTS=...        further arguments of bench/compare_gpu.py (--rounds=5, --type=bf16)
#   HEED_FEATURES_ARGUMENTS=...    further arguments of bench/features_gpu.py (default --rounds=4)
#
# The Python package has a suite of its own: scripts/python_gpu_suite.sh.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
root=$PWD
heed=$root/build/bin/heed
library=$root/build/lib/libheed.so
conformance_tests=$root/build/tests/heed_conformance
cuda_tests=$root/build/tests/heed_cuda_tests
python=${HEED_TORCH_PYTHON:-python3}
workers=${HEED_TEST_WORKERS:-8}
seed=${HEED_SEED:-1}
all_parts=(threads instructions conformance fuzz_backward fuzz_forward portable determinism sanitizer grids features)

# shellcheck source=scripts/gpu_parts.sh
source scripts/gpu_parts.sh

# count_tests <log ...>: of GoogleTest's logs, one or several runs in each.
count_tests() {
  awk '/^\[==========\] Running [0-9]+ tests?/ { planned += $3 }
    /^\[       OK \] .* ms\)$/ { ++passed }
    /^\[  SKIPPED \] .* ms\)$/ { ++skipped }
    /^\[  FAILED  \] .* ms\)$/ { ++failed }
    END {
      printf "%d passed, %d skipped, %d failed", passed, skipped, failed
      if (planned > passed + skipped + failed) printf ", %d not reached", planned - passed - skipped - failed
      printf "\n"
    }' "$@"
}

# tests <program> <filter> [argument ...]: what went wrong, and how many did not; until the part's time is over. A filter that
# selects nothing is an error, and not a success.
tests() {
  local log status=0
  "$1" --gtest_list_tests --gtest_filter="$2" | grep '^  ' >/dev/null || { echo "no test is named so: $2"; return 1; }
  log=$(mktemp "$SCRATCH/tests.XXXXXX")
  timeout --kill-after=1 "$(seconds_left)" "$1" --gtest_filter="$2" "${@:3}" >"$log" 2>&1 || status=$?
  grep -v '^\[ RUN      \]\|^\[       OK \]\|^\[-----' "$log"
  count_tests "$log"
  rm -f "$log"
  return "$status"
}

# Of two threads' launches either may come first: another time another order.
threads() {
  tests "$conformance_tests" 'Of/OnGpu.threads_that_share_a_stream*:Of/OnGpu.two_streams_at_once*' --gtest_repeat=10 &&
    tests "$conformance_tests" 'On/*.calls_from_many_threads_at_once*/cuda*:On/*.the_number_of_threads*/cuda*' --gtest_repeat=3
}

instructions() { tests "$cuda_tests" 'Ptx*'; }

# Each process has a log of its own.
conformance() {
  local shard ended status=0 pids=() logs=()
  for ((shard = 1; shard <= workers; ++shard)); do
    logs+=("$RESULTS/conformance-$shard.log")
    HEED_TEST_SHARD=$shard/$workers timeout --kill-after=1 "$(seconds_left)" "$conformance_tests" --gtest_filter='*-*/cpu_*' \
      >"${logs[-1]}" 2>&1 &
    pids+=($!)
  done
  for shard in "${!pids[@]}"; do
    ended=0
    wait "${pids[shard]}" || ended=$?
    if ((ended == 124)); then
      echo "conformance-$((shard + 1)).log: its time was over"
      ((status)) || status=124
    elif ((ended)); then
      echo "conformance-$((shard + 1)).log: FAILED ($ended)"
      status=1
    fi
  done
  sed -n 's/^\(\[  FAILED  \] .*\) ([0-9]* ms)$/\1/p' "${logs[@]}" | sort -u
  count_tests "${logs[@]}"
  return "$status"
}

# fuzz <fwd or bwd> <cases> <kinds> <of how many that share what is left of the part's time>: compiling a last kernel may take
# longer than its minutes.
fuzz() {
  echo "$2 cases of $1, until its time is over"
  "$heed" fuzz --engine=cuda --op="$1" --cases="$2" --kinds="$3" --seed="$seed" \
    --minutes="$(awk -v left="$(seconds_left)" -v parts="$4" 'BEGIN { printf "%.3f", 0.8 * left / 60 / parts }')"
}
fuzz_backward() { fuzz bwd 20000 60 1; }
fuzz_forward() { fuzz fwd 20000 60 1; }
portable() {
  export HEED_CUDA_FAMILY=portable
  fuzz bwd 5000 20 2 && fuzz fwd 5000 20 1
}

determinism() {
  tests "$conformance_tests" 'Of/OnGpu.a_thousand_runs_give_the_same_bits/*' &&
    HEED_TEST_REPEATS=1000 tests "$conformance_tests" 'On/Backward.a_deterministic_run_gives_the_same_bits_every_time/cuda*'
}

# A pass, the kernel that it is meant for ('-': whichever), and the problem. Lengths are no multiples of anything.
sanitizer_problems() {
  cat <<'PROBLEMS'
fwd sm_90/hopper_fwd_d64_full         -d=64 -s=700
fwd sm_90/hopper_fwd_d64_causal       -d=64 -s=700 -mask=b
fwd sm_90/hopper_fwd_d64_256x64       -d=64 -s=700 -mask=b:100,0
fwd sm_90/hopper_fwd_d64_lengths      -d=64 -mode=1 -b=3 -s=300,5,700 -mask=b
fwd sm_90/hopper_fwd_d64_bias         -d=64 -s=300 -bias=e:1
fwd sm_90/hopper_fwd_d64_features     -d=64 -s=300 -bool_mask=e -p_drop=0.1 -logits_soft_cap=30
fwd sm_90/hopper_fwd_d96              -d=96 -s=300
fwd sm_90/hopper_fwd_d128_short       -d=128 -s=300
fwd sm_90/hopper_fwd_d128_full        -d=128 -s=1100
fwd sm_90/hopper_fwd_d128_causal      -d=128 -s=700 -mask=b
fwd sm_90/hopper_fwd_d128             -d=128 -s=700 -mask=b:100,0,4
fwd sm_90/hopper_fwd_d128             -d=128 -mode=1 -b=3 -s=300,5,700 -h_k=2
fwd sm_90/hopper_fwd_d128_bias        -d=128 -s=301 -s_k=302 -bias=e:2
fwd sm_90/hopper_fwd_d128_block_mask  -d=128 -s=700 -block_mask=128,128
fwd sm_90/hopper_fwd_d192_128         -d=192 -d_v=128 -s=300 -mask=b
fwd sm_90/hopper_fwd_d256_causal      -d=256 -s=700 -mask=b
fwd sm_90/hopper_fwd_d256_features    -d=256 -s=300 -bias=a -mask=b:100,0
fwd sm_80/portable_fwd_16bit          -d=128 -s=300 -mask=b
fwd sm_80/portable_fwd_f32            -d=64 -s=300 -prec=fp32
bwd sm_90/hopper_bwd_d64              -d=64 -s=700 -mask=b
bwd sm_90/hopper_bwd_d64              -d=64 -s=700 -mask=b:100,0 -deterministic=1
bwd sm_90/hopper_bwd_d64              -d=64 -mode=1 -b=3 -s=300,5,700
bwd sm_90/hopper_bwd_d64_bias         -d=64 -s=304 -bias=e:2 -dbias=1
bwd sm_90/hopper_bwd_d64_features     -d=64 -s=300 -bias=a -p_drop=0.1
bwd sm_90/hopper_bwd_d128             -d=128 -s=700 -mask=b -deterministic=1
bwd sm_90/hopper_bwd_d128             -d=128 -s=700 -mask=b:100,0 -h_k=2
bwd sm_90/hopper_bwd_d128             -d=128 -s=700 -dq_acc=16
bwd sm_90/hopper_bwd_d128_bias        -d=128 -s=304 -bias=e -dbias=1
bwd sm_90/hopper_bwd_d128_bias        -d=128 -s=304 -bias=e:2 -dbias=1 -mask=b
bwd sm_90/hopper_bwd_d128_features    -d=128 -s=300 -bool_mask=e -p_drop=0.1
bwd -                                 -d=128 -s=700 -h_k=1 -mask=b -algo=parts:4
bwd sm_90/hopper_bwd_d192_owned       -d=192 -d_v=128 -s=700 -mask=b
bwd sm_90/hopper_bwd_d256             -d=256 -s=700 -mask=b
bwd sm_90/hopper_bwd_d256_owned       -d=256 -s=700 -mask=b -deterministic=1
bwd sm_90/hopper_bwd_d256_owned       -d=256 -mode=1 -b=3 -s=300,5,700 -mask=b:100,0
bwd sm_80/portable_bwd_16bit          -d=128 -s=300 -mask=b
bwd sm_80/portable_bwd_f32            -d=64 -s=300 -prec=fp32
PROBLEMS
}

# sanitize_one <tool> <pass> <kernel> <argument ...>: one line that it is right or was not reached, or all that was said.
sanitize_one() {
  local tool=$1 pass=$2 kernel=$3 output status=0
  shift 3
  if [[ $kernel != - ]]; then set -- "$@" -kernel="cuda/$kernel"; fi
  [[ " $*" == *" -b="* ]] || set -- -b=2 "$@"
  [[ " $*" == *" -prec="* ]] || set -- "$@" -prec=bf16
  set -- "$pass" -engine=cuda -h=4 "$@" -warmup=0 -repeat=1
  output=$(timeout --kill-after=1 "$(seconds_left)" "$compute_sanitizer" --tool "$tool" --error-exitcode 9 "$heed" "$@" 2>&1) ||
    status=$?
  case $status in
    0) printf '%s right: heed %s\n' "$tool" "$*" ;;
    124 | 137) printf '%s not reached: heed %s\n' "$tool" "$*" ;;
    *) printf '%s FAILED (%d): heed %s\n%s\n' "$tool" "$status" "$*" "$output" ;;
  esac
  return $((status != 0))
}
# sanitizer_works: it sums up what it has seen, where it takes this GPU and its driver; else all that it says.
sanitizer_works() {
  local output
  output=$(timeout --kill-after=1 "$(seconds_left)" "$compute_sanitizer" --tool memcheck "$heed" fwd -engine=cuda -b=1 -h=1 -s=64 \
    -d=64 -prec=bf16 -warmup=0 -repeat=1 2>&1)
  [[ $output == *"ERROR SUMMARY"* && $output != *"not supported"* ]] && return 0
  printf '%s\n' "$output" "$compute_sanitizer does not work here: nothing was checked"
  return 1
}
find_sanitizer() {
  local each
  for each in "${HEED_SANITIZER:-}" "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer \
    /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
    if [[ -x $each ]]; then echo "$each"; return 0; fi
  done
  return 1
}
sanitizer() {
  local tool pass kernel problem status=0 here list=$SCRATCH/sanitizer-problems.txt log=$SCRATCH/sanitizer.log
  compute_sanitizer=$(find_sanitizer) || { echo "compute-sanitizer was not found; HEED_SANITIZER names it"; return 1; }
  export compute_sanitizer
  sanitizer_works || return 1
  here=$("$heed" kernels --engine=cuda --here --names)
  while read -r pass kernel problem; do
    if [[ $kernel != - && $'\n'$here$'\n' != *$'\n'"cuda/$kernel"$'\n'* ]]; then
      echo "not for this GPU: $kernel" >&2
      continue
    fi
    for tool in memcheck synccheck; do printf '%s\n' "$tool $pass $kernel $problem"; done
  done < <(sanitizer_problems) >"$list"
  # shellcheck disable=SC2016
  xargs --max-lines=1 --max-procs="$workers" bash -c 'sanitize_one "$@"' _ <"$list" >"$log" 2>&1 || status=1
  cat "$log"
  if ((status)) && ! grep --quiet '^[a-z]* FAILED ' "$log"; then status=124; fi
  awk '/^[a-z]+ right: / { ++right } /^[a-z]+ FAILED / { ++failed } /^[a-z]+ not reached: / { ++late }
    END { printf "%d runs right, %d failed", right, failed; if (late) printf ", %d not reached", late; printf "\n" }' "$log"
  return "$status"
}

# Of the part's time the forward pass has half.
grids() {
  local left
  left=$(seconds_left)
  # shellcheck disable=SC2086
  "$python" "$root/bench/compare_gpu.py" --library="$library" --json="$RESULTS/forward.json" --markdown="$RESULTS/forward.md" \
    --limit=$((left * 4 / 10)) ${HEED_GRID_ARGUMENTS:-} &&
    "$python" "$root/bench/compare_gpu.py" --library="$library" --backward --json="$RESULTS/backward.json" \
      --markdown="$RESULTS/backward.md" --limit=$((left * 4 / 10)) ${HEED_GRID_ARGUMENTS:-}
}

# The package comes from a wheel, which is a zip file; nothing is installed.
features() {
  local wheel
  wheel=$(compgen -G "$root/build-python/dist/heed-*.whl" || compgen -G "$root/build-python/gpu/wheels/heed-*.whl") ||
    { echo "no wheel of heed in build-python; scripts/python_test.sh builds it"; return 1; }
  "$python" -m zipfile --extract "$wheel" "$SCRATCH/site" || return 1
  # shellcheck disable=SC2086
  PYTHONPATH=$SCRATCH/site${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 "$python" "$root/bench/features_gpu.py" \
    --json="$RESULTS/features.json" --markdown="$RESULTS/features.md" --limit=$(($(seconds_left) * 8 / 10)) \
    ${HEED_FEATURES_ARGUMENTS:---rounds=4}
}

# What is not in the repository, by its path in it.
files() {
  local each
  for each in "$heed" "$library" "$library".* "$conformance_tests" "$cuda_tests" "$root"/build-python/dist/heed-*.whl; do
    if [[ -e $each ]]; then echo "${each#"$root"/}"; fi
  done
}

case ${1:-} in
  -h | --help) sed -n '4,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit ;;
  files) files; exit ;;
esac
chosen=("$@")
((${#chosen[@]})) || chosen=("${all_parts[@]}")
for each in "${chosen[@]}"; do is_part "$each" || exit 2; done
for each in "$heed" "$library" "$conformance_tests" "$cuda_tests"; do
  [[ -x $each ]] || { say "no ${each#"$root"/}: cmake --preset release && cmake --build build"; exit 1; }
done
if [[ -z $("$heed" kernels --engine=cuda --here --names) ]]; then
  say "no GPU that heed can use.$("$heed" explain -engine=cuda 2>&1 | sed -n 's/^ *cuda */ /p')"
  exit 1
fi
export OUT=${OUT:-$root/build/gpu-suite}
mkdir -p "$OUT"
make_scratch || exit
export HEED_CACHE_DIR=${HEED_CACHE_DIR:-${TMPDIR:-/tmp}/heed-gpu-suite-cache}
export -f count_tests tests fuzz sanitizer_problems sanitize_one sanitizer_works find_sanitizer "${all_parts[@]}"
export root heed library conformance_tests cuda_tests python workers seed
{
  date --utc +%Y-%m-%d
  "$heed" info
} >"$RESULTS/machine.txt" 2>&1
cat "$RESULTS/machine.txt"
run_parts "${chosen[@]}"
