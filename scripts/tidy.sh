#!/usr/bin/env bash
# clang-tidy over the engine-independent sources, with the checks of .clang-tidy; needs a configured build/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The flags in build/ may be gcc's own, which clang need not know. sed removes what even a quiet clang-tidy says: how many
# warnings it suppressed in other people's headers.
find src/core src/dispatch -name '*.cpp' -print0 |
  xargs -0 --max-args=1 --max-procs="${HEED_JOBS:-$(nproc)}" \
    clang-tidy --quiet -p build --extra-arg=-Wno-unknown-warning-option 2>&1 |
  sed '/^[0-9]* warnings\? generated\.$/d'
