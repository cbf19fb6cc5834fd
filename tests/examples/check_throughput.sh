#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The predicted throughputs in docs/training.md are what their script makes of today's schedules.
#
#   check_throughput.sh SOURCE WEFT
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$1/tools/scripts/gtopk_throughput.py" "$2" >"$folder/tables"
grep '^|' "$folder/tables" | while read -r line; do
    grep -qF "$line" "$1/docs/training.md" || {
        echo "docs/training.md lacks: $line"
        exit 1
    }
done
