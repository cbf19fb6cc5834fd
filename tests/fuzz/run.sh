#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Fuzzes every reader of outside data: tests/fuzz/run.sh [SECONDS] [DIRECTORY]
# New inputs, and one that crashes, are left in DIRECTORY (default: build/fuzz).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
work=${2:-$root/build/fuzz}
mkdir -p "$work/corpus"
cd "$root"

# What a schedule needs, without transports: no MPI, no hwloc, no threads.
sources="runtime/alloc.c runtime/error.c runtime/op.c runtime/format.c runtime/dot.c"
sources="$sources $(ls runtime/schedule*.c runtime/text_*.c runtime/json*.c)"
sources="$sources ops/dispatch.c ops/half.c ops/reduce_scalar.c"
# shellcheck disable=SC2086 # the list is split on purpose
clang -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=all -Iinclude -I. -DWEFT_VERSION='"fuzz"' \
    $sources tests/fuzz/fuzz_read.c -o "$work/fuzz_read" -ljansson -lm

cd "$work"
exec ./fuzz_read -max_total_time="$seconds" -max_len=4096 -dict="$root/tests/fuzz/schedule.dict" \
    corpus "$root/tests/fuzz/corpus"
