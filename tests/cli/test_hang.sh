# SPDX-License-Identifier: BSD-3-Clause
# Hangs on purpose: a schedule in which one rank leaves out a send or a receive ends at its deadline with
# exit status 1 and says which rank and node wait, over both transports; and what the ranks have left
# tells which message is missing.
. "$(dirname "$0")/common.sh"

mpi=0
if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    mpi=1
else
    echo 'skipped: hangs over MPI were not tested (no MPI, or WEFT_TEST_MPI=0)'
fi

# says FILE TEXT: the file has this text.
says() {
    checks=$((checks + 1))
    grep -qE -- "$2" "$1" || fail "$3: expected '$2'"
}

# diagnosed NAME RANKS REPORT CAUSE: the schedule $folder/NAME hangs; standard error of the run matches
# REPORT, and the post-mortem of what its ranks leave matches CAUSE.
diagnosed() {
    for transport in local mpi; do
        start="$weft"
        [ $transport = local ] || start="mpiexec -n $2 $weft"
        [ $transport = local ] || [ $mpi = 1 ] || continue
        rm -rf "$folder/state"
        mkdir "$folder/state"
        checks=$((checks + 1))
        WEFT_STATE="$folder/state" timeout 60 $start run "$folder/$1" --transport $transport \
            --deadline 1.5 >"$folder/out" 2>"$folder/err" </dev/null
        status=$?
        [ "$status" -eq 1 ] || fail "$1 over $transport: exit $status, expected 1"
        says "$folder/err" "$3" "$1 over $transport"
        run post-mortem "$folder"/state/*.json
        [ "$status" -eq 1 ] || fail "post-mortem of $1 over $transport: exit $status, expected 1"
        says "$folder/out" "$4" "post-mortem of $1 over $transport"
        run post-mortem "$folder"/state/*.json --json
        json_lines ok ranks dumps no_dump behind causes
        [ "$(wc -l <"$folder/out")" -eq 1 ] || fail "post-mortem --json: expected one line"
    done
}

# a ring that rank 2 does not close: the last hop is missing
cat >"$folder/no-send" <<'END'
weft 1
schedule "ring with a hole" size 4
rank 0 {
  input x f32 10
  output y f32 10
  send x to 1 tag 7
  recv y from 3 tag 7
}
rank 1 {
  output y f32 10
  take: recv y from 0 tag 7
  send y to 2 tag 7 after take
}
rank 2 {
  output y f32 10
  take: recv y from 1 tag 7
}
rank 3 {
  output y f32 10
  last: recv y from 2 tag 7
  send y to 0 tag 7 after last
}
END
diagnosed no-send 4 \
    'node (1, line 7|0 `last`, line 20) \(recv from rank [23], tag 7, 40 bytes\) of `ring with a hole` on rank [03] of 4, version 0' \
    '^cause: rank 2 has no send to rank 3 with tag 7 in `ring with a hole`, version 0'
cp -r "$folder/state" "$folder/kept"

# a message that is too large to be on its way: its send waits for a receive that nobody posts
cat >"$folder/no-receive" <<'END'
weft 1
schedule "nobody takes it" size 3
rank 0 {
  input x f64 100000
  give: send x to 1 tag 3
  send x[0:1] to 1 tag 4 after give
}
rank 1 {
  output y f64 10
  output z f64 1
  recv y from 2 tag 3
  recv z from 0 tag 4
}
rank 2 {
  input x f64 10
  send x to 1 tag 3
}
END
diagnosed no-receive 3 \
    'node 0 `give`, line 5 \(send to rank 1, tag 3, 800000 bytes\) of `nobody takes it` on rank 0 of 3|node 1, line 12 .recv from rank 0, tag 4, 8 bytes.' \
    '^cause: rank 1 has no receive from rank 0 with tag 3 in `nobody takes it`.*rank 1 holds a message'

# the tags differ
sed 's/send y to 0 tag 7/send y to 0 tag 9/; s/^  take: recv y from 1 tag 7/&\n  send y to 3 tag 7 after take/' \
    "$folder/no-send" >"$folder/tag"
diagnosed tag 4 'node 1, line 7 \(recv from rank 3, tag 7, 40 bytes\) of `ring with a hole` on rank 0 of 4' \
    '^cause: rank 3 has no send to rank 0 with tag 7 .*; a message of rank 3 with tag 9, 40 bytes, version 0 has come and matches nothing'

# a small message with the wrong tag: whoever has sent it has ended, and knows nothing of it
cat >"$folder/small" <<'END'
weft 1
schedule "small" size 2
rank 0 {
  input x f32 4
  send x to 1 tag 8
}
rank 1 {
  output y f32 4
  take: recv y from 0 tag 7
}
END
instead='a message of rank 0 with tag 8, 16 bytes, version 0 has come and matches nothing'
diagnosed small 2 "node 0 .take., line 9 .*missing: 1 message from rank 0; $instead" \
    "^cause: rank 0 has no send to rank 1 with tag 7 .*; $instead"
run post-mortem "$folder"/state/weft-state.1-of-2.*.json
says "$folder/out" "^cause: rank 1 waits for tag 7 of rank 0 .*; $instead; rank 0 has left no dump" small

# and with the wrong size
sed 's/tag 8/tag 7/; s/y f32 4/y f32 6/' "$folder/small" >"$folder/size"
diagnosed size 2 'node 0 .take., line 9 .*a message of 16 bytes arrived, expected 24' \
    '^cause: rank 1: `small`, version 0 of object 0 has failed: .*16 bytes arrived, expected 24'

# each waits for the other before it sends
cat >"$folder/circle" <<'END'
weft 1
schedule "after you" size 3
rank 0 {
  output y i32 4
  in: recv y from 2 tag 0
  wait: join after in
  send y to 1 tag 0 after wait
}
rank 1 {
  output y i32 4
  in: recv y from 0 tag 0
  send y to 2 tag 0 after in
}
rank 2 {
  output y i32 4
  in: recv y from 1 tag 0
  send y to 0 tag 0 after in
}
END
diagnosed circle 3 'node 0 `in`, line (5|11|16) \(recv from rank [012], tag 0, 16 bytes\) of `after you` on rank [012]' \
    '^cause: ranks ([012], ){2}[012] wait for each other in a circle'

# without the dump of the rank that is to blame, the next best answer; and two programs are kept apart
checks=$((checks + 1))
run post-mortem "$folder"/kept/weft-state.[013]-of-4.*.json --json
[ "$status" -eq 1 ] || fail "a dump is missing: exit $status"
# rank 2 gives up, too, and may have left before the slowest of the others writes its dump, which says so
says "$folder/out" '"kind":"(no-dump|left)","rank":2' 'a dump is missing'
says "$folder/out" '"no_dump":\[2\]' 'a dump is missing'
run post-mortem "$folder"/kept/*.json "$folder"/state/*.json
checks=$((checks + 1))
[ "$(grep -c 'left a dump' "$folder/out")" -eq 2 ] || fail "two programs: expected two answers"

# a stall is reported, and leaves a state too, while the run goes on; its folder is made
rm -rf "$folder/state"
WEFT_STALL=0.1 WEFT_STATE="$folder/state" run run "$folder/no-send" --deadline 2
says "$folder/err" '^weft\[0\]: +missing: 1 message from rank 3$' 'a stall'
says "$folder/err" '^weft\[0\]: +node 1, line 7 \(recv from rank 3, tag 7, 40 bytes\) waits for the message' 'a stall'
says "$folder/err" 'version 0 of object 0, rank 0 of 4, started [0-9.]+ s ago: 1 of 2 nodes' 'a stall'
run post-mortem "$folder"/state/*.json
says "$folder/out" '^cause: rank 2 has no send to rank 3 with tag 7' 'several dumps of a rank'
says "$folder/out" '^ +rank 3: node 0 `last`, line 20 \(recv from rank 2, tag 7, 40 bytes\)' 'lines of the source'

# a rank that left two states: the first shows what its run waited for, and what had come for it
cat >"$folder/first.json" <<'END'
{"weft_state":1,"rank":0,"size":2,"sequence":0,"object_count":1,"objects":[{"object":0,"kind":"run",
"plan":"p","state":"active","version":4,"nodes":[{"node":0,"kind":"recv","state":"waiting","peer":1,
"tag":3,"bytes":8,"instead":{"object":0,"version":4,"from":1,"tag":9,"bytes":8}}]}],"unmatched":[{"object":0,"version":4,"from":1,"tag":9,"bytes":8}],"left":[]}
END
cat >"$folder/second.json" <<'END'
{"weft_state":1,"rank":0,"size":2,"sequence":1,"object_count":1,"objects":[{"object":0,"kind":"run",
"plan":"p","state":"ended","version":4,"floor":5,"failing":4,"status":-9,"nodes":[]}],"unmatched":[],
"left":[]}
END
cat >"$folder/peer.json" <<'END'
{"weft_state":1,"rank":1,"size":2,"object_count":1,"objects":[{"object":0,"kind":"run","plan":"p",
"state":"ended","version":4,"floor":5,"status":0,"nodes":[{"node":0,"kind":"send","state":"ended",
"peer":0,"tag":9,"bytes":8}]}],"unmatched":[],"left":[]}
END
run post-mortem "$folder/second.json" "$folder/peer.json" "$folder/first.json"
says "$folder/out" '^cause: rank 1 has no send to rank 0 with tag 3 .* with tag 9, 8 bytes' 'two states'

# nothing waits: no cause
cat >"$folder/idle.json" <<'END'
{"weft_state":1,"rank":0,"size":1,"object_count":0,"objects":[],"unmatched":[],"left":[]}
END
works post-mortem "$folder/idle.json"
says "$folder/out" 'nothing waits' 'an idle rank'

wrong 'missing FILE...' post-mortem
wrong 'nothing' post-mortem "$folder/nothing"
echo '{}' >"$folder/other"
wrong 'no state of a rank' post-mortem "$folder/other"
echo '{"weft_state":1,"rank":3,"size":2,"objects":[]}' >"$folder/other"
wrong 'see `rank`' post-mortem "$folder/other"
echo '{"weft_state":1,"rank":0,"size":1,"objects":[{"object":0,"kind":"run","state":"active","nodes":[{"node":0,"kind":"x","state":"ended"}]}]}' >"$folder/other"
wrong 'see `kind`' post-mortem "$folder/other"
finish
