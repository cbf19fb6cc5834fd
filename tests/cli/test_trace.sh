# SPDX-License-Identifier: BSD-3-Clause
# Traces of real runs: valid for every number of ranks, over both transports, merged and skewed.
. "$(dirname "$0")/common.sh"
check="$(dirname "$0")/check_trace.py"

# valid FILE WORDS: a trace that Perfetto would show as it was meant.
valid() {
    checks=$((checks + 1))
    python3 "$check" "$@" >"$folder/out" 2>"$folder/err" || fail "check_trace $*"
}

mpi=0
if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    mpi=1
else
    echo 'skipped: traces over MPI were not tested (no MPI, or WEFT_TEST_MPI=0)'
fi

for ranks in 1 2 3 8; do
    for words in 'allreduce --algo ring --count 5000' 'allreduce --count 10' 'alltoall' 'barrier'; do
        # shellcheck disable=SC2086
        works run $words -n $ranks --iterations 3 --trace "$folder/t.json"
        valid "$folder/t.json" --ranks $ranks --complete
    done
    works run broadcast -n $ranks --progress helper --iterations 2 --trace "$folder/t.json"
    valid "$folder/t.json" --ranks $ranks --complete
    [ $mpi = 1 ] || continue
    checks=$((checks + 1))
    mpiexec -n $ranks "$weft" run allreduce --algo ring --count 5000 --transport mpi \
        --iterations 3 --verify --trace "$folder/t.json" >"$folder/out" 2>"$folder/err" ||
        fail "mpiexec -n $ranks weft run --trace"
    [ ! -s "$folder/err" ] || fail "mpiexec -n $ranks weft run --trace: something on standard error"
    valid "$folder/t.json" --ranks $ranks --complete
done

# WEFT_TRACE: a file a context, merged by weft trace; a merged trace merges into itself; the folder is made
WEFT_TRACE="$folder/files" works run allreduce -n 5 --iterations 2
WEFT_TRACE="$folder/files" works run allgather -n 3 --iterations 2
checks=$((checks + 1))
[ "$(find "$folder/files" -name 'weft-trace.*-of-*.json' | wc -l)" -eq 8 ] ||
    fail "WEFT_TRACE: expected a file a rank of both programs"
works trace "$folder"/files/weft-trace.*-of-5.*.json -o "$folder/five.json"
valid "$folder/five.json" --ranks 5 --complete
works trace "$folder/five.json" -o "$folder/again.json" --json
json_lines file ranks spans clocks
checks=$((checks + 1))
cmp -s "$folder/five.json" "$folder/again.json" || fail "a merged trace changed when merged again"
works trace "$folder/five.json"
cp "$folder/out" "$folder/again.json"
cmp -s "$folder/five.json" "$folder/again.json" || fail "standard output and -o differ"
works trace "$folder/five.json" --json
[ "$(wc -l <"$folder/out")" -eq 1 ] || fail "trace --json: expected one line"
works trace "$folder"/files/*.json -o "$folder/both.json" # two programs: no rank is mixed up
valid "$folder/both.json" --complete

# another machine's clock, 1.5 s ahead: the messages tell
python3 - "$folder/files" "$folder/skewed" <<'END'
import glob, json, os, sys
os.mkdir(sys.argv[2])
for name in glob.glob(sys.argv[1] + '/weft-trace.*-of-5.*.json'):
    trace = json.load(open(name))
    for event in trace['traceEvents']:
        if event['name'] == 'weft_rank' and event['args']['rank'] in (1, 4):
            event['args']['clock'] = 'elsewhere'
            event['args']['base_ns'] += 1500000000
    json.dump(trace, open(sys.argv[2] + '/' + os.path.basename(name), 'w'), indent=1)
END
works trace "$folder"/skewed/*.json -o "$folder/t.json" --json
checks=$((checks + 1))
python3 - "$folder/out" <<'END' || fail "the clocks were not brought together"
import json, sys
clocks = {rank['rank']: rank for rank in json.load(open(sys.argv[1]))['clocks']}
for r in (0, 2, 3):
    assert clocks[r]['offset_ns'] == clocks[0]['offset_ns'] and clocks[r]['uncertainty_ns'] == 0
for r in (1, 4):
    wrong = clocks[r]['offset_ns'] - clocks[0]['offset_ns'] + 1500000000
    assert abs(wrong) <= clocks[r]['uncertainty_ns'], clocks
END

# traces of ranks that do not come to their end: in a stall, and when a signal ends the program
cat >"$folder/hangs" <<'END'
weft 1
schedule "hangs" size 3
rank 0 {
  input x f32 10
  send x to 1 tag 7
}
rank 1 {
  output y f32 10
  recv y from 0 tag 7
}
rank 2 {
  output y f32 10
  recv y from 0 tag 7
}
END

# reported: rank 2 has, that the message does not come, and one of those that wait for it in the end. What
# they leave is written before they report.
reported() {
    grep -q '^weft\[2\]:.*recv from rank 0, tag 7.* waits for the message' "$folder/err" &&
        grep -q '^weft\[[01]\]: waiting for' "$folder/err"
}

# left_behind SIGNAL STATUS: `weft run hangs` in the background is sent the signal when its ranks have
# reported; they have left their traces.
left_behind() {
    checks=$((checks + 1))
    rm -rf "$folder/hung"
    WEFT_STALL=0.1 "$weft" run "$folder/hangs" --deadline 100 >"$folder/out" 2>"$folder/err" </dev/null &
    pid=$!
    tries=0
    until reported || [ $tries -eq 3000 ]; do
        tries=$((tries + 1))
        sleep 0.01
    done
    reported || fail "a run that hangs: expected reports of two ranks"
    kill -"$1" $pid
    wait $pid
    status=$?
    [ "$status" -eq "$2" ] || fail "a run ended by $1: exit $status"
    [ "$(find "$folder/hung" -name 'weft-trace.*-of-3.*.json' -size +0 | wc -l)" -ge 2 ] ||
        fail "a run ended by $1: expected the traces of the ranks that wait"
    works trace "$folder"/hung/*.json -o "$folder/t.json"
    valid "$folder/t.json"
    checks=$((checks + 1))
    grep -q '"plan":"hangs"' "$folder/t.json" || fail "a run ended by $1: the plan is not in its trace"
}
export WEFT_TRACE="$folder/hung"
left_behind KILL 137
left_behind TERM 143
unset WEFT_TRACE

# a folder that cannot be: said at the start, and nothing is traced
checks=$((checks + 1))
WEFT_TRACE="$folder/no/where" run run barrier -n 4
[ "$status" -eq 0 ] || fail "a bad WEFT_TRACE: exit $status"
[ "$(grep -c 'WEFT_TRACE is .*/no/where., expected a folder' "$folder/err")" -eq 1 ] ||
    fail "a bad WEFT_TRACE: expected one line"

# a recorder that is too small says so
checks=$((checks + 1))
WEFT_TRACE_RECORDS=16 run run allreduce -n 2 --trace "$folder/t.json"
[ "$status" -eq 0 ] || fail "a small recorder: exit $status"
grep -q 'oldest records are not there' "$folder/err" || fail "a small recorder: expected a line"

wrong 'missing FILE...' trace
wrong 'No such file' trace "$folder/nothing"
printf '{"traceEvents":[]}' >"$folder/empty"
wrong 'no trace of weft' trace "$folder/empty"
printf '{"traceEvents":[{"a":}]}' >"$folder/bad"
wrong 'after event' trace "$folder/bad"
wrong 'expected a file that can be written' trace "$folder/five.json" -o "$folder/no/where"
wrong 'expected a file that can be written' run barrier --trace "$folder/no/where"
finish
