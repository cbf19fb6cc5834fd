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
for words in 'nodes' 'allreduce --bytes 4,16k' 'blocking --bytes 4' 'oversubscribed -n 4 --bytes 4' 'overlap' 'idle' \
    'topk --bytes 4k,1M' 'merge' 'merged --bytes 4k' 'gtopk -n 3 --bytes 4k,8k --density 0.01' \
    'compress --bytes 4k,100k' 'wait-avoiding -n 4 --bytes 4k' 'growth -n 64' 'server -n 2 --bytes 4k' "$projection"; do
    [ -n "$words" ] || continue
    checks=$((checks + 1))
    # shellcheck disable=SC2086
    run bench $words --rounds 1 --json
    [ "$status" -eq 0 ] || fail "weft bench $words: exit $status"
    # shellcheck disable=SC2086
    json_lines $fields
done

# All algorithms take turns, and what would be chosen is one of them; over MPI, MPI's forms stand beside.
works bench choice -n 2 --template reduce,barrier --bytes 4,20k --rounds 1 --json
json_lines bench case weft unit peer ratio transport template ranks mode algorithm best regret
checks=$((checks + 1))
python3 - "$folder/out" <<'END' || fail "weft bench choice: rows"
import json, sys

rows = [json.loads(line) for line in open(sys.argv[1])]
cells = {}
for row in rows:
    assert row['algorithm'] in row['algorithms'] and row['best'] in row['algorithms'], row
    times = row['algorithms']
    assert abs(row['regret'] * times[row['best']] / times[row['algorithm']] - 1) < 1e-6, row
    assert min(row['algorithms'].values()) == row['algorithms'][row['best']], row
    assert row['weft'] > 0 and row['ranks'] == 2, row
    cells.setdefault((row['transport'], row['template'], row['bytes'], row['mode']), []).append(row['peer'])
transports = {cell[0] for cell in cells}
for transport in transports:
    found = {cell[1:] for cell in cells if cell[0] == transport}
    assert found == {(t, b, m) for t, sizes in (('reduce', (4, 20480)), ('barrier', (0,)))
                     for b in sizes for m in ('stream', 'single')}, found
if 'mpi' in transports:
    for cell, peers in cells.items():
        assert len([peer for peer in peers if peer.startswith('MPI_')]) == 2, (cell, peers)
END
wrong "--template: 'shuffle'" bench choice --template shuffle
wrong "--transport: 'ether'" bench choice --transport ether
finish
