#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# clang-tidy over the library and the tools, as .clang-tidy says. Slow, so not part of .ci/run.
#
#   tools/scripts/lint.sh [FILE...]       left out: all of them; needs a build in build/
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v clang-tidy >/dev/null; then
    echo "lint.sh: clang-tidy is missing (Debian package clang-tidy)" >&2
    exit 1
fi
if [[ ! -f build/compile_commands.json ]]; then
    echo "lint.sh: no build/compile_commands.json; run: meson setup build" >&2
    exit 1
fi
files=("$@")
if ((${#files[@]} == 0)); then
    mapfile -t files < <(find ops runtime schedules tools -name '*.c' | sort)
fi
status=0
for file in "${files[@]}"; do
    # Options of gcc that clang does not know are no finding.
    clang-tidy --quiet -p build --warnings-as-errors='*' \
        --extra-arg=-Wno-unknown-warning-option "$file" 2>/dev/null || status=1
done
exit "$status"
