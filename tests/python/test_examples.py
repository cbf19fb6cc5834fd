# SPDX-License-Identifier: BSD-3-Clause
"""The programs of the documentation, as users start them."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import mpi_of_weft

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "tools/examples/python"


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, env=dict(os.environ, OMP_NUM_THREADS="1", **more),
                          timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def trained(output, algorithms, ranks):
    rows = {row["algorithm"]: row for row in map(json.loads, output.splitlines())}
    assert list(rows) == algorithms
    for row in rows.values():
        assert row["ranks"] == ranks and row["seconds"] > 0
        assert row["test_accuracy"] > 0.75, row
    return rows


def test_ring_sum():
    output = run(sys.executable, EXAMPLES / "ring_sum.py").splitlines()
    assert output[0].split(":")[1].split() == ["[10.", "11.", "12.", "13.]"]
    assert output[1].split(":")[1].split() == ["[4.", "5.", "6.", "7.]"]


def test_training_under_torchrun(tmp_path):
    pytest.importorskip("torch")
    algorithms = ["ddp-gloo", "ddp-weft", "wagma", "local", "d-psgd", "ad-psgd", "merged", "powersgd"]
    output = run(sys.executable, "-m", "torch.distributed.run", "-r", "2", "-t", "2", "--rdzv_backend", "c10d",
                 "--rdzv_endpoint", "localhost:0", "--nproc_per_node", 3, EXAMPLES / "train.py", "--json",
                 "--algorithm", ",".join(algorithms), "--steps", 80, "--compute", 1, "--late", "1:5",
                 "--plot", tmp_path / "train.svg")
    rows = trained(output, algorithms, 3)
    # Both are synchronous SGD on the same batches.
    assert abs(rows["ddp-weft"]["test_accuracy"] - rows["ddp-gloo"]["test_accuracy"]) < 0.005
    assert abs(rows["merged"]["test_accuracy"] - rows["ddp-gloo"]["test_accuracy"]) < 0.005
    picture = (tmp_path / "train.svg").read_text()
    assert picture.startswith("<svg") and "wagma" in picture


def test_training_under_mpiexec():
    pytest.importorskip("torch")
    pytest.importorskip("mpi4py")
    _, mpiexec, settings = mpi_of_weft()
    algorithms = ["ddp-gloo", "wagma"]
    trained(run(mpiexec, "-n", 3, sys.executable, EXAMPLES / "train.py", "--json", "--algorithm",
                ",".join(algorithms), "--steps", 80, "--compute", 1, "--late", "1:5", **settings), algorithms, 3)
