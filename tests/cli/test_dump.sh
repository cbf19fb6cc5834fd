# SPDX-License-Identifier: BSD-3-Clause
# What dump writes reads back into the same schedule, in every format that can be read; DOT renders;
# GOAL is what LogGOPSim reads.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

same() {
    checks=$((checks + 1))
    cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"
}

for name in barrier broadcast reduce allreduce reduce-scatter allgather gather scatter alltoall \
    gtopk oktopk projected-allreduce quantised-allreduce powersgd-allreduce server-step; do
    for ranks in 1 2 5 8; do
        words="$name -n $ranks --count 37 --segment 64"
        # shellcheck disable=SC2086
        works dump $words -o "$folder/a.text"
        # shellcheck disable=SC2086
        works dump $words --format json -o "$folder/a.json"
        works dump "$folder/a.text" -o "$folder/b.text"
        works dump "$folder/a.text" --format json -o "$folder/b.json"
        works dump "$folder/a.json" -o "$folder/c.text"
        works dump "$folder/a.json" --format json -o "$folder/c.json"
        same "$folder/a.text" "$folder/b.text" "$words"
        same "$folder/a.text" "$folder/c.text" "$words"
        same "$folder/a.json" "$folder/b.json" "$words"
        same "$folder/a.json" "$folder/c.json" "$words"
        python3 -m json.tool "$folder/a.json" "$folder/pretty.json" || fail "$words: not JSON"
        works dump "$folder/pretty.json" -o "$folder/d.text"
        same "$folder/a.text" "$folder/d.text" "$words"
    done
done

# GOAL: every template as LogGOPSim reads it, and executable; what it cannot say is refused.
goal=$here/check_goal.py
templates=$("$weft" list --json | python3 -c 'import json, sys
for line in sys.stdin:
    t = json.loads(line)
    if t["kind"] == "template":
        for a in t["algorithms"] or [{"name": ""}]:
            print(t["name"] + (" --algo " + a["name"] if a["name"] else ""))')
[ -n "$templates" ] || fail 'weft list names no template'
numbers='1 2 3 8 13'
while read -r words; do
    for ranks in $numbers; do
        # shellcheck disable=SC2086
        works dump $words -n "$ranks" --count 7 --format goal -o "$folder/$ranks.goal" --compute 0.25
    done
    checks=$((checks + 1))
    # shellcheck disable=SC2086
    (cd "$folder" && for ranks in $numbers; do echo "$ranks.goal"; done | xargs "$goal") \
        >"$folder/out" 2>"$folder/err" || fail "$words: GOAL is at fault"
done <<END
$templates
END
wrong 'GOAL holds all ranks' dump allreduce -n 3 -r 1 --format goal
wrong 'activators[0]' dump allreduce -n 3 --activate 3 --format goal
wrong '--activate' dump allreduce -n 3 --activate 1,x --format goal
wrong 'servers is 3, expected 1 to 2 of 3 ranks' dump server-step -n 3 --servers 3
wrong "--servers: 'x'" dump server-step -n 3 --servers x
wrong '--compute' dump allreduce -n 3 --compute call=x --format goal
wrong '--compute' dump allreduce -n 3 --compute cal=1 --format goal
wrong '--compute' dump projected-allreduce --compute project=1:2:3:4 --format goal
wrong '--compute' dump projected-allreduce --compute project=-1 --format goal

# Operations that have costs of their own cost the same in GOAL, in a simulation and on a page.
costs=reduce=0.25,copy=0.1,call=0.3
costs=$costs,project=1:0.5:0.01,reconstruct=0:0:0.25,correlate=0.5,orthonormalise=1:1:0.125
costs=$costs,quantise=2:0.5,dequantise=0.75,dequantise-add=0.125:1
for words in 'projected-allreduce --algo ring' 'quantised-allreduce --algo all-to-all' \
    'quantised-allreduce --algo ring' 'powersgd-allreduce --components 3'; do
    for ranks in 1 2 3 7; do
        words="${words% -n *} -n $ranks --count 1500"
        # shellcheck disable=SC2086
        {
            works sim $words --compute "$costs" --trace "$folder/costs.json"
            works dump $words --compute "$costs" --format goal -o "$folder/costs.goal"
        }
        checks=$((checks + 1))
        "$here/check_goal_costs.py" "$folder/costs.goal" "$folder/costs.json" \
            >"$folder/out" 2>"$folder/err" || fail "$words: other costs in GOAL"
    done
done
works sim projected-allreduce -n 3 --net L=5 --compute "$costs"
took=$(sed -n 's/.* on 3 ranks: \([0-9.]*\) us/\1/p' "$folder/out")
works dump projected-allreduce -n 3 --net L=5 --compute "$costs" --format html
checks=$((checks + 1))
[ -n "$took" ] && grep -qF "$took" "$folder/out" || fail "expected $took us on the page"

# Formats that have no times take nothing that is about times.
for format in text json dot; do
    wrong '--compute: with --format' dump allreduce --format $format --compute 1
    wrong '--activate: with --format' dump allreduce --format $format --activate 0
done
for format in text json dot goal; do
    wrong '--net: with --format' dump allreduce --format $format --net L=1
    wrong 'expected html' dump allreduce --format $format --trace "$folder/run.json"
    wrong 'expected html' dump allreduce --format $format --run 0
done

# A page with times of a trace wants a run of the very schedule.
works run allreduce --algo ring -n 2 --count 64 --iterations 2 --trace "$folder/run.json"
page="--format html --trace $folder/run.json -o $folder/page.html"
# shellcheck disable=SC2086
{
    works dump allreduce --algo ring -n 2 --count 64 $page --run 0
    wrong 'expected a run from 0' dump allreduce --algo ring -n 2 --count 64 $page --run 99
    wrong 'no run of' dump allreduce --algo ring -n 3 --count 64 $page
    wrong 'no run of' dump broadcast -n 2 $page
    wrong 'another schedule' dump allreduce --algo ring -n 2 --count 64 --segment 16 $page
    wrong 'No such file' dump allreduce --algo ring -n 2 --format html --trace "$folder/none.json"
    wrong 'all 2 ranks' dump allreduce -n 2 --format html -r 1
    wrong '--net' dump allreduce -n 2 --format html --net X=1
}

# More ranks than memory has room for are refused, not tried.
wrong 'GiB' dump allreduce -n 2147483647
wrong 'GiB' dump alltoall -n 60000

# So are messages in more parts than memory, tags or node numbers have room for: before they are made.
for command in dump check sim run; do
    for words in broadcast 'allreduce --algo ring' neighbour-exchange 'reduce --algo binomial'; do
        # shellcheck disable=SC2086
        wrong 'segment' $command $words -n 3 --count 1G --segment 4
    done
done
wrong 'GiB' dump alltoall -n 2147483647 -r 5
# a page of layers has the times at which they are ready, in nanoseconds
printf 'name,elements,ready_us\nfc,64,10\nconv,64,777\n' >"$folder/layers.csv"
works dump merged-allreduce --layers "$folder/layers.csv" --merge wfbp -n 2 --net L=1 --format html -o "$folder/page.html"
checks=$((checks + 1))
grep -q '777[01]..' "$folder/page.html" || fail 'a page of layers: no time of theirs'
works dump barrier -n 2147483647 -r 2147483646

works dump allreduce --algo ring -n 5 --json
json_lines ranks
[ "$(wc -l <"$folder/out")" -eq 1 ] || fail "dump --json: expected one line"
cp "$folder/out" "$folder/line.json"
works dump allreduce --algo ring -n 5 --format json -o "$folder/ring.json"
works dump "$folder/line.json" --format json -o "$folder/back.json"
same "$folder/ring.json" "$folder/back.json" "one line of JSON"
works dump "$folder/ring.json" -r 2 -o "$folder/one.text"
works dump allreduce --algo ring -n 5 -r 2 -o "$folder/two.text"
same "$folder/one.text" "$folder/two.text" "rank 2 of a ring"
works dump "$folder/one.text"

if command -v dot >/dev/null; then
    for words in 'allreduce --algo ring -n 5' 'broadcast -n 8' 'barrier -n 1'; do
        # shellcheck disable=SC2086
        works dump $words --format dot -o "$folder/graph.dot"
        checks=$((checks + 1))
        dot -Tsvg "$folder/graph.dot" -o "$folder/graph.svg" 2>"$folder/err" ||
            fail "Graphviz does not render $words"
        [ ! -s "$folder/err" ] || fail "Graphviz complains about $words"
    done
else
    echo 'skipped: Graphviz is not here, DOT was not rendered'
fi
finish
