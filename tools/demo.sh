#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# From a fresh Debian machine to the story of wait-avoiding averaging: installs what is missing, builds,
# and trains a classifier of handwritten digits on 16 ranks, of which two, drawn anew for each step, are
# late. Allreduce-SGD waits for them at every step. Local SGD hardly ever waits, and learns as much as long
# as all ranks have the same data; where each has two of the ten digits alone, it does not. WAGMA-SGD
# waits as seldom, and learns in both cases.
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
late=(-n 16 --compute 15 --imbalance two-random:15)
cat <<'END'

1. Training on tools/data/optdigits with 16 ranks that have the same data. A step lasts 15 ms, and in each
   two ranks, drawn anew, are 15 ms late: allreduce-SGD waits for them every time. Local SGD averages all
   models in every 10th step, and waits there alone; so does WAGMA-SGD, which averages in groups meanwhile
   without waiting.

END
"$weft" train --algorithm allreduce,local,wagma "${late[@]}" --steps 150 --sync-period 10 "$@"
cat <<'END'

2. Now each rank has two of the ten digits alone, and all ranks meet only every 50 steps. `distance` is how
   far the ranks' models are from their mean: those of local SGD drift apart, and the mean of what has
   drifted is poor. `ideal` is the throughput if nobody communicated or ever waited, `bound` with the
   waits that the algorithm asks for; `stale` is the share of steps in which a rank came too
   late to take part with its newest model; kB and MB are what ranks have sent, a step each and in all.

END
"$weft" train --algorithm allreduce,local,d-psgd,ad-psgd,eager-majority,wagma "${late[@]}" --steps 300 \
    --sync-period 50 --shards by-class:2 --plot "$plot" "$@"
cat <<END

Accuracy and distance over time are drawn in $PWD/$plot.
docs/when-to-use.md says when to use which algorithm, docs/training.md what is compared.
END
