# SPDX-License-Identifier: BSD-3-Clause
# A collective that is written by hand runs at any size, without compiling anything.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
ring=$here/../../tools/examples/ring.weft

for ranks in 1 2 3 5 8 13; do
    works run "$ring" -n "$ranks" --verify --iterations 3 --json
    grep -q '"verified":true' "$folder/out" || fail "the ring of $ranks is not verified"
done
works run "$ring" --verify --json
grep -q '"ranks":4' "$folder/out" || fail 'left out, -n is 4'
if [ "${WEFT_TEST_MPI:-1}" != 0 ] && command -v mpiexec >/dev/null; then
    checks=$((checks + 1))
    mpiexec -n 3 "$weft" run "$ring" --transport mpi --verify --iterations 3 --json \
        >"$folder/out" 2>"$folder/err" || fail 'the ring over MPI'
    grep -q '"verified":true' "$folder/out" || fail 'the ring over MPI is not verified'
else
    echo 'skipped: no MPI here, the ring ran over local ranks only'
fi

# It can be checked and simulated as well, and looked at.
for ranks in 1 2 7; do
    works check "$ring" -n "$ranks" --json
    grep -q '"ok":true' "$folder/out" || fail "the ring of $ranks has faults"
    works sim "$ring" -n "$ranks" --net L=1,G=0.001 --json
done
grep -q '"time_us":24.2' "$folder/out" || fail 'a ring of 7 takes 2 x 6 x (1 + 1.024)'
works dump "$ring" -n 7 --format html -o "$folder/ring.html"

# What is written out is the same schedule.
works dump "$ring" -n 5 -o "$folder/ring.text"
works run "$folder/ring.text" --verify
works dump "$folder/ring.text" -o "$folder/again.text"
cmp -s "$folder/ring.text" "$folder/again.text" || fail 'written out, the ring changes'

# Parameters that it declares: by -D, and by the options that templates have.
for words in '-D count=16' '--count 16' '--dtype i32 --op max' '-D dtype=u8 -D op=min' \
    '--count 1k -D count=8' '-D count=1k'; do
    # shellcheck disable=SC2086
    works run "$ring" $words -n 3 --verify --json
    grep -q '"verified":true' "$folder/out" || fail "the ring with $words is not verified"
done
works dump "$ring" -n 2 --count 1k
grep -q 'send f32 2048' "$folder/out" || fail 'expected two blocks of 1k'
wrong "--root: $ring declares no such parameter; expected a template, or one of those that it declares: count, dtype, op" \
    run "$ring" --root 0
for words in '--count 3' '--dtype f64' '--op max' '--algo ring' '--root 0' '--segment 4' '--in-place' \
    '--group-size 2' '--version 1' '--k 2'; do
    for command in dump check sim run; do
        # shellcheck disable=SC2086
        wrong "declares no such parameter; expected a template, or a file that declares it" \
            $command "$folder/ring.text" $words
    done
done
wrong 'weight' run "$ring" -D weight=2
wrong "-D: 'count'; expected NAME=VALUE" run "$ring" -D count
wrong "-D: '=3'; expected NAME=VALUE" run "$ring" -D =3
wrong "-D: 'count': allreduce is a template" run allreduce -D count=3
works run broadcast --count 5 --op max --k 2 # a template ignores what it does not use

# Repetitions that are too much for memory are refused, not tried.
printf 'weft 1\nschedule "s" size 2147483647\nranks all { join }\n' >"$folder/many.weft"
wrong 'repetitions' dump "$folder/many.weft"
printf 'weft 1\nschedule "s" size 1\nrank 0 { for i in 0..1 << 60 { join } }\n' >"$folder/long.weft"
wrong 'repetitions' dump "$folder/long.weft"
finish
