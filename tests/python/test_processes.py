# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that are processes of one machine: how they meet, what they share, and what becomes of the others
when one ends."""
import os
import signal
import subprocess
import sys
import textwrap

import numpy
import pytest

import weft
from conftest import Ended, execute, finish, start, well
from weft._library import command

BEGIN = """
import gc, os, signal, sys, threading, time
import numpy
import weft
rank, size, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def meet(**settings):
    return weft.Context.shared(rank, size, name=name, meet=100, **settings)
"""

#: What is done with a context, whoever has made it.
WORK = """
def work(context):
    rank, size = context.rank, context.size
    x = numpy.full(1000, rank + 1.0)
    assert (context.allreduce(x) == size * (size + 1) / 2).all()
    big = context.empty((size, 100000), "f8")
    big[:] = rank
    out = context.empty((size, 100000), "f8")
    context.alltoall(big, out)
    assert (out == numpy.arange(size)[:, None]).all()
    plain = numpy.full(300000, float(rank))
    assert context.allgather(plain)[:, -1].tolist() == list(range(size))
    requests = [context.iallreduce(numpy.ones(5)) for _ in range(10)]
    weft.wait_all(requests, 100)
    assert all((request.result == size).all() for request in requests)
    half = context.split(rank % 2, -rank)
    members = list(range(rank % 2, size, 2))[::-1]
    assert half.root_ranks == members and half.rank == members.index(rank)
    assert half.allreduce(numpy.ones(1))[0] == len(members)
    assert context.split(None if rank else 0) is None or rank == 0
    if rank < 2 and size > 1:
        couple = context.subset([1, 0], tag=5)
        assert couple.rank == 1 - rank and couple.allgather(numpy.array([rank])).tolist() == [[1], [0]]
    larger = weft.reduction(lambda a, b: numpy.where(a > b, a, b))
    assert context.allreduce(numpy.array([float(rank)]), op=larger)[0] == size - 1
    context.barrier()
    return context.transport
"""


def together(text, size, *arguments, **how):
    """Starts the ranks of a job that meet by a name; returns the processes."""
    name = "test %d %d" % (os.getpid(), together.number)
    together.number += 1
    return [start(BEGIN + WORK + textwrap.dedent(text), rank, size, name, *arguments, **how)
            for rank in range(size)]


together.number = 0


def all_well(processes, out=None):
    for rank, ended in enumerate([finish(process) for process in processes]):
        well(ended, None if out is None else out if isinstance(out, str) else out[rank])


@pytest.mark.parametrize("size, settings", [(1, ""), (2, ""), (3, "progress='helper'"),
                                            (2, "eager_bytes=64, large='copy'")])
def test_processes_meet_by_a_name(size, settings):
    all_well(together("""
with meet(%s) as context:
    print(work(context), context.rank_state(rank)[0], context.hosts)
""" % settings, size), "shared present %s\n" % ([0] * size))


def test_processes_that_nobody_closes():
    """Contexts end when the interpreter does, whatever refers to them."""
    all_well(together("""
context = meet(progress="helper" if rank else "caller")
work(context)
array = context.empty(1000)
print("end")
""", 2), "end\n")


def test_processes_meet_by_a_gather(tmp_path):
    """What they need to meet goes by whatever they have: here, files."""
    all_well(together("""
turn = []
def gather(mine):
    folder = sys.argv[4]
    stem = os.path.join(folder, "%d." % len(turn))
    turn.append(1)
    with open(stem + "part%d" % rank, "wb") as file:
        file.write(mine)
    os.rename(stem + "part%d" % rank, stem + str(rank))
    parts = []
    for other in range(size):
        while not os.path.exists(stem + str(other)):
            time.sleep(0.002)
        with open(stem + str(other), "rb") as file:
            parts.append(file.read())
    return parts
with weft.Context.shared(rank, size, gather=gather) as context:
    work(context)
print(len(turn))
""", 3, tmp_path), "2\n")


def test_ranks_meet_by_another_context():
    """A gather may be a collective of weft's: no engine calls it."""
    def program(context):
        def gather(mine):
            return [row.tobytes() for row in context.allgather(mine)]

        with weft.Context.shared(context.rank, context.size, gather=gather) as second:
            assert second.transport == "shared"
            return second.allreduce(numpy.ones(3)).tolist()

    assert weft.run_local(3, program) == [[3] * 3] * 3


@pytest.mark.parametrize("wrong", ["raise ValueError('no way')", "return [mine]", "return [mine, mine[1:]]",
                                   "return 5"])
def test_a_gather_that_fails(wrong):
    def gather(mine):
        exec("def f(mine):\n  %s" % wrong, names)
        return names["f"](mine)

    names = {}
    with pytest.raises(weft.WeftError, match="gather: ") as caught:
        weft.Context.shared(0, 2, gather=gather)
    assert caught.value.__cause__ is not None


def test_processes_of_multiprocessing():
    well(execute("""
import multiprocessing, os
import numpy, weft
def work(rank, size, name, queue):
    with weft.Context.shared(rank, size, name=name) as context:
        queue.put(context.allreduce(numpy.array([rank]))[0])
        context.barrier()
if __name__ == "__main__":
    here = multiprocessing.get_context("fork")
    for turn in range(2):
        queue = here.Queue()
        name = "multiprocessing %d %d" % (os.getpid(), turn)
        processes = [here.Process(target=work, args=(rank, 3, name, queue)) for rank in range(3)]
        for process in processes:
            process.start()
        print([int(queue.get()) for _ in processes])
        for process in processes:
            process.join()
            assert process.exitcode == 0
"""), "[3, 3, 3]\n[3, 3, 3]\n")


def test_more_processes_than_cores():
    size = max(8, 2 * (os.cpu_count() or 1) + 1)
    well(execute("""
import os, sys
import numpy, weft
size = int(sys.argv[1])
children = []
for rank in range(size):
    child = os.fork()
    if child == 0:
        with weft.Context.shared(rank, size, name=sys.argv[2]) as context:
            x = numpy.full(2000, rank + 1.0)
            for _ in range(20):
                context.allreduce(x, op="max")
            assert (x == size).all()
            assert context.allgather(numpy.array([rank])).ravel().tolist() == list(range(size))
        os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
""", min(size, 40), "crowd %d" % os.getpid()), "%s\n" % ([0] * min(size, 40)))


def test_one_that_does_not_come():
    with pytest.raises(weft.errors.TimeoutError, match="rank"):
        weft.Context.shared(0, 2, name="lonely %d" % os.getpid(), meet=0.05)
    with pytest.raises(weft.InvalidError):
        weft.Context.shared(0, 2)
    with pytest.raises(weft.InvalidError):
        weft.Context.shared(2, 2, name="x")
    with pytest.raises(TypeError, match="did you mean 'progress'"):
        weft.Context.shared(0, 1, name="x", progres="helper")
    with pytest.raises(TypeError):
        weft.Context.shared(0, 1, name="x", unknown=3)


# ---- one that ends ----


@pytest.mark.parametrize("how", [
    "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(3)", "raise ValueError('mine')", "sys.exit(5)",
    "context.close(); print('end', flush=True); os._exit(0)"])
def test_a_process_ends_in_the_middle(how):
    """The others hear of it, in waits of all kinds, and go on without it."""
    processes = together("""
context = meet(progress="helper" if rank == 1 else "caller")
context.barrier()
def exchange(other):
    me = 0 if rank < other else 1
    s = weft.Schedule(me, 2)
    x, y = s.slot("x", "f64", 4), s.slot("y", "f64", 4, "output")
    s.send(x, 1 - me), s.recv(y, 1 - me)
    return weft.Run(context, s, peers=sorted([rank, other]), x=numpy.ones(4), y=numpy.ones(4))
if rank == 2:
    run = exchange(0)
    with context:
        %s
else:
    request = context.iallreduce(numpy.ones(3))
    run = exchange(2 if rank == 0 else 0)
    problems = []
    for wait in (request.wait, context.barrier, run.execute if rank == 0 else context.barrier):
        try:
            wait()
        except weft.PeerError as problem:
            problems.append(problem)
    assert len(problems) == 3, problems
    with context.shrink() as rest:
        assert rest.size == 2 and rest.root_ranks == [0, 1]
        print(rest.allreduce(numpy.ones(1))[0], context.rank_state(2)[0])
    run.close()
    context.close()
""" % how, 3)
    ended = [finish(process) for process in processes]
    aborts = "raise" in how or "sys.exit" in how
    for other in ended[:2]:
        if aborts:  # nothing can be done on a context that is aborted but to close it
            assert other.code in (0, 1), str(other)
            assert "Fatal" not in other.err
        else:
            well(other)
            assert other.out in ("2.0 dead\n", "2.0 left\n"), str(other)
    assert ended[2].code in (-9, 3, 1, 0, 5), str(ended[2])


def test_a_process_is_stopped_by_ctrl_c():
    processes = together("""
context = meet()
context.barrier()
with context:
    print("here", flush=True)
    context.allreduce(numpy.ones(3)) if rank == 0 else context.sleep(1000)
""", 2)
    for process in processes:
        assert process.stdout.readline() == "here\n"
    processes[1].send_signal(signal.SIGINT)
    ended = [finish(process) for process in processes]
    assert ended[1].err.rstrip().endswith("KeyboardInterrupt"), str(ended[1])
    assert ended[0].code == 1 and "PeerError" in ended[0].err, str(ended[0])
    assert "KeyboardInterrupt" in ended[0].err, str(ended[0])


def test_stopped_where_all_wait():
    """Both get the signal, as a terminal sends it."""
    processes = together("""
context = meet()
context.barrier()
try:
    print("here", flush=True)
    context.split(0) if rank == 0 else context.sleep(1000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
context.close()
""", 2)
    for process in processes:
        assert process.stdout.readline() == "here\n"
    for process in processes:
        process.send_signal(signal.SIGINT)
    for process in processes:
        well(finish(process), "interrupted\n")


# ---- launchers ----


def launched(arguments, text, tmp_path, environment=None):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text))
    given = dict(os.environ, PYTHONFAULTHANDLER="1", **(environment or {}))
    done = subprocess.run([str(item) for item in arguments] + [str(path)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, env=given, cwd="/", timeout=200)
    return Ended(done.returncode, done.stdout, done.stderr)


PROGRAM = "import os, sys, numpy, weft\n" + WORK + """
with weft.Context.world("shared") as context:
    work(context)
    if context.rank == 0:
        print("ranks:", context.size)
    with weft.Context.world() as second:
        second.barrier()
"""


@pytest.mark.skipif(command() is None, reason="there is no weft command")
def test_the_launcher(tmp_path):
    ended = launched([command(), "launch", "-n", 3, sys.executable], PROGRAM, tmp_path)
    assert ended.code == 0 and ended.out.splitlines() == ["ranks: 3"], str(ended)


@pytest.mark.skipif(command() is None, reason="there is no weft command")
def test_the_launcher_sees_a_rank_that_fails(tmp_path):
    ended = launched([command(), "launch", "-n", 3, sys.executable], """
import weft
with weft.Context.world("shared") as context:
    context.barrier()
    if context.rank == 1:
        raise ValueError("mine")
    context.barrier()
""", tmp_path)
    assert ended.code != 0 and "ValueError: mine" in ended.err, str(ended)


def test_torchrun(tmp_path):
    pytest.importorskip("torch")
    # Where errors go is said as torch 1.13 fails without on later Pythons.
    ended = launched([sys.executable, "-m", "torch.distributed.run", "--standalone", "-r", "2", "-t", "2",
                      "--nproc_per_node", 3], PROGRAM, tmp_path, {"OMP_NUM_THREADS": "1"})
    assert ended.code == 0 and ended.out.splitlines() == ["ranks: 3"], str(ended)


def test_a_world_of_one():
    for name in list(os.environ):
        assert not name.startswith("WEFT_RANK")
    with weft.Context.world("shared") as context:
        assert (context.rank, context.size) == (0, 1)
        assert context.allreduce(numpy.ones(2)).tolist() == [1, 1]
    with pytest.raises(weft.NotFoundError, match="shared"):
        weft.Context.world("smoke-signals")
    with pytest.raises(weft.UnsupportedError):
        weft.Context.world("local")
    assert "shared" in [transport["name"] for transport in weft.transports()]


def test_an_exception_that_ends_a_program_reaches_the_others():
    """Without `with`, and though an average that has been left is served for a minute."""
    processes = together("""
    context = meet(progress="helper")
    model = numpy.zeros(10, "f4")
    average = weft.GroupAverage(context, [model], sync_period=2)
    average.step()
    if rank == 1:
        raise LookupError("out of data")
    try:
        while True:
            average.step()
    except weft.PeerError as error:
        assert "rank 1" in str(error) and "LookupError: out of data" in str(error), str(error)
        print("told")
    """, 2)
    first, second = [finish(process, 50) for process in processes]
    well(first, "told\n")
    assert second.code == 1 and "out of data" in second.err, second
