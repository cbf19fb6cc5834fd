# SPDX-License-Identifier: BSD-3-Clause
# weft train: every algorithm, on local and virtual ranks and over MPI; the fields of its objects.
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/train.sh"

works train --algorithm all -n 3 --steps 12 --batch 8 --sync-period 5 --json
objects $algorithms
for name in allreduce merged local d-psgd sgp ad-psgd eager-solo eager-majority wagma topk gtopk oktopk qsgd powersgd \
    bsp asp ssp dssp r2sp osp $gradiveq; do
    checks=$((checks + 1))
    grep -q "\"algorithm\":\"$name\"" "$folder/out" || fail "no object of $name"
done
works train --algorithm all -n 5 --steps 12 --batch 8 --sync-period 0 --neighbours 2 \
    --transport virtual --compute 10 --imbalance pareto:1,1.5+permanent:1,5+rl:0.001 --net L=5,G=0.001 --seeds 2 --json
objects $((2 * algorithms))
# In both orders, and as the papers list them.
checks=$((checks + 1))
[ "$(grep -c '"algorithm":"\(d\|ad\)-psgd","order":"beside"' "$folder/out")" -eq 4 ] ||
    fail "expected D-PSGD and AD-PSGD beside the gradient"
checks=$((checks + 1))
[ "$(grep -c '"order":"after"' "$folder/out")" -eq $((2 * (algorithms - 9))) ] ||
    fail "expected all others after it"
works train --algorithm all -n 3 --steps 8 --batch 8 --sync-period 3 --order after --json
objects $algorithms
checks=$((checks + 1))
[ "$(grep -c '"order":"after"' "$folder/out")" -eq $((algorithms - 7)) ] ||
    fail "expected all after but those with layers"
works train --algorithm all -n 3 --steps 8 --batch 8 --sync-period 3 --order beside --json
objects $algorithms
checks=$((checks + 1))
[ "$(grep -c '"order":"delayed"' "$folder/out")" -eq $((algorithms - 12)) ] ||
    fail "expected all gradients delayed"
for settings in '--mode none --sync-period 1' '--mode waiting' '--activation drawn --patience 2'; do
    for contribution in replace accumulate; do
        # shellcheck disable=SC2086
        works train --algorithm wagma -n 3 --steps 8 --batch 8 --order beside $settings \
            --contribution $contribution --json
        objects 1
    done
done

# eager-SGD has no patience but what it is given; wagma has its object's.
works train --algorithm eager-solo,wagma -n 2 --steps 3 --batch 8
checks=$((checks + 1))
[ "$(grep patience "$folder/out")" = 'wagma: --patience adaptive.' ] || fail "expected wagma's"
works train --algorithm eager-majority -n 2 --steps 3 --batch 8 --json
checks=$((checks + 1))
grep -q '"patience_ms":0.0' "$folder/out" || fail "expected no patience"
works train --algorithm eager-solo,wagma -n 2 --steps 3 --batch 8 --patience 1.5 --json
checks=$((checks + 1))
[ "$(grep -c '"patience_ms":1.5' "$folder/out")" -eq 2 ] || fail "expected 1.5 ms twice"
works train --algorithm eager-solo -n 2 --steps 3 --batch 8 --patience adaptive --json
checks=$((checks + 1))
grep -q '"patience_ms":"adaptive"' "$folder/out" || fail "expected adaptive"

works train --algorithm wagma -n 4 --steps 12 --batch 8 --group-size 2 --mode waiting --json
works train --algorithm wagma -n 3 --steps 3 --batch 8 --group-size 0 --json
objects 1
works train --algorithm wagma -n 4 --steps 12 --batch 8 --mode none --sync-period 1 \
    --contribution accumulate --json
objects 1
works train --algorithm wagma -n 3 --steps 12 --batch 8 --activation drawn --patience 0 --json
objects 1

# What stale steps make of a sum is told where there are any. In virtual time one rank is stale in nearly
# all steps.
for mix in paper substitute; do
    works train --algorithm local,wagma -n 3 --steps 12 --batch 8 --transport virtual --compute 10 \
        --imbalance fixed:1,95 --stale-mix $mix --json
    objects 2
    checks=$((checks + 1))
    [ "$(grep -c "\"stale_mix\":\"$mix\"" "$folder/out")" -eq 1 ] || fail "expected $mix once"
    grep '"wagma"' "$folder/out" | sed 's/.*"checksum":"\([0-9a-f]*\)".*/\1/' >"$folder/$mix"
    works train --algorithm wagma -n 2 --steps 2 --batch 8 --stale-mix $mix
    checks=$((checks + 1))
    grep -q "wagma: stale steps mixed by --stale-mix $mix" "$folder/out" || fail "expected $mix"
done
checks=$((checks + 1))
cmp -s "$folder/paper" "$folder/substitute" && fail "both mixes gave one model"
works train --algorithm wagma -n 2 --steps 2 --batch 8 --mode waiting --json
checks=$((checks + 1))
grep -q stale_mix "$folder/out" && fail "no step is stale that waits"
works train --algorithm allreduce -n 2 --steps 3 --batch 4 --hidden 12 --json
objects 1
checks=$((checks + 1))
grep -q '"parameters":910,' "$folder/out" || fail "expected 65 * 12 + 13 * 10 parameters"

# Other models: all that exchange gradients or models take them, and all transports train one.
for model in cnn resnet; do
    works train --model $model --algorithm all -n 2 --steps 3 --batch 4 --channels 4 --sync-period 2 --json
    objects $algorithms
    checks=$((checks + 1))
    [ "$(grep -c "\"model\":\"$model\"" "$folder/out")" -eq $algorithms ] || fail "expected $model"
    works train --model $model --algorithm gtopk -n 3 --steps 4 --batch 4 --per-layer --json
    checksum=$(grep -o '"checksum":"[0-9a-f]*"' "$folder/out")
    works train --model $model --algorithm gtopk -n 3 --steps 4 --batch 4 --per-layer --json \
        --transport virtual --compute 10
    checks=$((checks + 1))
    grep -q "$checksum" "$folder/out" || fail "expected $checksum in virtual time"
done
works train --model resnet -n 2 --steps 100 --json
checks=$((checks + 1))
grep -q '"test_accuracy":0.[89]' "$folder/out" || fail "the residual net has learnt too little"

# Merged gradients: a training for each way to merge, with its plan and what was measured of it.
works train --model resnet --channels 4 --algorithm allreduce,merged \
    --merge exact,greedy,wfbp,single,bucket:8K --merge-wait all -n 4 --steps 12 --batch 4 \
    --transport virtual --compute 10 --net L=50,G=0.01 --json
objects 6
python3 - "$folder/out" <<'END' || fail "expected plans that come true"
import json, sys
plain, *merged = (json.loads(line) for line in open(sys.argv[1]))
assert 'merge' not in plain and plain['step_us'] > 10000
assert [each['merge'] for each in merged] == ['exact', 'greedy', 'wfbp', 'single', 'bucket:8192']
for each in merged:
    assert each['algorithm'] == 'merged' and each['merge_wait'] == 'all' and each['order'] == 'layers'
    assert sorted(layer for group in each['groups'] for layer in group) == list(range(19))
    assert abs(each['planned_step_us'] - each['step_us']) < 0.02 * each['step_us']
    assert abs(each['loss'] - plain['loss']) < 1e-3
assert [len(each['groups']) for each in merged[2:4]] == [19, 1]
assert merged[3]['hidden_fraction'] == 0 < merged[0]['hidden_fraction']
END
checks=$((checks + 1))
works train --model cnn --algorithm merged --merge-sparse gtopk --density 0.05 --merge wfbp -n 3 \
    --steps 6 --batch 4 --json
checks=$((checks + 1))
grep -q '"merge_sparse":"gtopk","density":0.05' "$folder/out" || fail "expected sparse groups"
works train --algorithm merged --merge wfbp,single -n 2 --steps 12 --batch 4
checks=$((checks + 1))
grep -q '^merged wfbp: 3 layers in 3 groups; a step of .* of communication hidden' "$folder/out" ||
    fail "expected what became of the plan"

# Sparse gradients: k of them, where asked for.
works train --algorithm topk,gtopk,oktopk -n 3 --steps 12 --batch 8 --density 0.002 --warmup-steps 2 \
    --per-layer --residual paper --gtopk-algo butterfly --momentum-correction 0.9 --json
objects 3
json_lines density k selected_share warmup_steps per_layer momentum_correction
checks=$((checks + 1))
[ "$(grep '"residual":"paper","gtopk_algo":"butterfly"' "$folder/out" | grep -c '"gtopk"')" -eq 1 ] ||
    fail "expected what gtopk did of gtopk"
checks=$((checks + 1))
[ "$(grep -c '"residual"' "$folder/out")" -eq 1 ] || fail "topk has no such residual"
works train --algorithm gtopk -n 4 --steps 5 --batch 8 --k 40 --json
objects 1
checks=$((checks + 1))
# 3 lists of 40 pairs of 8 bytes up the tree in every step, and 3 down.
grep -q '"bytes_sent":9600,.*"k":40,\|"k":40,.*"bytes_sent":9600,' "$folder/out" ||
    fail "expected 9600 bytes of lists of 40"
works train --algorithm allreduce,gtopk -n 2 --steps 4 --batch 4 --warmup-steps 1
checks=$((checks + 1))
grep -q '^gtopk: k = 508 of 50826 entries in the last step; 0.0' "$folder/out" || fail "expected k"
works train --algorithm topk,gtopk,oktopk -n 5 --steps 6 --batch 8 --transport virtual --compute 10 \
    --net L=436,G=0.009 --imbalance two-random:5 --json
objects 3
# One model from one seed, whatever carries the messages.
works train --algorithm gtopk -n 3 --steps 6 --batch 8 --seed 5 --json
checksum=$(grep -o '"checksum":"[0-9a-f]*"' "$folder/out")
for other in 'local --compute 1' 'virtual --compute 1'; do
    # shellcheck disable=SC2086
    works train --algorithm gtopk -n 3 --steps 6 --batch 8 --seed 5 --json --transport $other
    checks=$((checks + 1))
    grep -q "$checksum" "$folder/out" || fail "expected $checksum on $other"
done

# What is sent beside sums of whole gradients; a rank by itself sends nothing.
works train --algorithm allreduce,local,sgp -n 4 --steps 20 --batch 4 --sync-period 5 --json
python3 - "$folder/out" <<'END' || fail "expected ratios of what is sent"
import json, sys
dense, seldom, pushed = (json.loads(line) for line in open(sys.argv[1]))
for each in dense, seldom, pushed:
    least = 20 * 2 * 3 * 4 * each['parameters']
    assert abs(each['compression_ratio'] * each['bytes_sent'] - least) < 1, each
assert abs(seldom['compression_ratio'] / dense['compression_ratio'] - 5) < 1e-9
END
works train -n 1 --steps 2 --batch 4 --json
checks=$((checks + 1))
grep -q '"compression_ratio":null' "$folder/out" || fail "expected no ratio of nothing"
works train -n 1 --steps 2 --batch 4
checks=$((checks + 1))
grep -q '^allreduce .* 0\.0  *-$' "$folder/out" || fail "expected no ratio of nothing"

# Data that differ between ranks: one model from one seed on every transport.
for shards in by-class:2 dirichlet:0.5; do
    works train --algorithm gtopk -n 3 --steps 6 --batch 8 --shards $shards --json
    objects 1
    json_lines shards
    checks=$((checks + 1))
    [ "$(grep -c "\"shards\":\"$shards\"" "$folder/out")" -eq 1 ] || fail "expected $shards"
    grep -o '"checksum":"[0-9a-f]*"' "$folder/out" >"$folder/checksums"
    works train --algorithm gtopk -n 3 --steps 6 --batch 8 --shards $shards --json \
        --transport virtual --compute 1
    checks=$((checks + 1))
    grep -o '"checksum":"[0-9a-f]*"' "$folder/out" | cmp -s - "$folder/checksums" ||
        fail "expected the same models in virtual time"
done

# Many ranks, more of them than rows of a digit.
works train --algorithm allreduce,wagma -n 512 --steps 2 --batch 2 --hidden 4 --transport virtual \
    --compute 1 --shards by-class:10 --imbalance permanent:5,1 --json
objects 2

works train --algorithm local,wagma -n 2 --steps 4 --batch 4 --seeds 3 --plot "$folder/plot.svg"
checks=$((checks + 1))
grep -q 'Medians of 3 seeds, 1 to 3' "$folder/out" || fail "expected medians"
checks=$((checks + 1))
grep -q '<svg' "$folder/plot.svg" || fail "expected a plot"

wrong "'waitin'" train --mode waitin
wrong "'besides'" train --order besides
wrong "--merge: " train --algorithm merged --merge exact,most
wrong "cycles are only simulated" train --algorithm merged --merge cycle:1M:5
wrong "--merge: no algorithm of --algorithm uses it; expected merged" train --merge single
wrong "--merge-sparse: no algorithm" train --algorithm gtopk --merge-sparse gtopk
wrong "--density: no algorithm" train --algorithm merged --density 0.1
wrong "--bits: no algorithm" train --algorithm merged --bits 4
wrong "--bits: no algorithm" train --algorithm merged --merge-compress powersgd --bits 4
wrong "--merge-compress: no algorithm" train --algorithm qsgd --merge-compress qsgd
wrong "--merge-compress: qsgd beside --merge-sparse topk; expected one of the two" train --algorithm merged \
    --merge-compress qsgd --merge-sparse topk
wrong "--residual: no algorithm" train --algorithm merged --merge-sparse topk --residual paper
wrong "--merge-wait: no algorithm" train --algorithm local --merge-wait all
wrong "'none'" train --algorithm merged --merge-wait none
wrong "--model: 'vgg' is unknown; expected one of mlp, cnn, resnet" train --model vgg
wrong "--hidden: 12 beside --model cnn, which has none; expected --channels" train --model cnn \
    --hidden 12
wrong "--channels: 8 beside --model mlp, which has none; expected --hidden" train --channels 8
wrong "--channels: '0'" train --model cnn --channels 0
wrong "--patience: 'much'; expected adaptive, or a number of 0..3.6e+06" train --patience much
wrong "'both'" train --stale-mix both
wrong "--stale-mix: paper beside --contribution accumulate" train --algorithm wagma \
    --contribution accumulate --stale-mix paper
wrong "--compute" train --transport virtual
wrong "--imbalance: 'permanent:0,5' is not permanent:RANKS,MS; expected none, two-random" train \
    --imbalance rl:0.1+permanent:0,5
wrong "--imbalance: 'permanent:4,5': 4 ranks are late; expected at most 3" train -n 3 \
    --imbalance permanent:4,5
wrong "--shards: '0' is no number of classes; expected iid, by-class:N" train --shards by-class:0
wrong "--shards: 'by-row' is no division; expected iid, by-class:N" train --shards by-row
wrong "--shards: '-1' is no number in range; expected iid" train --shards dirichlet:-1
wrong "--density: '0'; expected a number above 0" train --algorithm gtopk --density 0
wrong "--density: '1.5'" train --algorithm gtopk --density 1.5
wrong "--density: no algorithm of --algorithm uses it; expected topk" train --density 0.1
wrong "--residual: no algorithm of --algorithm uses it; expected gtopk" train --algorithm topk \
    --residual paper
wrong "'papre'" train --algorithm gtopk --residual papre
wrong "--k: '0'" train --algorithm gtopk --k 0
wrong "--k: 5 beside --density 0.1; expected one of the two" train --algorithm gtopk --k 5 \
    --density 0.1
wrong "--k: 911; expected 1..910" train --algorithm gtopk --k 911 --hidden 12
wrong "--momentum-correction: '1'" train --algorithm topk --momentum-correction 1
wrong "--warmup-steps: '-1'" train --algorithm topk --warmup-steps -1
wrong "'ring'" train --algorithm gtopk --gtopk-algo ring

if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    for ranks in 1 2 3; do
        checks=$((checks + 1))
        mpiexec -n $ranks "$weft" train --algorithm all --transport mpi --steps 12 --batch 8 \
            --sync-period 5 --json >"$folder/out" 2>"$folder/err" </dev/null ||
            fail "mpiexec -n $ranks weft train"
        # One process by itself is no server beside a rank that trains.
        objects $((ranks > 1 ? algorithms : algorithms - 6))
    done
    checks=$((checks + 1))
    mpiexec -n 3 "$weft" train --algorithm all --transport mpi --order beside --steps 8 --batch 8 \
        --sync-period 3 --json >"$folder/out" 2>"$folder/err" </dev/null ||
        fail "mpiexec -n 3 weft train --order beside"
    objects $algorithms
    checks=$((checks + 1))
    mpiexec -n 3 "$weft" train --algorithm gtopk --transport mpi --steps 6 --batch 8 --seed 5 --json \
        >"$folder/out" 2>"$folder/err" </dev/null || fail "mpiexec -n 3 weft train"
    grep -q "$checksum" "$folder/out" || fail "expected $checksum over MPI"
    # The distances are summed over processes: those of local ranks, but for the order of sums.
    words='train --algorithm d-psgd --steps 20 --batch 8 --shards by-class:2 --json'
    checks=$((checks + 1))
    # shellcheck disable=SC2086
    {
        mpiexec -n 4 "$weft" $words --transport mpi </dev/null
        "$weft" $words -n 4 </dev/null
    } >"$folder/out" 2>"$folder/err" || fail "weft $words"
    python3 - "$folder/out" <<'END' || fail "distances over MPI differ"
import json, sys
a, b = ([distance for _, distance in json.loads(line)['consensus']] for line in open(sys.argv[1]))
assert len(a) == len(b) == 21 and a[0] == 0 and max(a) > 0.1
assert all(abs(x - y) <= 1e-4 * x for x, y in zip(a, b)), (a, b)
END
else
    echo 'skipped: training over MPI was not tested (no MPI, or WEFT_TEST_MPI=0)'
fi
finish
