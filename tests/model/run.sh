#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks the activation protocol (activation.pml), the life of an object (object.pml) and how the ranks
# that are left agree on who they are (shrink.pml) with spin, as docs/model.md says, and that wrong
# variants of them are caught. As many at a time as there are cores. The last line is `N passed, N
# failed, N skipped`. Needs spin and a C compiler, and 1 GiB of memory a core.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
model=activation
# What the models are compiled with, unless they are asked for otherwise: search() finds them by name.
# shellcheck disable=SC2034
declare -A of_activation=([P]=2 [S]=2 [V]=2 [APPS]=255 [PRUNE]=1 [RING]=0 [FORGET]=0 [TWICE]=0
                          [SYNC]=255 [COUNT]=0)
# shellcheck disable=SC2034
declare -A of_object=([P]=2 [S]=2 [V]=2 [OBJECTS]=1 [FIRST]=0 [MODE]=ANYONE [SYNC]=255 [SPARSE]=0
                      [FAULTS]=0 [FAULT]=0 [DIFFER]=0 [OLD_ACTIVATION]=0 [OLD_LEAVING]=0
                      [OLD_CREATION]=0 [ADVANCE]=0 [UNKNOWN]=0 [ONE_HOP]=0 [NO_LEAVES]=0 [SYNCS_ONLY]=0
                      [GONE_RUNS]=0 [NO_DONE]=0)
# shellcheck disable=SC2034
declare -A of_shrink=([P]=3 [DEATHS]=0 [FAILS]=0 [LEAVES]=0 [ANEW]=0 [ALONE]=0 [HASTY]=0 [LATE]=0
                      [EARLY]=0)

for tool in spin gcc timeout; do
    if ! command -v "$tool" >/dev/null; then
        echo "tests/model/run.sh: $tool is missing (tools/setup.sh ci installs it)" >&2
        exit 1
    fi
done

all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT
checks=0

# start CHECK ARGUMENT...: in the background and in a folder of its own, when a core is free.
start()
{
    while (($(jobs -rp | wc -l) >= $(nproc))); do
        wait -n || true
    done
    checks=$((checks + 1))
    work=$all/$checks
    mkdir "$work"
    "$@" >"$work/verdict" 2>&1 &
}

verdict()
{
    printf '%-7s%s\n' "$1" "$2"
}

# search OPTIONS SECONDS COMPILE PAN...: the model with NAME=VALUE options, its report in $work/report.
# gcc and pan get what the words say; spin's own code is not ours to warn about.
search()
{
    local -n options=of_$model
    local -A option=()
    local -a defines=() compile
    local word seconds=$2
    for word in "${!options[@]}"; do
        option[$word]=${options[$word]}
    done
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
        spin -a "${defines[@]}" "$here/$model.pml" &&
            gcc -O1 -w -DSAFETY -DNOREDUCE "${compile[@]}" -o pan pan.c
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

# check_holds OPTIONS: every reachable state is good.
check_holds()
{
    if search "$1" 300 '' && clean && ! grep -q 'Search not completed' "$work/report"; then
        verdict good "$1: all of $(states) states"
    else
        verdict BAD "$1"
        cat "$work/report" >&2 || true
    fi
}

# check_bounded OPTIONS: as many states as a table of 2^23 bits tells apart, in at most 20 seconds.
check_bounded()
{
    if search "$1" 20 '-DBITSTATE' -w23 && clean; then
        verdict good "$1: BOUNDED, $(states) states, not all there are"
    else
        verdict BAD "$1"
        cat "$work/report" >&2 || true
    fi
}

# check_caught OPTIONS WHAT: a wrong protocol, in which an assertion must fail.
check_caught()
{
    if search "$1" 200 -O0 && grep -q 'assertion violated' "$work/report"; then
        verdict good "$1: $2, caught"
    else
        verdict BAD "$1: $2, not caught: the check checks nothing"
        cat "$work/report" >&2 || true
    fi
}

# check_hangs OPTIONS WHAT: a wrong protocol, in which somebody must wait for ever.
check_hangs()
{
    if search "$1" 200 -O0 -A && grep -q 'invalid end state' "$work/report"; then
        verdict good "$1: $2, hangs"
    else
        verdict BAD "$1: $2, does not hang: the check checks nothing"
        cat "$work/report" >&2 || true
    fi
}

holds() { start check_holds "$@"; }
bounded() { start check_bounded "$@"; }
caught() { start check_caught "$@"; }
hangs() { start check_hangs "$@"; }

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

model=object

# FAULT: 1: anything fails on a rank, 2: a rank gives up, 4: stops and says nothing. At any point.
holds "P=2 V=3 FAULTS=2 FAULT=5"
holds "P=2 S=1 FAULTS=2 FAULT=5"
holds "P=2 MODE=DRAWN V=3 SYNC=1 FAULTS=2 FAULT=5"
holds "P=2 MODE=WAITING FAULTS=2 FAULT=5"
holds "P=2 DIFFER=1 FAULTS=2 FAULT=5"
holds "P=2 OBJECTS=2 V=1 FAULTS=1 FAULT=7"
holds "P=3 V=3"
holds "P=3 MODE=DRAWN V=3 SYNC=1"
holds "P=3 FAULTS=2 FAULT=5"
holds "P=3 SYNC=1 FAULTS=1 FAULT=5"
holds "P=3 MODE=DRAWN FAULTS=1 FAULT=5"
holds "P=3 MODE=WAITING FAULTS=1 FAULT=5"
holds "P=4"
holds "P=4 V=1 FIRST=1 SPARSE=1 FAULTS=1 FAULT=5"

# The rules of version 0.1. FAULT: 16: an activation fails, 32: the creation in or before its
# meeting, 64: and after it, 128: a version.
caught "P=2 OLD_ACTIVATION=1 FAULTS=1 FAULT=16" "a failed activation counts"
hangs "P=2 OLD_ACTIVATION=1 FAULTS=1 FAULT=16" "a failed activation is not told"
hangs "P=2 OLD_ACTIVATION=1 MODE=DRAWN FAULTS=1 FAULT=16" "nor is a drawn one"
hangs "P=2 OLD_LEAVING=1 FAULTS=1 FAULT=128" "meetings of those who leave"
hangs "P=2 OLD_LEAVING=11 FAULTS=1 FAULT=128" "its own version fails while a rank meets"
hangs "P=2 OLD_LEAVING=13 FAULTS=1 FAULT=128" "heard after looking, before meeting"
hangs "P=2 OLD_LEAVING=7 FAULTS=1 FAULT=128" "a version fails between the meetings"
holds "P=2 OLD_LEAVING=15 FAULTS=1 FAULT=128"
hangs "P=2 OLD_LEAVING=15 OBJECTS=2 V=1" "two objects left in different order"
hangs "P=2 OLD_CREATION=1 FAULTS=1 FAULT=32" "a creation fails untold before the meeting"
hangs "P=2 OLD_CREATION=1 FAULTS=1 FAULT=64" "a creation fails untold after the meeting"
holds "P=2 FAULTS=2 FAULT=240"

# Every part of the rules is needed.
caught "P=2 ADVANCE=1 FAULTS=1 FAULT=128" "a failed version counts as executed"
hangs "P=2 UNKNOWN=1 FAULTS=1 FAULT=1" "a failure heard before the object is created is dropped"
hangs "P=4 V=1 SPARSE=1 ONE_HOP=1 FAULTS=1 FAULT=1" "a failure is not passed on"
hangs "P=3 SYNC=1 NO_LEAVES=1" "leaving is told over the tree alone"
hangs "P=3 MODE=DRAWN SYNCS_ONLY=1" "standing in at syncs alone"
hangs "P=2 V=1 MODE=DRAWN GONE_RUNS=1 FAULTS=1 FAULT=8" "who is gone fails only its group's runs"
hangs "P=4 V=1 FIRST=1 SPARSE=1 NO_DONE=1 FAULTS=1 FAULT=1" "freeing before all have executed"

model=shrink

# Any number may die at any moment, one may find no memory, who has returned may go.
holds "P=2 DEATHS=2 FAILS=1 LEAVES=1"
holds "P=3 LEAVES=1"
holds "P=3 DEATHS=3"
holds "P=3 DEATHS=3 FAILS=1 LEAVES=1"
holds "P=4 DEATHS=1"
holds "P=4 DEATHS=2"
bounded "P=4 DEATHS=3 FAILS=1 LEAVES=1"
# It does not need that deaths are told after what was sent before: only that they are true.
holds "P=3 DEATHS=2 FAILS=1 LEAVES=1 EARLY=1"

# Every part of the rules is needed.
caught "DEATHS=2 ANEW=1" "who takes over proposes anew"
hangs "DEATHS=1 ALONE=1" "only who coordinates says that it is agreed"
caught "DEATHS=2 HASTY=1" "acknowledging without all invitations"
hangs "DEATHS=2 LATE=1" "who coordinates acknowledges an older proposal"

wait
passed=0
for ((i = 1; i <= checks; i++)); do
    cat "$all/$i/verdict"
    if grep -q '^good ' "$all/$i/verdict"; then
        passed=$((passed + 1))
    fi
done
printf '%d passed, %d failed, 0 skipped\n' "$passed" $((checks - passed))
((passed == checks))
