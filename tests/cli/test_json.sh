# SPDX-License-Identifier: BSD-3-Clause
# --json: one object a line with the fields that were promised, and nothing else.
. "$(dirname "$0")/common.sh"

works info
grep -qE '^  transports +local shared (mpi )?virtual$' "$folder/out" || fail "weft info: expected all transports"
works info --json
json_lines version transports gpu cores simd
grep -q '"virtual"' "$folder/out" || fail "weft info --json: expected all transports"
works list
works list --json
json_lines name kind parameters result
for name in barrier broadcast reduce allreduce reduce-scatter allgather gather scatter alltoall; do
    grep -q "\"name\":\"$name\"" "$folder/out" || fail "weft list has no $name"
done
for name in group-average gossip pair-average sparse-average compressed-average gradients server; do
    grep -q "\"name\":\"$name\",\"kind\":\"object\"" "$folder/out" || fail "weft list has no $name"
done
works list gossip
works list allreduce
works list allreduce --json
[ "$(wc -l <"$folder/out")" -eq 1 ] || fail "weft list allreduce --json: expected one line"
works run allreduce -n 2 --iterations 3 --verify --json
json_lines ranks transport iterations median_us verified
works bench
works bench --json
json_lines bench
finish
