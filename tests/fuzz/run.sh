#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Fuzzes the readers of outside data with libFuzzer and the address and undefined sanitizers:
#
#   tests/fuzz/run.sh [-r RUNS | -t SECONDS] [-d DIRECTORY] [READER...]
#
# READER: read (schedules, as text and JSON), check (what was read is checked), trace, cost, layers,
# lines (of memory that processes share), profile; left out: all of them. RUNS or SECONDS
# (default: 60 seconds) are each reader's. New inputs, and one that crashes, are left in DIRECTORY
# (default: build/fuzz).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
limit=-max_total_time=60
work=$root/build/fuzz
while getopts r:t:d: option; do
    case $option in
    r) limit=-runs=$OPTARG ;;
    t) limit=-max_total_time=$OPTARG ;;
    d) work=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- read check trace cost layers lines profile
cd "$root"

# The header that a build writes.
mkdir -p "$work/include/weft"
sed 's/@[A-Z]*@/0/g' include/weft/version.h.in >"$work/include/weft/version.h"

# What a schedule needs, without transports: no MPI, no hwloc, no threads.
common=$(ls runtime/base/*.c runtime/graph/*.c runtime/format/*.c runtime/sparse/*.c runtime/compress/*.c)
common="$common $(ls ops/*.c | grep -v avx)"
# All else, with what finds MPI and LAPACK and without either.
mpi=runtime/transport/mpi
rest="$(find runtime schedules -name '*.c' | grep -v -e "$mpi/" -e compress/lapack/) $mpi/about.c $mpi/load.c"
for file in $common; do
    rest=$(echo "$rest" | tr ' ' '\n' | grep -vx "$file")
done

for reader; do
    case $reader in
    read) sources=; corpus=corpus words=schedule.dict ;;
    check)
        # It commits, too, and a plan knows the rest of the runtime.
        sources=$rest corpus=corpus words=schedule.dict
        ;;
    trace)
        sources="runtime/trace/trace.c runtime/trace/align.c runtime/trace/arrows.c runtime/trace/lanes.c"
        sources="$sources runtime/trace/read.c runtime/trace/write.c"
        corpus=corpus_trace words=trace.dict
        ;;
    cost)
        # Costs by default are asked of the transports, which know the rest of the runtime.
        sources=$rest corpus=corpus_cost words=cost.dict
        ;;
    lines) sources=$rest corpus=corpus_lines words= ;;
    layers)
        sources="tools/cli/csv.c tools/cli/layers.c tools/cli/points.c"
        corpus=corpus_layers words=layers.dict
        ;;
    profile) sources=tools/commands/profile_lines.c corpus=corpus_profile words= ;;
    *)
        echo "run.sh: no reader '$reader', expected read, check, trace, cost, layers, lines or profile" >&2
        exit 2
        ;;
    esac
    mkdir -p "$work/$corpus"
    # shellcheck disable=SC2086 # the lists are split on purpose
    clang -std=c11 -D_GNU_SOURCE -g -O1 -w -fsanitize=fuzzer,address,undefined \
        -fno-sanitize-recover=all -Iinclude -I. -I"$work/include" \
        $common $sources "tests/fuzz/fuzz_$reader.c" -o "$work/fuzz_$reader" -ljansson -lm -ldl -pthread
    (cd "$work" && "./fuzz_$reader" "$limit" -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 ${words:+-dict="$root/tests/fuzz/$words"} "$corpus" "$root/tests/fuzz/$corpus")
done
