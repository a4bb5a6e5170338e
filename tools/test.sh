#!/usr/bin/env bash
# Every test there is, from a fresh clone: style, unit tests, the installed package, differential
# fuzzing, programs that must not compile, the GPU's (skipped without one) and the bundle for GPU
# machines, sanitizers, libFuzzer, the demo. Prints the minutes of each part; a part that fails does
# not hide the later ones, and the exit status says whether all passed.
#
# KILN_TEST_FAST=1 leaves out the sanitizers and libFuzzer.
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=${KILN_TEST_JOBS:-$(nproc)}
fuzz_seconds=120
release=build/release
asan=build/asan
log=$(mktemp)
trap 'rm -f "$log"' EXIT

passed=0
failed=0
skipped=0
table=()

# part NAME COMMAND…: runs it, shows and counts it. A run of ctest counts as its tests, anything
# else as one.
part() {
  local name=$1 start=$SECONDS status good=0 bad=0 none=0
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  if [[ $(tail -20 "$log") =~ ([0-9]+)" tests failed out of "([0-9]+) ]]; then
    bad=${BASH_REMATCH[1]}
    none=$(tail -20 "$log" | grep -c '(Skipped)')
    good=$((BASH_REMATCH[2] - bad - none))
  fi
  # Whatever was counted, a bad exit status is a failure.
  if [[ $status != 0 && $bad == 0 ]]; then bad=1; fi
  if [[ $status == 0 && $good == 0 && $none == 0 ]]; then good=1; fi
  passed=$((passed + good))
  failed=$((failed + bad))
  skipped=$((skipped + none))
  table+=("$(awk -v n="$name" -v s=$((SECONDS - start)) -v g=$good -v b=$bad -v k=$none -v r="$status" \
    'BEGIN { printf "%-34s %5.1f min  %4d passed %4d failed  %s%s", n, s / 60, g, b, r ? "FAILED" : "ok",
             k ? " (" k " skipped)" : "" }')")
  echo "${table[-1]}"
}

style() { /usr/bin/env python3 tools/check_style.py --self-test && tools/check_style.py; }

build() {  # PRESET
  [[ -f build/$1/build.ninja ]] || cmake --preset "$1" || return
  NINJA_STATUS='[%f/%t %es] ' cmake --build --preset "$1" -j "$jobs"
}

run_ctest() {  # BUILD_DIR ARGS…
  ctest --test-dir "$1" --output-on-failure --no-tests=error --timeout 1800 -j "$jobs" "${@:2}"
}

# All targets at once, each from its seeds; what they find stays in build/asan/fuzz, a failing input
# too. Words that libFuzzer recommends are noise.
fuzz() {
  local target status=0 pids=()
  for target in parse npy ptx; do
    local work=$asan/fuzz/$target
    local seeds=(tests/fuzz/corpus/$target)
    [[ $target == parse ]] && seeds+=(tests/files)
    mkdir -p "$work"
    "$asan/bin/${target}_fuzz" -max_total_time=$fuzz_seconds -timeout=20 -rss_limit_mb=4096 \
      -verbosity=0 -print_funcs=0 -print_final_stats=1 -artifact_prefix="$work/" "$work" "${seeds[@]}" \
      > >(grep -v '# Uses:\|Recommended\|recommended') 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  return $status
}

# The folder for GPU machines, and that what it holds starts; no GPU is used even if there is one.
bundle() {
  local status=0 folder=build/kiln-gpu
  bash tools/bundle.sh "$folder" && "$folder/kiln" --version || return 1
  KILN_LIBCUDA=/no-driver/libcuda.so "$folder/gpu_tests" || status=$?
  [[ $status == 77 ]] || { echo "gpu_tests without a driver: exit $status, not 77"; return 1; }
}

started=$SECONDS
bash tools/setup.sh || exit 1

part "style" style
part "build" build release
part "tests" run_ctest $release -LE 'differential|nocompile|performance|gpu'
part "programs that must not compile" run_ctest $release -L nocompile
part "ratios of speed" run_ctest $release -L performance -V
part "random programs" run_ctest $release -L differential -V
part "GPU tests" run_ctest $release -L gpu -V
part "bundle" bundle
if [[ ${KILN_TEST_FAST:-} != 1 ]]; then
  export ASAN_SYMBOLIZER_PATH=/usr/lib/llvm-22/bin/llvm-symbolizer UBSAN_OPTIONS=print_stacktrace=1
  # AddressSanitizer guesses where the TLS of libraries opened late begins, from what lies before it;
  # about once in 40 runs LeakSanitizer then crashes on garbage. None of ours is there.
  export ASAN_OPTIONS=intercept_tls_get_addr=0
  part "build for AddressSanitizer" build asan
  part "tests under AddressSanitizer" run_ctest $asan -LE nocompile
  part "libFuzzer: parser, .npy reader, PTX emulator" fuzz
fi
part "demo" timeout 900 bash tools/demo.sh

printf '\n== summary (%s cores, load %s)\n' "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"
printf '%s\n' "${table[@]}"
awk -v s=$((SECONDS - started)) 'BEGIN { printf "%-34s %5.1f min\n", "everything", s / 60 }'
echo
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed == 0 ]]
