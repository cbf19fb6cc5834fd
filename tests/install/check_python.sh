#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Python package in a fresh virtual environment, as its documentation says: built, imported, used; without
# MPI in the process until it is asked for; and one that brings no library of its own.
#   check_python.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
unset LD_LIBRARY_PATH PYTHONPATH WEFT_LIBRARY
cd "$stage"

/usr/bin/python3 -m venv venv
venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest wheels cffi >log 2>&1 ||
    { echo "no registry of Python packages can be reached"; exit 77; }
list()
{
    find "$source/python" -not -name '*.pyc' -not -name __pycache__ -printf '%p %s\n' | sort
}
before=$(list)
# Kernels for devices are built elsewhere, and would take longest. The other option is that of the tests: what is
# compiled may be in the cache.
WEFT_PYTHON_OPTIONS="-Dgpu=disabled -Dwerror=true" venv/bin/pip install --disable-pip-version-check "$source/python" >log 2>&1 ||
    { tail -n 40 log; fail "pip install"; }
[[ $(list) == "$before" ]] || fail "the sources were written to: $(list | diff - <(echo "$before"))"

[[ $(venv/bin/weft --version) == "weft $version" ]] || fail "the command: $(venv/bin/weft --version)"
venv/bin/weft check allreduce -n 4 >/dev/null || fail "weft check"
cat >use.py <<'END'
import numpy, weft

found = weft.run_local(3, lambda context: context.allreduce(numpy.full(4, context.rank + 1.0)))
assert all((one == 6).all() for one in found), found
assert weft._library.path.startswith(weft.__path__[0]), weft._library.path
loaded = open("/proc/self/maps").read()
assert "libmpi" not in loaded and "torch" not in loaded, "MPI or torch was loaded"
assert len(weft.tools.list()) > 10
print(weft.__version__)
END
[[ $(venv/bin/python use.py) == "$version" ]] || fail "use.py"
venv/bin/python "$source/tools/examples/python/ring_sum.py" >log 2>&1 || { cat log; fail "ring_sum.py"; }

# Of a build that there is, installed by the meson that has made it, not by that of pip's environment.
WEFT_PYTHON_BUILD=$build venv/bin/pip wheel --disable-pip-version-check --no-deps --wheel-dir native "$source/python" >log 2>&1 ||
    { tail -n 40 log; fail "pip wheel of a build"; }
venv/bin/python -m zipfile -l native/weft-*.whl >log
grep -q libweft.so.0 log || { cat log; fail "the wheel has no library"; }
! WEFT_PYTHON_BUILD=nowhere venv/bin/pip wheel --disable-pip-version-check --no-deps --wheel-dir native "$source/python" >log 2>&1 ||
    fail "a build was used that is not there"
grep -q 'nowhere, which is no build folder of meson' log || { tail log; fail "what is said without a build"; }

# For who has libweft installed.
WEFT_PYTHON_BUILD=$build WEFT_PYTHON_LIBRARY=system \
    venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir wheels "$source/python" >log 2>&1 ||
    { tail -n 40 log; fail "pip wheel"; }
[[ -f wheels/weft-$version-py3-none-any.whl ]] || fail "wheels: $(ls wheels)"
venv/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps wheels/weft-*.whl
WEFT_LIBRARY=$build/libweft.so.0 venv/bin/python -c 'import weft; print(weft.__version__)' >log 2>&1 ||
    { cat log; fail "the system's library"; }
! venv/bin/python -c 'import weft' 2>log || fail "a library was found that is not there"
grep -q 'libweft was not found' log || { cat log; fail "what is said without a library"; }
