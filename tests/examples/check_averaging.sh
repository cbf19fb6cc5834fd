#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every rank of the trainer of group averaging has learnt what there is to learn.
#
#   check_averaging.sh RANKS COMMAND...
set -euo pipefail
ranks=$1
found=$("${@:2}" | sort -k 2n | sed 's/, .*//')
expected=$(for ((rank = 0; rank < ranks; rank++)); do
    echo "rank $rank of $ranks: 1.000 2.000 3.000 4.000"
done)
if [[ $found != "$expected" ]]; then
    printf 'expected:\n%s\nfound:\n%s\n' "$expected" "$found" >&2
    exit 1
fi
