#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every template with its slots on devices, by the command itself: among ranks that are processes, over shared
# memory and MPI, or over NCCL. The last line is `N passed, N failed, N skipped`; skipped are templates whose
# operations are functions of the host.
#
#   tests/gpu/check_processes.sh WEFT [--short] [--nccl | --nccl-local]
#
# --nccl: processes, each with a host of its own by NCCL_HOSTID, so that NCCL takes several on one device.
# --nccl-local: ranks of one process, which need a device each. --short: few of them.
set -uo pipefail

weft=$1
short=
how=processes
for word in "${@:2}"; do
    case $word in
    --short) short=1 ;;
    --nccl) how=nccl ;;
    --nccl-local) how=nccl-local ;;
    *)
        echo "check_processes.sh: unknown word \"$word\"" >&2
        exit 2
        ;;
    esac
done
passed=0
failed=0
skipped=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# verified NAME COMMAND...: exit 0, and the command says that all was right. What hangs fails.
verified()
{
    local name=$1
    shift
    if timeout -k 5 120 "$@" >"$out" 2>&1 </dev/null && grep -q 'verified *yes' "$out"; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAILED $name: $*"
    sed 's/^/    /' "$out" | tail -n 20
}

options=(--device cuda --verify --iterations 3 --deadline 60)
transports=(shared)
if [[ $how == processes && ${WEFT_TEST_MPI:-1} == 1 ]] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    transports+=(mpi)
fi
sizes=(2 3 5)
counts=(1000)
[[ -n $short ]] || counts+=(300000)
[[ -z $short ]] || sizes=(3)
[[ $how == processes ]] || sizes=(1 "${sizes[@]}")

# start TRANSPORT RANKS WORD...
start()
{
    local transport=$1 ranks=$2
    shift 2
    case $how:$transport in
    nccl-local:*) verified "$1 over NCCL" "$weft" run "$@" -n "$ranks" --nccl known ;;
    nccl:*) # the number of a process is in its environment only
        # shellcheck disable=SC2016
        NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 verified "$1 over NCCL" "$weft" launch -n "$ranks" \
            sh -c 'NCCL_HOSTID=rank-$WEFT_RANK exec "$@"' sh \
            "$weft" run "$@" --transport shared --nccl known ;;
    *:mpi) verified "$1 over mpi" mpiexec -n "$ranks" "$weft" run "$@" --transport mpi ;;
    *) verified "$1 over $transport" "$weft" run "$@" -n "$ranks" --transport "$transport" ;;
    esac
}

templates=$("$weft" list --json | sed -n 's/.*"name":"\([^"]*\)".*"kind":"template".*/\1/p')
[[ -z $short ]] || templates="allreduce alltoall broadcast"
[[ -n $templates ]] || failed=1
for template in $templates; do
    if ! "$weft" check "$template" -n 4 --device cuda >/dev/null; then
        skipped=$((skipped + 1))
        continue
    fi
    for transport in "${transports[@]}"; do
        for ranks in "${sizes[@]}"; do
            for count in "${counts[@]}"; do
                start "$transport" "$ranks" "$template" "${options[@]}" --count "$count"
            done
        done
    done
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
((failed == 0 && passed > 0))
