# SPDX-License-Identifier: BSD-3-Clause
# weft sim: closed formulas, fields, every template on defaults, what does not end, wrong use.
. "$(dirname "$0")/common.sh"

# takes MICROSECONDS WORDS: what a formula says, to a millionth.
takes() {
    expected=$1
    shift
    works sim "$@" --json
    checks=$((checks + 1))
    python3 - "$expected" "$folder/out" <<'END' || fail "weft sim $*: expected $expected us"
import json, sys
got = json.load(open(sys.argv[2]))["time_us"]
sys.exit(abs(got - eval(sys.argv[1])) > 1e-6 * max(1.0, got))
END
}

net=L=3,G=0.002
# ring 2(P-1) a + 2(P-1)/P m b; recursive doubling log2 P (a + m b); binomial log2 P (a + m b)
takes "2*7*3 + 2*7/8*8192*0.002" allreduce --algo ring -n 8 --count 2048 --segment 0 --net "$net"
takes "3*(3 + 8192*0.002)" allreduce --algo recursive-doubling -n 8 --count 2048 --net L=3,G=0.002
takes "2*(3 + 8192*0.002)" broadcast --algo binomial -n 4 --count 2048 --segment 0 --net "$net"
# o + L + mG + o
takes "1 + 3 + 8192*0.002 + 1" broadcast --algo binomial -n 2 --count 2048 --segment 0 --net L=3,o=1,G=0.002
# 4096 bytes summed at 0.001 us each after each of 3 rounds
takes "3*(3 + 4096*0.002 + 4096*0.001)" allreduce --algo recursive-doubling -n 8 --net L=3,G=0.002 --compute 0.001

works sim allreduce -n 5 --json
json_lines ranks time_us messages bytes nodes nodes_per_second critical_path
works sim allreduce -n 5
works sim allreduce -n 3 --no-payload --net L=1,o=0,g=0,G=0.1,O=0,S=16 --path
works sim allreduce -n 3 --trace "$folder/trace.json"
checks=$((checks + 1))
python3 -c 'import json, sys; json.load(open(sys.argv[1]))["traceEvents"][0]' "$folder/trace.json" ||
    fail "the trace is no Chrome trace"

"$weft" list --json |
    sed -n 's/.*"name":"\([^"]*\)","kind":"template".*/\1/p' >"$folder/templates"
[ -s "$folder/templates" ] || fail "weft list names no templates"
while read -r name; do
    works sim "$name"
    for size in 1 2 7 17; do
        works sim "$name" -n "$size" --json
    done
done <"$folder/templates"

# The same input gives the same output, whatever the threads; the rate apart.
"$weft" sim allreduce -n 300 --json --threads 1 | sed 's/"nodes_per_second":[^,]*,//' >"$folder/a"
"$weft" sim allreduce -n 300 --json --threads 3 | sed 's/"nodes_per_second":[^,]*,//' >"$folder/b"
checks=$((checks + 1))
[ -s "$folder/a" ] && cmp -s "$folder/a" "$folder/b" || fail "threads change the result"

# A file, and one whose receives wait for each other.
"$weft" dump allreduce -n 3 -o "$folder/good.weft"
works sim "$folder/good.weft"
cat >"$folder/stuck.weft" <<'END'
weft 1
schedule "stuck" size 2

rank 0 {
  inout a i32 4
  n0: recv a[0:4] from 1 tag 0
  n1: send a[0:4] to 1 tag 0 after n0
}

rank 1 {
  inout a i32 4
  n0: recv a[0:4] from 0 tag 0
  n1: send a[0:4] to 0 tag 0 after n0
}
END
checks=$((checks + 1))
run sim "$folder/stuck.weft"
[ "$status" -eq 1 ] && grep -q 'deadlock: rank 0 node . ' "$folder/out" ||
    fail "two receives that wait for each other: exit $status, expected 1 and a deadlock"
checks=$((checks + 1))
run sim "$folder/stuck.weft" --json
[ "$status" -eq 1 ] && grep -q '"complete":false' "$folder/out" || fail "not told in JSON"
grep -q '"nodes":\[{"rank":[01],"node":0}\]' "$folder/out" || fail "expected nodes as check has them"

# Costs from a file: latency so high that the fewest messages win, here, in dump and in run.
cat >"$folder/costs.json" <<'END'
{"weft_cost": 1, "transports": {"local": {"alpha_us": 1000, "beta_us_per_byte": 0,
 "gamma_us_per_byte": 0.0001, "copy_us_per_byte": 0, "node_us": 0,
 "net": {"L": 1000, "o": 0, "g": 0, "G": 0}}}}
END
takes "3*(1000 + 4096*0.0001)" allreduce -n 8 --cost "$folder/costs.json"
takes "3*(1000 + 4096*0.0001)" allreduce -n 8 --cost "$folder/costs.json" --compute project=1
takes "3*1000" allreduce -n 8 --cost "$folder/costs.json" --compute copy=0,project=1
for command in "dump -r 0" run sim; do
    works $command allreduce -n 2 --count 1M --cost "$folder/costs.json"
done
works dump allreduce -n 8 --count 1M -r 0 --cost "$folder/costs.json"
checks=$((checks + 1))
grep -q recursive-doubling "$folder/out" || fail "the costs do not choose the algorithm"
wrong "nothing of transport" dump allreduce --transport mpi --cost "$folder/costs.json"
wrong "expected a cost file" run allreduce -n 1 --cost "$folder/nothing"

wrong "--net: network: \`L=x\`" sim allreduce --net L=x
wrong "--net: network: \`z=1\`" sim allreduce --net L=1,z=1
wrong "--compute: '-1'" sim allreduce --compute -1
wrong "--compute: 'add'" sim allreduce --compute add=1
wrong "--activate: '4'" sim allreduce --activate 4
wrong "--cost: " sim allreduce --cost "$folder/nothing"
wrong "is neither a template nor a file" sim nothing
wrong "for 3 ranks" sim "$folder/good.weft" -n 4
wrong "root" sim broadcast --root 4
wrong "-n: a simulation of 2147483647 ranks needs about" sim allreduce -n 2147483647

# events at times of their own
cat >"$folder/held.weft" <<'END'
weft 1
schedule "held" size 2

rank 0 {
  inout a u8 100
  go: event
  n1: send a[0:100] to 1 tag 0 after go
}

rank 1 {
  inout a u8 100
  n0: recv a[0:100] from 0 tag 0
}
END
for fire in go=250 0=250 go=250@0; do
    checks=$((checks + 1))
    run sim "$folder/held.weft" --net L=5,o=1 --fire go=10 --fire "$fire" --trace "$folder/held.json"
    grep -q '257 us' "$folder/out" || fail "--fire $fire: expected 257 us"
    grep -q 'rank 0 node 0: event, 0 bytes; after its time' "$folder/out" || fail "--fire $fire: no path"
    grep -q '"dur": *250' "$folder/held.json" || fail "--fire $fire: no open event in the trace"
done
wrong "--fire: 'go'; expected LABEL=US" sim "$folder/held.weft" --fire go
wrong "--fire: no event" sim "$folder/held.weft" --fire =3
wrong "--fire: '-1'" sim "$folder/held.weft" --fire go=-1
wrong "label is \"went\"" sim "$folder/held.weft" --fire went=1
wrong "rank is 2" sim "$folder/held.weft" --fire go=1@2

# layers of a table, merged: what is simulated ends when the plan says
cat >"$folder/layers.csv" <<'END'
name,elements,ready_us
fc,4096,10
conv3,1024,60
conv2,64,65
norm,0,70
conv1,16384,200
stem,512,210
END
for method in exact greedy wfbp single bucket:8192; do
    for algo in recursive-doubling ring; do
        [ "$algo" = ring ] && cost=a=140,b=0.0014 || cost=a=30,b=0.0024
        checks=$((checks + 1))
        # a layer of no elements sends nothing, so none is left alone here
        grep -v norm "$folder/layers.csv" >"$folder/some.csv"
        run merge "$folder/some.csv" --method "$method" --net "$cost" --json
        end=$(sed 's/.*"end_us": *\([0-9.e+]*\).*/\1/' "$folder/out")
        [ -n "$end" ] || fail "weft merge --method $method: no end"
        takes "$end" merged-allreduce --layers "$folder/some.csv" --merge "$method" -n 8 --algo "$algo" \
            --net L=10,G=0.0008
    done
done
works sim merged-allreduce --layers "$folder/layers.csv" -n 5
grep -q 'after its time' "$folder/out" || fail "layers: the path does not tell of a time"
works sim merged-allreduce --layers "$folder/layers.csv" -n 5 --fire "ready 0=5000" --json
works check merged-allreduce --layers "$folder/layers.csv" --merge wfbp -n 7
works run merged-allreduce --layers "$folder/layers.csv" --merge greedy -n 3 --verify -i 2
works dump merged-allreduce --layers "$folder/layers.csv" -n 3 -r 0
wrong "--merge: 'exact' without --layers" sim merged-allreduce --merge exact
wrong "--merge: " sim merged-allreduce --layers "$folder/layers.csv" --merge best
wrong "--merge: 'cycle' waits" check merged-allreduce --layers "$folder/layers.csv" --merge cycle
wrong "layers" dump merged-allreduce --layers "$folder/nothing"

# an adapter of its own hides on two ranks all that is sent
set -- projected-allreduce --algo ring -n 2 --count 64K --slice 64 --components 8 \
    --compute project=0:0:0.0005,reconstruct=0:0:0.0005
run sim "$@" --net L=0 --json
alone=$(sed 's/.*"time_us": *\([0-9.e+]*\).*/\1/' "$folder/out")
takes "$alone" "$@" --net L=1,G=0.005,offload=1
works sim "$@" --net L=1,G=0.005,offload=1
grep -q 'offload=1' "$folder/out" || fail "offload: the network does not tell of it"
works sim "$@" --net L=1,offload=1 --json
grep -q '"offload": *true' "$folder/out" || fail "offload: the network in JSON does not tell of it"
wrong "expected offload=0 or offload=1" sim "$@" --net offload=2

# Fabrics. Two of 8 ranks on a ring; all of a round at once, where two share a link.
takes "3*0 + 100 + 200 + 200" allreduce --algo recursive-doubling -n 8 --count 250 --net torus=8,G=0.1
# at the distance of 4 all cross the top, four over each link up
takes "100 + 100 + 400" allreduce --algo recursive-doubling -n 8 --count 250 \
    --net fat-tree=4x2,oversubscription=4,G=0.1
# traffic EXPRESSION WORDS: what Python says of "t", the traffic, and "f", the fabric, in the JSON.
traffic() {
    expression=$1
    shift
    works sim "$@" --json
    json_lines fabric traffic
    checks=$((checks + 1))
    python3 - "$expression" "$folder/out" <<'END' || fail "weft sim $*: expected $expression"
import json, sys
got = json.load(open(sys.argv[2]))
sys.exit(not eval("(" + sys.argv[1] + ")", {
    "t": got["traffic"], "f": got["fabric"], "got": got, "near": lambda a, b: abs(a - b) < 1e-6}))
END
}
traffic 't["sent_bytes"] == 24000 == got["bytes"] and near(t["hops_per_byte"], 7 / 3)' \
    allreduce --algo recursive-doubling -n 8 --count 250 --net torus=8,G=0.1
traffic 'f == {"kind": "torus", "extents": [3, 2], "hosts": 6, "ranks_per_host": 2, "hop_us": 0.5,
               "link_us_per_byte": 0.25, "seed": 9}' \
    allreduce -n 9 --net torus=3x2,hop=0.5,link=0.25,ranks-per-host=2,place=random:9
traffic 'near(t["top_share"], 1 / 3) and t["levels"][1]["share"] == t["top_share"] and
         t["levels"][0]["share"] == 1 and f["oversubscription"] == 4' \
    allreduce --algo recursive-doubling -n 8 --count 250 --net fat-tree=4x2,oversubscription=4,G=0.1
traffic 'len(t["busiest"]) == 3 and near(t["busiest"][0].pop("utilisation"), 400 / 600) and
         t["busiest"][0] == {"from": "switch 1.0", "to": "switch 2.0", "level": 1, "messages": 4,
                             "bytes": 4000}' \
    allreduce --algo recursive-doubling -n 8 --count 250 --links 3 \
    --net fat-tree=4x2,oversubscription=4,G=0.1
traffic 't["sent_bytes"] == 0 and t["hops_per_byte"] == 0 and t["busiest"] == []' \
    allreduce -n 1 --net torus=4
works sim allreduce -n 8 --net fat-tree=2x2x2,oversubscription=2,ranks-per-host=2,place=random:3,L=1
for line in 'fabric  *fat-tree=2x2x2,oversubscription=2,ranks-per-host=2,place=random:3,hop=0,link=0 (8 hosts)' \
    'level 2 (the top): .* of the bytes cross it' 'host [0-7] to switch 1'; do
    grep -q "$line" "$folder/out" || fail "expected '$line'"
done
works sim allreduce -n 8 --net torus=8,G=1 --trace "$folder/trace.json"
wrong "--net: network: \`torus=8x\`, expected extents" sim allreduce --net torus=8x
wrong "--net: network: \`ring=8\`, expected one of L=" sim allreduce --net ring=8
wrong "--net: network: hop= without torus= or fat-tree=" sim allreduce --net L=1,hop=1
wrong "a torus of 8 hosts for 9 ranks; expected more hosts, or ranks-per-host=2" sim allreduce -n 9 --net torus=4x2
wrong "'0'" sim allreduce --net torus=4 --links 0
wrong "expected one of L=, o=, g=, G=, O=, S=, offload= and a number" train --net torus=4 --transport virtual

# what is wrong comes before any figure
"$weft" dump broadcast --algo binomial -n 3 -o "$folder/cast.weft"
sed 's/to 2 tag [0-9]*/to 2 tag 77/' "$folder/cast.weft" >"$folder/stuck.weft"
checks=$((checks + 1))
run sim "$folder/stuck.weft"
[ "$status" -eq 1 ] || fail "sim of a broken file: exit $status, expected 1"
head -n 1 "$folder/out" | grep -q 'does not end' || fail 'sim of a broken file: expected the fault'
finish
