#!/usr/bin/env bash
# The Python package as users get it: a wheel is built, installed into empty environments of two Pythons, and tested there;
# then with torch, where there is one. Ends with "python: N passed, M failed".
#
#   scripts/python_test.sh
#   HEED_PYTHONS="python3.10 /opt/py/bin/python3.13"   exactly these Pythons, instead of the oldest and the newest found
#   HEED_TORCH_PYTHON=/opt/torch/bin/python            a Python that has torch (and transformers, for their tests)
#   HEED_JOBS=8                                        compile with 8 processes
#   scripts/python_test.sh pythons                     only says which Pythons it would take
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
tree=$root/build-python
python=$root/.venv/bin/python
largest_wheel=$((10 * 1024 * 1024))
passed=0
failed=0

say() { printf 'python: %s\n' "$*"; }

# --- the wheel -------------------------------------------------------------------------------------------------------
# Without build isolation: what it needs is in .venv. The compiler has the name that CMake's presets give it, and a new tree
# begins with the objects and the logs of the release preset: Ninja compiles again only what the wheel has otherwise.
build_wheel() {
  rm -rf "$tree/dist"
  if [[ -e build/.ninja_log && ! -e $tree/.ninja_log ]]; then
    mkdir -p "$tree"
    cp --archive build/.ninja_{log,deps} build/src build/tools "$tree"
  fi
  CC=${CC:-cc} CXX=${CXX:-c++} CMAKE_BUILD_PARALLEL_LEVEL=${HEED_JOBS:-$(nproc)} \
    "$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$tree/dist" \
    --config-settings build-dir="$tree" --config-settings cmake.define.HEED_WERROR=ON .
  tag_wheel
  local bytes
  bytes=$(stat --format=%s "$wheel")
  say "built $(basename "$wheel"), $bytes bytes"
  [[ $(basename "$wheel") == heed-*-cp310-abi3-* ]] || { say "the wheel is not for every Python from 3.10 on"; return 1; }
  ((bytes <= largest_wheel)) || { say "the wheel has more than $largest_wheel bytes"; return 1; }
}

# The platform that the wheel is for, by the symbols it asks of the system's libraries: the oldest manylinux that has them.
tag_wheel() {
  wheel=$(compgen -G "$tree/dist/heed-*.whl")
  local tag
  tag=$("$python" -m auditwheel show --json "$wheel" 2>/dev/null |
    "$python" -c 'import json, sys; print(json.load(sys.stdin)["overall_tag"])') || true
  [[ -n $tag ]] || { say "auditwheel does not say which platform the wheel is for"; return 1; }
  "$python" -m wheel tags --platform-tag "$tag" --remove "$wheel" >/dev/null
  wheel=$(compgen -G "$tree/dist/heed-*.whl")
}

# --- the tests -------------------------------------------------------------------------------------------------------
# run_tests <python> <what it is called>: outside the source tree, so that heed is what was installed.
run_tests() {
  local log status=0
  log=$(mktemp)
  say "tests with $2"
  # Skips are folded into one line for each reason.
  (cd "$tree" && HEED_WHEEL=$wheel HEED_SOURCE=$root PYTHONDONTWRITEBYTECODE=1 "$1" -m pytest -q -rs -p no:cacheprovider \
    "$root/tests/python" 2>&1) | tee "$log" || status=$?
  if [[ $(tail -n 1 "$log") =~ ([0-9]+)\ passed ]]; then passed=$((passed + BASH_REMATCH[1])); fi
  if [[ $(tail -n 1 "$log") =~ ([0-9]+)\ failed ]]; then failed=$((failed + BASH_REMATCH[1])); fi
  rm -f "$log"
  return "$status"
}

in_empty_environment() {
  local version
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$1" -m venv --clear "$tree/venv-$version"
  "$tree/venv-$version/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel" numpy ml_dtypes "pytest<9" matplotlib
  run_tests "$tree/venv-$version/bin/python" "Python $version, in an empty environment with NumPy"
}

# Beside what that Python has, and before it on the path.
with_torch() {
  rm -rf "$tree/with-torch"
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$tree/with-torch" "$wheel"
  PYTHONPATH=$tree/with-torch run_tests "$1" "torch $("$1" -c 'import torch; print(torch.__version__)')"
}

# --- which Pythons ---------------------------------------------------------------------------------------------------
# "3.10 /usr/bin/python3.10" for each that can make environments, oldest first, one for each version.
found_pythons() {
  local each
  for each in python3 python3.{10..15} "$HOME"/.pyenv/versions/3.1[0-9]*/bin/python3 \
    "$root"/.venv/pythons/*/bin/python3; do
    "$each" -c 'import ensurepip, sys, venv
assert sys.version_info >= (3, 10) and sys.implementation.name == "cpython"
print("%d.%d" % sys.version_info[:2], sys.executable)' 2>/dev/null || true
  done | sort --version-sort --unique --key=1,1
}

chosen_pythons() {
  if [[ -n ${HEED_PYTHONS:-} ]]; then
    tr ' ' '\n' <<<"$HEED_PYTHONS"
  else
    found_pythons | sed -n '1p;$p' | uniq | cut -d ' ' -f 2-
  fi
}

torch_python() {
  local each
  for each in ${HEED_TORCH_PYTHON:-} "$root/.venv-torch/bin/python" python3; do
    if (cd / && "$each" -c 'import pytest, torch') 2>/dev/null; then echo "$each"; return 0; fi
  done
  return 1
}

if [[ ${1:-} == pythons ]]; then
  chosen_pythons
  exit
fi
build_wheel
"$python" -m mypy
mapfile -t pythons < <(chosen_pythons)
((${#pythons[@]} >= 2)) || say "only one Python from 3.10 on was found: ${pythons[*]}"
status=0
for each in "${pythons[@]}"; do in_empty_environment "$each" || status=1; done
if each=$(torch_python); then
  with_torch "$each" || status=1
else
  say "no Python with torch and pytest was found: tests of torch and transformers were not run (HEED_TORCH_PYTHON names one)"
fi
say "$passed passed, $failed failed"
exit "$status"
