#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One MPI test under valgrind: no invalid access, no use of what was never written, no leak of ours.
#
#   tests/check_valgrind.sh BUILD
set -euo pipefail
build=$(cd "${1:?a build directory}" && pwd)
cd "$(dirname "$0")/.."

program=$build/tests/mpi/valgrind_smoke
if [[ ! -x $program ]]; then
    echo "check_valgrind: $program is missing; was weft built without MPI?" >&2
    exit 1
fi
timeout 300 "$build/tests/mpiexec" -n 2 valgrind --quiet --error-exitcode=9 --leak-check=full \
    --show-leak-kinds=definite --errors-for-leak-kinds=definite "$program"
echo "check_valgrind: clean on 2 ranks"
