#!/usr/bin/env bash
# Installs a build into an empty prefix and uses it as an outsider does: in C and in C++, with find_package and with pkg-config.
#
#   tests/install/run.sh [build directory]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${1:-$here/../../build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() { echo "install: $*" >&2; exit 1; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "failed: $*"; }; }
run_user() { # what it is, program
  quietly "$2"
  echo "install: $1: $(<"$work/log")"
}

quietly cmake --install "$build" --prefix "$prefix"
# Moved, because neither heedConfig.cmake nor heed.pc may remember where they were put.
mv "$prefix" "$work/moved"
prefix=$work/moved
library=$(find "$prefix" -name libheed.so)
libdir=$(dirname "$library")

# --- the library -----------------------------------------------------------------------------------------------------
dynamic=$(readelf --dynamic --wide "$library")
[[ $dynamic == *"Library soname: [libheed.so.0]"* ]] || fail "libheed.so has no soname libheed.so.0"
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic")
for name in $needed; do
  case $name in
    libstdc++.so.* | libm.so.* | libgcc_s.so.* | libc.so.* | ld-linux* | libpthread.so.* | libdl.so.*) ;;
    *) fail "libheed.so needs $name: only the C++ runtime, pthread and dl are allowed" ;;
  esac
done
echo "install: libheed.so.0 needs only" $needed

symbols=$(readelf --dyn-syms --wide "$library" | sed -n 's/.* \(DEFAULT\) *[0-9]\+ //p')
strays=$(grep -vE '^(heed_[a-z0-9_]*@@HEED_0\.1$|_Z(T[ISVT])?NK?4heed.*@@HEED_CXX_0\.1$|HEED_(CXX_)?0\.1$)' <<<"$symbols" || true)
[[ -z $strays ]] || fail "libheed.so exports what is not heed's, or without a version: $strays"
grep -q '^heed_.*@@HEED_0\.1$' <<<"$symbols" || fail "libheed.so exports no C function with version HEED_0.1"
echo "install: libheed.so exports $(wc -l <<<"$symbols") symbols, all heed's, all with a version"

# --- its users -------------------------------------------------------------------------------------------------------
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
[[ $(pkg-config --modversion heed) == 0.1.* ]] || fail "heed.pc has the wrong version"

for language in c cpp; do
  quietly cmake -S "$here/$language" -B "$work/$language" -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
  quietly cmake --build "$work/$language"
  run_user "$language, find_package" "$work/$language/user"
done

# A folder that is absolute stays as it was said, and the others are where the prefix was.
quietly cmake -S "$here/../.." -B "$work/absolute" -G Ninja -DCMAKE_INSTALL_PREFIX=/opt/heed -DCMAKE_INSTALL_LIBDIR=/somewhere/lib \
  -DHEED_BUILD_TESTS=OFF
flags=$(PKG_CONFIG_PATH=$work/absolute pkg-config --cflags --libs heed)
[[ $flags == *"-I/opt/heed/include"* && $flags == *"-L/somewhere/lib "* ]] || fail "heed.pc of an absolute libdir says $flags"
flags=$(pkg-config --cflags --libs heed)
quietly "${CC:-cc}" -std=c11 -Wall -Wextra -Wpedantic -Werror "$here/c/main.c" $flags -o "$work/user_c"
run_user "c, pkg-config" "$work/user_c"
quietly "${CXX:-c++}" -std=c++20 -Wall -Wextra -Wpedantic -Werror "$here/cpp/main.cpp" $flags -o "$work/user_cpp"
run_user "cpp, pkg-config" "$work/user_cpp"

# --- the command -----------------------------------------------------------------------------------------------------
if [[ -x $prefix/bin/heed ]]; then
  (unset LD_LIBRARY_PATH && quietly "$prefix/bin/heed" --help)
  echo "install: the command runs from its new place"
fi
