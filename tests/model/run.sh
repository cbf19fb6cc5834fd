#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks the activation protocol (activation.pml, docs/model.md) with spin, and that wrong variants of
# it are caught. The last line is `N passed, N failed, N skipped`. Needs spin and a C compiler.
set -euo pipefail
cd "$(dirname "$0")"
model=$PWD/activation.pml

for tool in spin gcc timeout; do
    if ! command -v "$tool" >/dev/null; then
        echo "tests/model/run.sh: $tool is missing (tools/setup.sh ci installs it)" >&2
        exit 1
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

verdict()
{
    if [[ $1 == good ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    printf '%-7s%s\n' "$1" "$2"
}

# search OPTIONS SECONDS COMPILE PAN...: the model with NAME=VALUE options, its report in $work/report.
# gcc and pan get what the words say; spin's own code is not ours to warn about.
search()
{
    local -A option=([P]=2 [S]=2 [V]=2 [APPS]=255 [PRUNE]=1 [RING]=0 [FORGET]=0 [TWICE]=0
                     [SYNC]=255 [COUNT]=0)
    local -a defines=() compile
    local word seconds=$2
    for word in $1; do
        option[${word%%=*}]=${word#*=}
    done
    for word in "${!option[@]}"; do
        defines+=("-D$word=${option[$word]}")
    done
    read -ra compile <<<"$3"
    shift 3
    (
        cd "$work"
        rm -f pan* report ./*.trail
        # Nothing is local to a process, so partial order reduction finds nothing to reduce.
        spin -a "${defines[@]}" "$model" && gcc -O1 -w -DSAFETY -DNOREDUCE "${compile[@]}" -o pan pan.c
    ) >"$work/build" 2>&1 || { cat "$work/build" >&2; return 1; }
    (cd "$work" && timeout -s INT -k 5 "$seconds" ./pan -m1000000 "$@" >report 2>&1) || true
}

states()
{
    sed -n 's/^ *\([0-9][0-9]*\) states, stored.*/\1/p' "$work/report" | head -n 1
}

# The whole state space was searched, or as much of it as was asked for, and nothing was found.
clean()
{
    grep -q 'errors: 0$' "$work/report" && ! grep -q 'max search depth too small' "$work/report"
}

# holds OPTIONS: every reachable state is good.
holds()
{
    if search "$1" 100 '' && clean && ! grep -q 'Search not completed' "$work/report"; then
        verdict good "$1: all of $(states) states"
    else
        verdict BAD "$1"
        cat "$work/report" >&2 || true
    fi
}

# bounded OPTIONS: as many states as a table of 2^23 bits tells apart, in at most 40 seconds.
bounded()
{
    if search "$1" 40 '-DBITSTATE' -w23 && clean; then
        verdict good "$1: BOUNDED, $(states) states, not all there are"
    else
        verdict BAD "$1"
        cat "$work/report" >&2 || true
    fi
}

# caught OPTIONS WHAT: a wrong protocol, in which an assertion must fail.
caught()
{
    if search "$1" 60 '' && grep -q 'assertion violated' "$work/report"; then
        verdict good "$1: $2, caught"
    else
        verdict BAD "$1: $2, not caught: the check checks nothing"
        cat "$work/report" >&2 || true
    fi
}

# Every set of activators, every delay and order; S = P waits for most, S = 1 lets ranks run ahead.
holds "P=2 S=2 V=3 TWICE=1"
holds "P=2 S=1 V=3 TWICE=1"
holds "P=2 S=2 V=3 SYNC=1 TWICE=1"
holds "P=3 S=2 V=3 PRUNE=0 TWICE=1"
holds "P=3 S=3 V=3 PRUNE=0 TWICE=1"
holds "P=3 S=1 V=3 PRUNE=0"
holds "P=3 S=2 V=3 PRUNE=0 SYNC=1 TWICE=1"
holds "P=4 S=2 V=2 TWICE=1"
holds "P=4 S=2 V=3"
holds "P=4 S=4 V=3"
holds "P=4 S=1 V=2"
holds "P=4 S=2 V=3 SYNC=1 TWICE=1"
holds "P=5 S=3 V=1 PRUNE=0"

# One activator costs P - 1 activations.
holds "P=4 S=2 V=1 APPS=4 COUNT=1"
holds "P=8 S=4 V=1 APPS=1 COUNT=1"
holds "P=8 S=4 V=1 APPS=32 COUNT=1"

# Eight ranks: one version and four applications wholly, two versions and all as far as it goes.
holds "P=8 S=4 V=1 APPS=15"
bounded "P=8 S=4 V=2"

caught "P=3 S=2 V=2 PRUNE=1" "pruning when P is no power of two"
caught "P=6 S=2 V=1 PRUNE=1" "pruning when P is no power of two"
caught "P=5 S=2 V=1 RING=1" "edges to r + 2^i mod P"
caught "P=4 S=2 V=2 FORGET=1" "no catching up with earlier versions"

printf '%d passed, %d failed, 0 skipped\n' "$passed" "$failed"
((failed == 0))
