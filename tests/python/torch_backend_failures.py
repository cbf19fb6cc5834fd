# SPDX-License-Identifier: BSD-3-Clause
"""A rank of four of the tests of what goes wrong with the backend ``weft`` of torch.distributed.

    torch_backend_failures.py RANK FILE

Prints a line for each case; ends by itself, some of the ranks early.
"""
import faulthandler
import os
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import weft
import weft.torch.backend as backend

RANK, SIZE = int(sys.argv[1]), 4


def say(line):
    os.write(1, (line + "\n").encode())


def raises(kind, texts, function, *arguments, **named):
    """The function raises what it should, and says so; returns how long it has taken."""
    began = time.monotonic()
    try:
        function(*arguments, **named)
    except kind as problem:
        for text in texts:
            assert text in str(problem), (text, str(problem))
        assert isinstance(problem, RuntimeError), type(problem)
        return time.monotonic() - began
    raise AssertionError("nothing was raised, expected %s with %r" % (kind.__name__, texts))


def ones():
    return torch.ones(4)


def together(group):
    """Waits for a rank that may come later than the group's timeout allows, and sees that the group works."""
    if RANK == 0:
        dist.recv(torch.zeros(1), 1, tag=99)
    else:
        dist.send(torch.zeros(1), 0, tag=99)
    tensor = ones()
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [2.0] * 4


def timeout_of_collective(group):
    if RANK == 1:
        time.sleep(2.5)
        raises(weft.PeerError, ["allreduce (group", "rank 0"], dist.all_reduce, ones(), group=group)
    else:
        took = raises(weft.errors.TimeoutError, ["allreduce (group", "rank 0 of 2", "rank 1"],
                      dist.all_reduce, ones(), group=group)
        assert took < 2.4, took
    together(group)


def timeout_of_messages(group):
    if RANK == 0:
        tensor = torch.zeros(4)
        took = raises(weft.errors.TimeoutError, ["recv from rank 1, tag 3", "within 1 s"],
                      dist.recv, tensor, 1, group, 3)
        assert took < 2.4, took
        raises(weft.errors.TimeoutError, ["any rank"], dist.recv, tensor, None, group, 4)
        work = dist.irecv(tensor, 1, group, 5)
        while not work.is_completed():
            time.sleep(0.01)
        assert not work.is_success() and isinstance(work.exception(), weft.errors.TimeoutError)
        together(group)
        # What comes later is for who asks later.
        other = torch.zeros(4)
        for tag in (3, 4, 5):
            dist.recv(other, 1, group, tag)
            assert other.tolist() == [tag] * 4 and tensor.tolist() == [0.0] * 4
    else:
        time.sleep(3.5)
        together(group)
        for tag in (3, 4, 5):
            dist.send(torch.full((4,), float(tag)), 0, group, tag)


def timeout_of_a_send(group):
    if RANK == 0:
        raises(weft.errors.TimeoutError, ["send to rank 1", "received"],
               dist.send, torch.ones(100000), 1, group)
        dist.barrier(dist.group.WORLD)
        raises(RuntimeError, ["send to rank 1"], dist.send, torch.ones(100000), 1, group)
    else:
        dist.barrier(dist.group.WORLD)
        if RANK == 1:
            raises(RuntimeError, ["recv from rank 0"], dist.recv, torch.ones(100000), 0, group)


def timeout_of_a_wait():
    if RANK == 1:
        time.sleep(0.7)
    work = dist.all_reduce(ones(), async_op=True)
    if RANK == 0:
        took = raises(weft.errors.TimeoutError, ["0.2 s", "goes on"], work.wait, timedelta(seconds=0.2))
        assert took < 0.69, took
    work.wait()
    assert work.result()[0].tolist() == [4.0] * 4


def absent_at_monitored_barrier():
    if RANK == 2:
        time.sleep(2)
    took = raises(weft.errors.TimeoutError, ["monitored_barrier", "not here within 1 s: rank 2"],
                  backend.monitored_barrier, timeout=timedelta(seconds=1))
    assert took < 4, took
    backend.monitored_barrier()
    if RANK >= 2:
        time.sleep(1.5)
    raises(weft.errors.TimeoutError, ["ranks 2, 3"], backend.monitored_barrier,
           timeout=timedelta(seconds=0.5), wait_all_ranks=True)


def interrupts():
    """Ctrl-C ends a wait; the call goes on, and the next ones are good."""
    if RANK == 0:
        for wait in (dist.barrier, lambda: dist.recv(torch.ones(1), 1, tag=8)):
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            began = time.monotonic()
            try:
                wait()
                raise AssertionError("there was no Ctrl-C")
            except KeyboardInterrupt:
                assert time.monotonic() - began < 2
            timer.join()
        dist.send(torch.ones(1), 1, tag=7)
    else:
        if RANK == 1:
            dist.recv(torch.ones(1), 0, tag=7)
            dist.send(torch.ones(1), 0, tag=8)
        dist.barrier()
    tensor = ones()
    dist.all_reduce(tensor)
    assert tensor.tolist() == [4.0] * 4


def rank_that_raises():
    """It ends with an exception, and so the process with the interpreter's exit."""
    if RANK == 3:
        say("CASE raising rank 3 ok")
        raise SystemExit(7)
    raises(weft.PeerError, ["rank 3"], dist.all_reduce, ones())
    work = dist.all_reduce(ones(), async_op=True)
    raises(weft.PeerError, ["rank 3"], work.wait)
    raises(weft.PeerError, ["rank 3"], dist.recv, ones(), 3)
    raises(weft.PeerError, ["rank 3"], dist.send, torch.ones(100000), 3)


def rank_that_is_killed(trio, model, pair):
    x = torch.ones(2, 3)
    model(x).sum().backward()
    dist.barrier(trio)
    if RANK == 2:
        say("CASE killed rank 2 ok")
        os.kill(os.getpid(), signal.SIGKILL)
    if RANK == 0:
        raises(weft.PeerError, ["rank 2", "died"], dist.recv, ones(), 2, trio)
    else:
        raises(weft.PeerError, ["rank 2", "died"], dist.recv, ones(), None, trio)
    raises(RuntimeError, ["rank 2"], lambda: model(x).sum().backward())
    future = dist.all_reduce(ones(), group=trio, async_op=True).get_future()
    raises(RuntimeError, ["rank 2", "died"], future.wait)
    raises(weft.PeerError, ["rank 2", "died"], dist.barrier, trio)
    # What has nothing to do with it is good.
    tensor = ones()
    dist.all_reduce(tensor, group=pair)
    assert tensor.tolist() == [2.0] * 4
    if RANK == 0:
        dist.send(tensor, 1, trio)
    else:
        assert dist.recv(torch.zeros(4), 0, trio) == 0


def main():
    faulthandler.dump_traceback_later(100, exit=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever has started this may ignore it
    torch.set_num_threads(1)
    dist.init_process_group("weft", init_method="file://" + sys.argv[2], rank=RANK, world_size=SIZE,
                            timeout=timedelta(seconds=30))
    short = [dist.new_group([0, 1], timeout=timedelta(seconds=1)) for _ in range(3)]
    pair, trio = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
    model = None
    if RANK < 3:
        torch.manual_seed(1)
        model = DDP(nn.Linear(3, 2), process_group=trio)
    cases = [
        ("timeouts", lambda: timeout_of_collective(short[0]), 2),
        ("timeouts of messages", lambda: timeout_of_messages(short[1]), 2),
        ("timeouts of sends", lambda: timeout_of_a_send(short[2]), 4),
        ("timeouts of waits", timeout_of_a_wait, 4),
        ("monitored barrier", absent_at_monitored_barrier, 4),
        ("Ctrl-C", interrupts, 4),
        ("raising", rank_that_raises, 4),
        ("killed", lambda: rank_that_is_killed(trio, model, pair), 3),
    ]
    for name, function, ranks in cases:
        if RANK < ranks:
            try:
                function()
            except Exception:
                import traceback

                say("CASE %s rank %d FAILED\n%s" % (name, RANK, traceback.format_exc()))
                os._exit(1)
            say("CASE %s rank %d ok" % (name, RANK))


if __name__ == "__main__":
    main()
