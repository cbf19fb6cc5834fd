#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The pictures of README.md can be made again, and it shows what the script makes.
#
#   check_pictures.sh SOURCE WEFT
set -euo pipefail
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
"$source/tools/scripts/pictures.sh" "$2" "$folder" || status=$?
if ((status == 2)); then
    echo "skipped: no browser is here"
    exit 77
fi
((status == 0)) || exit 1
for picture in "$folder"/*; do
    name=docs/$(basename "$picture")
    grep -qF "($name)" "$source/README.md" || {
        echo "README.md does not show $name" >&2
        exit 1
    }
    [[ -s $source/$name ]] || {
        echo "$name is empty" >&2
        exit 1
    }
    # A picture, and of more than one colour: what is empty is far smaller.
    (($(stat -c %s "$picture") > 50000)) || {
        echo "$name has $(stat -c %s "$picture") bytes only" >&2
        exit 1
    }
done
grep -q '<svg' "$folder/demo.svg"
[[ $(head -c 4 "$folder/ring.png" | od -An -tx1 | tr -d ' ') == 89504e47 ]]
