# SPDX-License-Identifier: BSD-3-Clause
# weft check: exit statuses, JSON, files, and the corpus of broken schedules.
. "$(dirname "$0")/common.sh"
corpus=$(dirname "$0")/../corpus

# faulty KIND WORDS: exit 1, nothing on standard error, and a fault of a kind.
faulty() {
    checks=$((checks + 1))
    kind=$1
    shift
    run "$@"
    [ "$status" -eq 1 ] || fail "weft $*: exit $status, expected 1"
    [ ! -s "$folder/err" ] || fail "weft $*: something on standard error"
    grep -qE -- "^$kind |\"kind\": ?\"$kind\"" "$folder/out" || fail "weft $*: expected a $kind"
}

for template in $("$weft" list --json | sed -n 's/.*"name":"\([^"]*\)".*"kind":"template".*/\1/p'); do
    works check "$template" --json
    json_lines ok ranks nodes faults
    works check "$template" -n 5
done
works check --help
works check allreduce --algo ring -n 7 --count 100 --json
grep -qF '"ok":true,"ranks":7' "$folder/out" || fail 'expected ok, ranks'
works check broadcast --algo chain -n 3 --count 1M --segment 4k

# the order of issue: an order, a circle, an event that the order would make others wait for
works check allreduce --algo ring -n 4 --transport nccl
grep -qxF 'in order: 24 messages in 6 rounds' "$folder/out" || fail 'expected rounds'
works check allreduce --algo ring -n 4 --transport nccl --json
json_lines ok ranks nodes faults order
faulty order check "$corpus/deadlock-ring.weft" --transport nccl
faulty order check "$corpus/deadlock-ring.weft" --transport nccl --json
faulty deadlock check "$corpus/deadlock-ring.weft" --transport shared
grep -q '^order' "$folder/out" && fail 'expected no order'
printf 'weft 1\nschedule "s" size 3\nrank 0 {\ninput a f32 1 on device\ne: event\nsend a to 1 after e\n}\n' \
    >"$folder/event.weft"
printf 'rank 1 {\noutput b f32 1 on device\noutput c f32 1 on device\nrecv b from 0\nrecv c from 2\n}\n' \
    >>"$folder/event.weft"
printf 'rank 2 {\ninput a f32 1 on device\nsend a to 1\n}\n' >>"$folder/event.weft"
works check "$folder/event.weft" --transport nccl
grep -qF 'not known beforehand' "$folder/out" || fail 'expected to read that they must agree'
works check "$folder/event.weft" --transport nccl --json
grep -qF '"agreements":1' "$folder/out" || fail 'expected an agreement'

# joint nodes: NCCL's where it is, elsewhere messages, which is what is run, simulated and traced
cat >"$folder/joint.weft" <<'END'
weft 1
schedule "joint" size 4
ranks all {
  input x f32 1000
  output y f32 1000
  compute joint-fold-all-sum-5-0to3 out y, in x
  result y = sum of x from ranks 0..3
}
END
for words in '' '--transport nccl'; do
    # shellcheck disable=SC2086
    works check "$folder/joint.weft" $words
done
grep -qxF 'in order: 1 message in 1 round' "$folder/out" || fail 'expected one operation in order'
for words in '' '--transport shared'; do
    # shellcheck disable=SC2086
    works run "$folder/joint.weft" --verify $words
    grep -q 'verified  *yes' "$folder/out" || fail "joint nodes $words"
done
# one that the others have no equal of: another operation, or their ranks in another order
for other in max-5-0to3 sum-5-0_1_3_2; do
    sed 's/^ranks all/ranks 0..1/' "$folder/joint.weft" | sed '/result/d' >"$folder/unequal.weft"
    { sed -n '/^ranks/,$p' "$folder/unequal.weft" | sed "s/0..1/2..2/; s/sum-5-0to3/$other/"
        sed -n '/^ranks/,$p' "$folder/unequal.weft" | sed 's/0..1/3..3/'; } >"$folder/rest"
    cat "$folder/rest" >>"$folder/unequal.weft"
    works check "$folder/unequal.weft"
    faulty order check "$folder/unequal.weft" --transport nccl
    grep -q 'rank 1: node 0 is a joint node with tag 5 that rank 2 has no equal of' "$folder/out" ||
        fail 'expected the ranks that differ'
done
works sim "$folder/joint.weft" --trace "$folder/joint.json"
checks=$((checks + 1))
python3 - "$folder/joint.json" <<'END' || fail 'a trace of joint nodes'
import json, sys
trace = json.load(open(sys.argv[1]))
events = trace['traceEvents'] if isinstance(trace, dict) else trace
assert sum(event.get('cat') == 'send' for event in events) == 24, events[:9]
END
works dump "$folder/joint.weft" --format goal
[ "$(grep -c 'send 1000b' "$folder/out")" -eq 24 ] || fail 'GOAL has no messages of joint nodes'
works dump "$folder/joint.weft" --format html -o "$folder/joint.html"
works dump "$folder/joint.weft"
grep -q 'joint-fold-all-sum-5-0to3' "$folder/out" || fail 'a dump of joint nodes has them'

# parts of lists: one that goes to the owner of another region, and one that is not sent
"$weft" dump oktopk -n 4 --count 100 --k 12 -o "$folder/regions.weft"
works check "$folder/regions.weft"
sed '/^rank 2 {/,/^}/s/\(compute sparse-part .*\)bounds\[3:5\]/\1bounds[2:4]/' "$folder/regions.weft" \
    >"$folder/region.weft"
faulty result check "$folder/region.weft"
grep -qF 'send of rank 2 between bounds[2] and bounds[3]' "$folder/out" || fail 'expected the part'
sed '/^rank 2 {/,/^}/s/send parts\[.*\] to 3/send parts[0:0] to 3/' "$folder/regions.weft" \
    >"$folder/nothing.weft"
faulty result check "$folder/nothing.weft"

"$weft" dump gather -n 4 --count 3 -o "$folder/good.weft"
"$weft" dump gather -n 4 --count 3 --format json -o "$folder/good.json"
works check "$folder/good.weft"
works check "$folder/good.json" -n 4 --json
"$weft" dump gather -n 4 -r 1 -o "$folder/one.weft"
faulty match check "$folder/one.weft" --json
faulty cycle check "$corpus/cycle-itself.weft"
faulty deadlock check "$corpus/deadlock-ring.weft" --json
json_lines ok ranks nodes faults
faulty race check "$corpus/race-any.weft" --faults 1
works check activation -n 33 --executions 20 --seed 7
grep -q '^bounded: ' "$folder/out" || fail 'expected to read that it was bounded'

# a rank with more races than are counted, and one message
printf 'weft 1\nschedule "s" size 1\nrank 0 {\ninput a f32 4\noutput b f32 4\n' >"$folder/races.weft"
printf 'for i in 1..31 { copy b = a }\nsend a to 0\nrecv b from 0\n}\n' >>"$folder/races.weft"
faulty race check "$folder/races.weft"
grep -qF ' 1 message: at least ' "$folder/out" || fail 'expected one message and a least number'

# What no schedule can have is a fault too, though the reader is the one to find it.
"$weft" dump allreduce -n 2 --count 8 -o "$folder/sum.weft"
"$weft" dump allreduce -n 2 --count 8 --format json -o "$folder/sum.json"
sed 's/send send\[0:8\]/send send[1:9]/' "$folder/sum.weft" >"$folder/beyond.weft"
sed 's/to 1 tag/to 5 tag/' "$folder/sum.weft" >"$folder/peer.weft"
sed 's/output recv f32 8/output recv f64 8/' "$folder/sum.weft" >"$folder/dtype.weft"
sed 's/"peer": 1/"peer": 7/' "$folder/sum.json" >"$folder/peer.json"
faulty size check "$folder/beyond.weft"
faulty size check "$folder/beyond.weft" --json
json_lines ok ranks nodes faults
faulty match check "$folder/peer.weft"
faulty size check "$folder/dtype.weft" --json
faulty match check "$folder/peer.json" --json
json_lines ok ranks nodes faults

# A barrier of which a rank does not wait before it passes on what it has heard.
"$weft" dump barrier -n 4 | sed '/^rank 2 {/,/^}/s/ after n1$//' >"$folder/barrier.weft"
faulty result check "$folder/barrier.weft"
grep -qF 'may end before rank' "$folder/out" || fail 'expected who may end before whom'
faulty result check "$folder/barrier.weft" --json

# One line that is wrong on every rank and in every round is one line here.
cat >"$folder/tags.weft" <<'END'
weft 1
schedule "tags" size any
ranks all {
  input a f32 64
  output b f32 64
  for i in 0..7 {
    out[i]: send a[8*i:8*i+8] to (rank + 1) % size tag i
    in[i]: recv b[8*i:8*i+8] from (rank - 1) % size tag i + 100
  }
}
END
faulty match check "$folder/tags.weft" -n 6
[ "$(wc -l <"$folder/out")" -eq 2 ] || fail 'expected one line, and the summary'
grep -qF 'line 7, send `out`, 48 faults on ranks 0-5; the first: rank 0: node 0' "$folder/out" ||
    fail 'expected the line, the label, and where'
faulty match check "$folder/tags.weft" -n 6 --all
[ "$(wc -l <"$folder/out")" -eq 49 ] || fail 'expected all 48 faults'
grep -qF 'match     line 7: rank 5: node 14' "$folder/out" || fail 'expected the line of each'
faulty match check "$folder/tags.weft" -n 20
grep -qF '160 faults on ranks 0-19' "$folder/out" || fail 'expected more than are shown one by one'
faulty match check "$folder/tags.weft" -n 3 --json
json_lines ok ranks nodes faults folded
python3 - "$folder/out" <<'END' || fail 'expected lines and groups in JSON'
import json, sys
answer = json.load(open(sys.argv[1]))
assert len(answer['faults']) == 24 == answer['fault_count']
assert all(f['line'] == 7 and f['nodes'][1]['line'] == 8 for f in answer['faults'])
[group] = answer['folded']
assert group['line'] == 7 and group['count'] == 24 and group['ranks'] == [0, 1, 2], group
END
# What was not read from a text goes by label or by shape, and has no lines.
"$weft" dump allreduce --algo ring -n 6 --count 60 --format json |
    sed '/"kind": "send"/s/"tag": /"tag": 9/' >"$folder/shape.json"
faulty match check "$folder/shape.json"
[ "$(grep -c '^match ' "$folder/out")" -le 2 ] || fail 'expected few lines'
grep -q '^match *send of slot .* faults on ranks 0-5; the first: ' "$folder/out" ||
    fail 'expected the shape'
grep -q '^match *line' "$folder/out" && fail 'there are no lines'

wrong "expected a name that weft list" check nothing
wrong "missing TEMPLATE" check
wrong "-n: 3, but" check "$folder/good.weft" -n 3
wrong "--executions: '0'" check barrier --executions 0
printf 'weft 1\nschedule "s" size 1\nrank 0 {\n  n0: nonsense\n}\n' >"$folder/bad.weft"
wrong "line 4" check "$folder/bad.weft"
printf 'weft 1\nschedule "s" size 2000000000\nrank 0 {\n}\n' >"$folder/huge.weft"
faulty match check "$folder/huge.weft"

checks=$((checks + 1))
python3 "$corpus/check.py" "$weft" "$corpus" >"$folder/out" 2>"$folder/err" ||
    fail "the corpus of broken schedules"
finish
