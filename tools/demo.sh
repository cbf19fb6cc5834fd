#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# From a fresh Debian machine to a trained model: installs what is missing, builds, and trains a
# classifier of handwritten digits on 8 ranks that average their gradients by weft's own allreduce.
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
if ! log=$(meson compile -C build 2>&1); then
    printf '%s\n' "$log" >&2
    exit 1
fi

weft=build/tools/weft
plot=weft-demo.svg
echo "This machine, as weft sees it:"
"$weft" info
echo
echo "Training on tools/data/optdigits with 8 ranks; each averages its gradients with the others:"
"$weft" train -n 8 --algorithm allreduce --plot "$plot" "$@"
echo
echo "The plot of test accuracy over time is in $PWD/$plot"
