#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The pictures of README.md: the plot of the demonstration's second part, trained in virtual time, so that
# it comes out the same on any machine, the page of a ring allreduce over space and time, as Chromium shows
# it, and the timelines of merged gradients. Takes half a minute.
#
#   tools/scripts/pictures.sh [WEFT [FOLDER]]     (build/tools/weft docs)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
weft=$(realpath "${1:-$root/build/tools/weft}")
folder=$(realpath "${2:-$root/docs}")
most=250000 # bytes: who looks at a README waits for them

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "pictures.sh: needs Chromium, which makes a picture of the page" >&2
    exit 2
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# As tools/demo.sh trains, but in virtual time.
"$weft" train --algorithm allreduce,local,d-psgd,ad-psgd,eager-majority,wagma -n 16 --compute 15 \
    --imbalance two-random:15 --steps 300 --sync-period 50 --shards by-class:2 \
    --transport virtual --net L=20,G=0.001 --plot "$scratch/demo.svg"
# Hundredths of a point are as fine as a screen is, and tenths where nothing is a curve.
sed -E 's/([0-9]+\.[0-9]{2})[0-9]+/\1/g' "$scratch/demo.svg" >"$folder/demo.svg"

"$weft" merge resnet50 --net a=5702.76,b=0.004417 --plot "$scratch/merging.svg" >"$scratch/table"
sed -E 's/([0-9]+\.[0-9])[0-9]+/\1/g' "$scratch/merging.svg" >"$folder/merging-timeline.svg"

"$weft" dump allreduce --algo ring -n 8 --count 65536 --net L=2,o=0.5,G=0.0002 \
    --compute reduce=0.0001 --format html -o "$scratch/ring.html"
"$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --hide-scrollbars --window-size=1280,640 --user-data-dir="$scratch/profile" --screenshot="$scratch/ring.png" \
    "file://$scratch/ring.html#theme=light" >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    exit 1
}
cp "$scratch/ring.png" "$folder/ring.png"

for picture in demo.svg merging-timeline.svg ring.png; do
    bytes=$(stat -c %s "$folder/$picture")
    echo "$folder/$picture: $bytes bytes"
    if ((bytes > most)); then
        echo "pictures.sh: $picture has $bytes bytes, expected at most $most" >&2
        exit 1
    fi
done
