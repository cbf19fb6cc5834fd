#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One process of a job is killed, each in its turn: the others go on without it, and the job ends.
#
#   killed.sh MPIEXEC PROCESSES PROGRAM [device]
set -euo pipefail
mpiexec=$1 processes=$2 program=$3 where=${4:-}

# Launchers end a job when a process of it is killed, unless they are told not to. MPICH's does so all
# the same where it sees that before MPI's connection is closed, so a shell stands between; and it
# tells the others by SIGUSR1 (docs/processes.md).
if [[ $("$mpiexec" --version 2>&1) == *HYDRA* ]]; then
    start=("$mpiexec" -disable-auto-cleanup -n "$processes"
        sh -c 'trap "" USR1; "$0" "$@"; true' "$program")
else
    start=("$mpiexec" --enable-recovery -n "$processes" "$program")
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

number=0 failed=0
for helper in 0 1; do
    for ((victim = 0; victim < processes; victim++)); do
        rm -f "$folder"/*
        status=0
        timeout 100 "${start[@]}" "$victim" "$helper" "$folder" "$where" >"$folder/output" 2>&1 || status=$?
        left=$(find "$folder" -name 'survivor.*' | wc -l)
        number=$((number + 1))
        if ((status != 124 && left == processes - 1)); then
            echo "ok $number - rank $victim of $processes is killed (helper $helper)"
        else
            failed=1
            echo "not ok $number - rank $victim of $processes is killed (helper $helper):" \
                "status $status, $left survivors"
            sed 's/^/# /' "$folder/output" "$folder"/said.*
        fi
    done
done
echo "1..$number"
exit $failed
