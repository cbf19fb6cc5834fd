# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Stages of a long command, sourced by .ci/run and tests/gpu/run.sh: each is run, timed and counted. Sets
# `passed`, `failed` and `skipped`; with `stages_file` set, writes a line a stage there: name, the three
# counts, seconds. `stages_end` closes the whole.
passed=0
failed=0
skipped=0
stages_file=
stages_failures=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# count: adds the closing line of $log to the totals; one failure if there is none.
count()
{
    local line
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1 || true)
    if [[ -z $line ]]; then
        failed=$((failed + 1))
        return 1
    fi
    read -r p _ f _ s _ <<<"$line"
    passed=$((passed + p))
    failed=$((failed + f))
    skipped=$((skipped + s))
}

# stage NAME COMMAND...: runs it, says how it went and how long it took.
# Its own counts are added if it prints them, else it counts as one case.
stage()
{
    local name=$1 start=$SECONDS status=0 before=("$passed" "$failed" "$skipped")
    shift
    printf '\n==== %s\n' "$name"
    "$@" 2>&1 | tee "$log" || status=$?
    if grep -qE '^[0-9]+ passed, ' "$log"; then
        count || true
        # A stage that fails without a failing case of its own is a failure all the same.
        if ((status != 0 && failed == before[1])); then
            failed=$((failed + 1))
        fi
    elif ((status == 0)); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    # What fails is said again at the end: a long log is often cut.
    if ((status != 0)); then
        mapfile -t -O "${#stages_failures[@]}" stages_failures < <(
            grep -E '^FAILED ' "$log" | sed "s/^/$name: /" || true
            echo "$name: FAILED ($status)"
        )
    fi
    printf '==== %s: %s, %d s\n' "$name" "$([[ $status == 0 ]] && echo good || echo "FAILED ($status)")" \
        $((SECONDS - start))
    [[ -z $stages_file ]] || printf '%s\t%d\t%d\t%d\t%d\n' "$name" $((passed - before[0])) \
        $((failed - before[1])) $((skipped - before[2])) $((SECONDS - start)) >>"$stages_file"
}

# stages_end: what has failed, and the counts of all stages as the last line. Fails unless something ran and
# all of it has passed.
stages_end()
{
    ((${#stages_failures[@]} == 0)) || printf '%s\n' "" "${stages_failures[@]}"
    printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0 && passed > 0))
}
