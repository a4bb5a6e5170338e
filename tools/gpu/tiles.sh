#!/usr/bin/env bash
# Tiles, stages and threads of a kernel compared on a GPU, in turn in one process:
#
#     tools/gpu/tiles.sh WORKLOAD NAME=VALUE,… NAME=VALUE,… …
#
# WORKLOAD is text of a line of `kiln bench`.
set -uo pipefail
cd "$(dirname "$0")/../.."
kiln=${KILN_BUNDLE:-build/kiln-gpu}/kiln
only=$1
shift
arguments=()
for candidate in "$@"; do arguments+=(--vary "$candidate"); done
"$kiln" bench --device cuda --only "$only" --rounds "${ROUNDS:-3}" "${arguments[@]}" ${EXTRA:-}
