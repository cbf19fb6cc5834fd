# SPDX-License-Identifier: BSD-3-Clause
# tools/scripts/limited_link.sh: refuses in one line, measures over a limited link, and leaves nothing behind
# however it ends. $1 the command, $2 the script. Without root and network namespaces: skipped (77).
set -u
weft=$1
script=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
checks=0
failures=0

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n' "$*"
    sed 's/^/    /' "$folder/out" "$folder/err"
}

link() { # OPTIONS: one rate, two ranks
    bash "$script" --weft "$weft" --rates 100mbit --ranks 2 "$@" >"$folder/out" 2>"$folder/err"
}

refuses() { # TEXT OPTIONS
    checks=$((checks + 1))
    text=$1
    shift
    link "$@"
    status=$?
    [ "$status" -eq 2 ] || fail "$*: exit $status, expected 2"
    [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "$*: expected one line on standard error"
    grep -qF -- "$text" "$folder/err" || fail "$*: expected '$text'"
}

left() { # PID: namespaces of that run
    ip netns list | grep "^weft-link-$1-"
}

gone() { # PID WHEN
    checks=$((checks + 1))
    left "$1" >"$folder/left" && fail "$2: $(cat "$folder/left") left"
}

mkdir "$folder/bin"
for program in bash awk dirname readlink id; do
    ln -s "$(command -v "$program")" "$folder/bin/$program"
done
checks=$((checks + 1))
PATH=$folder/bin bash "$script" >"$folder/out" 2>"$folder/err"
status=$?
[ "$status" -eq 2 ] || fail "without programs: exit $status, expected 2"
grep -qF 'not found: ip tc mpiexec; expected ip and tc (package iproute2)' "$folder/err" ||
    fail 'without programs: expected their names'
refuses "'--rate' is unknown" --rate 1gbit
refuses '--ranks: expected a value' --ranks
# Before anything is measured, and without what it needs.
refuses "--rates: 'x'" --rates 100mbit,x
refuses "--rates: '0mbit'" --rates 0mbit
refuses "--rates: ''" --rates ''
refuses "--ranks: '1'" --ranks 2,1
refuses "--ranks: ''" --ranks ''
refuses "--ranks: ''" --ranks 2,
refuses "--bytes: '4000002'" --bytes 4000000,4000002
refuses "--density: '2'" --density 0.1,2
refuses "--density: '0'" --density 0
refuses "--rounds: '0'" --rounds 0
refuses "--rounds: '102'" --rounds 102
refuses "--steps: 'x'" --steps x
refuses "--hidden: 'x'" --hidden 16,x
refuses "--output: cannot make '/dev/null/x'" --output /dev/null/x

for program in ip tc mpiexec; do
    if ! command -v "$program" >/dev/null; then
        echo "skipped: no $program here"
        exit 77
    fi
done
if [ "$(id -u)" -ne 0 ]; then
    refuses 'needs root'
    [ "$failures" -eq 0 ] || exit 1
    echo "skipped: not root, so no network namespaces"
    exit 77
fi
refuses "--ranks: '1'; expected 2 to 250" --ranks 1
refuses '--burst:' --burst much
refuses "--queue: '0b'; expected bytes" --queue 0b
refuses '--queue:' --queue much
refuses '--weft:' --weft "$folder/no"

if ! link -- true; then
    if grep -q 'cannot make\|built without MPI\|is not MPICH' "$folder/err"; then
        echo "skipped: $(cat "$folder/err")"
        exit 77
    fi
    fail 'a command that does nothing'
fi
checks=$((checks + 1))

# a link that is limited, and what is measured there
checks=$((checks + 1))
link --bytes 40000 --rounds 1 --steps 2 --hidden 16 || fail "a short run: exit $?"
for line in '2 ranks: .* bytes of each in .* Mbit/s of 100' 'butterfly P=2 n=10000 k=10 .*allreduce' \
    'MPI_Allreduce' '  gtopk .* times allreduce'; do
    checks=$((checks + 1))
    grep -q "$line" "$folder/out" || fail "a short run: expected '$line'"
done

refuses "congestion control 'none-such'" --tcp none-such -- true

# a queue that is too short for three senders drops packets, which are sent again; a long one none
checks=$((checks + 1))
words='run server-step --transport mpi --algo all --count 64k --segment 16k --iterations 2'
# shellcheck disable=SC2086
link --ranks 5 --queue 16kb -- "$weft" $words || fail "a short queue: exit $?"
grep -q '^rank 4: .* [1-9][0-9]* dropped for it' "$folder/out" ||
    fail 'a short queue: expected packets that are dropped'
grep -q '^rank [0-3]: .* [1-9][0-9]* segments again' "$folder/out" || fail 'a short queue: expected more'
checks=$((checks + 1))
# shellcheck disable=SC2086
link --ranks 5 -- "$weft" $words || fail "a long queue: exit $?"
grep -q '^rank 4: .* 0 dropped for it' "$folder/out" || fail 'a long queue: expected no packets dropped'

# nothing is left: after an error, after a signal, and after a run that could not clean up
background() {
    bash "$script" --weft "$weft" --rates 100mbit --ranks 2 "$@" >"$folder/out" 2>"$folder/err" &
    run=$!
    until [ -n "$(ip netns pids "weft-link-$run-1" 2>/dev/null)" ]; do
        if ! kill -0 "$run" 2>/dev/null; then
            fail "$*: ended before its ranks ran"
            return
        fi
    done
}

checks=$((checks + 1))
bash "$script" --weft "$weft" --rates 100mbit --ranks 2 -- false >"$folder/out" 2>"$folder/err" &
run=$!
wait "$run" && fail 'a command that fails: exit 0'
gone "$run" 'after an error'
checks=$((checks + 1))
background -- sleep 1000
kill -TERM "$run"
wait "$run"
status=$?
[ "$status" -eq 143 ] || fail "after TERM: exit $status, expected 143"
gone "$run" 'after TERM'
background -- sleep 1000
kill -KILL "$run"
wait "$run" 2>/dev/null
checks=$((checks + 1))
left "$run" >/dev/null || fail 'after KILL: expected namespaces that are left'
link -- true || fail "a run after one that was killed: exit $?"
gone "$run" 'after KILL and another run'

echo "$checks checks, $failures failed"
[ "$failures" -eq 0 ]
