#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the Debian packages that weft needs, if any is missing.
#
#   tools/setup.sh [build|python|test|ci]
#
# build: what the library and the command need; python: what `pip install ./python` needs as well, and torch;
# test (default): what tests/run.sh needs as well; ci: what .ci/run needs as well, nvcc among it. Needs root
# or sudo only when something is missing.
set -euo pipefail

level=${1:-test}
packages=(gcc libc6-dev pkg-config meson ninja-build
          mpich libmpich-dev libhwloc-dev libjansson-dev libcairo2-dev libopenblas-dev)
for_tests=(g++ cmake libcriterion-dev graphviz python3 chromium iproute2
           groff-base mandoc zsh fish build-essential debhelper lintian)
for_python=(python3-venv python3-pip python3-setuptools python3-wheel python3-cffi python3-numpy
            python3-pytest python3-torch)
case $level in
build) ;;
python) packages+=(python3-venv python3-numpy python3-torch) ;;
test) packages+=("${for_tests[@]}" "${for_python[@]}") ;;
ci) packages+=("${for_tests[@]}" "${for_python[@]}" ccache clang-format valgrind git spin
               openmpi-bin libopenmpi-dev) ;;
*)
    echo "setup.sh: unknown level \"$level\", expected build, python, test or ci" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "setup.sh: this is no Debian system; weft needs what these Debian packages hold:" >&2
    echo "  ${packages[*]}" >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    # Equal on systems where a package is installed for two architectures.
    [[ $state == installed* ]] || missing+=("$package")
done
# What is no Debian package everywhere. Without it the build goes without kernels for devices, which
# .ci/run then says.
finish()
{
    if [[ $level == ci ]]; then
        "$(dirname "$0")/scripts/fetch_nvcc.sh" || true
    fi
}

if ((${#missing[@]} == 0)); then
    finish
    exit 0
fi

if (($(id -u) == 0)); then
    root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    root=(sudo -n)
elif command -v sudo >/dev/null && [[ -t 0 ]]; then
    root=(sudo)
else
    echo "setup.sh: missing packages, and neither root nor sudo to install them. As root, run:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
fi

echo "setup.sh: installing ${missing[*]}" >&2
environment=(env DEBIAN_FRONTEND=noninteractive)
before=$(update-alternatives --query mpi 2>/dev/null | sed -n 's/^Value: //p' || true)
"${root[@]}" "${environment[@]}" apt-get update -qq
"${root[@]}" "${environment[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    </dev/null >&2

# Open MPI, installed beside MPICH, takes its place as mpicc, mpiexec and mpi.h. It stays there only
# where it was before.
if [[ " ${missing[*]} " == *openmpi* && $before != *openmpi* ]]; then
    for name in mpi mpirun "mpi-$(gcc -print-multiarch)"; do
        "${root[@]}" update-alternatives --set "$name" \
            "$(update-alternatives --list "$name" | grep mpich)" >&2
    done
fi
finish
