# SPDX-License-Identifier: BSD-3-Clause
"""Communication hooks of DistributedDataParallel, over gloo, in processes."""
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

HERE = os.path.dirname(os.path.abspath(__file__))


def names():
    import importlib.util

    spec = importlib.util.spec_from_file_location("torch_hooks_worker",
                                                  os.path.join(HERE, "torch_hooks_worker.py"))
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    return list(worker.CASES)


@pytest.fixture(scope="module", params=[1, 2, 3])
def lines(request):
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "-r", "2", "-t", "2", "--nproc_per_node",
         str(request.param), os.path.join(HERE, "torch_hooks_worker.py")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"))
    return done.stdout.splitlines(), done.stderr[-4000:]


@pytest.mark.parametrize("name", names())
def test_hook(lines, name):
    assert "ok " + name in lines[0], lines[1]
