# SPDX-License-Identifier: BSD-3-Clause
# What dump writes reads back into the same schedule, in every format that can be read; DOT renders.
. "$(dirname "$0")/common.sh"

same() {
    checks=$((checks + 1))
    cmp -s "$1" "$2" || fail "$3: $1 and $2 differ"
}

for name in barrier broadcast reduce allreduce reduce-scatter allgather gather scatter alltoall; do
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
