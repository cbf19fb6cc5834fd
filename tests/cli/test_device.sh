# SPDX-License-Identifier: BSD-3-Clause
# --device of run, dump, check and sim, over the stand-in of the driver: $2, libcuda.so.1; on a machine
# with a device and without $2, over that one.
. "$(dirname "$0")/common.sh"
unset WEFT_DEVICE
[ -z "${2:-}" ] || unset LD_LIBRARY_PATH # who runs this may have put the stand-in there

# says PATTERN: a line of the last output, up to spaces.
says() {
    checks=$((checks + 1))
    tr -s ' ' <"$folder/out" | grep -qE -- "^ ?$1\$" || fail "expected '$1'"
}

# ---- without a device ----

if [ -n "${2:-}" ]; then
    driver=$(cd "$(dirname "$2")" && pwd)
    if ldconfig -p | grep -q 'libcuda\.so\.1'; then
        echo "without a driver: skipped, there is one"
    else
        wrong '--device: cuda; expected a device that weft info lists, but there is none: there is no CUDA driver: ' \
            run allreduce --device cuda
        wrong 'but there is none' run allreduce --device cuda:0 --transport shared -n 2 --json
    fi
    # What is about schedules alone needs none.
    works dump allreduce --device cuda
    works check allreduce --device cuda:7
    works sim allreduce --device cuda
    # Ranks free memory that others have read and keep open, as drivers allow.
    export LD_LIBRARY_PATH="$driver" STANDIN_DEVICES=0 STANDIN_IPC_FREE=1
    wrong '--device: cuda; expected a device that weft info lists, but there is none: there is a CUDA driver, and no device' \
        run allreduce --device cuda
    export STANDIN_DEVICES=2
    wrong '--device: cuda:2; expected cuda, or one of cuda:0 to cuda:1' run allreduce --device cuda:2
    wrong '--device: cuda:99999999999999999999; expected cuda, or one of' run allreduce \
        --device cuda:99999999999999999999
    last=cuda:1
else
    last=cuda:0
fi
for word in rocm cuda: cuda:x cuda:1x cuda:-1 CUDA ''; do
    wrong "--device: '$word'; expected cuda, or cuda:N" run allreduce --device "$word"
    wrong "--device: '$word'; expected cuda, or cuda:N" dump allreduce --device "$word"
done

# ---- run ----

works run allreduce --device cuda --verify
says 'allreduce-.* over local, 4 ranks, on cuda'
says 'verified yes, .*'
works run allreduce -n 3 --device $last --verify --transport shared --count 10000 --json
json_lines device transport verified
grep -q "\"transport\":\"shared\",.*\"verified\":true.*\"device\":\"$last\"" "$folder/out" ||
    fail "device and verified in JSON"
works run allreduce -n 2 --json
grep -q '"device":null' "$folder/out" || fail "no device in JSON"
for template in alltoallv broadcast reduce-scatter server-step barrier; do
    works run $template -n 5 --device cuda --verify --iterations 2
    works run $template -n 2 --device cuda --verify --iterations 2 --transport shared
done
works run reduce -n 3 --device cuda --verify --memory private --progress helper --in-place --root 2
works run scan -n 1 --device cuda --verify --count 0

if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    for template in allreduce alltoall; do
        checks=$((checks + 1))
        mpiexec -n 3 "$weft" run $template --transport mpi --device cuda --verify --count 20000 --iterations 2 \
            >"$folder/out" 2>"$folder/err" </dev/null || fail "mpiexec -n 3 weft run $template --device cuda"
        says 'verified yes, .*'
    done
    checks=$((checks + 1))
    mpiexec -n 2 "$weft" run allreduce --transport mpi --device cuda:9 >"$folder/out" 2>"$folder/err" </dev/null
    [ $? -eq 2 ] || fail "mpiexec -n 2 weft run allreduce --device cuda:9: expected 2"
    [ "$(grep -c 'cuda:9; expected cuda, or' "$folder/err")" -eq 1 ] || fail "once, by rank 0"
fi

# A file's slots are where it says; with --device all are there.
cat >"$folder/mixed.weft" <<'EOF'
weft 1
schedule "mixed" size 2
rank 0 {
  input x f32 1000
  input y f32 1000 on device
  output sum f32 1000 on device
  output back f32 1000
  n0: reduce sum sum = x, y
  n1: copy back = sum after n0
  n2: send back to 1 tag 0 after n1
}
rank 1 {
  output got f32 1000 on device
  n0: recv got from 0 tag 0
  result got = x from rank 0
}
EOF
works run "$folder/mixed.weft"
works run "$folder/mixed.weft" --transport shared
works run "$folder/mixed.weft" --device $last
export WEFT_DEVICE=$last
works run "$folder/mixed.weft"
run run "$folder/mixed.weft" --verify
checks=$((checks + 1))
[ "$status" -eq 1 ] || fail "a wrong result on a device: exit $status, expected 1"
grep -q 'rank 1, slot got, element 0, iteration 0: got ' "$folder/err" || fail "which result is wrong"
export WEFT_DEVICE=cuda:9
run run "$folder/mixed.weft"
unset WEFT_DEVICE
checks=$((checks + 1))
[ "$status" -eq 1 ] || fail "WEFT_DEVICE=cuda:9: exit $status, expected 1"
grep -q 'device is cuda:9, expected one of' "$folder/err" || fail "which device is missing"

# A call of the driver fails, or the device does: an error with its cause, and an end. (A few calls may
# fail, and nobody is worse off.)
if [ -n "${2:-}" ]; then
    told=0
    for fault in FAIL=5 FAIL=260:2 FAIL=500 FAIL=520:700 FAULT=3 FAULT=20 FAULT=40:719; do
        for transport in local shared; do
            checks=$((checks + 1))
            env "STANDIN_$fault" "$weft" run allreduce -n 2 --device cuda --count 30000 --iterations 2 --deadline 20 \
                --transport $transport >"$folder/out" 2>"$folder/err" </dev/null
            status=$?
            [ "$status" -le 2 ] || fail "STANDIN_$fault: exit $status, expected 0 to 2"
            [ "$status" -eq 0 ] || told=$((told + 1))
            [ "$status" -eq 0 ] || grep -q 'CUDA_ERROR' "$folder/err" ||
                fail "STANDIN_$fault: expected the error of the driver"
        done
    done
    checks=$((checks + 1))
    [ "$told" -ge 10 ] || fail "$told of 14 faults were told, expected at least 10"
fi

# Over NCCL: a device a rank, and an error of NCCL's where there are fewer.
nccl=${driver:-.}/../nccl
if [ -n "${2:-}" ] && [ -e "$nccl/libnccl.so.2" ]; then
    export LD_LIBRARY_PATH="$driver:$nccl" STANDIN_DEVICES=4
    for way in known agreed in-order; do
        works run allreduce -n 3 --device cuda --nccl $way --verify --count 5000
        says 'verified yes, .*'
    done
    # Joint nodes are NCCL's in a known order, else they are messages.
    cat >"$folder/joint.weft" <<'EOF'
weft 1
schedule "joint" size 4
ranks all {
  input x f32 1000 on device
  output y f32 1000 on device
  compute joint-fold-all-sum-5-0to3 out y, in x
  result y = sum of x from ranks 0..3
}
EOF
    for way in none known agreed in-order; do
        works run "$folder/joint.weft" --nccl $way --verify
        says 'verified yes, .*'
    done
    # What NCCL finds only while it executes is no success, and all ranks hear of it.
    for fault in 1 2 4 8; do
        for way in known agreed in-order; do
            checks=$((checks + 1))
            STANDIN_NCCL_FAULT=$fault run run allreduce -n 3 --device cuda --nccl $way --iterations 3 --deadline 20
            { [ "$status" -eq 1 ] && grep -q 'NCCL says\|rank [0-2] failed' "$folder/err" &&
                ! grep -q 'deadline' "$folder/err"; } || fail "launch $fault fails in NCCL ($way): exit $status"
        done
    done
    run run allreduce -n 5 --device cuda --nccl known
    checks=$((checks + 1))
    { [ "$status" -eq 1 ] && grep -q 'NCCL says: .*are both on device' "$folder/err"; } ||
        fail "two ranks on a device over NCCL: exit $status, expected 1 and why"
    export LD_LIBRARY_PATH="$driver" STANDIN_DEVICES=2
fi
wrong "--nccl: 'any' is unknown; expected one of none, known, agreed, in-order" run allreduce --nccl any

# ---- dump ----

works dump allreduce -n 2 -r 0 --device cuda
says 'input send f32 1024 on device'
says 'scratch tmp f32 [0-9]+ on device'
"$weft" dump allreduce -n 3 --device cuda >"$folder/there.weft"
works dump "$folder/there.weft"
cmp -s "$folder/out" "$folder/there.weft" || fail "a dump reads back into another"
"$weft" dump allreduce -n 3 --device cuda --json >"$folder/there.json"
works check "$folder/there.json"
works dump "$folder/there.json"
cmp -s "$folder/out" "$folder/there.weft" || fail "JSON and text differ"
works run "$folder/there.weft" --verify
"$weft" dump allreduce -n 3 >"$folder/here.weft"
works dump "$folder/here.weft" --device cuda
cmp -s "$folder/out" "$folder/there.weft" || fail "a file with --device is another than the template"
# Copies that a commit adds are shown when they are asked for: without, a file stays what it is.
works dump "$folder/mixed.weft"
! grep -q 'to the device' "$folder/out" || fail "copies that nobody has asked for"
works dump "$folder/mixed.weft" --place
says 'scratch on-device-4 f32 1000 on device'
says 'n3 "to the device": copy on-device-4\[0:1000\] = x\[0:1000\]'
cp "$folder/out" "$folder/placed.weft"
works dump "$folder/placed.weft" --place
cmp -s "$folder/out" "$folder/placed.weft" || fail "placed twice is placed otherwise"
works run "$folder/placed.weft"
works dump allreduce --device cuda --place -n 2
! grep -q 'copy' "$folder/out" || fail "copies where all is on the device"
works dump "$folder/mixed.weft" --place --format dot

# ---- check and sim ----

run check "$folder/mixed.weft" --device cuda
checks=$((checks + 1))
{ [ "$status" -eq 1 ] && grep -q 'got\[0:1000\] should hold x' "$folder/out"; } ||
    fail "check of a file on a device"
run check gtopk --device cuda
[ "$status" -le 1 ] || fail "check gtopk --device cuda: exit $status"
"$weft" sim allreduce --json | sed 's/"nodes_per_second":[^,}]*//' >"$folder/host"
"$weft" sim allreduce --json --device cuda | sed 's/"nodes_per_second":[^,}]*//' >"$folder/device"
checks=$((checks + 1))
cmp -s "$folder/host" "$folder/device" || fail "weft sim with --device differs"
works check allreduce --device cuda --transport nccl
says 'in order: .*'

# ---- bench ----

# Over a stand-in figures mean nothing; that rows are there, with their fields, can be seen.
if [ -n "${2:-}" ]; then
    [ ! -e "$nccl/libnccl.so.2" ] || LD_LIBRARY_PATH=$driver:$nccl
    export STANDIN_DEVICES=0
    wrong 'gpu: cuda; expected a device that weft info lists, but there is none' bench gpu
    export STANDIN_DEVICES=2
    wrong '--device: cuda:2; expected cuda, or one of cuda:0 to cuda:1' bench gpu --device cuda:2
    wrong "--device: 'x'; expected cuda, or cuda:N" bench gpu --device x
    works bench gpu --bytes 4,2k --rounds 1 --json
    json_lines bench case weft unit peer peer_value ratio limit transport device
    checks=$((checks + 1))
    python3 - "$folder/out" "$nccl" <<'END' || fail "weft bench gpu: rows"
import json, os, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
cases = {}
for row in rows:
    assert row['bench'] == 'gpu' and row['device'] == 'cuda:0' and row['transport'] == 'local', row
    assert row['weft'] > 0 and row['peer_value'] > 0, row
    cases.setdefault(row['case'], []).append(row)
for case in 'reduce sum f32', 'copy':
    assert [row['bytes'] for row in cases[case]] == [4, 2048], case
    assert all(row['limit'] == 32 and row['goal'] == 0.9 and row['of_limit'] > 0 for row in cases[case]), case
assert len(cases['reduce sum f16']) == 1 and cases['host to device'][0]['limit'] is None
assert cases['a node, started and waited for'][0]['unit'] == 'us'
assert 'a node between works of a stream' in cases
for case, goal in ('top-k', 1 / 3), ('top-k, hint', 1 / 1.3), ('above threshold', 1 / 1.3):
    row, = cases[case + ' n=512']
    assert row['peer'] == 'weft on the host' and row['limit'] == 32 and abs(row['goal'] - goal) < 1e-6, row
row, = cases['top-k, hint, residual n=512']
assert abs(row['limit'] - 32 / 3) < 1e-6, row
assert 'top-k n=1' in cases
peers = [row['peer'] for row in cases['allreduce, 2 ranks on 2 devices']]
assert peers.count('weft on the host') == 2, peers
assert peers.count('ncclAllReduce') == 2 * os.path.exists(sys.argv[2] + '/libnccl.so.2'), peers
assert len(cases['allreduce, 4 ranks on 2 devices']) == 2, cases.keys()
END
    works bench gpu --bytes 1k --rounds 2 -n 3 --device cuda:1
    says 'allreduce, 3 ranks on 1 device local .*'
    # Programs of others take turns.
    cat >"$folder/other" <<'EOF'
#!/bin/sh
while read -r times; do echo "0.5 other of $1 and $2"; done
EOF
    printf '#!/bin/sh\nread -r times && echo nothing\n' >"$folder/odd"
    printf '#!/bin/sh\nexit 3\n' >"$folder/short"
    chmod +x "$folder/other" "$folder/odd" "$folder/short"
    works bench gpu --bytes 8k --rounds 2 --beside "$folder/other,$folder/other"
    checks=$((checks + 1))
    [ "$(grep -c '^top-k n=2048 .* other of 2048 and 2 ' "$folder/out")" -eq 2 ] || fail "rows of others"
    # One that does not end is ended.
    printf '#!/bin/sh\ntrap "" TERM\nwhile :; do read -r times && echo "0.5 it" || sleep 1; done\n' \
        >"$folder/stays"
    chmod +x "$folder/stays"
    works bench gpu --bytes 1k --rounds 1 --beside "$folder/stays"
    for other in odd short none; do
        run bench gpu --bytes 1k --rounds 1 --beside "$folder/$other"
        checks=$((checks + 1))
        { [ "$status" -eq 1 ] && grep -qF "$folder/$other" "$folder/err" && grep -q expected "$folder/err"; } ||
            fail "--beside $other: exit $status, expected 1 and why"
    done
    wrong '--beside: a name is empty' bench gpu --beside ,x
fi
finish
