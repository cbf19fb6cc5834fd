# SPDX-License-Identifier: BSD-3-Clause
# Elements of any size go through the command as those of the built-in datatypes do.
. "$(dirname "$0")/common.sh"

for name in broadcast gather scatter allgather alltoall neighbour-exchange; do
    for dtype in bytes1 bytes3 bytes24 bytes1000 bytes100000; do
        for ranks in 1 3; do
            for segment in 0 100; do
                works run $name -n $ranks --count 5 --dtype $dtype --segment $segment \
                    --iterations 2 --verify --json
                grep -q '"verified":true' "$folder/out" || fail "run $name $dtype: not verified"
            done
        done
        works check $name -n 5 --count 3 --dtype $dtype
    done
    works run $name -n 3 --count 0 --dtype bytes12 --iterations 2 --verify
    works sim $name -n 3 --count 4 --dtype bytes12
done
works run alltoall -n 3 --count 4 --dtype bytes1000 --verify --trace "$folder/trace"
works trace "$folder/trace"

# sizes: as large as they may be, none, too large, not a number
works dump broadcast -n 2 --count 1 --dtype bytes1073741823
for dtype in bytes0 bytes bytes1073741824 bytes024 bytes2x; do
    wrong 'expected bytes1 to bytes1073741823' run broadcast --dtype $dtype
done
wrong "'byte24' is unknown (did you mean 'bytesN'?)" run broadcast --dtype byte24
wrong 'bytesN' run broadcast --dtype opaque
wrong 'count is 384307168202282326, expected at most' \
    dump broadcast -n 2 --dtype bytes24 --count 384307168202282326

# nothing is added up of what nobody looks into
for name in allreduce reduce reduce-scatter; do
    wrong 'sum is not defined on bytes16' run $name -n 3 --dtype bytes16
    wrong 'max is not defined on bytes1,' run $name -n 3 --dtype bytes1 --op max
done

# documents of both formats; GOAL and DOT
works dump scatter -n 3 --algo linear --count 2 --dtype bytes24 -o "$folder/text"
grep -q '^  input send bytes24 6$' "$folder/text" || fail 'no slot of opaque elements'
works dump "$folder/text" --format json -o "$folder/json"
works dump "$folder/json" --format text -o "$folder/again"
checks=$((checks + 1))
cmp -s "$folder/text" "$folder/again" || fail 'text, JSON and text again differ'
works run "$folder/json" --verify
works dump "$folder/text" --format goal
grep -q 'send 48b to 1' "$folder/out" || fail 'GOAL: expected two elements of 24 bytes'
works dump "$folder/text" --format dot

# what is wrong is found, and told
sed '/result/s/send\[0:2\] from rank 0/send[2:4] from rank 0/' "$folder/text" >"$folder/wrong"
checks=$((checks + 1))
cmp -s "$folder/text" "$folder/wrong" && fail 'the statement was not changed'
run check "$folder/wrong"
[ "$status" -eq 1 ] || fail "check of a wrong statement: exit $status, expected 1"
run run "$folder/wrong" --verify
[ "$status" -eq 1 ] || fail "run of a wrong statement: exit $status, expected 1"
grep -q 'element 0, iteration 0: got 0x.. in byte [0-9]*, expected 0x' "$folder/err" ||
    fail 'expected the byte that differs'
sed 's/recv recv\[0:2\]/recv recv[0:1]/' "$folder/text" >"$folder/short"
run check "$folder/short"
[ "$status" -eq 1 ] || fail "check of a message that is too long: exit $status, expected 1"
grep -q '48 bytes are sent, 24 are expected' "$folder/out" || fail 'expected both sizes'

# a parameter of a file
sed -e 's/^rank 0/param dtype = f32\n&/' -e 's/bytes24/dtype/' "$folder/text" >"$folder/open"
works run "$folder/open" --dtype bytes7 --verify
works run "$folder/open" -D dtype=bytes9 --verify
wrong 'bytesN' run "$folder/open" -D dtype=bytes0

finish
