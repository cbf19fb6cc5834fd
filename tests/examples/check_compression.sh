#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The scripts behind docs/compression.md run, on rows of shorter measurements. What they print depends on the machine.
#
#   check_compression.sh SOURCE WEFT
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
scripts=$1/tools/scripts

if "$2" bench projection --steps 10 --json >"$folder/rows" 2>"$folder/errors"; then
    python3 "$scripts/projection_figures.py" "$2" "$folder" "$folder/rows" >"$folder/tables"
    grep -q '^| resnet, 0.01 | `block1.conv1` | 768 |' "$folder/tables"
    for figure in slices losses; do
        python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' \
            "$folder/compression-$figure.svg"
    done
else
    grep -q LAPACK "$folder/errors"
fi

"$2" run projected-allreduce --algo ring -n 3 --iterations 2 --trace "$folder/trace.json" >"$folder/out"
"$2" dump projected-allreduce --algo ring -n 3 --format json -o "$folder/schedule.json"
python3 "$scripts/hidden_share.py" -o "$folder/hidden.svg" \
    "ring=$folder/trace.json,$folder/schedule.json" >"$folder/shares"
grep -q 'a rank computes project .*, reconstruct ' "$folder/shares"
python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$folder/hidden.svg"
