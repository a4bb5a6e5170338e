#!/usr/bin/env bash
# Kiln as others get it: installed under a clean prefix that is then moved, used through CMake and
# through pkg-config by programs that know nothing of this tree; and as a folder of their project.
#
#     check.sh SOURCE BUILD       works in BUILD/install-test
set -euo pipefail

source=$(realpath "$1")
build=$(realpath "$2")
work=$build/install-test
outside=$source/tests/install/outside
prefix=$work/moved
library=$prefix/lib/libkiln.so
export KILN_CACHE=off

fail() { echo "check.sh: $*" >&2; exit 1; }
step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

step install
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
mv "$work/prefix" "$prefix"
(cd "$prefix" && find . -type l -o -type f -size +1M | xargs du -h && find include -name '*.h' | wc -l)
[[ -z $(find "$prefix/include" -name '*_impl.h') ]] || fail "internal headers are installed"
grep -rn "$source\|$build" "$prefix"/{include,lib/cmake,lib/pkgconfig} &&
  fail "installed text names this tree"
"$prefix/bin/kiln" --version
"$prefix/bin/kiln" call tile_copy --help >/dev/null

step "symbols"
for folder in ir dsl passes codegen runtime runtime/ptx kernels; do  # nothing of ours runs at load
  if nm -A "$build/$folder/libkiln_${folder##*/}.a" 2>/dev/null | grep '_GLOBAL__sub_I'; then
    fail "static objects with constructors in $folder"
  fi
done
# Kiln's own and no others, whatever is inside; the C++ library is shared with the program.
nm -D --defined-only --format=just-symbols "$library" | sed 's/@.*//' >"$work/exported"
echo "$(wc -l <"$work/exported") exported"
c++filt <"$work/exported" | grep '^kiln::block_sparse_attention(' >/dev/null || fail "no library in it"
if grep -vE '^_Z(T[ISVT]|Th[^N]*)?N[KRO]*4kiln|^KILN_' "$work/exported"; then
  fail "these are exported too"
fi
if nm -DC --undefined-only "$library" | grep -E ' (llvm|fmt)::| LLVM'; then
  fail "these are expected from elsewhere"
fi
needed=$(objdump -p "$library" | awk '/NEEDED/ { print $2 }' | sort | xargs)
echo "needs $needed"
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libstdc++.so.6 | libgcc_s.so.1 | ld-linux-x86-64.so.2) ;;
    *) fail "it needs $name" ;;
  esac
done

step "find_package"
cmake -S "$outside" -B "$work/package" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/package.log" ||
  { cat "$work/package.log"; exit 1; }
grep '^-- kiln' "$work/package.log"
cmake --build "$work/package"
"$work/package/attention"
"$work/package/loading" "$work/package/libown_kernel.so"
# Beside any other LLVM, its symbols before ours.
for other in $(ldconfig -p | awk '/libLLVM.*so\.[0-9.]+ / { print $NF }'); do
  echo "with $other:"
  LD_PRELOAD=$other "$work/package/attention"
done

step "pkg-config"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
pkg-config --atleast-version=0.1 kiln
for compiler in g++ clang++; do  # neither warns of the headers or of members left out
  command -v $compiler || continue
  # shellcheck disable=SC2046
  $compiler -std=c++20 -Wall -Wextra -Werror "$outside/attention.cpp" "$outside/own_kernel.cpp" \
    $(pkg-config --cflags --libs kiln) -Wl,-rpath,"$prefix/lib" -o "$work/attention"
  "$work/attention"
done

step "add_subdirectory"
# What it would build is what this build has built: it must configure and know every file.
cmake -S "$outside" -B "$work/folder" -G Ninja -DKILN_SOURCE="$source" >"$work/folder.log" ||
  { cat "$work/folder.log"; exit 1; }
ninja -C "$work/folder" kiln_headers
ninja -C "$work/folder" -n own_kernel attention | tail -1
[[ -f $work/folder/kiln/include/kiln/kiln.h ]] || fail "no headers there"
step "all right"
