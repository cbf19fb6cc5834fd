#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compiles a source of kernels for all architectures that this nvcc knows of ours, and to PTX for
# what comes after them: compile.sh NVCC SOURCE FATBIN LOG DEPFILE [FLAG...]
# LOG is what ptxas says of every kernel.
#
# With WEFT_KERNEL_CACHE in the environment, a folder, what was compiled before of the same sources is
# taken from there.
set -eu
nvcc=$1
source=$2
fatbin=$3
log=$4
depfile=$5
shift 5
root=$(dirname "$0")/../..

known=$("$nvcc" --list-gpu-arch)
newest=
for arch in 75 80 86 89 90 100; do
    if echo "$known" | grep -qx "compute_$arch"; then
        set -- "$@" -gencode "arch=compute_$arch,code=sm_$arch"
        newest=$arch
    fi
done
set -- "$@" -gencode "arch=compute_$newest,code=compute_$newest"

# Beside the source, and beside this script.
headers=$(for folder in "$(dirname "$source")" "$(dirname "$0")"; do
    echo "$folder"/*.cuh "$folder"/*.h
done | tr '\n' ' ')
cached=
if [ -n "${WEFT_KERNEL_CACHE:-}" ]; then
    key=$({
        "$nvcc" --version
        echo "$@" | sed 's/-Werror all-warnings//'
        cat "$0" "$source" $headers "$root"/include/weft/*.h
    } | sha256sum | cut -d ' ' -f 1)
    mkdir -p "$WEFT_KERNEL_CACHE"
    cached=$WEFT_KERNEL_CACHE/$(basename "$source" .cu).$key
    if [ -e "$cached.fatbin" ] && ! grep -qi 'warning' "$cached.log" &&
        cp "$cached.log" "$log" && cp "$cached.fatbin" "$fatbin"; then
        echo "$fatbin: $source $headers" >"$depfile"
        exit 0
    fi
fi

# A sum that is fused with a product would round once.
if ! "$nvcc" -std=c++17 -I"$root" -I"$root/include" -fmad=false -Xptxas -v --fatbin "$@" \
    -MD -MF "$depfile" -MT "$fatbin" "$source" -o "$fatbin" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$fatbin"
    exit 1
fi
grep -i 'warning' "$log" >&2 || true
"$nvcc" --version | sed -n 's/^Cuda.* \(V[0-9.]*\)$/nvcc \1/p' >>"$log"
if [ -n "$cached" ]; then
    cp "$log" "$cached.log"
    cp "$fatbin" "$cached.$$" && mv "$cached.$$" "$cached.fatbin"
fi
