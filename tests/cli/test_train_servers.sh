# SPDX-License-Identifier: BSD-3-Clause
# weft train with parameter servers: who is one, what it takes part in, what is reported of it.
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/train.sh"

# -n counts those that train. Servers that nobody asks for anything are idle, and change nothing.
works train --algorithm allreduce,local -n 3 --steps 12 --batch 8 --transport shared --json
objects 2
grep -o '"checksum":"[0-9a-f]*"' "$folder/out" >"$folder/checksums"
for servers in 1 2; do
    works train --algorithm allreduce,local -n 3 --servers $servers --steps 12 --batch 8 \
        --transport shared --json
    objects 2
    checks=$((checks + 1))
    grep -o '"checksum":"[0-9a-f]*"' "$folder/out" | cmp -s - "$folder/checksums" ||
        fail "expected the same models beside $servers servers"
    checks=$((checks + 1))
    [ "$(grep -c '"ranks":3,' "$folder/out")" -eq 2 ] || fail "expected 3 ranks"
done
works launch -n 4 -- "$weft" train --transport shared --algorithm allreduce --servers 1 --steps 12 \
    --batch 8 --json
objects 1
checks=$((checks + 1))
grep -q '"ranks":3,' "$folder/out" || fail "expected 3 of 4 processes to train"
works launch -n 4 -- "$weft" train --transport shared -n 3 --servers 1 --steps 12 --batch 8 --json
objects 1

wrong "--servers: '0'; expected an integer from 1" train --servers 0
wrong "--servers: '-1'" train --servers -1

if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    checks=$((checks + 1))
    mpiexec -n 5 "$weft" train --algorithm allreduce,local --servers 2 --transport mpi --steps 12 --batch 8 \
        --json >"$folder/out" 2>"$folder/err" </dev/null || fail "mpiexec -n 5 weft train --servers 2"
    objects 2
    checks=$((checks + 1))
    grep -o '"checksum":"[0-9a-f]*"' "$folder/out" | cmp -s - "$folder/checksums" ||
        fail "expected the same models over MPI"
    checks=$((checks + 1))
    mpiexec -n 2 "$weft" train --algorithm allreduce --servers 2 --transport mpi >"$folder/out" \
        2>"$folder/err" </dev/null && fail "two servers of two processes"
    grep -q -- '--servers: 2 of 2 processes; expected more processes than servers' "$folder/err" ||
        fail "expected what is wrong"
else
    echo 'skipped: servers over MPI were not tested (no MPI, or WEFT_TEST_MPI=0)'
fi
finish
