#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets up, builds in build/ and runs every test. The last line counts test cases:
# `N passed, N failed, N skipped`. Exit 0 only if something ran and all that ran has passed.
#
#   tests/run.sh [ARGUMENT...]    handed to `meson test`: names of tests, --suite unit ...
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh test
features=(-Dmpi=enabled -Dhwloc=enabled -Dtools=enabled -Dtests=enabled)
if [[ ! -f build/build.ninja ]]; then
    meson setup build "${features[@]}"
elif [[ $(meson introspect build --tests) == "[]" ]]; then
    meson setup --reconfigure build "${features[@]}"
fi
meson compile -C build

rm -f build/meson-logs/testlog.json
status=0
# Timeouts are for what hangs: a machine that does something else beside takes its time.
meson test -C build --no-rebuild --print-errorlogs --timeout-multiplier 3 "$@" || status=$?
tests/tally.py build/meson-logs/testlog.json || status=1
exit "$status"
