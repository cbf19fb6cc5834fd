#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The one command that proves weft on a machine with a GPU: sets up, builds, runs every suite of devices on
# the real driver, ranks that are processes, NCCL, compute-sanitizer where it is, and `weft bench gpu`. The
# last line is `N passed, N failed, N skipped`; a report that can be pasted into docs/ is left in the build
# folder. Exit 0: all passed; 1: something failed; 2: there is no device, or wrong usage.
#
#   tests/gpu/run.sh [--build DIR] [--report FILE] [--no-setup] [--short] [--stand-in]
#
# --build: where to build (default build-gpu). --report: default DIR/gpu-report.md. --no-setup: installs and
# fetches nothing. --short: few of the suites and small sizes. --stand-in: all of it over the stand-ins of the
# driver and of NCCL, to prove this script; needs no device.
# NVCC=FILE says which nvcc. A suite that hangs is ended by meson after ten minutes and counts as failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec </dev/null
. tests/stages.sh

build="build-gpu"
report=
setup=1
short=
over=device
while (($# > 0)); do
    case $1 in
    --build | --report)
        (($# > 1)) || { echo "run.sh: $1 needs a value" >&2; exit 2; }
        [[ $1 == --build ]] && build=$2 || report=$2
        shift
        ;;
    --no-setup) setup= ;;
    --short) short=--short ;;
    --stand-in) over=standin ;;
    *)
        echo "run.sh: unknown word \"$1\"; see the head of tests/gpu/run.sh" >&2
        exit 2
        ;;
    esac
    shift
done
report=${report:-$build/gpu-report.md}

# ---- the driver ----

# probe: the number of devices and the driver's version of CUDA ("2 13000"), or why there is none.
probe()
{
    python3 - <<'PYTHON'
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(f"there is no CUDA driver: {error}")
count, version = ctypes.c_int(), ctypes.c_int()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or \
    cuda.cuDriverGetVersion(ctypes.byref(version))
if code == 100 or code == 0 and count.value == 0:
    sys.exit("there is a CUDA driver, and no device")
if code:
    sys.exit(f"the CUDA driver says error {code}")
print(count.value, version.value)
PYTHON
}

# Where the driver is: programs that are linked with the stand-in must find the driver first, and nothing
# else that lies beside it.
real_driver()
{
    local found
    found=$(python3 - <<'PYTHON'
import ctypes, re
ctypes.CDLL("libcuda.so.1")
print(re.search(r"\S*/libcuda\.so\S*", open("/proc/self/maps").read()).group(0))
PYTHON
    )
    mkdir -p "$build/driver"
    ln -sf "$found" "$build/driver/libcuda.so.1"
    echo "$PWD/$build/driver"
}

devices=2
cuda=13000
if [[ $over == device ]]; then
    if ! found=$(probe 2>&1); then
        echo "run.sh: $found" >&2
        echo "run.sh: nothing was run; --stand-in runs all of it over stand-ins" >&2
        exit 2
    fi
    read -r devices cuda <<<"$found"
fi

# ---- setting up ----

fetched=${HOME:-/}/.cache/weft/cuda
nvcc=${NVCC:-}

find_nvcc()
{
    local place
    for place in nvcc /usr/local/cuda/bin/nvcc "$fetched/bin/nvcc"; do
        [[ -n $nvcc ]] || nvcc=$(command -v "$place" || true)
    done
}

# A device that one process has for itself cannot be shared by several.
check_mode()
{
    local mode
    mode=$(nvidia-smi --query-gpu=compute_mode --format=csv,noheader 2>/dev/null | grep -v Default || true)
    [[ -z $mode ]] ||
        echo "run.sh: a device's compute mode is ${mode%%$'\n'*}: suites of several processes will fail" \
            "(nvidia-smi -c DEFAULT)" >&2
}

set_up()
{
    tools/setup.sh ci
    [[ $over == standin ]] || tools/scripts/fetch_nvcc.sh run || true
}

# What nvcc compiles, a driver of an earlier CUDA does not load.
fits()
{
    local release
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    ((release <= cuda / 1000)) && return
    echo "run.sh: $nvcc is of CUDA $release, the driver of $((cuda / 1000)).$((cuda % 1000 / 10)), which does" \
        "not load what it compiles: NVCC=FILE names an older one (and -Dtoolkit_include in" \
        "$build its headers), or install a driver of CUDA $release" >&2
    return 1
}

compile()
{
    local options=(-Dgpu=enabled -Dgpu_tests="$over" -Dtools=enabled -Dtests=enabled)
    [[ -z ${NVCC:-} ]] || options+=(-Dnvcc="$NVCC")
    if [[ -f $build/build.ninja ]]; then
        meson configure "$build" "${options[@]}"
    else
        meson setup "$build" "${options[@]}" >"$build.setup.log" || { cat "$build.setup.log"; return 1; }
        rm -f "$build.setup.log"
    fi
    meson compile -C "$build" >"$build/compile.log" || { tail -n 50 "$build/compile.log"; return 1; }
}

# ---- what is run ----

# Suites of devices; those named, or all. What has been started in a process must not be forked, and a device
# is shared: two programs at a time.
suites()
{
    local status=0 words=(--suite gpu)
    (($# == 0)) || words=("$@")
    rm -f "$build/meson-logs/testlog.json"
    meson test -C "$build" --no-rebuild --print-errorlogs --quiet --num-processes 2 \
        --timeout-multiplier "${timeouts:-1}" "${words[@]}" || status=$?
    tests/tally.py "$build/meson-logs/testlog.json" || status=1
    return "$status"
}

# The same where all ranks share one device.
one_device()
{
    CUDA_VISIBLE_DEVICES=0 STANDIN_DEVICES=1 suites device/templates device/random_dag device/streams
}

# As many seeds as take minutes on a device.
many_seeds()
{
    WEFT_TEST_SEEDS=1000 suites device/random_dag device/shared/random_dag
}

processes()
{
    # shellcheck disable=SC2086
    tests/gpu/check_processes.sh "$build/tools/weft" $short
}

# One rank, then several processes on one device; over the stand-in, ranks of one process.
nccl()
{
    local how=--nccl
    [[ $over == device ]] || how=--nccl-local
    # shellcheck disable=SC2086
    STANDIN_DEVICES=8 tests/gpu/check_processes.sh "$build/tools/weft" $how $short
}

# The suites of NCCL as a transport and of its collectives as nodes belong here as they come: on devices a
# suite whose ranks are processes (the stand-in's are threads) is named below.
nccl_suites=()

sanitizer()
{
    local tool status=0
    for tool in memcheck racecheck synccheck; do
        timeout 1800 "$memcheck" --tool "$tool" --error-exitcode 3 "$build/tests/gpu/test_launches" ||
            { status=1; echo "FAILED compute-sanitizer --tool $tool"; }
    done
    timeout 600 "$memcheck" --error-exitcode 3 "$build/tools/examples/example_device_ring" 2 1000 || status=1
    return "$status"
}

# Selections of other libraries, which take turns with weft's.
others=()
compile_cub()
{
    local options=(-std=c++17 -O2)
    [[ $over == standin ]] || options+=(-arch=native)
    rm -f "$build/topk_cub"
    "$nvcc" "${options[@]}" -o "$build/topk_cub" tests/gpu/beside/topk_cub.cu
}

find_others()
{
    [[ ! -x $build/topk_cub ]] || others=("$build/topk_cub")
    if python3 -c 'import torch; torch.cuda.init()' 2>/dev/null; then
        others+=(tests/gpu/beside/topk_torch.py)
    else
        echo "torch: not compared with, it is not installed"
    fi
}

measure()
{
    local words=() IFS=,
    [[ $over == device && -z $short ]] || words=(--bytes 4k --rounds 1)
    ((${#others[@]} == 0)) || words+=(--beside "${others[*]}")
    "$build/tools/weft" bench gpu --json "${words[@]}" >"$build/gpu-figures.jsonl" &&
        python3 -c 'import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for row in rows:
    print(*(row[key] for key in ("case", "weft", "unit", "peer", "peer_value", "limit")), sep="  ")
sys.exit(not rows)' "$build/gpu-figures.jsonl"
}

# ---- all of it ----

[[ -z $setup ]] || stage "setting up" set_up
find_nvcc
if [[ -z $nvcc ]]; then
    echo "run.sh: nvcc is missing, and was not to be had; NVCC=FILE says where it is" >&2
    exit 1
fi
if [[ $over == device ]]; then
    check_mode
    fits || exit 1
fi
stage "building" compile
if ((failed > 0)); then
    stages_end || exit 1
fi
rm -f "$build/gpu-stages.tsv" "$build/gpu-figures.jsonl"
stages_file=$build/gpu-stages.tsv

if [[ $over == device ]]; then
    LD_LIBRARY_PATH=$(real_driver)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    # A stream that waits for a run holds one of the hardware's connections (docs/devices.md).
    export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}
    timeouts=4
    [[ -e $fetched/lib/libnccl.so.2 ]] && LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$fetched/lib
else
    LD_LIBRARY_PATH=$PWD/$build/tests/gpu/standin:$PWD/$build/tests/gpu/nccl
    export STANDIN_DEVICES=2
fi
export LD_LIBRARY_PATH

# Programs that are linked with the stand-in must not have found that after all.
if [[ $over == device ]] && ldd "$build/tests/gpu/test_launches" | grep -q "libcuda.*$build/tests/gpu/standin"; then
    echo "run.sh: test_launches loads the stand-in in place of the driver: this linker writes DT_RPATH" >&2
    failed=$((failed + 1))
fi
if ! "$build/tools/weft" info --json | grep -q '"gpu":true'; then
    "$build/tools/weft" info >&2
    echo "run.sh: weft finds no device, see above" >&2
    failed=$((failed + 1))
fi
if [[ -n $short ]]; then
    # Programs that take no time: over the stand-in, tests/run.sh has played the others.
    stage "suites" suites 'device_ring 3 1000' 'stream_ordered 3 4'
else
    stage "suites" suites
    ((devices < 2)) || stage "suites on one device" one_device
    [[ $over == standin ]] || stage "random graphs" many_seeds
fi
stage "processes" processes
if python3 -c 'import ctypes; ctypes.CDLL("libnccl.so.2")' 2>/dev/null; then
    stage "NCCL" nccl
    ((${#nccl_suites[@]} == 0)) || stage "NCCL's suites" suites "${nccl_suites[@]}"
else
    echo "NCCL: skipped, there is no libnccl.so.2"
    skipped=$((skipped + 1))
fi
memcheck=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer || true)
if [[ $over == device && -n $memcheck ]]; then
    stage "compute-sanitizer" sanitizer
else
    echo "compute-sanitizer: skipped, $([[ $over == device ]] && echo "it is not installed" || echo "there is no device")"
    skipped=$((skipped + 1))
fi
stage "cub's selection" compile_cub
[[ $over == standin ]] || find_others
stage "weft bench gpu" measure
"$build/tools/weft" info --json >"$build/gpu-info.json"
stage "report" tests/gpu/report.py "$over" "$build" "$nvcc" "$report"

stages_end
