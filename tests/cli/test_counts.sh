# SPDX-License-Identifier: BSD-3-Clause
# --counts: blocks of different sizes, in every subcommand that takes a template.
. "$(dirname "$0")/common.sh"

for template in allgatherv gatherv scatterv alltoallv reduce-scatterv; do
    for place in '' --in-place; do
        # shellcheck disable=SC2086
        for ranks in 1 2 5 8; do
            works check "$template" -n "$ranks" --counts 3 $place --json
            grep -qF '"faults":[]' "$folder/out" || grep -qF '"ok":true' "$folder/out" ||
                fail "check $template -n $ranks: expected no fault"
        done
        # shellcheck disable=SC2086
        works check "$template" -n 7 --counts 0,5,1k,1 $place
        # shellcheck disable=SC2086
        works run "$template" -n 3 --counts 0,5,2 $place --verify --json -i 2
        grep -qF '"verified":true' "$folder/out" || fail "run $template: expected verified"
        # shellcheck disable=SC2086
        works sim "$template" -n 6 --counts 4,0 $place --json
        json_lines time_us messages bytes
    done
done
works run alltoallv -n 3 --counts 0,0,0 --verify --json -i 2
works check reduce-scatterv -n 5 --algo pairwise --counts 9,0,0,1,3
works sim allgatherv -n 100 --counts 1M,0 --algo ring
works sim allgatherv -n 3 --counts 3G,1,3G --json
grep -qF '"bytes":51539607560' "$folder/out" || fail 'expected a total of more than 32 bits'

# the table of pairs is filled row by row; what is in it twice is the same in place
works dump alltoallv -n 2 --counts 1,2,3,4
grep -qF 'input send.1 f32 2' "$folder/out" || fail 'expected 2 elements from 0 to 1'
grep -qF 'output recv.1 f32 3' "$folder/out" || fail 'expected 3 elements from 1 to 0'
works dump alltoallv -n 2 --counts 1,2,3,4 --in-place
grep -qF 'inout recv.1 f32 2' "$folder/out" || fail 'expected 2 elements in both directions'
works dump allgatherv -n 4 --counts 3,0 --format html
grep -qF 'counts 3,0' "$folder/out" || fail 'expected the counts on the page'

# what was dumped can be checked and run without them
works dump scatterv -n 3 --counts 3,0,2 -o "$folder/apart.weft"
works check "$folder/apart.weft"
works run "$folder/apart.weft" --verify --json
grep -qF '"verified":true' "$folder/out" || fail 'expected verified'

# two ranks that do not agree are found, with both
sed 's/recv recv\[0:2\] from 0/recv recv[0:1] from 0/' "$folder/apart.weft" >"$folder/short.weft"
run check "$folder/short.weft"
[ "$status" -eq 1 ] || fail "check of ranks that do not agree: exit $status, expected 1"
grep -q '^size .*rank.*0.*rank.*2\|^size .*rank.*2.*rank.*0' "$folder/out" ||
    fail 'expected both ranks of the pair'

wrong 'expected at most 3, one a rank' check gatherv -n 3 --counts 1,2,3,4
wrong 'expected at most 4, one a pair of ranks' sim alltoallv -n 2 --counts 1,2,3,4,5
wrong "'x' is not a size" check gatherv -n 3 --counts 1,x
wrong "'' is not a size" check gatherv -n 3 --counts 1,
wrong 'declares no such parameter' check "$folder/apart.weft" --counts 1
wrong 'counts[0] is' check allgatherv -n 2 --counts 4611686018427387904
works check allreduce -n 3 --counts 1,2,3,4 # a parameter that it does not use
finish
