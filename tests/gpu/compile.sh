#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compiles the kernels for every architecture, as the build does, and fails on a warning, a spill or
# a stack: compile.sh DIRECTORY [NAME...]. NAME.fatbin and NAME.log, what ptxas says of each, stay
# there.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?a directory}
shift
nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc ~/.cache/weft/cuda/bin/nvcc 2>/dev/null |
    head -n 1)}
if (($# == 0)); then
    mapfile -t names < <(basename -s .cu gpu/kernels/*.cu)
    set -- "${names[@]}"
fi
mkdir -p "$out"
passed=0
failed=0
for name; do
    log=$out/$name.log
    if gpu/kernels/compile.sh "$nvcc" "gpu/kernels/$name.cu" "$out/$name.fatbin" "$log" \
        "$out/$name.d" -Werror all-warnings &&
        ! grep 'bytes stack frame' "$log" |
            grep -qv '^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads'; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        grep -B1 'bytes stack frame' "$log" | grep -v '^--' | paste - - |
            grep -v ' 0 bytes stack frame' >&2 || true
    fi
    echo "$name: $(grep -c 'Compiling entry' "$log") kernels and architectures"
done
echo "$passed passed, $failed failed, 0 skipped"
((failed == 0))
