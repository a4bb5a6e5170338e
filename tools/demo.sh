#!/usr/bin/env bash
# From a fresh clone to the main job: installs what is missing, builds the `kiln` command, and runs
# block-sparse attention twice, each time against a float64 reference. Quick the second time.
set -euo pipefail
cd "$(dirname "$0")/.."

kiln=build/release/bin/kiln
dump=build/demo/ir

step() { printf '\n== %s\n' "$*"; }

step "set-up"
bash tools/setup.sh
echo "all packages are here"

step "build (about two minutes the first time)"
if [[ ! -f build/release/build.ninja ]]; then
  cmake --preset release
fi
NINJA_STATUS='[%f/%t %es] ' cmake --build --preset release --target kiln_cli

# Every pass of both runs leaves the kernel as text.
rm -rf "$dump"
export KILN_DUMP=$dump

step "1. one head, 256 positions: the two best blocks of every row, block 0 always among them"
"$kiln" run block_sparse_attention --batch 1 --heads 1 --seq 256 --dim 64 --block 64 \
  --topk 2 --force-first --causal --check --compare-dense

step "2. eight heads, 4096 positions: a quarter of the causal blocks, compared with dense attention"
"$kiln" run block_sparse_attention --batch 1 --heads 8 --seq 4096 --dim 128 --block 128 \
  --density 0.25 --causal --check --compare-dense

step "success"
echo "The kernel after each pass: $dump ($(find "$dump" -type f | wc -l) files)"
