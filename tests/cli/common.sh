# SPDX-License-Identifier: BSD-3-Clause
# What the tests of the command share. Sourced with $1 the command; each check prints a line only if
# it fails, and the script ends with `finish`.
set -u
weft=$1
failures=0
checks=0
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n' "$*"
    sed 's/^/    /' "$folder/out" "$folder/err"
}

# run WORDS: the command with its output in files; the exit status in $status.
run() {
    "$weft" "$@" >"$folder/out" 2>"$folder/err" </dev/null
    status=$?
}

# works WORDS: exit 0 and nothing on standard error.
works() {
    checks=$((checks + 1))
    run "$@"
    [ "$status" -eq 0 ] || fail "weft $*: exit $status, expected 0"
    [ ! -s "$folder/err" ] || fail "weft $*: something on standard error"
}

# wrong TEXT WORDS: exit 2, nothing on standard output, one line with TEXT on standard error.
wrong() {
    checks=$((checks + 1))
    text=$1
    shift
    run "$@"
    [ "$status" -eq 2 ] || fail "weft $*: exit $status, expected 2"
    [ ! -s "$folder/out" ] || fail "weft $*: something on standard output"
    [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "weft $*: expected one line on standard error"
    grep -qF -- "$text" "$folder/err" || fail "weft $*: expected '$text' in the line"
}

# json_lines FIELDS: each line of the last output is a JSON object with these fields.
json_lines() {
    checks=$((checks + 1))
    python3 - "$folder/out" "$@" <<'END' || fail "not JSON lines with $*"
import json, sys
lines = open(sys.argv[1]).read().splitlines()
assert lines, 'no line'
for line in lines:
    thing = json.loads(line)
    assert isinstance(thing, dict), line
    for field in sys.argv[2:]:
        assert field in thing, f'no {field} in {line}'
END
}

finish() {
    printf '%d checks, %d failed\n' "$checks" "$failures"
    [ "$failures" -eq 0 ]
    exit
}
