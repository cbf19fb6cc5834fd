# SPDX-License-Identifier: BSD-3-Clause
# weft train with parameter servers: who is one, what it takes part in, what is reported of it.
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/train.sh"

# -n counts those that train. Servers that nobody asks for anything are idle, and change nothing.
works train --algorithm allreduce,local -n 3 --steps 12 --batch 8 --transport shared --json
objects 2
grep -o '"checksum":"[0-9a-f]*"' "$folder/out" >"$folder/checksums"
for servers in 1 2; do
    works train --algorithm allreduce,local -n 3 --servers $servers --steps 12 --batch 8 \
        --transport shared --json
    objects 2
    checks=$((checks + 1))
    grep -o '"checksum":"[0-9a-f]*"' "$folder/out" | cmp -s - "$folder/checksums" ||
        fail "expected the same models beside $servers servers"
    checks=$((checks + 1))
    [ "$(grep -c '"ranks":3,' "$folder/out")" -eq 2 ] || fail "expected 3 ranks"
done
works launch -n 4 -- "$weft" train --transport shared --algorithm allreduce --servers 1 --steps 12 \
    --batch 8 --json
objects 1
checks=$((checks + 1))
grep -q '"ranks":3,' "$folder/out" || fail "expected 3 of 4 processes to train"
works launch -n 4 -- "$weft" train --transport shared -n 3 --servers 1 --steps 12 --batch 8 --json
objects 1

# All of them, over local ranks, in processes and in virtual time; one model in the end.
served='bsp,asp,ssp,dssp,r2sp,osp'
for how in '' '--servers 2' '--co-located' '--servers 3 --co-located --pushes turns' '--servers 2 --pushes paced' \
    '--transport shared' '--transport shared --servers 2' '--transport shared --co-located' \
    '--transport virtual --compute 10' '--transport virtual --compute 10 --servers 2 --co-located'; do
    # shellcheck disable=SC2086
    works train --algorithm $served,allreduce -n 3 --steps 12 --batch 8 $how --json
    objects 7
    checks=$((checks + 1))
    [ "$(grep -c '"ranks":3,' "$folder/out")" -eq 7 ] || fail "expected 3 ranks"
    checks=$((checks + 1))
    [ "$(grep -c '"order":"layers"' "$folder/out")" -eq 6 ] || fail "expected layers"
    # The sum of BSP is taken in the order of the ranks, wherever it is taken.
    checks=$((checks + 1))
    grep '"bsp"' "$folder/out" | grep -o '"checksum":"[0-9a-f]*"' >>"$folder/bsp"
    [ "$(sort -u "$folder/bsp" | wc -l)" -eq 1 ] || fail "expected one model of bsp"
done
python3 - "$folder/out" <<'END' || fail "expected what servers came to"
import json, sys
*served, plain = (json.loads(line) for line in open(sys.argv[1]))
assert 'servers' not in plain and 'staleness' not in plain
for each in served:
    assert each['servers'] == 2 and each['co_located'] is True and each['batch_sync_ms'] > 0
    assert each['ics_fraction'] == each['late_layers'] == 0 and each['staleness'] >= 0
    assert ('staleness_bound' in each) == (each['algorithm'] in ('ssp', 'dssp'))
    assert ('staleness_most' in each) == (each['algorithm'] == 'dssp')
    assert ('osp_share' in each) == (each['algorithm'] == 'osp')
    assert each['optimiser'] == ('servers' if each['algorithm'] in ('bsp', 'osp') else 'ranks')
    assert each['pushes'] == ('turns' if each['algorithm'] == 'r2sp' else 'all')
assert served[0]['staleness'] == 0 < served[1]['staleness']
assert abs(served[0]['loss'] - plain['loss']) < 1e-4
END
works train --algorithm osp -n 4 --steps 30 --batch 8 --model cnn --osp-share 0.5 --osp-average 0.5 --osp-correct layer \
    --json
objects 1
checks=$((checks + 1))
grep -q '"ics_fraction":0\.[1-4].*"osp_share":0.5,.*"osp_average":0.5,"osp_correct":"layer"' "$folder/out" ||
    fail "expected a second stage"
# Bytes are of all steps, second stages and answers to the slowest rank too, wherever the server is.
for how in '' '--co-located' '--transport shared' '--transport shared --co-located'; do
    # shellcheck disable=SC2086
    works train --algorithm $served -n 3 --steps 5 --batch 8 --osp-share 0.5 $how --json
    grep -o '"bytes_sent":[0-9]*' "$folder/out" >>"$folder/bytes"
done
checks=$((checks + 1))
[ "$(sort -u "$folder/bytes" | wc -l)" -eq 1 ] || fail "expected as many bytes of all of them"
# Algorithm 1: nothing is late until two losses have been told, of epochs of 30 steps; then the more the further the loss
# has fallen, and no more than there may be.
for how in '--steps 60' '--steps 90' '--steps 150' '--steps 150 --osp-most 0.2'; do
    # shellcheck disable=SC2086
    works train --algorithm osp -n 4 --transport virtual --net L=50,G=0.008 --compute 5 --batch 32 $how --json
    cat "$folder/out" >>"$folder/auto"
done
checks=$((checks + 1))
python3 - "$folder/auto" <<'END' || fail "expected more to be late as the loss falls"
import json, sys
first, second, all, least = (json.loads(line) for line in open(sys.argv[1]))
assert first['ics_fraction'] == 0 and first['late_layers'] == 0 and first['osp_share'] is None
assert 0 < second['ics_fraction'] < all['ics_fraction'] and 0.1 < all['ics_fraction'] < 0.8
assert 0 < least['ics_fraction'] < 0.2
END
# What a rank's pushes count: nothing changes where all have as many rows.
works train --algorithm bsp -n 3 --steps 12 --batch 8 --weights rows --json
grep -o '"checksum":"[0-9a-f]*"' "$folder/out" >>"$folder/bsp"
checks=$((checks + 1))
[ "$(sort -u "$folder/bsp" | wc -l)" -eq 1 ] || fail "expected equal weights of equal counts"
works train --algorithm bsp -n 3 --steps 12 --batch 8 --shards by-class:3 --json
grep -o '"checksum":"[0-9a-f]*"' "$folder/out" >"$folder/weights"
works train --algorithm bsp -n 3 --steps 12 --batch 8 --shards by-class:3 --weights rows --json
grep -o '"checksum":"[0-9a-f]*"' "$folder/out" >>"$folder/weights"
checks=$((checks + 1))
[ "$(sort -u "$folder/weights" | wc -l)" -eq 2 ] || fail "expected weights by rows to count"
for model in cnn resnet; do
    works train --algorithm $served -n 2 --servers 2 --steps 6 --batch 4 --model $model --channels 4 --json
    objects 6
done
works train --algorithm bsp,osp -n 1 --steps 6 --batch 4 --json
objects 2
works train --algorithm allreduce,asp,osp -n 2 --steps 6 --batch 4 --plot "$folder/plot.svg"
checks=$((checks + 1))
grep -q '^allreduce .* - *- *- *- *-$' "$folder/out" || fail "expected nothing of servers of allreduce"
checks=$((checks + 1))
grep -q '<svg' "$folder/plot.svg" || fail "expected a plot"

wrong "--servers: 4; expected 1..3, the number of ranks, with --co-located" train --algorithm bsp -n 3 --servers 4 \
    --co-located
wrong "--co-located: no algorithm of --algorithm uses it; expected bsp, asp, ssp, dssp, r2sp or osp" train --co-located
wrong "--staleness: no algorithm of --algorithm uses it; expected ssp or dssp" train --algorithm bsp --staleness 2
wrong "--staleness-most: no algorithm of --algorithm uses it; expected dssp" train --algorithm ssp \
    --staleness-most 2
wrong "--staleness-most: 2; expected --staleness, 3, at least" train --algorithm dssp --staleness-most 2
wrong "--staleness-most: 15 by default; expected --staleness, 20, at least" train --algorithm dssp --staleness 20
wrong "-n: 4 ranks and --servers 4096; expected at most" train --algorithm bsp -n 4 --servers 4096
wrong "--osp-share: no algorithm of --algorithm uses it; expected osp" train --algorithm bsp --osp-share 0.5
wrong "--osp-share: '1.5'" train --algorithm osp --osp-share 1.5
wrong "--osp-share: 'most'" train --algorithm osp --osp-share most
wrong "--osp-average: '1'" train --algorithm osp --osp-average 1
wrong "--osp-most: 0.5 beside --osp-share 0.2, which is not chosen; expected auto there" train --algorithm osp \
    --osp-share 0.2 --osp-most 0.5
wrong "--weights: 'some' is unknown; expected one of equal, rows" train --algorithm bsp --weights some
wrong "--weights: no algorithm of --algorithm uses it; expected bsp" train --weights rows
wrong "'slowly'" train --algorithm bsp --pushes slowly
wrong "'mine'" train --algorithm asp --optimiser mine
works train --algorithm asp,r2sp,osp -n 3 --steps 5 --optimiser servers
works train --algorithm bsp,osp -n 3 --steps 5 --optimiser ranks
wrong "--lr: 0; servers expect a number above 0" train --algorithm bsp --lr 0
wrong "--merge: no algorithm of --algorithm uses it" train --algorithm bsp --merge exact
wrong "--servers: '0'; expected an integer from 1" train --servers 0
wrong "--servers: '-1'" train --servers -1

if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    checks=$((checks + 1))
    mpiexec -n 5 "$weft" train --algorithm allreduce,local --servers 2 --transport mpi --steps 12 --batch 8 \
        --json >"$folder/out" 2>"$folder/err" </dev/null || fail "mpiexec -n 5 weft train --servers 2"
    objects 2
    checks=$((checks + 1))
    grep -o '"checksum":"[0-9a-f]*"' "$folder/out" | cmp -s - "$folder/checksums" ||
        fail "expected the same models over MPI"
    for servers in 1 2; do
        checks=$((checks + 1))
        mpiexec -n $((3 + servers)) "$weft" train --algorithm $served --servers $servers --transport mpi --steps 12 --batch 8 \
            --json >"$folder/out" 2>"$folder/err" </dev/null || fail "mpiexec weft train --servers $servers"
        objects 6
        checks=$((checks + 1))
        grep '"bsp"' "$folder/out" | grep -o '"checksum":"[0-9a-f]*"' | cat - "$folder/bsp" | sort -u | wc -l |
            grep -qx 1 || fail "expected one model of bsp over MPI"
    done
    checks=$((checks + 1))
    mpiexec -n 2 "$weft" train --algorithm allreduce --servers 2 --transport mpi >"$folder/out" \
        2>"$folder/err" </dev/null && fail "two servers of two processes"
    grep -q -- '--servers: 2 of 2 processes; expected more processes than servers' "$folder/err" ||
        fail "expected what is wrong"
else
    echo 'skipped: servers over MPI were not tested (no MPI, or WEFT_TEST_MPI=0)'
fi
finish
