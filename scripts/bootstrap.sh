#!/usr/bin/env bash
# Makes a fresh Debian 12 or Ubuntu 24.04 ready to build heed ("build"), or to build and test it ("test").
#
#   scripts/bootstrap.sh [build|test]
#
# Looks first and installs only what is missing: system packages through apt-get, Python packages into .venv.
# Where it may not install (no root, no passwordless sudo, no apt-get, or HEED_NO_INSTALL=1) it prints the line to type and exits 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-build}
case $what in
  build | test) ;;
  *) echo "bootstrap: '$what': say 'build' or 'test'" >&2; exit 2 ;;
esac

say() { echo "bootstrap: $*"; }
fail() { echo "bootstrap: $*" >&2; exit 1; }

# ---------------------------------------------------------------------------------------------------------------------
# What is needed. Each check is silent and true when the thing is there.

# at_least 3.25 3.25.1
at_least() { [[ -n $2 && $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]; }

# The compiler CMake would pick: $CXX, else the first of its usual names. C++20 as heed uses it needs gcc 12 or clang 14.
compiler() {
  local name
  for name in ${CXX:-c++ g++ clang++}; do
    if command -v "$name" >/dev/null; then echo "$name"; return 0; fi
  done
  return 1
}
good_compiler() {
  local name version
  name=$(compiler) || return 1
  version=$("$name" -dumpversion 2>/dev/null) || return 1
  case $("$name" --version 2>/dev/null) in
    *clang*) at_least 14 "$version" ;;
    *) at_least 12 "$version" ;;
  esac
}
good_cmake() {
  local words
  words=$(cmake --version 2>/dev/null) && [[ $words =~ ([0-9]+\.[0-9]+[.0-9]*) ]] && at_least 3.25 "${BASH_REMATCH[1]}"
}
has() { command -v "$1" >/dev/null; }
has_header() {
  local prefix prefixes
  IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}:/usr:/usr/local"
  for prefix in "${prefixes[@]}"; do [[ -n $prefix && -e $prefix/include/$1 ]] && return 0; done
  return 1
}
# Where heed itself looks first: HEED_NVRTC_PATH, the loader's path, a toolkit.
has_nvrtc() {
  local root
  [[ -e ${HEED_NVRTC_PATH:-} ]] && return 0
  [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) == *libnvrtc.so.1[23]* ]] && return 0
  for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    [[ -n $root ]] && compgen -G "$root/lib*/libnvrtc.so*" >/dev/null && return 0
  done
  return 1
}
good_python() { python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
has_python_headers() { python3 -c 'import os, sysconfig; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; }

#        package            what it is for                               check
build_needs=(
  "g++                 |a C++20 compiler (gcc 12, clang 14 or newer)|good_compiler"
  "make                |make                                        |has make"
  "cmake               |CMake 3.25 or newer                         |good_cmake"
  "ninja-build         |Ninja                                       |has ninja"
  "libfmt-dev          |fmt                                         |has_header fmt/format.h"
  "nlohmann-json3-dev  |JSON for Modern C++                         |has_header nlohmann/json.hpp"
  "libcli11-dev        |CLI11                                       |has_header CLI/CLI.hpp"
)
test_needs=(
  "libgtest-dev        |GoogleTest                                  |has_header gtest/gtest.h"
  "libgmock-dev        |GoogleMock                                  |has_header gmock/gmock.h"
  "libtbb-dev          |TBB, for the test of its adapter            |has_header tbb/parallel_for.h"
  "clang-tidy          |clang-tidy                                  |has clang-tidy"
  "pkg-config          |pkg-config                                  |has pkg-config"
  "python3             |Python 3.10 or newer                        |has python3"
  "python3-venv        |Python's venv                               |good_python"
  "python3-dev         |Python's headers                            |has_python_headers"
)
# clang-format comes from PyPI at one version, because its taste changes from release to release.
# mypy too is held to one: what it accepts grows and shrinks. scikit-build-core builds the Python package.
python_needs=("pytest>=7,<9" "numpy>=1.24,<3" "clang-format==14.0.6" "mypy==2.4.1" "ml_dtypes" "scikit-build-core>=0.10,<2" "auditwheel>=6.8,<7" "wheel")
# CUDA kernels are compiled by NVRTC, which needs no GPU. Where no toolkit has it, its wheel does (90 MB, x86_64 and aarch64).
if ! has_nvrtc && [[ $(uname -m) == @(x86_64|aarch64) ]]; then python_needs+=("nvidia-cuda-nvrtc==13.0.*"); fi

needs=("${build_needs[@]}")
if [[ $what == test ]]; then needs+=("${test_needs[@]}"); fi

# ---------------------------------------------------------------------------------------------------------------------
# System packages.

trim() { local text=$1; echo "${text%"${text##*[! ]}"}"; }

missing_packages=()
find_missing() {
  local need package label check
  missing_packages=()
  for need in "${needs[@]}"; do
    IFS='|' read -r package label check <<<"$need"
    if ! $check; then
      package=$(trim "$package")
      missing_packages+=("$package")
      say "missing: $(trim "$label") (package $package)"
    fi
  done
}

# Prints the command that installs as root, or fails where there is none.
root_apt() {
  [[ -z ${HEED_NO_INSTALL:-} ]] || return 1
  has apt-get || return 1
  if [[ $(id -u) == 0 ]]; then
    echo "env DEBIAN_FRONTEND=noninteractive apt-get"
  elif has sudo && sudo -n true 2>/dev/null; then
    echo "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get"
  else
    return 1
  fi
}

install_packages() {
  local apt log line="sudo apt-get update && sudo apt-get install --yes ${missing_packages[*]}"
  if ! apt=$(root_apt); then
    if has apt-get; then fail "may not install here; type:  $line"; fi
    fail "this system has no apt-get; install the things above with its own tools (Debian's line would be:  $line)"
  fi
  log=$(mktemp)
  say "apt-get update"
  $apt update -qq >"$log" 2>&1 || say "apt-get update failed, trying with the lists there are: $(tail -n 1 "$log")"
  say "apt-get install ${missing_packages[*]}"
  if ! $apt install --yes --no-install-recommends "${missing_packages[@]}" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install them; type:  $line"
  fi
  rm -f "$log"
  hash -r
}

find_missing
if ((${#missing_packages[@]})); then
  install_packages
  find_missing
  ((${#missing_packages[@]} == 0)) || fail "still missing after installing: this system's packages are too old for heed"
fi

# ---------------------------------------------------------------------------------------------------------------------
# Python packages, in .venv and nowhere else. A stamp with the list makes the next run quick.

make_venv() {
  local stamp=.venv/heed-packages wanted="${python_needs[*]}"
  if [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && .venv/bin/python -c '' 2>/dev/null; then return 0; fi
  local line="python3 -m venv --clear .venv && .venv/bin/python -m pip install"
  local need
  for need in "${python_needs[@]}"; do line+=" '$need'"; done
  line+=" && echo '$wanted' > $stamp"
  if [[ -n ${HEED_NO_INSTALL:-} ]]; then fail "may not install here; type:  $line"; fi
  say "python3 -m venv .venv"
  python3 -m venv --clear .venv || fail "could not make .venv; type:  $line"
  say "pip install ${python_needs[*]} (into .venv)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${python_needs[@]}" ||
    fail "pip could not install them; type:  $line"
  echo "$wanted" >"$stamp"
}

# The wheel of the Python package is tested with two Pythons. Where there is one, uv fetches another, if it can.
second_python() {
  local version=3.13
  if [[ -n ${HEED_NO_INSTALL:-} || $(scripts/python_test.sh pythons | wc -l) -ge 2 ]]; then return 0; fi
  if [[ -d .venv/pythons ]]; then return 0; fi  # it was tried before
  say "uv python install $version (into .venv/pythons)"
  mkdir -p .venv/pythons
  if ! { .venv/bin/python -m pip install --quiet --disable-pip-version-check uv &&
    UV_PYTHON_INSTALL_DIR=.venv/pythons timeout 120 .venv/bin/uv python install --quiet "$version"; }; then
    say "no second Python could be had; the wheel is tested with one"
  fi
}

# torch, for the tests of what takes torch tensors: the one python3 has, or HEED_TORCH_PYTHON's, or its CPU wheel (200 MB)
# where its index answers at once. Without it those tests are skipped, and say so.
torch_venv() {
  local index=https://download.pytorch.org/whl/cpu
  if [[ -n ${HEED_NO_INSTALL:-} || -n ${HEED_TORCH_PYTHON:-} || -x .venv-torch/bin/python ]]; then return 0; fi
  if (cd / && python3 -c 'import pytest, torch') 2>/dev/null; then return 0; fi
  if ! .venv/bin/python -c "import urllib.request; urllib.request.urlopen('$index/torch/', timeout=5)" 2>/dev/null; then
    say "no torch: $index does not answer; its tests will be skipped"
    return 0
  fi
  say "pip install torch transformers (into .venv-torch)"
  python3 -m venv .venv-torch
  .venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --extra-index-url "$index" \
    "torch>=2.4" "transformers>=4.57" numpy ml_dtypes "pytest<9" ||
    { rm -rf .venv-torch; say "no torch: pip could not install it; its tests will be skipped"; }
}
if [[ $what == test ]]; then
  make_venv
  second_python
  torch_venv
fi


say "ready to $what ($(compiler) $("$(compiler)" -dumpversion))"
