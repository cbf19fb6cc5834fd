# SPDX-License-Identifier: BSD-3-Clause
# Schedules are what they were: a change of an algorithm shows as a change of a file in tests/golden/.
# Where it is meant, write them anew: tests/cli/test_golden.sh WEFT write
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
golden=$here/../golden
words='--count 5 --segment 0 --transport local'

# FILE and how it is made; the algorithm is named, so that costs do not matter.
while read -r file line; do
    # shellcheck disable=SC2086
    works dump $line -o "$folder/$file"
    if [ "${2:-}" = write ]; then
        cp "$folder/$file" "$golden/$file"
    fi
    checks=$((checks + 1))
    diff -u "$golden/$file" "$folder/$file" >"$folder/out" ||
        fail "$file: not what weft dump $line was"
done <<END
allreduce-ring-3.weft allreduce --algo ring -n 3 $words
allreduce-recursive-doubling-5.weft allreduce --algo recursive-doubling -n 5 $words
allreduce-reduce-scatter-allgather-4.weft allreduce --algo reduce-scatter-allgather -n 4 $words
allreduce-bine-6.weft allreduce --algo bine -n 6 $words
reduce-scatterv-bine-5.weft reduce-scatterv --algo bine -n 5 $words --counts 1,2,0,3,1
reduce-scatter-ordered-halving-4.weft reduce-scatter --algo ordered-halving -n 4 $words --in-place
allgatherv-bine-6.weft allgatherv --algo bine -n 6 $words --counts 2,0,1
allgather-recursive-doubling-5.weft allgather --algo recursive-doubling -n 5 $words
broadcast-scatter-doubling-5.weft broadcast --algo scatter-doubling -n 5 --root 1 $words
broadcast-bine-scatter-doubling-4.weft broadcast --algo bine-scatter-doubling -n 4 $words
broadcast-bine-11.weft broadcast --algo bine -n 11 --root 3 $words
reduce-bine-5.weft reduce --algo bine -n 5 $words
reduce-reduce-scatter-gather-5.weft reduce --algo reduce-scatter-gather -n 5 --root 1 $words
reduce-bine-reduce-scatter-gather-4.weft reduce --algo bine-reduce-scatter-gather -n 4 $words
reduce-scatter-pat-6.weft reduce-scatter --algo pat -n 6 $words --aggregate 2
allgatherv-pat-5.weft allgatherv --algo pat -n 5 $words --counts 2,0,1 --aggregate 2
allgather-k-bruck-7.weft allgather --algo k-bruck -n 7 $words --radix 3
broadcast-k-nomial-9.weft broadcast --algo k-nomial -n 9 --root 4 $words --radix 3
reduce-k-nomial-9.weft reduce --algo k-nomial -n 9 --root 4 $words --radix 3
gatherv-k-nomial-7.weft gatherv --algo k-nomial -n 7 $words --counts 1,2
barrier-k-dissemination-7.weft barrier --algo k-dissemination -n 7
allreduce-recursive-multiplying-7.weft allreduce --algo recursive-multiplying -n 7 $words
broadcast-binary-tree-7.weft broadcast --algo binary-tree -n 7 --root 2 --count 5 --segment 12
reduce-binary-tree-7.weft reduce --algo binary-tree -n 7 --root 2 --count 5 --segment 12
broadcast-binomial-6.weft broadcast --algo binomial -n 6 --root 1 $words
reduce-binomial-5.weft reduce --algo binomial -n 5 $words
scan-binary-tree-5.weft scan --algo binary-tree -n 5 $words
exscan-123-doubling-6.weft exscan --algo 123-doubling -n 6 $words
alltoall-linear-3.weft alltoall --algo linear -n 3 $words
alltoallv-pairwise-7.weft alltoallv --algo pairwise -n 7 $words --counts 2,0,1
allgatherv-bruck-5.weft allgatherv --algo bruck -n 5 $words --counts 4,0,1
projected-allreduce-ring-3.weft projected-allreduce --algo ring -n 3 --count 20 --slice 4 --components 2 --segment 0
quantised-allreduce-all-to-all-2.weft quantised-allreduce --algo all-to-all -n 2 --count 100 --bits 2 --bucket 24
powersgd-allreduce-ring-2.weft powersgd-allreduce --algo ring -n 2 --count 21 --slice 4 --components 2 --segment 0
server-step-all-5.weft server-step --algo all -n 5 --servers 2 $words
server-step-turns-5.weft server-step --algo turns -n 5 --servers 2 $words
server-step-paced-4.weft server-step --algo paced -n 4 --count 6 --segment 8 --co-located --servers 1 --in-place
scatterv-binomial-4.weft scatterv --algo binomial -n 4 $words --counts 1,2,0
reduce-scatterv-pairwise-3.weft reduce-scatterv --algo pairwise -n 3 $words --counts 1,5,2 --in-place
merged-allreduce-recursive-doubling-3.weft merged-allreduce --algo recursive-doubling -n 3 $words
barrier-dissemination-5.weft barrier --algo dissemination -n 5
activation-hypercube-4.weft activation --algo hypercube -n 4
activation-hypercube-4.goal activation --algo hypercube -n 4 --activate 2 --format goal
broadcast-binomial-6.goal broadcast --algo binomial -n 6 --root 1 $words --format goal
allreduce-ring-3.json allreduce --algo ring -n 3 $words --format json
allreduce-recursive-doubling-4.dot allreduce --algo recursive-doubling -n 4 $words --format dot
activation-hypercube-2.dot activation --algo hypercube -n 2 --format dot
END
finish
