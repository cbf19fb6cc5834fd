# SPDX-License-Identifier: BSD-3-Clause
"""Communication hooks of DistributedDataParallel, over gloo, in processes."""
import os
import signal
import subprocess
import sys

import pytest
from conftest import finish, start

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
        [sys.executable, "-m", "torch.distributed.run", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0",
         "-r", "2", "-t", "2", "--nproc_per_node", str(request.param),
         os.path.join(HERE, "torch_hooks_worker.py")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"))
    return done.stdout.splitlines(), done.stderr[-4000:]


@pytest.mark.parametrize("name", names())
def test_hook(lines, name):
    assert "ok " + name in lines[0], lines[1]


# ---- ranks that die, and users who have enough ----

PROGRAM = """
import os, signal, sys, threading, time
import torch
import torch.distributed as dist
import weft
import weft.torch

rank, kind, how, file = int(sys.argv[1]), *sys.argv[2:]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if kind == "hook":
    model = torch.nn.parallel.DistributedDataParallel(model)
    weft.torch.register_comm_hook(model, "merged")
else:
    optimizer = weft.torch.MergedOptimizer(optimizer)
try:
    for step in range(6):
        optimizer.zero_grad()
        loss = model(torch.ones(1, 8)).sum()
        if step == 3 and rank == 1:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(100)
        if step == 3 and rank == 0 and how == "interrupted":
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        loss.backward()
        optimizer.step()
    print("not reached")
except weft.PeerError as error:
    print("PeerError", error)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def begin(kind, how, folder):
    return [start(PROGRAM, rank, kind, how, folder / "meeting", environment={"OMP_NUM_THREADS": "1"})
            for rank in range(2)]


@pytest.mark.parametrize("kind", ["hook", "optimizer"])
def test_a_rank_that_is_killed_is_named(kind, tmp_path):
    """By backward(), or the step; nobody hangs."""
    ended = [finish(process) for process in begin(kind, "killed", tmp_path)]
    assert ended[1].code == -signal.SIGKILL, ended
    assert ended[0].code == 0 and ended[0].out.startswith("PeerError"), ended
    assert "rank 1 has died" in ended[0].out, ended


def test_a_backward_pass_can_be_interrupted(tmp_path):
    """While it waits for a late rank."""
    waiting, late = begin("hook", "interrupted", tmp_path)
    ended = finish(waiting)
    late.kill()
    late.communicate()
    assert ended.code == 0 and ended.out == "interrupted\n", ended
