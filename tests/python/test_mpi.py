# SPDX-License-Identifier: BSD-3-Clause
"""Contexts over mpi4py's communicators, under mpiexec of the MPI that this weft was built for."""
import os
import shutil
import subprocess
import sys

import pytest

from conftest import MPIS, mpi_of_weft

pytest.importorskip("mpi4py")

HERE = os.path.dirname(os.path.abspath(__file__))


def started(mpi, ranks, *arguments):
    _, mpiexec, environment = mpi
    return subprocess.run([mpiexec, "-n", str(ranks), sys.executable, os.path.join(HERE, "mpi_worker.py")] +
                          list(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, env=dict(os.environ, **environment), timeout=200)


@pytest.mark.parametrize("end", ["", "finalize", "leave"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_contexts(ranks, end):
    done = started(mpi_of_weft(), ranks, *([end] if end else []))
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr[-4000:]


def test_another_mpi_is_refused():
    ours = mpi_of_weft()[0]
    theirs = next(name for name in MPIS if name != ours)
    launcher, environment = MPIS[theirs]
    if shutil.which(launcher) is None:
        pytest.skip("there is no %s" % theirs)
    done = started((theirs, shutil.which(launcher), environment), 1)
    if "cannot load MPI library" in done.stderr:
        pytest.skip("there is no %s" % theirs)
    assert done.returncode != 0
    assert "UnsupportedError: mpi4py uses %s" % theirs in done.stderr, done.stderr[-2000:]
    assert "weft was built for %s" % ours in done.stderr
