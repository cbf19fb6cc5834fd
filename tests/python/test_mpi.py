# SPDX-License-Identifier: BSD-3-Clause
"""Contexts over mpi4py's communicators, under mpiexec of the MPI that this weft was built for."""
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")

HERE = os.path.dirname(os.path.abspath(__file__))
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": ""}


def started(name, ranks, *arguments, **environment):
    mpiexec = shutil.which(name)
    if mpiexec is None:
        pytest.skip("there is no %s" % name)
    return subprocess.run([mpiexec, "-n", str(ranks), sys.executable, os.path.join(HERE, "mpi_worker.py")] +
                          list(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, env=dict(os.environ, **environment), timeout=200)


@pytest.mark.parametrize("end", ["", "finalize", "leave"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_contexts(ranks, end):
    done = started("mpiexec.mpich", ranks, *([end] if end else []), MPI4PY_MPIABI="mpich")
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr[-4000:]


def test_another_mpi_is_refused():
    done = started("mpiexec.openmpi", 1, MPI4PY_MPIABI="openmpi", MPI4PY_LIBMPI="libmpi.so.40", **OPEN_MPI)
    if "cannot load MPI library" in done.stderr:
        pytest.skip("there is no Open MPI")
    assert done.returncode != 0
    assert "UnsupportedError: mpi4py uses Open MPI" in done.stderr, done.stderr[-2000:]
    assert "weft was built for MPICH" in done.stderr
