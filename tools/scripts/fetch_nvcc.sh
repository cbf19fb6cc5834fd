#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Gets nvcc, and NCCL's header, where they are missing: as Debian's package where there is one (it is
# in non-free), else NVIDIA's own wheels from PyPI, of which ~/.cache/weft/cuda holds what compiles.
# The build finds it there. Exits 1 where there is none to be had.
#
#   fetch_nvcc.sh [run]     run: NCCL itself, too, as programs load it
set -euo pipefail

version=13.0 # what docs/kernels.md has its table of
cache=${HOME:?}/.cache/weft
fetched=$cache/cuda

has_nvcc()
{
    command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc || -x $fetched/bin/nvcc ]]
}

has_nccl()
{
    local place
    for place in /usr/include /usr/local/include /usr/local/cuda/include "$fetched/include"; do
        [[ -e $place/nccl.h ]] && return
    done
    return 1
}

has_libnccl()
{
    ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2' || [[ -e $fetched/lib/libnccl.so.2 ]]
}

# from_debian PACKAGE
from_debian()
{
    local candidate
    candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
    [[ -n $candidate && $candidate != '(none)' && $(id -u) == 0 ]] || return
    echo "fetch_nvcc.sh: installing $1 of Debian" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" </dev/null >&2
}

# from_pypi FOLDER REQUIREMENT...: unpacks wheels, whose files are under FOLDER/nvidia.
from_pypi()
{
    local folder=$1
    shift
    python3 -m pip --version >/dev/null 2>&1 || {
        echo "fetch_nvcc.sh: python3 has no pip" >&2
        return 1
    }
    echo "fetch_nvcc.sh: fetching $* from PyPI" >&2
    python3 -m pip install --quiet --no-deps --only-binary :all: --root-user-action ignore \
        --target "$folder" "$@" >&2
}

# Nothing of it is in its place before it has compiled something.
fetch_nvcc()
{
    from_pypi "$scratch/nvcc" "nvidia-cuda-nvcc==$version.*" "nvidia-cuda-crt==$version.*" \
        "nvidia-nvvm==$version.*" "nvidia-cuda-runtime==$version.*" "nvidia-cuda-cccl==$version.*" ||
        return
    local made=$scratch/nvcc/nvidia/cu${version%.*}
    chmod +x "$made"/bin/* "$made"/nvvm/bin/*
    printf '#include <cuda_fp16.h>\n__global__ void nothing() {}\n' >"$scratch/nothing.cu"
    "$made/bin/nvcc" --fatbin "$scratch/nothing.cu" -o "$scratch/nothing.fatbin" >&2 || return
    rm -rf "$fetched"
    mv "$made" "$fetched"
}

fetch_nccl()
{
    from_pypi "$scratch/nccl" "nvidia-nccl-cu${version%.*}" || return
    mkdir -p "$fetched/include" "$fetched/lib"
    cp "$scratch"/nccl/nvidia/nccl/include/nccl.h "$fetched/include"
    [[ $what != run ]] || cp "$scratch"/nccl/nvidia/nccl/lib/libnccl.so.2 "$fetched/lib"
}

what=${1:-compile}
needs_nccl()
{
    ! has_nccl || { [[ $what == run ]] && ! has_libnccl; }
}

has_nvcc && ! needs_nccl && exit
mkdir -p "$cache"
scratch=$(mktemp -d -p "$cache")
trap 'rm -rf "$scratch"' EXIT
status=0
has_nvcc || from_debian nvidia-cuda-toolkit || fetch_nvcc || status=1
! needs_nccl || from_debian libnccl-dev || fetch_nccl || status=1
((status == 0)) || echo "fetch_nvcc.sh: no nvcc, or no nccl.h, to be had: weft is built without gpu/" >&2
exit "$status"
