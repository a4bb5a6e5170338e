#!/usr/bin/env bash
# Installs from Debian whatever of the packages below is missing: everything that building and
# testing Kiln needs. Nothing is downloaded from anywhere else. Does nothing when all is there.
#
# KILN_SKIP_SETUP=1 trusts that the machine has what is needed (other systems, locked-down ones).
set -euo pipefail

build_packages=(
  g++ cmake ninja-build ccache
  llvm-22-dev lld-22                                # bookworm-security
  libfmt-dev libcli11-dev nlohmann-json3-dev libzstd-dev zlib1g-dev
)
test_packages=(
  catch2 python3 python3-numpy pkgconf
  clang libclang-rt-14-dev clang-format             # sanitizers, fuzzers, second compiler, style
)
packages=("${build_packages[@]}" "${test_packages[@]}")

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

[[ ${KILN_SKIP_SETUP:-} == 1 ]] && exit 0

if ! command -v dpkg-query >/dev/null; then
  die "this is not a Debian system. Kiln needs the equivalents of: ${packages[*]}." \
      "With those installed, set KILN_SKIP_SETUP=1."
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  [[ $status == ?i* ]] || missing+=("$package")
done
[[ ${#missing[@]} == 0 ]] && exit 0

release=$(. /etc/os-release && echo "${ID:-unknown} ${VERSION_ID:-}")
if [[ $release != "debian 12" ]]; then
  die "missing: ${missing[*]}. Kiln installs packages by itself only on Debian 12 (this is" \
      "$release); install them, then run again, or set KILN_SKIP_SETUP=1 if they are here under" \
      "other names."
fi

as_root=()
if [[ $(id -u) != 0 ]]; then
  command -v sudo >/dev/null ||
    die "missing: ${missing[*]}. Installing them needs root, and there is no sudo here." \
        "Run as root: bash tools/setup.sh"
  [[ -t 0 ]] || sudo -n true 2>/dev/null ||
    die "missing: ${missing[*]}. Installing them needs root, and sudo asks for a password." \
        "Run once in a terminal: bash tools/setup.sh"
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}
has_candidate() { [[ -n $(apt-cache policy "$1" | sed -n 's/^ *Candidate: *\([^(]\)/\1/p') ]]; }
# A source that fails need not be one that has our packages: the install below decides.
update() { apt update >&2 || say "apt-get update reported errors (see above); going on"; }

say "installing ${missing[*]} (300 MB to download, 1.5 GB on disk if none is here)"
started=$SECONDS
update
if ! has_candidate llvm-22-dev && ! grep -rqs '^[^#]*bookworm-security' /etc/apt/sources.list{,.d}
then
  source_file=/etc/apt/sources.list.d/kiln-bookworm-security.list
  say "no configured source has bookworm-security, where Debian keeps LLVM 22: adding $source_file"
  echo "deb http://deb.debian.org/debian-security bookworm-security main" |
    "${as_root[@]}" tee "$source_file" >/dev/null
  update
fi

unknown=()
for package in "${missing[@]}"; do
  has_candidate "$package" || unknown+=("$package")
done
if [[ ${#unknown[@]} != 0 ]]; then
  die "apt cannot find: ${unknown[*]}. Kiln needs the Debian 12 suites bookworm and" \
      "bookworm-security (component main; llvm-22-dev and lld-22 are in the second). Enable them" \
      "in /etc/apt/sources.list.d and check that the mirror can be reached."
fi

if ! apt install --no-install-recommends "${missing[@]}" >&2; then
  die "apt-get could not install: ${missing[*]}. Its own message is above; it may be the network," \
      "a full disk ($(df -h --output=avail / | tail -1 | tr -d ' ') free, 2 GB needed) or" \
      "held packages."
fi
say "done in $((SECONDS - started)) s"
