# SPDX-License-Identifier: BSD-3-Clause
"""The backend ``weft`` of torch.distributed, in processes of torchrun, of mpiexec, and by themselves.

Starting processes takes longer than the tests: so a worker has many cases, and prints a line for each.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from conftest import mpi_of_weft

pytest.importorskip("torch")

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = re.findall(r"^@case.*\ndef (\w+)\(", open(os.path.join(HERE, "torch_backend_worker.py")).read(), re.M)
FAILURES = {"timeouts": 2, "timeouts of messages": 2, "timeouts of sends": 4, "timeouts of waits": 4,
            "monitored barrier": 4, "Ctrl-C": 4, "raising": 4, "killed": 3}


def environment(**more):
    return dict(os.environ, OMP_NUM_THREADS="1", PYTHONFAULTHANDLER="1", **more)


def finish(processes, timeout=150):
    """Waits for processes, each of a session of its own; returns what they have printed."""
    def end():
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(timeout, end)
    timer.start()
    try:
        return "".join(process.communicate()[0] for process in processes)
    finally:
        timer.cancel()
        end()


def start(command, **how):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                            start_new_session=True, **how)


@pytest.fixture(scope="module")
def going_wrong():
    """Four ranks that are processes by themselves, which meet by a file. They sleep more than they do: so
    they begin when the first world does."""
    program = os.path.join(HERE, "torch_backend_failures.py")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [start([sys.executable, "-W", "ignore", program, str(rank), store], env=environment())
                     for rank in range(4)]
        yield processes
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module", params=[1, 2, 3, 4], ids="{}-ranks".format)
def world(request, going_wrong):
    """All cases at so many ranks."""
    with tempfile.TemporaryDirectory() as folder:
        # torch 1.13's words for "no redirection" are lost with Python 3.11: so it is that of no rank.
        process = start([sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "-r",
                         "9:1", "-t", "9:1", "--nproc_per_node", str(request.param),
                         os.path.join(HERE, "torch_backend_worker.py")],
                        env=environment(WEFT_TEST_STORE=os.path.join(folder, "store")))
        return request.param, finish([process])


@pytest.mark.parametrize("name", CASES)
def test_case(world, name):
    size, text = world
    for rank in range(size):
        assert re.search(r"^CASE %s rank %d ok" % (name, rank), text, re.M), text[-6000:]


@pytest.fixture(scope="module")
def wrong(going_wrong):
    """What those have printed, and how they have ended."""
    return finish(going_wrong), [process.returncode for process in going_wrong]


@pytest.mark.parametrize("name", FAILURES)
def test_failure(wrong, name):
    text, codes = wrong
    for rank in range(FAILURES[name]):
        assert re.search(r"^CASE %s rank %d ok" % (name, rank), text, re.M), text[-6000:]
    if name == "killed":
        assert codes == [0, 0, -signal.SIGKILL, 7], text[-6000:]


def test_over_mpi():
    _, mpiexec, settings = mpi_of_weft()
    with tempfile.TemporaryDirectory() as folder:
        process = start([mpiexec, "-n", "3", sys.executable, "-W", "ignore",
                         os.path.join(HERE, "torch_backend_mpi.py"), os.path.join(folder, "store")],
                        env=environment(WEFT_TORCH_TRANSPORT="mpi", **settings))
        text = finish([process])
    for rank in range(3):
        assert "CASE mpi rank %d ok" % rank in text, text[-6000:]


PROGRAM = """
import os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import weft.torch.backend
rank, size, store, case = int(sys.argv[1]), 2, sys.argv[2], sys.argv[3]
if case == "absent":
    try:
        dist.init_process_group("weft", init_method="file://" + store, rank=0, world_size=3,
                                timeout=timedelta(seconds=1))
    except RuntimeError as problem:
        print(type(problem).__mro__[1].__name__, problem)
    sys.exit()
if case == "other":
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
    for _ in range(2):
        group = dist.new_group([0, 1], backend="weft")
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [2.0, 2.0]
        dist.barrier(group)
        dist.destroy_process_group(group)
    sys.exit()
dist.init_process_group("weft", init_method="file://" + store, rank=rank, world_size=size)
if rank == 0:
    # The interpreter exits with all of this under way.
    future = dist.all_reduce(torch.ones(1 << 20), async_op=True).get_future()
    work = dist.irecv(torch.ones(1 << 20), 1)
    other = dist.irecv(torch.ones(1), tag=3).get_future()
    sent = dist.isend(torch.ones(1 << 20), 1)
    time.sleep(0.3)
else:
    time.sleep(1)
"""


def programs(case, ranks):
    with tempfile.TemporaryDirectory() as folder:
        processes = [start([sys.executable, "-W", "ignore", "-c", PROGRAM, str(rank),
                            os.path.join(folder, "store"), case], env=environment()) for rank in range(ranks)]
        text = finish(processes, 60)
        return text, [process.returncode for process in processes]


def test_exit_in_the_middle():
    """Nothing hangs, and nothing is complained of."""
    assert programs("exit", 2) == ("", [0, 0])


def test_groups_in_a_world_of_gloo():
    assert programs("other", 2) == ("", [0, 0])


def test_absent_ranks():
    text, codes = programs("absent", 1)
    assert codes == [0] and "TimeoutError" in text and "not here within 1 s: ranks 1, 2" in text, text


def test_hosts():
    from weft.errors import UnsupportedError
    from weft.torch import _meet

    known = [{"host": "a", "node": "one"}, {"host": "b", "node": "two"}, {"host": "a", "node": "one"}]
    with pytest.raises(UnsupportedError, match=r"one: ranks 0, 2; two: rank 1.*WEFT_TORCH_TRANSPORT=mpi"):
        _meet.check_hosts(known, "group")
    _meet.check_hosts(known[::2], "group")


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 12, 33])
def test_rounds(size):
    """Everybody meets everybody once, and nobody two at once."""
    from weft.torch._messages import partner_of, rounds_of

    met = set()
    for turn in range(rounds_of(size)):
        for rank in range(size):
            partner = partner_of(rank, size, turn)
            if partner is not None:
                assert partner_of(partner, size, turn) == rank != partner
                met.add((rank, partner))
    assert len(met) == size * (size - 1)


def test_messages_of_threads():
    """In random orders, on local ranks: as many as fit, of all sizes."""
    import random

    import numpy

    import weft
    from weft._library import ffi
    from weft.torch._messages import Messages

    plan, random_of = [], random.Random(7)
    for i in range(300):
        sender, receiver = random_of.sample(range(3), 2)
        size = random_of.choice([0, 1, 4080, 4081, 70000])
        plan.append((sender, receiver, random_of.randrange(3), size, i))

    def rank_of(context):
        messages, mine = Messages(context), random.Random(context.rank)
        waiting = {}
        for one in plan:
            if one[1] == context.rank:
                waiting.setdefault((one[0], one[2]), []).append(one)
        calls, sends = [], [one for one in plan if one[0] == context.rank]
        while sends or waiting:
            if sends and mine.random() < 0.6:
                calls.append(sends.pop(0))
            elif waiting:
                key = mine.choice(list(waiting))
                calls.append(waiting[key].pop(0))
                if not waiting[key]:
                    del waiting[key]
        done = []
        for sender, receiver, tag, size, number in calls:
            memory = numpy.full(max(size, 1), number % 251 if sender == context.rank else 255, numpy.uint8)
            address = ffi.cast("char *", memory.ctypes.data)
            if sender == context.rank:
                done.append((messages.send(address, size, receiver, tag, memory), None, number))
            else:
                done.append((messages.recv(address, size, sender, tag, memory), memory[:size], number))
        for message, memory, number in done:
            messages.wait(message, 60)
            assert memory is None or (memory == number % 251).all()
        return len(done)

    assert sum(weft.run_local(3, rank_of, progress="helper")) == 600
