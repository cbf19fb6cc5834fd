#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs tests of the Python package, as installed from this build into an environment of its own, with the
# system's Python and its torch.
#
#   tests/python/run.sh BUILD SOURCE FILE [ARGUMENT...]    TAP of pytest, for FILE of tests/python
#   tests/python/run.sh BUILD SOURCE -- COMMAND...         a command in that environment
set -euo pipefail

build=$(realpath "$1")
source=$(realpath "$2")
shift 2
python=${WEFT_PYTHON:-/usr/bin/python3}
environment=$build/python-environment
if ! "$python" -c 'import cffi, numpy, pytest, setuptools, venv' 2>/dev/null; then
    echo "ok 1 - ${1##*/} # SKIP $python has no cffi, numpy, pytest, setuptools or venv (tools/setup.sh test)"
    echo 1..1
    exit 0
fi

# Made once for all tests, and anew when the library or the package has changed.
install()
{
    local stamp=$environment/installed
    if [[ -f $stamp && -z $(find "$source/python" "$source/tools/data" "$build"/libweft*.so.0 -newer "$stamp" \
        -not -name '*.pyc' -not -name __pycache__ -print -quit) ]]; then
        return
    fi
    if [[ ! -x $environment/bin/python ]]; then
        "$python" -m venv --system-site-packages "$environment"
    fi
    rm -f "$stamp"
    WEFT_PYTHON_BUILD=$build "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
        --no-index --no-build-isolation --no-deps --force-reinstall "$source/python"
    # Of a registry, where there is one: Debian's is of Open MPI. What needs it is skipped without.
    "$environment/bin/python" -c 'import mpi4py' 2>/dev/null ||
        timeout 120 "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
            'mpi4py>=4.1,<5' 2>/dev/null || true
    # By this name it looks for MPICH, which Debian calls otherwise.
    local mpich
    mpich=$(/sbin/ldconfig -p | sed -n 's/.*libmpich\.so\.12 .*=> //p' | head -n 1)
    mkdir -p "$environment/mpich"
    [[ -z $mpich ]] || ln -sfn "$mpich" "$environment/mpich/libmpi.so.12"
    touch "$stamp"
}
exec 9>"$build/python-environment.lock"
flock 9
install >&2
exec 9>&-

# The library is the package's own, whatever is installed besides.
unset WEFT_LIBRARY WEFT_COMMAND PYTHONPATH
export PATH=$environment/bin:$PATH PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
export LD_LIBRARY_PATH=$environment/mpich${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [[ $1 == -- ]]; then
    shift
    exec "$@"
fi
file=$1
shift
# Of a build with devices: the stand-in of the driver.
if [[ $file == test_device.py && -e $build/libweft-cuda.so.0 && -e $build/tests/gpu/standin/libcuda.so.1 ]]; then
    LD_LIBRARY_PATH=$build/tests/gpu/standin:$LD_LIBRARY_PATH
fi
cd "$source/tests/python"
exec python -m pytest -q -p no:cacheprovider --tap "$file" "$@"
