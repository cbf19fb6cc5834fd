# SPDX-License-Identifier: BSD-3-Clause
# weft train on devices, over the stand-ins of the driver, $2, and of cuBLAS, $3.
. "$(dirname "$0")/common.sh"
driver=$(cd "$(dirname "$2")" && pwd)
cublas=$(cd "$(dirname "$3")" && pwd)
unset LD_LIBRARY_PATH # who runs this may have put them there
# A peer may have memory open that its owner frees (docs/devices.md).
export STANDIN_DELAY_US=0 STANDIN_IPC_FREE=1

# A grid of fibers takes its time: few images, and a model of few parameters.
mkdir "$folder/data"
for part in train test; do
    head -40 "$(dirname "$0")/../../tools/data/optdigits/optdigits-$part.csv" >"$folder/data/optdigits-$part.csv"
done
small="--data $folder/data --hidden 6 --batch 4 --steps 4 --sync-period 2"

# says PATTERN: of the last output.
says() {
    checks=$((checks + 1))
    grep -qE -- "$1" "$folder/out" || fail "expected '$1'"
}

# trains COUNT WORDS: so many objects, of models that are one in the end.
trains() {
    count=$1
    shift
    # shellcheck disable=SC2086
    works train $small --json "$@"
    json_lines device loss test_accuracy checksum gradient_us
    checks=$((checks + 1))
    [ "$(grep -c '"identical":true' "$folder/out")" -eq "$count" ] || fail "expected $count objects"
}

# value NAME: of the objects of the last output.
value() {
    sed "s/.*\"$1\":\"\{0,1\}\([^,\"]*\).*/\1/" "$folder/out"
}

# ---- what is not there ----

if ldconfig -p | grep -q 'libcuda\.so\.1'; then
    echo 'ok - without a driver # SKIP there is one'
else
    wrong 'weft train: --device: there is no CUDA driver: libcuda.so.1: ' train --device cuda -n 2
fi
LD_LIBRARY_PATH=$driver:$cublas
export LD_LIBRARY_PATH
STANDIN_DEVICES=0 wrong '--device: there is a CUDA driver, and no device' train --device cuda -n 2
wrong "--device: 'gpu'; expected cuda, or cuda:N" train --device gpu -n 2
wrong "--device: 'cuda:'; expected cuda, or cuda:N" train --device cuda: -n 2
wrong "--device: 'cuda:1x'; expected cuda, or cuda:N" train --device cuda:1x -n 2
wrong "--device: 'cuda:2'; expected one of cuda:0 to cuda:1" train --device cuda:2 -n 2
wrong "--device: 'cuda:99999999999'; expected one of cuda:0 to cuda:1" train --device cuda:99999999999 -n 2
wrong '--algorithm: qsgd takes no models of a device; expected some of allreduce, local, ' \
    train --device cuda --algorithm allreduce,qsgd -n 2
wrong '--device: cuda beside --transport virtual, whose ranks have no devices' \
    train --device cuda --transport virtual --compute 1 -n 2
# One that is no library comes first.
mkdir "$folder/broken"
echo 'no library' >"$folder/broken/libcublas.so.13"
cp "$folder/broken/libcublas.so.13" "$folder/broken/libcublas.so.12"
cp "$folder/broken/libcublas.so.13" "$folder/broken/libcublas.so.11"
LD_LIBRARY_PATH=$driver:$folder/broken wrong '--device: there is no cuBLAS: ' train --device cuda -n 2
# A device that fails is no wrong usage.
checks=$((checks + 1))
# shellcheck disable=SC2086
STANDIN_CUBLAS_FAIL=1:1 run train $small --device cuda -n 1
[ "$status" -eq 1 ] || fail "exit $status, expected 1"
grep -q 'cublasCreate: CUBLAS_STATUS_NOT_INITIALIZED (it could not begin; is the driver older than it?) on cuda:0' \
    "$folder/err" || fail 'expected what cuBLAS has said'

# ---- trainings ----

trains 8 --device cuda --algorithm all -n 3
trains 2 --device cuda --algorithm allreduce,local -n 3
checks=$((checks + 1))
[ "$(value device | sort -u)" = cuda ] || fail 'expected the device'
accuracies=$(value test_accuracy)
losses=$(value loss)
trains 2 --algorithm allreduce,local -n 3
checks=$((checks + 3))
[ "$(value device | sort -u)" = null ] || fail 'expected the processor'
[ "$(value test_accuracy)" = "$accuracies" ] || fail "expected the device's accuracies, $accuracies"
python3 -c 'import sys; a, b = (list(map(float, text.split())) for text in sys.argv[1:])
assert all(abs(x - y) < 1e-4 * x for x, y in zip(a, b)) and len(a) == len(b) == 2' "$losses" "$(value loss)" ||
    fail "expected about the device's losses, $losses"
trains 3 --device cuda --algorithm wagma,eager-solo,eager-majority -n 3 --imbalance two-random:5
trains 1 --device cuda --algorithm wagma -n 4 --contribution accumulate --mode waiting --order beside
trains 1 --device cuda:1 -n 2 --order beside
says '"order":"delayed".*"device":"cuda:1"'
WEFT_DEVICE=cuda:1 trains 1 --device cuda -n 2
WEFT_DEVICE=cuda:7 wrong "--device: 'cuda:7'; expected one of cuda:0 to cuda:1" train --device cuda -n 2
# shellcheck disable=SC2086
works train $small --device cuda -n 2
says '^Models on cuda\.$'
# shellcheck disable=SC2086
works train $small -n 2
checks=$((checks + 1))
! grep -q '^Models on' "$folder/out" || fail 'expected no device'

# Streams that share connections: as many as there are, and more, for which threads wait.
for ranks in 1 3 4; do
    STANDIN_CONNECTIONS=8 trains 1 --device cuda:0 -n $ranks
done
STANDIN_CONNECTIONS=1 CUDA_DEVICE_MAX_CONNECTIONS=1 trains 3 --device cuda:0 -n 3 --algorithm allreduce,local,wagma \
    --order beside

# By processes: each with its devices, and by name.
trains 3 --device cuda --algorithm allreduce,oktopk,wagma -n 3 --transport shared
trains 1 --device cuda:0 -n 2 --transport shared --on-death stop
if [ "${WEFT_TEST_MPI:-1}" = 1 ] && command -v mpiexec >/dev/null &&
    "$weft" info --json | grep -q '"mpi"'; then
    checks=$((checks + 2))
    # shellcheck disable=SC2086
    mpiexec -n 2 "$weft" train $small --json --device cuda --transport mpi >"$folder/out" 2>"$folder/err" \
        </dev/null || fail 'mpiexec -n 2 weft train --device cuda'
    grep -q '"device":"cuda".*"identical":true' "$folder/out" || fail 'expected one model over MPI'
fi

# Those that are left go on, with their models.
checks=$((checks + 1))
# shellcheck disable=SC2086
python3 -B "$(dirname "$0")/../stress/train_kills.py" "$weft" --moments 2 -v \
    --algorithm "allreduce --device cuda $small,wagma --device cuda $small,gtopk --device cuda $small" >"$folder/out" 2>"$folder/err" ||
    fail 'processes that die'

# ---- what was not installed ----

mkdir "$folder/alone"
cp "$weft" "$folder/alone/weft"
library=$(ldd "$weft" | sed -n 's/.*libweft\.so\.0 => \([^ ]*\).*/\1/p')
cp "$library" "$folder/alone/libweft.so.0"
module=$(dirname "$weft")/command-cuda.so
weft=$folder/alone/weft
LD_LIBRARY_PATH=$folder/alone:$driver:$cublas
wrong 'command-cuda.so, which trains on devices of CUDA, is not installed; it is built where nvcc is found' \
    train --device cuda -n 2
version=$("$weft" --version | sed 's/.* //')
LC_ALL=C sed "s/\x00$(echo "$version" | sed 's/\./\\./g')\x00/\x00$(echo "$version" | tr 0-9 9)\x00/g" \
    "$module" >"$folder/alone/command-cuda.so"
wrong "command-cuda.so is of weft 9.9.9, this is $version" train --device cuda -n 2
cp "$module" "$folder/alone/command-cuda.so"
checks=$((checks + 1))
# shellcheck disable=SC2086
run train $small --device cuda -n 1
[ "$status" -eq 1 ] || fail "without libweft-cuda: exit $status, expected 1"
grep -q 'libweft-cuda is not installed: ' "$folder/err" || fail 'expected that libweft-cuda is missing'
finish
