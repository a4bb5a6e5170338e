#!/usr/bin/env bash
# Makes a folder that holds `kiln` and the GPU tests for any x86-64 Linux machine with an NVIDIA
# driver and glibc 2.36 or later; nothing else is needed there.
#
#     tools/bundle.sh [FOLDER]      default: build/kiln-gpu
#     on the GPU machine:           FOLDER/kiln devices; FOLDER/gpu_tests
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-build/kiln-gpu}
newest_glibc=2.36  # of the symbols that the binary may ask for: Debian 12's
most_bytes=$((64 << 20))

bash tools/setup.sh
[[ -f build/release/build.ninja ]] || cmake --preset release
NINJA_STATUS='[%f/%t %es] ' cmake --build --preset release --target kiln_bundle

rm -rf "$folder"
mkdir -p "$folder"
cp build/release/bin/kiln_bundle "$folder/kiln"
cat > "$folder/gpu_tests" <<'SCRIPT'
#!/bin/bash
# One file serves as both; it looks at the name it is started by.
exec -a gpu_tests "$(dirname "$0")/kiln" "$@"
SCRIPT
chmod +x "$folder/gpu_tests"

libraries=$(objdump -p "$folder/kiln" | awk '/NEEDED/ { print $2 }' | sort | xargs)
glibc=$(objdump -T "$folder/kiln" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
bytes=$(du -sb "$folder" | cut -f1)
echo "$folder: $((bytes >> 20)) MiB, needs $libraries and ${glibc/_/ }"
for library in $libraries; do
  case $library in
    libc.so.6 | libm.so.6 | ld-linux-x86-64.so.2) ;;
    *) echo "bundle: it needs $library, which a machine may lack" >&2; exit 1 ;;
  esac
done
if [[ $(printf '%s\n' "${glibc#GLIBC_}" $newest_glibc | sort -V | tail -1) != "$newest_glibc" ]]; then
  echo "bundle: it needs $glibc, newer than $newest_glibc" >&2
  exit 1
fi
if ((bytes > most_bytes)); then
  echo "bundle: larger than $((most_bytes >> 20)) MiB" >&2
  exit 1
fi
