# SPDX-License-Identifier: BSD-3-Clause
# What the tests of `weft train` share, sourced after common.sh.

fields='algorithm ranks steps seconds samples_per_second ideal_samples_per_second
    bound_samples_per_second test_accuracy stale_fraction seed model bytes_sent bytes_per_step
    bytes_per_step_most compression_ratio parameters consensus_distance curve curve_steps consensus'

# How many `all` are; without LAPACK there is no GradiVeQ. The build says whether it has to be there
# (WEFT_TEST_LAPACK), or else the command.
lapack=${WEFT_TEST_LAPACK:-$("$weft" info --json | grep -c '"lapack":true')}
if [ "$lapack" = 1 ]; then
    algorithms=21
    gradiveq=gradiveq
else
    algorithms=20
    gradiveq=
    wrong 'weft train: --algorithm: gradiveq: principal components need LAPACK' train --algorithm gradiveq
    wrong 'principal components need LAPACK' train --algorithm merged --merge-compress gradiveq
    echo 'ok - gradiveq # SKIP no LAPACK'
fi

# objects COUNT: so many lines, each with the fields, and every rank held one model.
objects() {
    # shellcheck disable=SC2086
    json_lines $fields
    checks=$((checks + 1))
    [ "$(wc -l <"$folder/out")" -eq "$1" ] || fail "expected $1 objects"
    [ "$(grep -c '"identical":true' "$folder/out")" -eq "$1" ] || fail "models differ"
}
