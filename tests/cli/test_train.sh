# SPDX-License-Identifier: BSD-3-Clause
# weft train: every algorithm, on local and virtual ranks and over MPI; the fields of its objects.
. "$(dirname "$0")/common.sh"

fields='algorithm ranks steps seconds samples_per_second ideal_samples_per_second
    bound_samples_per_second test_accuracy stale_fraction seed bytes_sent bytes_per_step
    bytes_per_step_most parameters'

# objects COUNT: so many lines, each with the fields, and every rank held one model.
objects() {
    # shellcheck disable=SC2086
    json_lines $fields
    checks=$((checks + 1))
    [ "$(wc -l <"$folder/out")" -eq "$1" ] || fail "expected $1 objects"
    [ "$(grep -c '"identical":true' "$folder/out")" -eq "$1" ] || fail "models differ"
}

works train --algorithm all -n 3 --steps 12 --batch 8 --sync-period 5 --json
objects 8
for name in allreduce local d-psgd sgp ad-psgd eager-solo eager-majority wagma; do
    checks=$((checks + 1))
    grep -q "\"algorithm\":\"$name\"" "$folder/out" || fail "no object of $name"
done
works train --algorithm all -n 5 --steps 12 --batch 8 --sync-period 0 --neighbours 2 \
    --transport virtual --compute 10 --imbalance rl:0.01 --net L=5,G=0.001 --seeds 2 --json
objects 16
works train --algorithm wagma -n 4 --steps 12 --batch 8 --group-size 2 --mode waiting --json
objects 1
works train --algorithm wagma -n 4 --steps 12 --batch 8 --mode none --sync-period 1 \
    --contribution accumulate --json
objects 1
works train --algorithm wagma -n 3 --steps 12 --batch 8 --activation drawn --patience 0 --json
objects 1
works train --algorithm allreduce -n 2 --steps 3 --batch 4 --hidden 12 --json
objects 1
checks=$((checks + 1))
grep -q '"parameters":910,' "$folder/out" || fail "expected 65 * 12 + 13 * 10 parameters"
works train --algorithm local,wagma -n 2 --steps 4 --batch 4 --seeds 3 --plot "$folder/plot.svg"
checks=$((checks + 1))
grep -q 'Medians of 3 seeds, 1 to 3' "$folder/out" || fail "expected medians"
checks=$((checks + 1))
grep -q '<svg' "$folder/plot.svg" || fail "expected a plot"

wrong "'waitin'" train --mode waitin
wrong "--compute" train --transport virtual

if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    for ranks in 1 2 3; do
        checks=$((checks + 1))
        mpiexec -n $ranks "$weft" train --algorithm all --transport mpi --steps 12 --batch 8 \
            --sync-period 5 --json >"$folder/out" 2>"$folder/err" </dev/null ||
            fail "mpiexec -n $ranks weft train"
        objects 8
    done
else
    echo 'skipped: training over MPI was not tested (no MPI, or WEFT_TEST_MPI=0)'
fi
finish
