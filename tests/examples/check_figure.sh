#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The figure in docs/ is what its script draws of today's schedules and plans, and the page has its tables.
#
#   check_figure.sh SOURCE WEFT SCRIPT FIGURE.svg PAGE.md
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$1/tools/scripts/$3" "$2" "$folder/figure.svg" >"$folder/tables"
cmp "$folder/figure.svg" "$1/docs/$4"
grep '^|' "$folder/tables" | while read -r line; do
    grep -qF "$line" "$1/docs/$5" || {
        echo "docs/$5 lacks: $line"
        exit 1
    }
done
