#!/usr/bin/env bash
# What is to be seen on a machine with a GPU, from the bundle (tools/bundle.sh): the GPU tests, the
# benchmarks, the cost of launches; a table last, logs in the folder $OUT.
#
#     tools/gpu/run.sh [PART…]      devices attend tests conformance programs sanitizer counters
#                                   bench launch race late_sanitizer late_repeats; default: all
#                                   calls beside_torch decode xattention phases prebuilt: with what is said at each below
set -uo pipefail
cd "$(dirname "$0")/../.."

bundle=${KILN_BUNDLE:-build/kiln-gpu}
out=${OUT:-build/gpu-logs}
mkdir -p "$out"
export KILN_CACHE_DIR=${KILN_CACHE_DIR:-$(mktemp -d)}
table=()

run_limited() {  # SECONDS COMMAND…, also a function
  local limit=$1
  shift
  if [[ $(type -t "$1") == function ]]; then "$@"; else timeout "$limit" "$@"; fi
}

part() {  # NAME SECONDS COMMAND…: the last lines are shown, all is kept
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  run_limited "$limit" "$@" >"$out/$name.log" 2>&1
  status=$?
  printf '\n== %s (exit %s, %s s)\n' "$name" $status $((SECONDS - start))
  tail -n "${lines:-25}" "$out/$name.log"
  table+=("$(printf '%-12s %4s s  exit %s  %s' "$name" $((SECONDS - start)) $status \
    "$(grep -E ' ran, | passed, | snippets, ' "$out/$name.log" | tail -1)")")
}

attend() {
  local status=0
  for options in "--dim 128 --block 128 --causal" "--dim 64 --block 64" "--dim 80 --block 32 --causal --check" \
    "--dim 96 --block 16" "--dim 256 --block 64 --causal" "--dim 32 --block 128 --dtype bf16" \
    "--dim 64 --block 64 --dtype f32 --causal"; do
    "$bundle/kiln" run block_sparse_attention --device cuda --heads 4 --heads-kv 2 --seq 1111 \
      --density 0.4 $options --check 2>&1 | grep -E 'problem|time|check|kiln:' || status=1
  done
  return $status
}

sanitizer() {
  local status=0 tool options
  for tool in memcheck racecheck synccheck; do
    echo "-- $tool"
    for options in "block_sparse_attention --heads 2 --seq 700 --density 0.4 --dim 64 --block 64 --causal --check" \
      "sparse_decode --batch 3 --heads 8 --heads_kv 2 --max_cache_seqlen 3000 --sparse_ratio 0.5" \
      "sparse_decode --batch 3 --heads 8 --heads_kv 2 --max_cache_seqlen 3000 --form paged"; do
      compute-sanitizer --target-processes all --tool $tool --error-exitcode 9 "$bundle/kiln" run \
        $options --device cuda 2>&1 | tail -4
      [[ ${PIPESTATUS[0]} == 0 ]] || status=1
    done
    compute-sanitizer --target-processes all --tool $tool --error-exitcode 9 bash "$bundle/gpu_tests" --differential \
      --programs 20 --seed 7 --serial 2>&1 | tail -4
    [[ ${PIPESTATUS[0]} == 0 ]] || status=1
  done
  return $status
}

counters() {  # what ncu said travels as one file
  local folder status
  folder=$(mktemp -d)
  python3 -B tools/gpu/compare_counters.py --kiln "$bundle/kiln" "$folder"
  status=$?
  tar -czf "$out/counters.tar.gz" -C "$folder" .
  rm -rf "$folder"
  return $status
}

late_sanitizer() {  # hand-written Hopper kernels; what racecheck may say of them: ir/LATE.md
  local status=0 tool
  for tool in memcheck synccheck racecheck; do
    echo "-- $tool"
    KILN_TEST_REPEATS=20 compute-sanitizer --target-processes all --tool $tool --error-exitcode 9 \
      bash "$bundle/gpu_tests" "hand-written*" 2>&1 | grep -v 'Host Frame' | tail -40
    [[ ${PIPESTATUS[0]} == 0 || $tool == racecheck ]] || status=1
  done
  return $status
}

race() {  # hand-written Hopper kernels: KILN_PROTOTYPE is the prototype's PTX, if there is one
  local cublas status=0
  cublas=$(find / -name 'libcublas.so.1[23]' -not -path '/proc/*' 2>/dev/null | sort | tail -1)
  bash "$bundle/gpu_tests" --race-attention "${KILN_PROTOTYPE:-}" || status=1
  bash "$bundle/gpu_tests" --race-gemm "$cublas" || status=1
  return $status
}

# Streams, graphs and argument faults on the GPU, and what a call costs beside a bare launch.
calls() {
  bash "$bundle/gpu_tests" '[streams],[calls]' || return 1
  bash "$bundle/gpu_tests" --launch-cost
}

# build/kiln-beside: libkiln.so.0.1 and libkiln_beside_torch.so (the target kiln_beside_torch), as
# files, side by side.
beside_torch() {
  python3 -B tests/gpu/beside_torch.py "${KILN_BESIDE:-build/kiln-beside}/libkiln_beside_torch.so"
}

# Sparse decode beside the Triton peer: build/kiln-beside as above; KILN_PEERS: a folder with
# peer_decode.py.
decode() {
  python3 -B tests/gpu/decode_beside_peers.py "${KILN_BESIDE:-build/kiln-beside}/libkiln_beside_torch.so" \
    "${KILN_PEERS:-build/peers}"
}

# XAttention's kernels against float64, then by phases beside the Triton peer and dense attention: build/kiln-beside and
# KILN_PEERS as above, with peer_xattention.py.
xattention() {
  bash "$bundle/gpu_tests" '[prefill],[sequences],[heads],[xattention],[antidiag]' || return 1
  phases --break-even
}

phases() {
  python3 -B tests/gpu/xattention_beside_peers.py "${KILN_BESIDE:-build/kiln-beside}/libkiln_beside_torch.so" \
    "${KILN_PEERS:-build/peers}" "$@"
}

# build/kiln-prebuilt: `KILN_PTXAS=$(which ptxas) kiln prebuild --arch sm_90 --out build/kiln-prebuilt
# block_sparse_attention --set head_dim=64 --set block=64`. A machine without a ptxas
# uses what is there, writes nothing into it, and compiles nothing itself.
prebuilt() {
  local shipped=${KILN_PREBUILT:-build/kiln-prebuilt} own before status=0
  own=$(mktemp -d)
  before=$(cd "$shipped" && find . -type f -exec sha256sum {} + | sort)
  KILN_CACHE_DIR=$own KILN_CACHE_PATH=$shipped "$bundle/kiln" run block_sparse_attention --device cuda \
    --heads 4 --seq 2048 --dim 64 --block 64 --density 0.3 --check || status=1
  [[ $(cd "$shipped" && find . -type f -exec sha256sum {} + | sort) == "$before" ]] ||
    { echo "prebuilt: $shipped has changed"; status=1; }
  echo "prebuilt: files that the run compiled and kept itself: $(find "$own" -type f | wc -l), 0 wanted"
  [[ -z $(find "$own" -type f) ]] || status=1
  rm -rf "$own"
  return $status
}

export KILN_TEST_FILES=tests/files
chosen=("$@")
[[ ${#chosen[@]} == 0 ]] &&
  chosen=(devices attend tests conformance programs sanitizer counters bench launch race
    late_sanitizer late_repeats)
for name in "${chosen[@]}"; do
  case $name in
    devices) part devices 60 "$bundle/kiln" devices ;;
    attend) part attend 200 attend ;;
    tests) part tests 500 bash "$bundle/gpu_tests" ;;
    conformance) part conformance 300 bash "$bundle/gpu_tests" --conformance ;;
    programs) part programs 400 bash "$bundle/gpu_tests" --differential --programs 500 ;;
    sanitizer) part sanitizer 500 sanitizer ;;
    counters) lines=150 part counters 400 counters ;;
    bench) part bench 400 "$bundle/kiln" bench --device cuda ;;
    late_sanitizer) lines=130 part late_sanitizer 300 late_sanitizer ;;
    late_repeats) KILN_TEST_REPEATS=100000 part late_repeats 200 bash "$bundle/gpu_tests" 'hand-written*' ;;
    race) lines=60 part race 400 race ;;
    calls) lines=60 part calls 300 calls ;;
    beside_torch) part beside_torch 300 beside_torch ;;
    decode) lines=60 part decode 300 decode ;;
    xattention) lines=90 part xattention 590 xattention ;;
    phases) lines=90 part phases 500 phases --break-even ;;
    prebuilt) part prebuilt 120 prebuilt ;;
    launch) part launch 200 bash "$bundle/gpu_tests" --launch-cost ;;
    *) part "${name//[^a-z]/_}" 400 bash "$bundle/gpu_tests" "$name" ;;
  esac
done
printf '\n'
printf '%s\n' "${table[@]}"
