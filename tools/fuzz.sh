#!/usr/bin/env bash
# Random programs, as they run at night: past failures first, then 5,000 programs on all devices that
# need no GPU, the emulator in both modes of asynchronous copies. Prints seeds and what the programs
# cover; fails on a difference, or if too little is covered. Failures are reduced to .tile files.
#
#     tools/fuzz.sh [--programs N] [--seed S] [--device NAME,…] [--jobs N] [--out FOLDER]
#
# On a GPU: tools/fuzz.sh --device cuda --programs 1000. KILN_BUILD is the build folder, or the
# program itself lies elsewhere: KILN_DIFFERENTIAL.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=5000
seed=$(date +%s)
devices=host,emulator,emulator:sm_80,emulator-latest,interpreter
jobs=0
build=${KILN_BUILD:-build/release}
out=$build/fuzz

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }

while [[ $# -gt 0 ]]; do
  case $1 in
    --programs) programs=$2 ;;
    --seed) seed=$2 ;;
    --device) devices=$2 ;;
    --jobs) jobs=$2 ;;
    --out) out=$2 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "fuzz.sh: unknown option '$1'" >&2
      usage >&2
      exit 2
      ;;
  esac
  shift 2
done

program=${KILN_DIFFERENTIAL:-$build/bin/kiln_differential}
if [[ ! -x $program ]]; then
  [[ -f $build/build.ninja ]] || cmake --preset release
  cmake --build "$build" --target kiln_differential
fi
mkdir -p "$out"
echo "seed $seed: again with tools/fuzz.sh --seed $seed --programs $programs --device $devices"
exec "$program" --programs "$programs" --seed "$seed" --device "$devices" --jobs "$jobs" \
  --out "$out" tests/differential/corpus
