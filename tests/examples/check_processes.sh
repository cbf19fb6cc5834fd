#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Programs whose ranks are processes: check_processes.sh WEFT PROCESSES BY_FILES
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# sums RANKS: each rank has said it once
sums() {
    for r in $(seq 0 $(($1 - 1))); do
        echo "rank $r of $1: the sum is $(($1 * ($1 + 1) / 2))"
    done >"$folder/expected"
    sort "$folder/out" | diff - "$folder/expected"
}

"$2" >"$folder/out"
sums 1
for ranks in 2 4; do
    "$1" launch -n $ranks "$2" >"$folder/out"
    sums $ranks
done
# as torchrun starts them
for r in 0 1 2; do
    RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r LOCAL_WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=$$ \
        TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 "$2" >"$folder/out.$r" &
done
wait
cat "$folder"/out.* >"$folder/out"
sums 3
mkdir "$folder/meet"
for r in 0 1 2; do
    "$3" "$folder/meet" $r 3 >"$folder/out.$r" &
done
wait
cat "$folder"/out.* >"$folder/out"
sums 3
