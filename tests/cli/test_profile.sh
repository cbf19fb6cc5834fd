# SPDX-License-Identifier: BSD-3-Clause
# weft profile: what was taken before, the programs that it runs, how they end, and what they leave.
#
#   test_profile.sh WEFT PROFILES [MPIEXEC PROGRAM]   MPIEXEC left out: nothing can be preloaded here
. "$(dirname "$0")/common.sh"
profiles=$2
mpiexec=${3-}
program=${4-}
export TMPDIR="$folder/tmp"
mkdir "$TMPDIR"
unset LD_PRELOAD WEFT_PMPI WEFT_PMPI_STATS WEFT_PMPI_TABLE WEFT_COST

# says FILE TEXT: in a file of the last run.
says() {
    checks=$((checks + 1))
    grep -qF -- "$2" "$folder/$1" || fail "expected '$2'"
}

# ends STATUS WORDS: the exit status, and that nothing is left.
ends() {
    checks=$((checks + 2))
    expected=$1
    shift
    run profile "$@"
    [ "$status" -eq "$expected" ] || fail "weft profile $*: exit $status, expected $expected"
    [ -z "$(ls -A "$TMPDIR")" ] || fail "weft profile $*: left $(ls -A "$TMPDIR")"
}

# holds EXPRESSION: of `p`, the profile of the last output, and `row(CALL, ...)`, one of its rows.
holds() {
    checks=$((checks + 1))
    python3 - "$folder/out" "$1" <<'END' || fail "expected $1"
import json, math, sys
lines = open(sys.argv[1]).read().splitlines()
assert len(lines) == 1, f'{len(lines)} lines'
p = json.loads(lines[0])
def row(call, **more):
    found = [r for r in p['rows'] if r['call'] == call and all(r[k] == v for k, v in more.items())]
    assert len(found) == 1, f'{len(found)} rows of {call}'
    return found[0]
near = lambda a, b: math.isclose(a, b, rel_tol=1e-6)
assert eval(sys.argv[2])
END
}

# ---- taken before: ranks 0, 1 and 3 of 4 ----
works profile --read "$profiles/world"
says out '3 of 4 ranks reported: 833 ms in collectives on average, 1.25 s on rank 1; weft served 87.8 % of 376 calls'
for line in '^MPI_Allreduce  *1 KiB  *4  *100  *600 ms  *1.00 s  *1  *72.0 %  *weft  *6.00 ms ' \
    '^MPI_Bcast  *8 B  *2  *20..50  *325 ms  *400 ms  *0  *26.0 %  *42.9 % weft, MPI \[1\]  *9.29 ms ' \
    '^MPI_Ibarrier  *-  *4  *5  *50.0 ms  *50.0 ms  *3  *2.0 %  *MPI \[2\]  *10.0 ms ' \
    '^MPI_Barrier_init  *-  *0  *1  *0 us  *0 us  *3  *0.0 %  *MPI \[3\]  *0 us  *-  *-' \
    '^\[1\] MPI is expected to be faster$' \
    '^\[2\] no blocking collective has been called on the communicator$'; do
    checks=$((checks + 1))
    grep -q "$line" "$folder/out" || fail "expected '$line'"
done
works profile --read "$profiles/world" --communicators
checks=$((checks + 1))
[ "$(grep -c '^MPI_Bcast' "$folder/out")" -eq 2 ] || fail 'expected a row for each communicator'
says out ' columns '

works profile --read "$profiles/world" --json
json_lines ranks reported status program_seconds calls served mean_seconds most_seconds most_rank transport rows
holds 'p["ranks"] == 4 and p["reported"] == 3 and p["status"] is None and p["calls"] == 376 and p["served"] == 330'
holds '[r["call"] for r in p["rows"]] == ["MPI_Allreduce", "MPI_Bcast", "MPI_Barrier", "MPI_Barrier"]'
holds 'near(sum(r["share"] for r in p["rows"]), 1) and near(p["mean_seconds"], 2.5 / 3) and p["most_rank"] == 1'
holds 'row("MPI_Bcast", communicator=None, reported=2, calls=70, least_calls=20, most_calls=50, served=30)'
holds 'near(row("MPI_Bcast")["served_seconds"], 0.1) and near(row("MPI_Bcast")["fallen_back_seconds"], 0.55)'
holds 'row("MPI_Bcast")["fallen_back"] == {"MPI is expected to be faster": 40}'
holds 'row("MPI_Barrier", form="non-blocking", ranks=4, most_rank=3)["chosen"] is not None'
holds 'row("MPI_Barrier", form="persistent", ranks=0)["chosen"] is None'
works profile -r "$profiles/world" -c --json
holds 'row("MPI_Bcast", communicator="columns")["calls"] == 40 and row("MPI_Bcast", communicator="rows")["calls"] == 30'

# what would be chosen is what weft list says
for transport in shared local; do
    works profile --read "$profiles/world" --json --transport $transport
    cp "$folder/out" "$folder/taken"
    works list allreduce -n 4 --count 256 --transport $transport --json
    checks=$((checks + 1))
    python3 - "$folder/taken" "$folder/out" <<'END' || fail "--transport $transport: another choice than weft list"
import json, sys
row = json.load(open(sys.argv[1]))["rows"][0]
listed = json.load(open(sys.argv[2]))
us = next(a["predicted_us"] for a in listed["algorithms"] if a["name"] == listed["chosen"])
assert (row["chosen"], row["predicted_us"]) == (listed["chosen"], us), (row, listed["chosen"], us)
END
done

# each rank on a host of its own: nothing that only ranks of a host can do
works profile --read "$profiles/world" --json --transport mpi
holds 'row("MPI_Allreduce")["chosen"] not in ("multi-lane", "hierarchical")'

# all rows of many ranks and communicators
python3 - "$folder" <<'END'
import json, sys
for rank in range(300):
    with open(f"{sys.argv[1]}/many.{rank}", "w") as file:
        for comm in range(40):
            print(json.dumps({"communicator": f"c{comm}", "ranks": 300, "call": "MPI_Scan", "form": "blocking",
                              "bytes": 1 << comm, "served": rank + 1, "fallen_back": {f"reason {comm}": 1},
                              "served_seconds": 0.001 * rank, "fallen_back_seconds": 0.0}), file=file)
END
works profile --read "$folder/many" --json
holds 'len(p["rows"]) == 40 and p["reported"] == 300 and p["calls"] == 40 * (300 * 301 // 2 + 300)'
holds 'all(r["least_calls"] == 2 and r["most_calls"] == 301 and r["most_rank"] == 299 for r in p["rows"])'
works profile --read "$folder/many"
says out '[40] reason '

works profile --read "$profiles/idle"
says out '2 ranks reported: no collective was called'
works profile --read "$profiles/idle" --json
holds 'p["ranks"] == 2 and p["rows"] == [] and p["calls"] == 0'

# a name that a terminal would obey; files that are no rank's
sed 's/"rows"/"a\\u001b[31mb"/' "$profiles/world.0" >"$folder/names.0"
: >"$folder/names.00"
: >"$folder/names.x"
: >"$folder/names.1x"
works profile --read "$folder/names" -c
says out 'a?[31mb'
says out '1 of 4 ranks reported'

# -o: the same, and what was there is gone
works profile --read "$profiles/world"
cp "$folder/out" "$folder/shown"
seq 10000 >"$folder/kept"
works profile --read "$profiles/world" -o "$folder/kept"
checks=$((checks + 2))
cmp -s "$folder/kept" "$folder/shown" || fail '-o: not what is shown without it'
[ ! -s "$folder/out" ] || fail '-o: something on standard output'

# ---- files that are none ----
wrong "$profiles/cut.0, line 3: " profile --read "$profiles/cut"
# broken CHANGE TEXT: a line of rank 0 with this sed command is refused with the text.
broken() {
    sed "2$1" "$profiles/world.0" >"$folder/broken.0"
    wrong "$folder/broken.0, line 2: $2" profile --read "$folder/broken"
}
broken 's/"ranks":4/"ranks":-4/' '`ranks` is -4; expected an integer from 0'
broken 's/"ranks":4/"ranks":4294967296/' '`ranks` is 4294967296'
broken 's/"ranks":4,//' '`ranks` is missing'
broken 's/MPI_Allreduce/MPI_Send/' '`call` is "MPI_Send"; expected the name of a collective'
broken 's/"blocking"/"quick"/' '`form` is "quick"; expected blocking, non-blocking or persistent'
broken 's/1024/"1 KiB"/' '`bytes` is "1 KiB"; expected an integer'
broken 's/"served":100/"served":1.5/' '`served` is 1.5'
broken 's/{}/{"why":-1}/' '`fallen_back` is {"why":-1}'
broken 's/{}/[]/' '`fallen_back` is []; expected an object'
broken 's/0\.5/-0.5/' '`served_seconds` is -0.5; expected a number'
broken 's/0\.5/1e999/' ''
broken 's/"MPI_COMM_WORLD"/7/' '`communicator` is 7'
broken 's/.*/[]/' 'an array; expected an object'
broken 's/.*//' ''
broken 's/"ranks":4/"ranks":4,"ranks":4/' 'duplicate'
wrong "there is no $folder/nothing.0" profile --read "$folder/nothing"
wrong "there is no $folder/no/such.0" profile --read "$folder/no/such"
ln -s /dev/zero "$folder/endless.0"
wrong 'a character device' profile --read "$folder/endless"
mkdir "$folder/above.0"
wrong "$folder/above.0: Is a directory" profile --read "$folder/above"

# ---- wrong usage ----
wrong 'missing PROGRAM; usage: weft profile [options] PROGRAM [ARGUMENT...], or weft profile --read FILE' profile
wrong "unexpected word 'true'" profile --read "$profiles/world" true
wrong '--keep with --read' profile --read "$profiles/world" --keep "$folder/x"
wrong '--pmpi with --read' profile --read "$profiles/world" --pmpi auto
wrong "unknown option '--reed', did you mean '--read'?" profile --reed x
wrong '--pmpi never: nothing would be counted; expected auto or always' profile --pmpi never true
wrong "--pmpi: 'nevr' is unknown" profile --pmpi nevr true
wrong '--cost: ' profile --read "$profiles/world" --cost "$folder/nothing"
wrong "-o $folder/no/such: No such file or directory" profile --read "$profiles/world" -o "$folder/no/such"
export WEFT_PMPI=never
wrong 'WEFT_PMPI is never: nothing would be counted; expected --pmpi auto or always' profile true
unset WEFT_PMPI
export WEFT_COST="$folder/nothing"
wrong 'WEFT_COST: ' profile --read "$profiles/world"
unset WEFT_COST

if [ -z "$mpiexec" ]; then
    if [ "${WEFT_TEST_HAS_MPI-1}" = 0 ]; then
        wrong 'weft was built without MPI' profile true
    fi
    finish
fi

# ---- a program ----
export UCX_TLS=self,shm
ends 0 --json --pmpi always -- "$mpiexec" -n 3 "$program"
says err 'rank 2 is done'
holds 'p["ranks"] == 3 and p["reported"] == 3 and p["status"] == 0 and p["calls"] == p["served"] == 3 * 19 + 3 + 6 + 3'
holds 'row("MPI_Allreduce", form="blocking", ranks=3, bytes=1024, calls=30, served=30, least_calls=10, most_calls=10)'
holds 'row("MPI_Bcast", bytes=8, calls=15) and row("MPI_Allgather", form="non-blocking", bytes=256, calls=12)'
holds 'row("MPI_Barrier", ranks=2, calls=6, reported=2) and row("MPI_Barrier", ranks=1, calls=6, reported=1)'
holds '0 < p["mean_seconds"] <= p["most_seconds"] < p["program_seconds"]'
holds 'near(sum(r["served_seconds"] for r in p["rows"]), 3 * p["mean_seconds"])'
ends 0 -c -p always "$mpiexec" -n 3 "$program"
says out 'rank 2 is done'
says out 'weft served 100 % of 69 calls'
says out ' halves '
[ ! -s "$folder/err" ] || fail 'something on standard error'
ends 0 --json -o "$folder/taken" -- "$mpiexec" -n 2 "$program"
says out 'rank 1 is done'
cp "$folder/taken" "$folder/out"
holds 'p["ranks"] == 2 and p["calls"] == 2 * 19 + 3 + 6'
ends 0 "$mpiexec" -n 2 "$program" nothing
says out '2 ranks reported: no collective was called, of '

# what was there before is behind it
export LD_PRELOAD=libm.so.6
ends 0 --json -- sh -c 'echo "$LD_PRELOAD" >"$0"; exec "$@"' "$folder/preloaded" "$mpiexec" -n 2 "$program"
unset LD_PRELOAD
checks=$((checks + 1))
grep -q '^/.*/libweft-pmpi\.so:libm\.so\.6$' "$folder/preloaded" || fail "LD_PRELOAD is $(cat "$folder/preloaded")"

# what ranks have counted is kept, and is the same later; nothing is mixed
mkdir "$folder/keep"
ends 0 --json --keep "$folder/keep/here" -- "$mpiexec" -n 2 "$program"
[ "$(ls "$folder/keep" | tr '\n' ' ')" = 'here.0 here.1 ' ] || fail '--keep: expected a file of each rank'
holds 'p["reported"] == 2'
cp "$folder/out" "$folder/first"
works profile --read "$folder/keep/here" --json
checks=$((checks + 1))
python3 -c 'import json, sys; a, b = (json.load(open(f))["rows"] for f in sys.argv[1:]); assert a == b' \
    "$folder/first" "$folder/out" || fail '--keep, then --read: another profile'
wrong "--keep: $folder/keep/here.0 is there" profile --keep "$folder/keep/here" true
wrong "--keep: $folder/no/: No such file" profile --keep "$folder/no/such" true

# ---- programs that fail, and such that are none ----
ends 7 --json --pmpi always -- "$mpiexec" -n 2 "$program" fails
holds 'p["status"] == 7 and p["reported"] == 2'
ends 9 "$mpiexec" -n 2 "$program" aborts
says err 'no rank reported'
ends 1 /bin/true
says err "weft profile: no rank reported: /bin/true is no MPI program, or is linked with another MPI than weft"
says err '/libweft-pmpi.so'
[ "$(wc -l <"$folder/err")" -eq 1 ] || fail 'nobody reported: expected one line'
ends 5 sh -c 'exit 5'
ends 137 sh -c 'kill -9 $$'
ends 127 "$folder/nothing"
says err "weft profile: $folder/nothing: No such file or directory; expected a program"
: >"$folder/plain"
ends 126 "$folder/plain"
says err 'Permission denied'
ends 2 sh -c 'echo "{" >"$WEFT_PMPI_STATS.0"'
says err 'rank.0, line 1: '
there=$TMPDIR
TMPDIR=$folder/no
wrong "TMPDIR: $folder/no: No such file or directory" profile true
TMPDIR=$there

# ---- signals ----
# interrupt SIGNAL STATUS SCRIPT: weft profile alone gets it when the program is there.
interrupt() {
    checks=$((checks + 2))
    rm -f "$folder/ready"
    env --default-signal=HUP,INT,QUIT,TERM,USR1 "$weft" profile -- sh -c "$3" name "$folder/ready" \
        >"$folder/out" 2>"$folder/err" </dev/null &
    profiler=$!
    while [ ! -e "$folder/ready" ]; do sleep 0.02; done
    [ -n "$(ls -A "$TMPDIR")" ] || fail 'no folder while the program runs'
    kill "-$1" $profiler
    wait $profiler
    status=$?
    [ "$status" -eq "$2" ] || fail "signal $1: exit $status, expected $2"
    [ -z "$(ls -A "$TMPDIR")" ] || fail "signal $1: left $(ls -A "$TMPDIR")"
}
interrupt TERM 143 'touch "$1"; while :; do sleep 0.05; done'
interrupt INT 130 'touch "$1"; while :; do sleep 0.05; done'
interrupt HUP 6 'trap "exit 6" HUP; touch "$1"; while :; do sleep 0.05; done'
interrupt USR1 8 'trap "exit 8" USR1; touch "$1"; while :; do sleep 0.05; done'

finish
