# SPDX-License-Identifier: BSD-3-Clause
# run executes and verifies, templates and files, and says no when the answer is no.
. "$(dirname "$0")/common.sh"

for name in barrier broadcast reduce allreduce reduce-scatter allgather gather scatter alltoall; do
    works run "$name" --verify
    for ranks in 1 3 8; do
        works run "$name" -n "$ranks" --count 5 --iterations 2 --verify --json
        grep -q '"verified":true' "$folder/out" || fail "run $name -n $ranks: not verified"
    done
done
# sums of sparse vectors: all lists are as long as they can be; and sums that are compressed
for words in gtopk 'gtopk --algo butterfly' topk-allgather oktopk \
    'projected-allreduce --slice 50 --components 7 --algo ring' \
    'projected-allreduce --algo reduce-scatter-allgather --in-place' \
    'quantised-allreduce --bits 2 --bucket 24' 'quantised-allreduce --norm l2 --algo ring' \
    'quantised-allreduce --bits sign' powersgd-allreduce; do
    for ranks in 1 3 8; do
        # shellcheck disable=SC2086
        works run $words -n "$ranks" --count 300 --k 40 --iterations 9 --verify --json
        grep -q '"verified":true' "$folder/out" || fail "run $words -n $ranks: not verified"
    done
done
# workers and servers, apart and co-located
for algo in all turns paced; do
    for words in '-n 1' '-n 2' '-n 5 --servers 2' '-n 4 --co-located --servers 3' \
        '-n 9 --transport shared --window 2'; do
        # shellcheck disable=SC2086
        works run server-step --algo $algo $words --count 300 --segment 64 --iterations 3 --verify --json
        grep -q '"verified":true' "$folder/out" || fail "run server-step $algo $words: not verified"
    done
done
works dump oktopk -n 5 --count 100 --k 15 -o "$folder/regions"
works run "$folder/regions" --verify --iterations 9
# rank 4 sends the owner of region 1 what is in region 0
sed -e '/^rank 4 {/,/^}/s/\(n[0-9]*: compute sparse-part .*\)bounds\[1:3\]/\1bounds[0:2]/' \
    "$folder/regions" >"$folder/mixed"
checks=$((checks + 1))
cmp -s "$folder/regions" "$folder/mixed" && fail 'the schedule was not changed'
run run "$folder/mixed" --verify
[ "$status" -eq 1 ] || fail "a part that is sent to another owner: exit $status, expected 1"
for dtype in i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64; do
    for op in sum prod min max land lor lxor; do
        works run allreduce -n 5 --count 33 --dtype $dtype --op $op --iterations 2 --verify
    done
done
for op in band bor bxor; do
    works run allreduce -n 5 --count 33 --dtype u16 --op $op --iterations 2 --verify
done
works run allreduce -n 4 --in-place --count 1k --iterations 3 --verify
works run scatter -n 1 --in-place --verify
works run allreduce -n 4 --progress helper --count 100k --iterations 3 --verify
works run reduce -n 5 --root 3 --count 0 --iterations 2 --verify

# a file, an event that the application fires, and a statement that is not true
works dump allreduce --algo ring -n 3 --count 8 -o "$folder/ring"
works run "$folder/ring" --verify

# a schedule that writes nothing is right when it has ended; one that writes must state what
for name in barrier activation; do
    works dump $name -n 3 -o "$folder/$name"
    works run "$folder/$name" --verify --iterations 2 --json
    grep -q '"verified":true' "$folder/out" || fail "run a file of $name: not verified"
done
# what a file states of starts is verified: here no rank waits for what it passes on
sed '/^  n[0-9]*: send/s/ after .*//' "$folder/barrier" >"$folder/loose"
works run "$folder/loose" --verify # of 3 ranks each hears the others itself
works dump barrier -n 5 -o "$folder/wide"
works run "$folder/wide" --verify --json
sed '/^  n[0-9]*: send/s/ after .*//' "$folder/wide" >"$folder/loose"
checks=$((checks + 1))
run run "$folder/loose" --verify --json
[ "$status" -eq 1 ] && grep -q '"verified":false' "$folder/out" || fail 'expected: not verified'
grep -qF 'a rank ended before the last had started' "$folder/err" || fail 'expected what is wrong'
sed '/^  result/d' "$folder/ring" >"$folder/silent"
wrong 'states no result; expected a schedule that does' run "$folder/silent" --verify
works run "$folder/silent" --iterations 2
# true, false, or null where nobody asked: that is not a wrong result
works run "$folder/silent" --iterations 2 --json
checks=$((checks + 1))
grep -q '"verified":null' "$folder/out" || fail 'expected: not asked for'

# WEFT_DUMP: a file for each plan, which is read back; its folder is made
WEFT_DUMP="$folder/plans" works run "$folder/ring" --iterations 2
checks=$((checks + 1))
[ "$(find "$folder/plans" -name 'allreduce-ring.*-of-3.*.weft' | wc -l)" -eq 3 ] ||
    fail "WEFT_DUMP: expected a file a rank"
works dump "$folder"/plans/allreduce-ring.1-of-3.*.weft
grep -q '^rank 1 {$' "$folder/out" || fail "WEFT_DUMP: expected the schedule of rank 1"

# a bad variable is told of once, not by each rank
for words in WEFT_STALL=abc WEFT_PROGRESS=abc WEFT_LOG=abc WEFT_SIMD=abc WEFT_COST="$folder/none" \
    WEFT_DUMP=/dev/null/x WEFT_TRACE=/dev/null/x WEFT_DEVICE_WAY=abc WEFT_APART=abc \
    "WEFT_TRACE=$folder WEFT_TRACE_RECORDS=abc"; do
    checks=$((checks + 1))
    # shellcheck disable=SC2086
    env $words "$weft" run allreduce -n 8 --iterations 2 >"$folder/out" 2>"$folder/err" </dev/null ||
        fail "$words: exit $?"
    [ "$(grep -c 'environment: WEFT_.*; ignored' "$folder/err")" -eq 1 ] ||
        fail "$words: expected one line"
done

# several files are the ranks of one collective, in any order
set -- "$folder"/plans/allreduce-ring.2-of-3.*.weft "$folder"/plans/allreduce-ring.[01]-of-3.*.weft
works dump "$@"
cmp -s "$folder/out" "$folder/ring" || fail "dump of the files of three ranks: not what they were from"
works check "$@" --json
grep -q '"ok":true,"ranks":3' "$folder/out" || fail "check of the files of three ranks"
works sim "$@"
works run "$@" --verify --iterations 2
wrong 'holds 2 of 3 ranks' run "$1" "$2"
wrong 'rank 2 is in two of the files' check "$1" "$2" "$1"
wrong 'is of `barrier-dissemination` on 3 ranks; expected `allreduce-ring`' check "$1" "$folder/barrier"
wrong "unexpected word 'barrier'" sim allreduce barrier
cat >"$folder/event" <<'END'
weft 1
schedule "gate" size 2

rank 0 {
  input send i32 4
  n0: event
  n1: send send[0:4] to 1 tag 0 after n0
}

rank 1 {
  output recv i32 4
  n0: recv recv[0:4] from 0 tag 0
  result recv[0:4] = send[0:4] from rank 0
}
END
works run "$folder/event" --verify
sed -e 's/= send\[0:4\] from rank 0/= send[0:4] from rank 1/' "$folder/event" >"$folder/nowhere"
wrong 'slot send, which rank 1 does not have' run "$folder/nowhere" --verify
sed -e 's/^rank 1 {$/&\n  input send i32 4/' "$folder/nowhere" >"$folder/lie"
checks=$((checks + 1))
run run "$folder/lie" --verify
[ "$status" -eq 1 ] || fail "a wrong result: exit $status, expected 1"
grep -q '^weft run: rank 1, slot recv, element [0-9]*, iteration [0-9]*: got .*, expected ' \
    "$folder/err" || fail "a wrong result: expected rank, slot, element, got and expected"

# nobody sends: ends by itself, and says so
sed 's/to 1 tag 0/to 1 tag 9/' "$folder/event" >"$folder/stuck"
checks=$((checks + 1))
run run "$folder/stuck" --timeout 0.2
[ "$status" -eq 1 ] || fail "a deadlock: exit $status, expected 1"
[ -s "$folder/err" ] || fail "a deadlock: expected a line"

# local ranks in each of several processes are nobody's wish
for launcher in 'PMI_RANK=0 PMI_SIZE=2' 'OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2'; do
    for words in 'run allreduce' 'train --steps 2'; do
        checks=$((checks + 1))
        # shellcheck disable=SC2086
        env $launcher "$weft" $words >"$folder/out" 2>"$folder/err"
        status=$?
        [ "$status" -eq 2 ] || fail "$launcher weft $words: exit $status, expected 2"
        grep -qF -- '--transport mpi' "$folder/err" || fail "$launcher weft $words: expected advice"
        # shellcheck disable=SC2086
        env $launcher "$weft" $words -n 2 --transport local --json >"$folder/out" 2>"$folder/err" ||
            fail "$launcher weft $words --transport local: exit $?"
        json_lines ranks
    done
done
PMI_RANK=0 PMI_SIZE=1 works run allreduce -n 2 --iterations 2

# of threads of which the seventh finds no room: what is told is that, not what it did to the others
if [ "${WEFT_TEST_LIMIT:-1}" = 1 ]; then
    for words in 'run barrier --iterations 1' 'train --algorithm allreduce --steps 2' \
        'bench allreduce --bytes 8 --rounds 1'; do
        checks=$((checks + 1))
        # shellcheck disable=SC2086
        (ulimit -S -s 1000000 && ulimit -v 8000000 && exec "$weft" $words -n 32) \
            >"$folder/out" 2>"$folder/err" </dev/null
        status=$?
        [ "$status" -eq 1 ] || fail "weft $words without room for threads: exit $status, expected 1"
        grep -qE 'thread [0-9]+ of 32 could not be started' "$folder/err" ||
            fail "weft $words: expected which thread could not be started"
    done
else
    echo 'skipped: threads that cannot be started were not tested (WEFT_TEST_LIMIT=0)'
fi

if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    # under mpiexec, rank 0 prints
    for words in "info --json" "groups -n 4 --json" "train --steps 2 -n 2 --json"; do
        checks=$((checks + 1))
        # shellcheck disable=SC2086
        lines=$(mpiexec -n 3 "$weft" $words | wc -l)
        [ "$lines" -eq 1 ] || fail "mpiexec -n 3 weft $words: $lines lines, expected 1"
    done
    checks=$((checks + 1))
    mpiexec -n 2 "$weft" run allreduce >"$folder/out" 2>"$folder/err" </dev/null
    status=$?
    [ "$status" -eq 2 ] || fail "mpiexec -n 2 weft run allreduce: exit $status, expected 2"
    [ "$(grep -cF -- '--transport mpi' "$folder/err")" -eq 1 ] || fail 'expected one line of advice'
    # a file for three ranks, where nobody has said -n
    checks=$((checks + 1))
    mpiexec -n 2 "$weft" run "$folder/ring" --transport mpi >"$folder/out" 2>"$folder/err" </dev/null
    status=$?
    [ "$status" -eq 2 ] || fail "a file for 3 ranks on 2: exit $status, expected 2"
    grep -qF 'ring is for 3 ranks, but mpiexec started 2' "$folder/err" || fail 'expected the ranks'
    for ranks in 2 3; do
        for name in allreduce alltoall barrier broadcast gtopk 'gtopk --algo butterfly' \
            topk-allgather 'oktopk --k 20'; do
            checks=$((checks + 1))
            # shellcheck disable=SC2086
            mpiexec -n $ranks "$weft" run $name --transport mpi --count 100 --iterations 3 \
                --verify --json >"$folder/out" 2>"$folder/err" </dev/null ||
                fail "mpiexec -n $ranks weft run $name"
            json_lines ranks transport iterations median_us verified
            [ "$(wc -l <"$folder/out")" -eq 1 ] || fail "$name over MPI: expected one line"
            grep -q '"verified":true' "$folder/out" || fail "$name over MPI: not verified"
        done
    done
else
    echo 'skipped: run over MPI was not tested (no MPI, or WEFT_TEST_MPI=0)'
fi
finish
