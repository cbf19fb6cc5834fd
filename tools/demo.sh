#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# From a fresh Debian machine to the story of wait-avoiding averaging: installs what is missing, builds,
# and trains a classifier of handwritten digits on 8 ranks, of which two, drawn anew for each step, are
# late. Allreduce-SGD waits for them at every step; WAGMA-SGD does not, and learns as much.
#
#   tools/demo.sh [OPTION...]     options are handed to `weft train`
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh build
if [[ ! -f build/build.ninja ]]; then
    meson setup build >/dev/null
fi
# `meson compile` talks a lot; show it only when it fails.
echo "Building weft in build/ ..."
if ! log=$(meson compile -C build weft:executable 2>&1); then
    printf '%s\n' "$log" >&2
    exit 1
fi

weft=build/tools/weft
plot=weft-demo.svg
echo "This machine, as weft sees it:"
"$weft" info
cat <<'END'

Training on tools/data/optdigits with 8 ranks, 300 steps of 15 ms each, with every algorithm that sends
whole models or gradients. In each step two ranks, drawn anew, are 15 ms late. `ideal` is the throughput
if nobody communicated or ever waited, `bound` with the waits that the algorithm's definition asks for;
`stale` is the share of steps in which a rank came too late to take part with its newest model; kB and
MB are what ranks have sent, a step each and in all.

END
algorithms=allreduce,local,d-psgd,sgp,ad-psgd,eager-solo,eager-majority,wagma
"$weft" train --algorithm "$algorithms" -n 8 --steps 300 --compute 15 --imbalance two-random:15 --plot "$plot" "$@"
echo
echo "The plot of test accuracy over time is in $PWD/$plot; docs/training.md tells what is compared."
