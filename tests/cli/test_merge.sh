# SPDX-License-Identifier: BSD-3-Clause
# weft merge: plans worked out by hand, every form of table and of cost, the picture, wrong use.
. "$(dirname "$0")/common.sh"
data=$2

# prints TEXT: the last output has this line.
prints() {
    checks=$((checks + 1))
    grep -qxF -- "$1" "$folder/out" || fail "expected the line '$1'"
}

# holds CODE: python says so of `plans`, the objects of the last output by their method.
holds() {
    checks=$((checks + 1))
    python3 - "$folder/out" "$1" <<'END' || fail "does not hold: $1"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
plans = {line['method']: line for line in lines}
assert eval(sys.argv[2]), plans
END
}

cat >"$folder/four.json" <<'END'
{"name": "four", "layers": [
 {"name": "l4", "elements": 10, "ready_us": 10}, {"name": "l3", "elements": 20, "ready_us": 20},
 {"name": "l2", "elements": 30, "ready_us": 30}, {"name": "l1", "elements": 40, "ready_us": 40}]}
END
printf 'name,elements,ready_us\r\nl4,10,10\r\n"l3",20,20\r\nl2,30,30\r\nl1,40,40\r\n' >"$folder/four.csv"

# One after the other, with a = 5 and b = 0.1 for f32: 10 + 9 -> 20 + 13 -> 33 + 17 -> 50 + 21.
net='--net a=5,b=0.1'
works merge "$folder/four.json" $net --json
cp "$folder/out" "$folder/json"
json_lines method groups end_us hidden_fraction optimal ready_us communication_us
holds 'list(plans) == ["exact", "greedy", "wfbp", "single", "bucket:26214400"]'
holds 'plans["wfbp"]["groups"] == [[0], [1], [2], [3]] and plans["wfbp"]["end_us"] == 71'
holds 'plans["wfbp"]["group_start_us"] == [10, 20, 33, 50] and plans["wfbp"]["group_end_us"] == [19, 33, 50, 71]'
holds 'plans["wfbp"]["group_hidden_us"] == [9, 13, 7, 0]'
holds 'abs(plans["wfbp"]["hidden_fraction"] - (9 + 13 + 7) / 60) < 1e-14'
holds 'plans["single"]["groups"] == [[0, 1, 2, 3]] and plans["single"]["end_us"] == 40 + 5 + 40'
holds 'plans["single"]["hidden_fraction"] == 0'
holds 'plans["exact"]["end_us"] == min(plan["end_us"] for plan in lines)'
holds 'plans["exact"]["optimal"] == "all" and plans["wfbp"]["optimal"] == "no"'
holds 'plans["exact"]["a_us"] == 5 and plans["exact"]["b_us_per_byte"] == 0.1'
holds 'all(sorted(sum(plan["groups"], [])) == [0, 1, 2, 3] for plan in lines)'
works merge "$folder/four.csv" $net --json
cmp -s "$folder/out" "$folder/json" || fail 'CSV and JSON give different plans'
"$weft" merge - $net --json <"$folder/four.csv" >"$folder/out" 2>"$folder/err"
cmp -s "$folder/out" "$folder/json" || fail 'standard input gives different plans'

# Methods in the order asked; a bucket ends with the layer that fills it; datatypes.
works merge "$folder/four.csv" $net --method wfbp,bucket:100,exact --json
holds '[line["method"] for line in lines] == ["wfbp", "bucket:100", "exact"]'
holds 'plans["bucket:100"]["groups"] == [[0, 1], [2], [3]]'
works merge "$folder/four.csv" --net b=0.1 --dtype f16 --method single --json
holds 'plans["single"]["end_us"] == 40 + 20 and plans["single"]["bytes"] == 200'
works merge "$folder/four.csv" $net --method cycle:1000:0.025 --json
holds 'plans["cycle:1000:0.025"]["groups"] == [[0, 1], [2, 3]]'
# Nothing to send.
printf 'a,0,1\nb,0,2\n' >"$folder/nothing.csv"
works merge "$folder/nothing.csv" --net a=0,b=1 --method wfbp,exact --json
holds 'all(line["end_us"] == 2 and line["hidden_fraction"] == 1 for line in lines)'

# Measured times, in any order, as CSV and JSON: on the line through two of them.
printf 'bytes,us\n1000,105\n0,5\n' >"$folder/cost.csv"
echo '{"points": [{"bytes": 0, "us": 5}, {"bytes": 1000, "us": 105}]}' >"$folder/cost.json"
for form in csv json; do
    works merge "$folder/four.json" --cost "$folder/cost.$form" --json
    holds 'plans["wfbp"]["end_us"] == 71 and plans["exact"]["optimal"] == "contiguous"'
done
# What weft bench model writes: more ranks, a later end; another transport, other costs.
cat >"$folder/model.json" <<'END'
{"weft_cost": 1, "transports": {"local": {"alpha_us": 1, "beta_us_per_byte": 0.1, "gamma_us_per_byte": 0,
 "copy_us_per_byte": 0, "node_us": 0, "net": {"L": 1, "o": 0, "g": 0, "G": 0.1}},
 "mpi": {"alpha_us": 100, "beta_us_per_byte": 0.1, "gamma_us_per_byte": 0, "copy_us_per_byte": 0,
 "node_us": 0, "net": {"L": 1, "o": 0, "g": 0, "G": 0.1}}}}
END
works merge "$folder/four.json" --cost "$folder/model.json" -n 2 --method single --json
holds 'plans["single"]["end_us"] > 40'
cp "$folder/out" "$folder/two"
works merge "$folder/four.json" --cost "$folder/model.json" -n 16 --method single --json
holds 'plans["single"]["end_us"] > json.load(open(sys.argv[1].replace("/out", "/two")))["end_us"]'
works merge "$folder/four.json" --cost "$folder/model.json" -n 2 --transport mpi --method single --json
holds 'plans["single"]["end_us"] > json.load(open(sys.argv[1].replace("/out", "/two")))["end_us"] + 50'
works merge "$folder/four.json" -n 8 --json

# For people, and the picture.
works merge "$folder/four.json" $net
prints 'four: 4 layers, 100 elements, 400 bytes as f32; the last gradient is there after 40 us'
prints 'an allreduce takes 5 us + 0.1 us a byte'
prints 'No grouping of these layers, in any order, ends before exact.'
grep -q '^wfbp  *4  *71 us  *31 us  *48.3 %  *1\.[0-9]*  *0 | 1 | 2 | 3$' "$folder/out" || fail 'no row of wfbp'
works merge "$folder/four.json" $net --method all,cycle:1000:0.025 --plot "$folder/four.svg"
python3 -c 'import sys, xml.dom.minidom as d; d.parse(sys.argv[1])' "$folder/four.svg" || fail 'no SVG'
works merge --help

# The tables that come with it are what the script counts, in every network, and give plans.
checks=$((checks + 1))
python3 "$data/../../scripts/layer_tables.py" --check "$data" >"$folder/out" 2>"$folder/err" ||
    fail 'tables of layers are not what their script makes'
# their parameters, as they are published
cat >"$folder/published" <<'END'
bert-base 109482240
googlenet 13378280
googlenet-bn 13004888
inception-v3 27161264
resnet101 44549160
resnet152 60192808
resnet50 25557032
vgg16 138357544
END
while read -r network elements; do
    works merge "$network" --method single --json
    holds "plans['single']['elements'] == $elements"
done <"$folder/published"
for table in "$data"/*.json; do
    works merge "$table" --net a=600,b=0.004 --json
    holds 'plans["exact"]["end_us"] <= min(plan["end_us"] for plan in lines)'
    works merge "$table" --net a=600,b=0.004 --plot "$folder/plot.svg"
    grep -qiE '"[^"]*(nan|inf)' "$folder/plot.svg" && fail "$table: numbers that are none in the picture"
done

wrong 'missing NETWORK|FILE' merge
wrong "unexpected word 'b'" merge a b
wrong 'nowhere.json: No such file' merge "$folder/nowhere.json"
wrong "--net: 'a=1,c=2'; expected a=US,b=US_PER_BYTE" merge "$folder/four.csv" --net a=1,c=2
wrong "--net: 'a=1,a=2'; expected a=US,b=US_PER_BYTE" merge "$folder/four.csv" --net a=1,a=2
wrong "--net: a: '-1'" merge "$folder/four.csv" --net a=-1,b=0
printf '\357\273\277' | cat - "$folder/four.json" >"$folder/mark.json"
works merge "$folder/mark.json" $net --json
printf 'name,elements,Elements,ready_us\na,1,2,3\n' >"$folder/twice.csv"
wrong 'twice.csv: line 1: column elements twice in the heading' merge "$folder/twice.csv"
wrong '--net and --cost; expected one of them' merge "$folder/four.csv" $net --cost "$folder/cost.csv"
wrong 'expected exact, greedy, wfbp, single' merge "$folder/four.csv" $net --method best
wrong 'expected' merge "$folder/four.csv" $net --method exact,
wrong 'expected' merge "$folder/four.csv" $net --method bucket:0
wrong "--plot: cannot draw '$folder/no/where.svg': No such file" merge "$folder/four.csv" $net --plot "$folder/no/where.svg"
echo 'a,1' >"$folder/bad.csv"
wrong 'line 1: 2 columns; expected 3: name,elements,ready_us' merge "$folder/bad.csv" $net
echo '{"layers": [{"elements": "x", "ready_us": 1}]}' >"$folder/bad.json"
wrong 'layers[0].elements is a string; expected a number' merge "$folder/bad.json" $net
printf 'a,9007199254740992,1\n' >"$folder/large.csv"
works merge "$folder/large.csv" $net --json
printf '0,5\n' >"$folder/bad"
wrong '1 measured size; expected two or more' merge "$folder/four.csv" --cost "$folder/bad"
printf '0,5\n0,6\n' >"$folder/bad"
wrong '0 bytes twice' merge "$folder/four.csv" --cost "$folder/bad"
printf '0,5\nten,6\n' >"$folder/bad"
wrong "line 2: bytes is 'ten'; expected a number" merge "$folder/four.csv" --cost "$folder/bad"
printf '0,5\n1,-6\n' >"$folder/bad"
wrong 'line 2: 1 bytes, -6 us; expected both from 0' merge "$folder/four.csv" --cost "$folder/bad"
echo '{"points": [{"bytes": 1}]}' >"$folder/bad"
wrong 'points[0] has no number us; expected bytes and us' merge "$folder/four.csv" --cost "$folder/bad"
echo '{"alpha": 1}' >"$folder/bad"
wrong 'neither "weft_cost"' merge "$folder/four.csv" --cost "$folder/bad"
echo '{"weft_cost": 1, "transports": {}}' >"$folder/bad"
wrong 'has nothing of transport' merge "$folder/four.csv" --cost "$folder/bad"
echo '{"weft_cost": ' >"$folder/bad"
wrong 'line ' merge "$folder/four.csv" --cost "$folder/bad"
finish
