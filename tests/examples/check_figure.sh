#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The figure in docs/ is what its script draws of today's schedules, and docs/sparse.md has its table.
#
#   check_figure.sh SOURCE WEFT
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$1/tools/scripts/gtopk_figure.py" "$2" "$folder/gtopk.svg" >"$folder/tables"
cmp "$folder/gtopk.svg" "$1/docs/gtopk.svg"
grep '^|' "$folder/tables" | while read -r line; do
    grep -qF "$line" "$1/docs/sparse.md" || {
        echo "docs/sparse.md lacks: $line"
        exit 1
    }
done
