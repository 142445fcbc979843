#!/usr/bin/env bash
# Everything `make test` checks, in stages; stops at the first that fails. Ends with one line: "N passed, 0 failed".
#
#   scripts/test.sh
#   HEED_TEST_STAGES="build test" scripts/test.sh      only these
#   HEED_JOBS=8 scripts/test.sh                        compile and test with 8 processes (default: all cores)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Without these CMake would leave tests out, and what is left might pass.
scripts/bootstrap.sh test

jobs=${HEED_JOBS:-$(nproc)}
passed=0
failed=0

# --- the stages, in order --------------------------------------------------------------------------------------------
stages=(format build test asan tsan install python fuzz tidy)

stage_format() { # the formatter has nothing to say
  scripts/format.sh --check
}
stage_build() { # library, command, examples and tests as users get them, warnings as errors
  build release
}
stage_test() { # unit, conformance, command, example tests
  build release && run_ctest release --label-exclude install
}
stage_asan() { # unit, conformance, command tests, smaller, under the address and undefined-behaviour sanitizers
  build asan && run_ctest asan
}
stage_tsan() { # the threaded part under the thread sanitizer
  build tsan && run_ctest tsan
}
stage_install() { # outside projects in C and C++ against the installed tree
  build release && run_ctest release --label-regex install
}
stage_python() { # the Python wheel in empty environments, and with torch where there is one
  local log status=0
  log=$(mktemp)
  HEED_JOBS=$jobs scripts/python_test.sh 2>&1 | tee "$log" || status=$?
  if [[ $(tail -n 1 "$log") =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
  fi
  rm -f "$log"
  return $status
}
stage_fuzz() { # random problems over the whole feature space against the oracle
  build release && build/bin/heed fuzz --engine=cpu --cases=2000 && build/bin/heed fuzz --op=bwd --engine=cpu --cases=2000
}
stage_tidy() { # clang-tidy over core and dispatch
  build release && scripts/tidy.sh
}

# --- what they use ---------------------------------------------------------------------------------------------------
build() {
  cmake --preset "$1" --log-level=WARNING >/dev/null && cmake --build --preset "$1" --parallel "$jobs" -- --quiet
}

# Runs one test preset and adds its counts. Without address randomisation, where that may be switched off: the
# sanitizers of gcc 12 and 13 do not start under kernels that randomise 32 bits.
run_ctest() {
  local preset=$1 log total still=()
  shift
  log=$(mktemp)
  if setarch -R true 2>/dev/null; then still=(setarch -R); fi
  local status=0
  "${still[@]}" ctest --preset "$preset" --parallel "$jobs" --no-label-summary "$@" 2>&1 | tee "$log" || status=$?
  # "100% tests passed, 0 tests failed out of 12"
  if [[ $(<"$log") =~ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]]; then
    total=${BASH_REMATCH[2]}
    failed=$((failed + BASH_REMATCH[1]))
    passed=$((passed + total - BASH_REMATCH[1]))
  fi
  rm -f "$log"
  return $status
}

# Says what a stage is (the comment beside its name), how long it took, and ends everything if it failed.
run_stage() {
  local name=$1 begin=$SECONDS purpose
  purpose=$(sed -n "s/^stage_$name() { # //p" "${BASH_SOURCE[0]}")
  printf '\n== %s: %s\n' "$name" "$purpose"
  if "stage_$name"; then
    printf -- '-- %s: passed, %d s\n' "$name" $((SECONDS - begin))
  else
    printf -- '-- %s: FAILED, %d s\n\n%d passed, %d failed\n' "$name" $((SECONDS - begin)) "$passed" $((failed > 0 ? failed : 1))
    exit 1
  fi
}

read -ra chosen <<<"${HEED_TEST_STAGES:-${stages[*]}}"
for name in "${chosen[@]}"; do
  if [[ " ${stages[*]} " != *" $name "* ]]; then
    echo "test: HEED_TEST_STAGES: '$name' is no stage; there are: ${stages[*]}" >&2
    exit 2
  fi
done
for name in "${chosen[@]}"; do run_stage "$name"; done
printf '\nall stages passed in %d s\n%d passed, %d failed\n' "$SECONDS" "$passed" "$failed"
