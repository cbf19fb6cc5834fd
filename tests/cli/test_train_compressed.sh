# SPDX-License-Identifier: BSD-3-Clause
# weft train: gradients in fewer bits, alone and in merged groups, on every transport.
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/train.sh"

# Compressed gradients: phases, what they came to, and what was asked for.
works train --model cnn --channels 4 --algorithm qsgd,powersgd -n 3 --steps 8 --batch 8 --bits 8 --bucket 64 \
    --norm l2 --qsgd-way ring --power-rank 3 --cold-start --warmup-steps 2 --json
objects 2
json_lines steps_compressed compressed_ratio compression_loss residual_kept phases
python3 - "$folder/out" <<'END' || fail "expected what was asked for"
import json, sys
qsgd, power = (json.loads(line) for line in open(sys.argv[1]))
assert (qsgd['bits'], qsgd['bucket'], qsgd['norm'], qsgd['qsgd_way']) == (8, 64, 'l2', 'ring')
assert qsgd['steps_compressed'] == 8 and not qsgd['residual_kept']
assert [each['phase'] for each in qsgd['phases']] == ['compressed']
assert 3 < qsgd['compressed_ratio'] < 4 and qsgd['compression_loss'] is None
assert (power['power_rank'], power['cold_start'], power['warmup_steps']) == (3, True, 2)
assert power['steps_compressed'] == 6 and power['residual_kept'] and 'bits' not in power
assert [(each['phase'], each['step']) for each in power['phases']] == [('warm-up', 0), ('compressed', 2)]
assert 0 < power['compression_loss'] < 1 < power['compressed_ratio']
END
works train --algorithm qsgd -n 2 --steps 4 --batch 8 --bits sign --json
checks=$((checks + 1))
grep -q '"bits":1,.*"residual_kept":true' "$folder/out" || fail "expected signs, and a residual"
works train --algorithm qsgd,powersgd -n 2 --steps 4 --batch 8 --compress-residual kept
checks=$((checks + 1))
grep -q '^qsgd: 4 of 4 steps compressed, by 7\.[0-9]*, losing 0\.[0-9]* of' "$folder/out" || fail "expected how much"
# Which algorithm sums, and so in which order, is chosen by costs: they are the same everywhere here.
python3 - "$folder/costs.json" <<'END'
import json, sys
cost = {'alpha_us': 0.2, 'beta_us_per_byte': 7e-5, 'gamma_us_per_byte': 2e-5, 'copy_us_per_byte': 2e-5, 'node_us': 0.005,
        'cores': 8, 'net': {'L': 0.1, 'o': 0.05, 'g': 0, 'G': 7e-5}}
names = ('local', 'shared', 'mpi', 'virtual')
json.dump({'weft_cost': 1, 'transports': {name: cost for name in names}}, open(sys.argv[1], 'w'))
END
export WEFT_COST="$folder/costs.json"
for algorithm in qsgd powersgd $gradiveq; do
    words="train --model cnn --channels 4 --algorithm $algorithm --steps 14 --batch 8 --seed 5 --json"
    for ranks in 1 2 3; do
        # shellcheck disable=SC2086
        works $words -n $ranks
        same=$(grep -o '"checksum":"[0-9a-f]*"' "$folder/out")
        for transport in 'virtual --compute 1' shared; do
            # shellcheck disable=SC2086
            works $words -n $ranks --transport $transport
            objects 1
            checks=$((checks + 1))
            grep -q "$same" "$folder/out" || fail "expected $same of $algorithm on $transport"
        done
        [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null && "$weft" info --json | grep -q '"mpi"' || continue
        checks=$((checks + 1))
        # shellcheck disable=SC2086
        mpiexec -n $ranks "$weft" $words --transport mpi >"$folder/out" 2>"$folder/err" </dev/null ||
            fail "mpiexec -n $ranks weft $words"
        grep -q "$same" "$folder/out" || fail "expected $same of $algorithm over MPI"
    done
done
unset WEFT_COST
if [ "$gradiveq" ]; then
    works train --model cnn --channels 4 --algorithm gradiveq -n 3 --steps 24 --batch 8 --warmup-steps 5 \
        --sample-steps 4 --compressed-steps 6 --slice-factor 1 --reuse 2 --dense-layers --uncompressed dense \
        --projected-algo ring --pca-loss 0.05 --loss-bound 0 --json
    objects 1
    python3 - "$folder/out" <<'END' || fail "expected the phases that were asked for"
import json, sys
one, = (json.loads(line) for line in open(sys.argv[1]))
assert [(each['phase'], each['step']) for each in one['phases']] == [
    ('warm-up', 0), ('sampling', 5), ('compressed', 9), ('sampling', 15), ('compressed', 19)], one['phases']
assert (one['warmup_steps'], one['sample_steps'], one['compressed_steps']) == (5, 4, 6)
assert one['steps_compressed'] == 11 and one['compressed_phases'] == 2 and one['ended_early'] == 0
assert one['slice_order'] == 'across-filters' and one['sample_bits'] is None
assert (one['uncompressed'], one['dense_layers'], one['residual_kept']) == ('dense', True, False)
assert one['compressed_ratio'] > 2 and one['compression_loss'] > 0
tensors = one['projections']
assert [each['tensor'] for each in tensors] == [0, 2, 4, 6]
# 4 filters of 3 x 3 pixels of depth 1, 8 of depth 4, 16 of depth 8, and a dense layer of 64 inputs.
assert [each['slice'] for each in tensors[:3]] == [4, 32, 128] and [each['slices'] for each in tensors[:3]] == [9] * 3
assert all(each['reuse'] == 2 and each['components'] <= 3 for each in tensors)
assert all(each['loss'] <= 0.05 if each['components'] else each['loss'] is None for each in tensors)
assert all(each['components'] > 0 for each in tensors[:3])
END
    works train --model cnn --channels 4 --algorithm gradiveq -n 2 --steps 16 --batch 8 --warmup-steps 2 \
        --sample-steps 3 --sample-bits 8 --compressed-steps 4 --slice-order of-filters --dense-layers --json
    python3 - "$folder/out" <<'END' || fail "expected slices of whole filters"
import json, sys
one, = (json.loads(line) for line in open(sys.argv[1]))
assert one['sample_bits'] == 8 and one['bits'] == 4, one
assert one['slice_order'] == 'of-filters' and one['steps_compressed'] == 8 and one['identical'], one
tensors = one['projections']
assert [each['slice'] for each in tensors] == [9, 9 * 4, 9 * 8, 64], tensors
assert [each['slices'] for each in tensors] == [4, 8, 16, 10], tensors
END
    # Less memory, shorter slices.
    words='train --model cnn --channels 4 --algorithm gradiveq -n 2 --steps 16 --batch 8 --warmup-steps 2 --sample-steps 3 --compressed-steps 4 --projected-algo reduce-scatter-allgather --json'
    # shellcheck disable=SC2086
    works $words
    cp "$folder/out" "$folder/roomy"
    # shellcheck disable=SC2086
    works $words --pca-memory 4k
    checks=$((checks + 1))
    python3 - "$folder/roomy" "$folder/out" <<'END' || fail "expected shorter slices"
import json, sys
roomy, tight = (json.load(open(name)) for name in sys.argv[1:])
assert all(one['projected_algo'] == 'reduce-scatter-allgather' and one['pca_seconds'] > 0 for one in (roomy, tight)), roomy
largest = [max(4 * each['slice'] * (3 + 2) for each in one['projections']) for one in (roomy, tight)]
assert largest[1] <= 4096 < largest[0], largest
END
    works train --algorithm gradiveq -n 2 --steps 30 --batch 8 --compressed-steps never --loss-bound 0.001 \
        --warmup-steps 0 --sample-steps 3 --json
    checks=$((checks + 1))
    grep -q '"warmup_steps":0,"sample_steps":3,"sample_bits":4,"compressed_steps":null,"loss_bound":0.001' "$folder/out" ||
        fail "expected the phases that were asked for"
    checks=$((checks + 1))
    grep -q '"ended_early":0' "$folder/out" && fail "expected votes to end a phase"
    works train --algorithm gradiveq,powersgd -n 2 --steps 40 --batch 8 --plot "$folder/phases.svg"
    checks=$((checks + 1))
    grep -q '^gradiveq: .*4 steps of warm-up, then 4 that are samples and 16 compressed, in turns (scaled' \
        "$folder/out" || fail "expected scaled phases"
    checks=$((checks + 1))
    grep -q '<svg' "$folder/phases.svg" || fail "expected a plot"
fi
wrong "--bits: '3'; expected 2, 4, 8 or sign" train --algorithm qsgd --bits 3
wrong "--bits: no algorithm of --algorithm uses it; expected qsgd or gradiveq there" train \
    --algorithm powersgd --bits 4
wrong "--bucket: 12; expected a multiple of 8" train --algorithm qsgd --bucket 12
wrong "--power-rank: '0'" train --algorithm powersgd --power-rank 0
wrong "--power-rank: no algorithm" train --algorithm qsgd --power-rank 2
wrong "--pca-loss: no algorithm of --algorithm uses it; expected gradiveq there" train --pca-loss 0.1
wrong "--warmup-steps: no algorithm of --algorithm uses it; expected topk, gtopk, oktopk, gradiveq or powersgd" \
    train --algorithm qsgd --warmup-steps 3
wrong "--compress-residual: no algorithm of --algorithm uses it; expected gradiveq, qsgd or powersgd" train \
    --algorithm topk --compress-residual none
if [ "$gradiveq" ]; then
    wrong "--pca-loss: '1'" train --algorithm gradiveq --pca-loss 1
    wrong "--slice: 768 beside --slice-factor 2; expected one of the two" train --algorithm gradiveq \
        --slice 768 --slice-factor 2
    wrong "--slice-order: 'filters' is unknown" train --algorithm gradiveq \
        --slice-order filters
    wrong "--sample-bits: '3'; expected 2, 4 or 8" train --algorithm gradiveq --sample-bits 3
    wrong "--sample-bits: 8 beside --uncompressed dense" train --algorithm gradiveq --sample-bits 8 \
        --uncompressed dense
    wrong "--sample-steps: '1'" train --algorithm gradiveq --sample-steps 1
    wrong "--slice: '1'" train --algorithm gradiveq --slice 1
    wrong "--compressed-steps: '0'; expected never, or 1..1000000000" train --algorithm gradiveq \
        --compressed-steps 0
    wrong "'tree'" train --algorithm gradiveq --projected-algo tree
fi

# Groups of merged gradients.
for method in qsgd powersgd $gradiveq; do
    for merge in wfbp single; do
        works train --model cnn --channels 4 --algorithm merged --merge-compress $method --merge $merge -n 3 \
            --steps 14 --batch 4 --json
        objects 1
        checks=$((checks + 1))
        grep -q "\"merge_compress\":\"$method\",\"merge_sparse\":\"none\",\"density\":1.0" "$folder/out" || fail "expected compressed groups"
        checks=$((checks + 1))
        grep -q '"residual_kept":' "$folder/out" || fail "expected how they are compressed"
        checks=$((checks + 1))
        grep -q '"steps_compressed":[1-9].*"phases":\[{"phase":"' "$folder/out" || fail "expected what came of it"
    done
done
works train --model cnn --algorithm merged --merge-compress qsgd --bits 2 --bucket 64 --merge single -n 2 --steps 4 \
    --batch 4 --json
python3 - "$folder/out" <<'END' || fail "expected less than a tenth"
import json, sys
one = json.loads(open(sys.argv[1]).read())
assert one['bits'] == 2 and one['bucket'] == 64 and one['compression_ratio'] > 10, one['compression_ratio']
END
finish
