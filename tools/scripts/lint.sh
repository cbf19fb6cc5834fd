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
# The analyser does not look into other files: it would take the status that these return for
# anything, and follow paths on which an error is none.
told=$(mktemp --suffix=.h)
trap 'rm "$told"' EXIT
cat >"$told" <<'END'
#include "runtime/base/error.h"
static inline void lint_read(int first, ...)
{
    (void)first;
}
#define weft__error(status, ...)    (lint_read(0, __VA_ARGS__), (status))
#define weft__error_of(status, ...) (lint_read(0, __VA_ARGS__), (status))
#define weft__error_memory(what)    (lint_read(0, what), WEFT_ERR_MEMORY)
#define weft_error_set(status, ...) (lint_read(0, __VA_ARGS__), (status))
END

# Prints what it finds in FILE in one piece: other files are looked through at the same time.
lint()
{
    local file=$1 found status=0
    local before=(--extra-arg=-I"$PWD" --extra-arg=-include --extra-arg="$told")
    if [[ $file == */base/error.c ]]; then # which defines them
        before=()
    fi
    # Options of gcc that clang does not know are no finding.
    found=$(clang-tidy --quiet -p build --warnings-as-errors='*' "${before[@]}" \
        --extra-arg=-Wno-unknown-warning-option "$file" 2>/dev/null) || status=1
    if [[ -n $found ]]; then
        flock "$told" printf '%s\n' "$found"
    fi
    return "$status"
}
export -f lint
export told
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'lint "$1"' lint || exit 1
