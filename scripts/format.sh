#!/usr/bin/env bash
# Formats every C and C++ file of the project; with --check only says which are not formatted, and fails if any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The one that scripts/bootstrap.sh pins, else the system's.
clang_format=.venv/bin/clang-format
if [[ ! -x $clang_format ]]; then clang_format=clang-format; fi

mode=(-i)
if [[ ${1:-} == --check ]]; then mode=(--dry-run -Werror --ferror-limit=1); fi

if ! find . \( -path './build*' -o -path './.*' \) -prune -o -type f -regex '.*\.\(hpp\|cpp\|h\|c\)' -print0 |
  xargs -0 --no-run-if-empty "$clang_format" "${mode[@]}"; then
  echo "format: 'make format' puts these right" >&2
  exit 1
fi
