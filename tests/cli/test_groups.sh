# SPDX-License-Identifier: BSD-3-Clause
# weft groups: the example of the paper, defaults, wrong use.
. "$(dirname "$0")/common.sh"

# prints TEXT: the last output has this line.
prints() {
    checks=$((checks + 1))
    grep -qxF -- "$1" "$folder/out" || fail "expected the line '$1'"
}

works groups -n 8 --group-size 4 --version 1
prints 'version 1: 8 ranks in 2 groups of at most 4'
prints '  0 1 4 5'
prints '  2 3 6 7'
works groups -n 8 --group-size 4 --version 1 --json
prints '{"ranks":8,"group_size":4,"version":1,"groups":[[0,1,4,5],[2,3,6,7]]}'
works groups -n 7 --group-size 3 --version 2 --json
json_lines ranks group_size version groups
prints '{"ranks":7,"group_size":3,"version":2,"groups":[[0,1,6],[2,5],[3,4]]}'
works groups -n 1 --json
prints '{"ranks":1,"group_size":1,"version":0,"groups":[[0]]}'
works groups -n 64 --version 9223372036854775807
prints 'version 9223372036854775807: 64 ranks in 8 groups of at most 8'
works groups
works groups --help

wrong "--group-size: '4'; expected an integer from 0 to 3" groups -n 3 --group-size 4
wrong "--group-size: '-1'" groups -n 3 --group-size -1
wrong "--version: '-1'" groups --version -1
wrong "--version: '9223372036854775808'" groups --version 9223372036854775808
wrong "-n: '0'" groups -n 0
wrong "unexpected word 'more'" groups more
finish
