#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# README's example prints what README says.
set -euo pipefail
expected=$(for rank in 0 1 2 3; do echo "rank $rank of 4: the sum is 10"; done)
found=$("$1" | sort)
if [[ $found != "$expected" ]]; then
    printf 'expected:\n%s\nfound:\n%s\n' "$expected" "$found" >&2
    exit 1
fi
