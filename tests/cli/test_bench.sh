# SPDX-License-Identifier: BSD-3-Clause
# Every measurement runs, few rounds, and prints rows with the fields that were promised. No time is
# judged.
. "$(dirname "$0")/common.sh"

# The documents have all of them.
for name in $("$weft" bench | sed -n 's/^\([a-z-]*\)  .*/\1/p'); do
    checks=$((checks + 1))
    grep -q "^| \`$name\` |" "$(dirname "$0")/../../docs/cli.md" || fail "docs/cli.md does not have weft bench $name"
done
fields='bench case weft unit peer peer_value ratio limit transport'
projection=
if [ "${WEFT_TEST_LAPACK:-$("$weft" info --json | grep -c '"lapack":true')}" = 1 ]; then
    projection='projection --steps 10' # it needs LAPACK
else
    echo 'ok - bench projection # SKIP no LAPACK'
fi
for words in 'nodes' 'allreduce --bytes 4,16k' 'blocking --bytes 4,16k' 'oversubscribed -n 4 --bytes 4' 'overlap' 'idle' \
    'topk --bytes 4k,1M' 'merge' 'merged --bytes 4k' 'gtopk -n 3 --bytes 4k --density 0.01' \
    'compress --bytes 4k,100k' 'wait-avoiding -n 4 --bytes 4k' 'growth -n 64' 'server -n 2 --bytes 4k' "$projection"; do
    [ -n "$words" ] || continue
    checks=$((checks + 1))
    # shellcheck disable=SC2086
    run bench $words --rounds 1 --json
    [ "$status" -eq 0 ] || fail "weft bench $words: exit $status"
    # shellcheck disable=SC2086
    json_lines $fields
done
finish
