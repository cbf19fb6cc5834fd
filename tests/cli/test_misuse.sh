# SPDX-License-Identifier: BSD-3-Clause
# Wrong use: exit 2 and one line that names the word and what was expected.
. "$(dirname "$0")/common.sh"

wrong 'expected one of info, list, dump'
wrong "unknown command 'dmup', did you mean 'dump'?" dmup
wrong "unknown command 'xyzzy'" xyzzy
wrong "'allreduc' is neither a template nor a file (did you mean 'allreduce'?)" dump allreduc
wrong "'xyzzy' is neither a template nor a file" run xyzzy
wrong "missing TEMPLATE" dump
wrong "unexpected word 'more'" dump allreduce more
wrong "unknown option '--cuont', did you mean '--count'?" dump allreduce --cuont 3
wrong "unknown option '-x'" info -x
wrong "option --count needs a value" dump allreduce --count
wrong "--json takes no value" dump allreduce --json=1

wrong "-n: '0'; expected an integer from 1" dump allreduce -n 0
wrong "-n: '-3'" run allreduce -n -3
wrong "-n: '4x'" dump allreduce -n 4x
wrong "-n: ''" dump allreduce -n ''
wrong "-n: '99999999999'" dump allreduce -n 99999999999
wrong "--count: '-1' is not a size" dump allreduce --count -1
wrong "--count: '1.5' is not a size" dump allreduce --count 1.5
wrong "--count: '1Q' is not a size" dump allreduce --count 1Q
wrong "--count: '1kk' is not a size" dump allreduce --count 1kk
wrong "--count: '99999999999999999999' is too large" dump allreduce --count 99999999999999999999
wrong "--count: '18446744073709551615G' is too large" dump allreduce --count 18446744073709551615G
wrong "count" dump allreduce --count 18446744073709551615
wrong "--dtype: 'f31' is unknown (did you mean 'f32'?); expected one of f32, i8," dump allreduce --dtype f31
wrong "--op: 'add' is unknown" dump allreduce --op add
wrong "band" dump allreduce --op band
wrong "no algorithm 'rng'" dump allreduce --algo rng
wrong "--root: '-1'" dump broadcast --root -1
wrong "root is 9, expected 0 .. 3" dump broadcast -n 4 --root 9
wrong "rank 4; expected a rank from 0 to 3" dump allreduce -n 4 -r 4
wrong "--format: 'yaml' is unknown" dump allreduce --format yaml
wrong "--transport: 'tcp' is unknown; expected one of local, shared, mpi" run allreduce --transport tcp
wrong "--iterations: '0'" run allreduce --iterations 0
wrong "of memory here" run allreduce -n 64 --count 1024G
wrong "--timeout: 'x'; expected a number" run allreduce --timeout x
wrong "NAME: 'nods' is unknown (did you mean 'nodes'?)" bench nods
wrong "--bytes: '5'; expected multiples of 4" bench allreduce --bytes 4,5
wrong "no template 'xyzzy'" list xyzzy

wrong "-o $folder/no/such: No such file or directory" dump allreduce -o "$folder/no/such"
wrong "Is a directory" dump allreduce -o "$folder"
wrong "$folder: Is a directory" dump "$folder"

# files that cannot be read as schedules
"$weft" dump allreduce --algo ring -n 3 --count 7 -o "$folder/text" || fail "dump -o"
"$weft" dump allreduce --algo ring -n 3 --count 7 --format json -o "$folder/json" || fail "dump -o"
for format in text json; do
    bytes=$(wc -c <"$folder/$format")
    for part in 1 10 50 90 99; do
        head -c $((bytes * part / 100)) "$folder/$format" >"$folder/cut"
        wrong "$folder/cut: " dump "$folder/cut"
        grep -q 'line [0-9]' "$folder/err" || fail "$part% of $format: expected a line number"
    done
done
: >"$folder/empty"
wrong "$folder/empty: " dump "$folder/empty"
wrong "-n: 5, but $folder/text is for 3 ranks" dump "$folder/text" -n 5
wrong "rank 3 is not in $folder/text" dump "$folder/text" -r 3
"$weft" dump allreduce -n 3 -r 1 -o "$folder/one" || fail "dump -r"
wrong "holds 1 of 3 ranks" run "$folder/one"

if [ -e /dev/full ]; then
    for words in 'dump allreduce' 'list' 'info' '--help' 'list --json'; do
        checks=$((checks + 1))
        # shellcheck disable=SC2086
        "$weft" $words >/dev/full 2>"$folder/err"
        status=$?
        [ "$status" -eq 2 ] || fail "weft $words >/dev/full: exit $status, expected 2"
        [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "weft $words >/dev/full: expected one line"
    done
fi

for words in --help --version -V help 'help run' 'help --json' 'help --json train' 'info --help' 'list --help' 'dump --help' 'run --help' \
    'bench --help'; do
    # shellcheck disable=SC2086
    works $words
    [ -s "$folder/out" ] || fail "weft $words: nothing printed"
done
# one text of a command's options, and one table
for command in info list dump check run sim groups trace post-mortem profile merge launch bench train; do
    works "$command" --help
    cp "$folder/out" "$folder/help"
    works help "$command"
    checks=$((checks + 1))
    cmp -s "$folder/out" "$folder/help" || fail "weft help $command: not what --help prints"
    works help --json "$command"
    json_lines command summary operands about options
done
works help --json
json_lines command summary operands about options
[ "$(wc -l <"$folder/out")" -eq 15 ] || fail 'weft help --json: expected a line a command, and one of all'
wrong "unknown command 'rnu', did you mean 'run'?" help rnu
wrong "unexpected word 'more'" help run more

# what has no end is not read
wrong '/dev/zero: a character device; expected a schedule file' run /dev/zero
"$weft" dump - </dev/zero >"$folder/out" 2>"$folder/err"
status=$?
checks=$((checks + 1))
[ "$status" -eq 2 ] || fail "weft dump - </dev/zero: exit $status, expected 2"
grep -qF 'a character device' "$folder/err" || fail 'weft dump - </dev/zero: expected the device'
for command in dump check sim; do
    wrong 'a character device' "$command" /dev/zero
    wrong 'Is a directory' "$command" "$folder"
done
wrong 'a character device' trace /dev/zero
wrong 'a character device' post-mortem /dev/zero
wrong '--cost: /dev/zero: a character device' sim allreduce --cost /dev/zero
wrong '--trace: /dev/zero: a character device' dump allreduce --format html --trace /dev/zero
wrong '/dev/null: ' dump /dev/null
truncate -s 1000G "$folder/large"
wrong 'GiB; expected a schedule file of less than' dump "$folder/large"
rm "$folder/large"
checks=$((checks + 1))
"$weft" dump allreduce -n 2 | "$weft" check - >"$folder/out" 2>"$folder/err" || fail 'a pipe'

wrong "--bytes: ''" bench allreduce -b ''
wrong "--bytes: '4,'" bench allreduce -b 4,
wrong "--density: '0.1,'" bench gtopk --density 0.1,
wrong "--density: '2'; expected a number from 0 to 1" bench gtopk --density 2
wrong "--density: 0; expected shares above 0" bench gtopk --density 0
wrong "--cost: $folder/no: No such file" bench gtopk --cost "$folder/no"
wrong "--bytes: 17179869184; expected at most" bench gtopk --bytes 16G
wrong "'dot' with --json" dump allreduce --json --format dot
checks=$((checks + 1))
WEFT_SIMD=scalar "$weft" info --json | grep -q '"simd":"scalar"' || fail "WEFT_SIMD=scalar weft info"

finish
