#!/usr/bin/env bash
# Tiles of block-sparse attention compared on a GPU: kiln bench with each, in turn, twice.
set -uo pipefail
cd "$(dirname "$0")/../.."
kiln=${KILN_BUNDLE:-build/kiln-gpu}/kiln
for round in 1 2; do
  for tile in "$@"; do
    "$kiln" bench --device cuda --only "${ONLY:-blocks of 128, causal, 10}" --rounds 3 \
      --set tile_m="${tile%x*}" --set tile_n="${tile#*x}" | tail -1 | sed "s/^/$tile /"
  done
done
