#!/usr/bin/env bash
# shellcheck disable=SC2317  # parts are called by their names
#
# What only a GPU can show of the library, on a machine that has one and needs no network. Two steps:
#
#   tar czf gpu.tgz $(scripts/gpu_suite.sh files)   here, after a build: what it takes there beside the sources
#   scripts/gpu_suite.sh [part ...]                 there: runs the parts, each within its limit; results go to $OUT
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
#   OUT=folder                     where logs and tables go (default build/gpu-suite)
#   HEED_PART_LIMIT=540            seconds for each part
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

# tests <program> <filter> [argument ...]: a filter that selects nothing is an error, and not a success.
tests() {
  "$1" --gtest_list_tests --gtest_filter="$2" | grep '^  ' >/dev/null || { echo "no test is named so: $2"; return 1; }
  "$1" --gtest_filter="$2" --gtest_brief=1 "${@:3}"
}

# Of two threads' launches either may come first: another time another order.
threads() {
  tests "$conformance_tests" 'Of/OnGpu.threads_that_share_a_stream*:Of/OnGpu.two_streams_at_once*' --gtest_repeat=10 &&
    tests "$conformance_tests" 'On/*.calls_from_many_threads_at_once*/cuda*:On/*.the_number_of_threads*/cuda*' --gtest_repeat=3
}

instructions() { tests "$cuda_tests" 'Ptx*'; }

# Each process has a log of its own.
conformance() {
  local shard status=0 pids=()
  rm -f "$OUT"/conformance-*.log
  for ((shard = 1; shard <= workers; ++shard)); do
    HEED_TEST_SHARD=$shard/$workers tests "$conformance_tests" '*-*/cpu_*' >"$OUT/conformance-$shard.log" 2>&1 &
    pids+=($!)
  done
  for shard in "${!pids[@]}"; do
    wait "${pids[shard]}" || { echo "conformance-$((shard + 1)).log: FAILED ($?)"; status=1; }
  done
  grep -h '^\[  FAILED  \]\|^no test' "$OUT"/conformance-*.log | sort -u
  awk '/^\[  PASSED  \] [0-9]/ { passed += $4 } /^\[  SKIPPED \] [0-9]/ { skipped += $4 } /FAILED TESTS?$/ { failed += $1 }
    END { printf "%d passed, %d skipped, %d failed\n", passed, skipped, failed }' "$OUT"/conformance-*.log
  return "$status"
}

# fuzz <fwd or bwd> <cases> <kinds> <of how many that share the part's time>
fuzz() {
  "$heed" fuzz --engine=cuda --op="$1" --cases="$2" --kinds="$3" --seed="$seed" \
    --minutes="$(awk -v limit="$limit" -v parts="$4" 'BEGIN { printf "%.2f", (limit - 30) / 60 / parts }')"
}
fuzz_backward() { fuzz bwd 20000 60 1; }
fuzz_forward() { fuzz fwd 20000 60 1; }
portable() {
  export HEED_CUDA_FAMILY=portable
  fuzz bwd 5000 20 2 && fuzz fwd 5000 20 2
}

# The backward test has 30 runs.
determinism() {
  tests "$conformance_tests" 'Of/OnGpu.a_thousand_runs_give_the_same_bits/*' &&
    tests "$conformance_tests" 'On/Backward.a_deterministic_run_gives_the_same_bits_every_time/cuda*' --gtest_repeat=34
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

# sanitize_one <tool> <pass> <kernel> <argument ...>: one line that it is right, or all that was said.
sanitize_one() {
  local tool=$1 pass=$2 kernel=$3 output
  shift 3
  if [[ $kernel != - ]]; then set -- "$@" -kernel="cuda/$kernel"; fi
  [[ " $*" == *" -b="* ]] || set -- -b=2 "$@"
  [[ " $*" == *" -prec="* ]] || set -- "$@" -prec=bf16
  set -- "$pass" -engine=cuda -h=4 "$@" -warmup=0 -repeat=1
  if output=$("$compute_sanitizer" --tool "$tool" --error-exitcode 9 "$heed" "$@" 2>&1); then
    printf '%s right: heed %s\n' "$tool" "$*"
  else
    printf '%s FAILED (%d): heed %s\n%s\n' "$tool" $? "$*" "$output"
    return 1
  fi
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
  local tool pass kernel problem status=0 here
  compute_sanitizer=$(find_sanitizer) || { echo "compute-sanitizer was not found; HEED_SANITIZER names it"; return 1; }
  export compute_sanitizer
  here=$("$heed" kernels --engine=cuda --here --names)
  while read -r pass kernel problem; do
    if [[ $kernel != - && $'\n'$here$'\n' != *$'\n'"cuda/$kernel"$'\n'* ]]; then
      echo "not for this GPU: $kernel" >&2
      continue
    fi
    for tool in memcheck synccheck; do printf '%s\n' "$tool $pass $kernel $problem"; done
  done < <(sanitizer_problems) >"$OUT/sanitizer-problems.txt"
  # shellcheck disable=SC2016
  xargs --max-lines=1 --max-procs="$workers" bash -c 'sanitize_one "$@"' _ <"$OUT/sanitizer-problems.txt" || status=1
  echo "$(wc -l <"$OUT/sanitizer-problems.txt") runs, $([[ $status == 0 ]] && echo "all right" || echo "some FAILED")"
  return "$status"
}

grids() {
  # shellcheck disable=SC2086
  "$python" "$root/bench/compare_gpu.py" --library="$library" --json="$OUT/forward.json" --markdown="$OUT/forward.md" \
    ${HEED_GRID_ARGUMENTS:-} &&
    "$python" "$root/bench/compare_gpu.py" --library="$library" --backward --json="$OUT/backward.json" \
      --markdown="$OUT/backward.md" ${HEED_GRID_ARGUMENTS:-}
}

# The package comes from a wheel, which is a zip file; nothing is installed.
features() {
  local wheel
  wheel=$(compgen -G "$root/build-python/dist/heed-*.whl" || compgen -G "$root/build-python/gpu/wheels/heed-*.whl") ||
    { echo "no wheel of heed in build-python; scripts/python_test.sh builds it"; return 1; }
  rm -rf "$OUT/site"
  "$python" -m zipfile --extract "$wheel" "$OUT/site" || return 1
  # shellcheck disable=SC2086
  PYTHONPATH=$OUT/site${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 "$python" "$root/bench/features_gpu.py" \
    --json="$OUT/features.json" --markdown="$OUT/features.md" ${HEED_FEATURES_ARGUMENTS:---rounds=4}
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
export HEED_CACHE_DIR=${HEED_CACHE_DIR:-${TMPDIR:-/tmp}/heed-gpu-suite-cache}
export -f tests fuzz sanitizer_problems sanitize_one find_sanitizer "${all_parts[@]}"
export root heed library conformance_tests cuda_tests python limit workers seed
{
  date --utc +%Y-%m-%d
  "$heed" info
} >"$OUT/machine.txt" 2>&1
cat "$OUT/machine.txt"
run_parts "${chosen[@]}"
