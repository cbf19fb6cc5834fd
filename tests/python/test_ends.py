# SPDX-License-Identifier: BSD-3-Clause
"""Ends of processes: the interpreter's exit with anything under way, forks, and Ctrl-C."""
import pytest

from conftest import BEGIN, execute, well


# ---- the interpreter's exit ----



@pytest.mark.parametrize("progress, end", [("caller", ""), ("caller", "del context")] + [
    ("helper", end) for end in (
        "", "context.close()", "sys.exit(0)", "del context", "del run, plan", "del sys.modules['weft']",
        "gc.disable(); x = [context]; x.append(x)")])
def test_exit_with_runs_in_flight(progress, end):
    well(execute(BEGIN + """
context = group.context(0, progress=%r)
plan = exchange(context)
x = numpy.zeros(4)
run = plan.run(context, x=x, y=x.copy()).start()
request = context.iallreduce(x)
array = context.empty(100)
lost = context.ibarrier()
del lost
%s
print("end")
""" % (progress, end if "exit" not in end else "print('end'); " + end)), "end\n")


def test_exit_with_threads_that_wait():
    well(execute(BEGIN + """
context = group.context(0)
plan = exchange(context)
run = plan.run(context, x=numpy.zeros(4), y=numpy.zeros(4)).start()
request = context.iallreduce(numpy.zeros(3))
def call(function):
    try:
        function()
    except weft.WeftError:
        pass
waits = [run.wait, request.wait, context.barrier, lambda: context.split(0), lambda: context.sleep(1000)]
for wait in waits:
    threading.Thread(target=call, args=(wait,), daemon=True).start()
while len(context._handle.record.busy()) < len(waits):
    time.sleep(0.001)
print("end")
"""), "end\n")


def test_exit_with_threads_at_work():
    """Daemons that go on making things while the interpreter ends."""
    for _ in range(3):
        ended = execute(BEGIN + """
op = weft.compute(lambda call: None)
def work(number):
    while True:
        group = weft.LocalGroup(1)
        context = group.context(0, progress="helper" if number % 2 else "caller")
        for _ in range(20):
            s = weft.Schedule(0, 1)
            s.compute(op)
            weft.Run(context, s).execute()
            context.allreduce(numpy.zeros(3))
            context.iallreduce(numpy.zeros(3))
for number in range(3):
    threading.Thread(target=work, args=(number,), daemon=True).start()
time.sleep(0.5)
print("end")
""")
        assert ended.code == 0 and ended.out == "end\n", str(ended)
        for line in ended.err.splitlines():  # what the threads are told, who still print
            assert "Fatal" not in line and "Segmentation" not in line, str(ended)


def test_exit_by_an_exception():
    ended = execute(BEGIN + """
context = group.context(0, progress="helper")
run = exchange(context).run(context, x=numpy.zeros(4), y=numpy.zeros(4)).start()
with context:
    raise ValueError("mine")
""")
    assert ended.code == 1 and ended.err.rstrip().endswith("ValueError: mine"), str(ended)
    ended = execute(BEGIN + """
def program(context):
    if context.rank == 2:
        raise ValueError("mine")
    context.barrier()
weft.run_local(4, program)
""")
    assert ended.code == 1 and ended.err.rstrip().endswith("ValueError: mine"), str(ended)


def test_exit_in_other_ways():
    well(execute(BEGIN + """
context = group.context(0, progress="helper")
print("end", flush=True)
os._exit(0)
"""), "end\n")
    well(execute("""
import atexit
atexit.register(lambda: print("last"))
import weft, numpy
context = weft.LocalGroup(1).context(0)
atexit.register(lambda: print(context.allreduce(numpy.ones(1))[0]))  # before the contexts end
class Late:
    def __del__(self):
        print("late")
        context.close()
context.late = Late()
"""), None)
    well(execute("""
import weft
x = weft.LocalGroup(1).context(0).empty(1000)
s = weft.Schedule(0, 1)
p = s.commit()
o = weft.compute(print)
"""))


def test_exit_while_a_function_is_called():
    """A helper is in a function of the program when the interpreter ends."""
    well(execute(BEGIN + """
context = weft.LocalGroup(1).context(0, progress="helper")
inside = threading.Event()
def slow(call):
    inside.set()
    time.sleep(0.3)
s = weft.Schedule(0, 1)
go = s.event()
s.compute(weft.compute(slow), after=go)
run = s.commit().run(context).start()
threading.Thread(target=lambda: run.fire(go), daemon=True).start()
inside.wait()
print("end")
"""), "end\n")


# ---- fork ----


def test_fork():
    well(execute(BEGIN + """
contexts = [group.context(rank, progress="helper") for rank in range(2)]
run = exchange(contexts[0]).run(contexts[0], x=numpy.zeros(4), y=numpy.zeros(4)).start()
request = contexts[0].iallreduce(numpy.ones(3))
op = weft.reduction(lambda a, b: a + b)
array = contexts[0].empty(10)
sys.stdout.flush()
child = os.fork()
if child == 0:
    used = 0
    for use in (run.wait, run.test, run.cancel, request.wait, request.test, contexts[0].barrier,
                contexts[1].abort, lambda: contexts[0].stats, lambda: contexts[0].empty(3),
                lambda: contexts[0].split(0)):
        try:
            use()
        except weft.StateError as problem:
            used += "forked" in str(problem)
    print("child", used, contexts[0].rank)
    run.close(), contexts[0].close()
    del run, request, array
    gc.collect()
    print(weft.run_local(2, lambda context: context.allreduce(numpy.ones(1), op=op).tolist()))
    sys.exit(0)
print(os.waitpid(child, 0)[1])
contexts[1].allreduce(numpy.ones(3))
print(request.wait())
contexts[0].close(), contexts[1].close()
"""), "child 10 0\n[[2.0], [2.0]]\n0\n[2. 2. 2.]\n")


def test_fork_with_threads_at_work():
    well(execute(BEGIN + """
stop = []
def program(context):
    while not stop:
        weft.Run(context, s, local_only=True, peers=[context.rank]).execute()
        context.iallreduce(numpy.ones(1))
        context.allreduce(numpy.ones(1))
        if context.rank == 0 and len(children) == 20:
            stop.append(1)
        stop.extend([1] * int(context.broadcast(numpy.array([len(stop)]))[0]))
s = weft.Schedule(0, 1)
s.compute(weft.compute(lambda call: None))
s = s.commit()
children = []
thread = threading.Thread(target=lambda: weft.run_local(2, program, progress="helper"))
thread.start()
for number in range(20):
    child = os.fork()
    if child == 0:
        gc.collect()
        sys.stdout.write("")
        del s, program
        gc.collect()
        os._exit(0) if number % 2 else None
        break
    children.append(child)
if child == 0:
    sys.exit(0)
thread.join()
print([os.waitpid(child, 0)[1] for child in children] == [0] * 20)
"""), "True\n")


def test_children_of_multiprocessing():
    well(execute("""
import multiprocessing
import numpy, weft
context = weft.LocalGroup(1).context(0, progress="helper")
def work(number):
    try:
        context.barrier()
    except weft.StateError:
        return weft.run_local(2, lambda c: c.allreduce(numpy.full(1, number)).tolist())
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(4)))
    print(context.allreduce(numpy.ones(1))[0])
"""), "[[[0], [0]], [[2], [2]], [[4], [4]], [[6], [6]]]\n1.0\n")


# ---- Ctrl-C ----

INTERRUPT = BEGIN + """
def interrupt():
    while not waiting():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
def interrupted(function, when=None):
    global waiting
    waiting = when or (lambda: context._handle.record.busy())
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        function()
    except KeyboardInterrupt:
        print("interrupted")
    thread.join()
context = group.context(0)
"""


def test_interrupted_waits():
    well(execute(INTERRUPT + """
x = numpy.ones(3)
other = group.context(1, progress="helper")
run = exchange(context).run(context, x=numpy.zeros(4), y=numpy.zeros(4)).start()
interrupted(run.wait)
interrupted(lambda: run.wait(1000))
peer = exchange(other).run(other, x=numpy.ones(4), y=numpy.zeros(4)).start()
print(run.wait().error == "")
interrupted(lambda: context.allreduce(x))       # goes on
print(other.allreduce(numpy.ones(3)))
interrupted(lambda: context.sleep(1000))
request = context.iallreduce(numpy.ones(2))
interrupted(request.wait)
print(other.allreduce(numpy.ones(2)))
print(request.wait())
interrupted(lambda: weft.wait_all([context.ibarrier()]))
other.barrier()
y = numpy.zeros(3)
thread = threading.Thread(target=lambda: other.allreduce(y))
thread.start()
print(context.allreduce(y))
thread.join()
"""), "interrupted\n" * 2 + "True\ninterrupted\n[2. 2. 2.]\ninterrupted\ninterrupted\n[2. 2.]\n[2. 2.]\n"
      "interrupted\n[0. 0. 0.]\n")


@pytest.mark.parametrize("call", ["context.split(0)", "context.subset([0, 1])", "context.shrink()"])
def test_interrupted_collectives(call):
    """They cannot be taken up again: the context is aborted, and closes."""
    well(execute(INTERRUPT + """
other = group.context(1, progress="helper")
interrupted(lambda: %s, lambda: len(context._handle.record.busy()) > 1)  # which is in the library then
try:
    context.barrier()
except weft.CancelledError as problem:
    print("KeyboardInterrupt" in str(problem))
context.close()
try:
    other.barrier()
except weft.PeerError:
    print("peer")
""" % call), "interrupted\nTrue\npeer\n")


def test_interrupted_run_local():
    well(execute(INTERRUPT + """
inside = []
def program(context):
    inside.append(context)
    if context.rank == 0:
        context.barrier()
    elif context.rank == 1:
        exchange(context).run(context, x=numpy.zeros(4), y=numpy.zeros(4)).execute()
    else:
        context.sleep(1000)
interrupted(lambda: weft.run_local(3, program), lambda: len(inside) == 3)
print([context._handle.record.done for context in inside])
print(weft.run_local(2, lambda context: context.allreduce(numpy.ones(1)).tolist()))
"""), "interrupted\n[True, True, True]\n[[2.0], [2.0]]\n")


def test_interrupted_meeting():
    """One that waits for a rank which does not come."""
    well(execute(INTERRUPT + """
def meet():
    started.append(1)
    weft.Context.shared(0, 2, name="nobody %d" % os.getpid(), meet=1000)
started = []
interrupted(meet, lambda: any(thread.name == "weft call" for thread in threading.enumerate()))
print(weft.run_local(2, lambda context: context.allreduce(numpy.ones(1)).tolist()))
"""), "interrupted\n[[2.0], [2.0]]\n")


def test_interrupted_functions():
    """Ctrl-C while weft is in a function of the program: the wait raises it."""
    well(execute(INTERRUPT + """
inside = []
def slow(call):
    inside.append(1)
    while True:
        time.sleep(0.01)
s = weft.Schedule(0, 1)
s.compute(weft.compute(slow))
run = weft.Run(context, s, local_only=True)
interrupted(lambda: run.start().wait(), lambda: inside)
inside.clear()
def slow_end(status):
    inside.append(1)
    while True:
        time.sleep(0.01)
s = weft.Schedule(0, 1)
go = s.event()
run = weft.Run(context, s, local_only=True, ended=slow_end).start()
waiting = lambda: inside
thread = threading.Thread(target=interrupt, daemon=True)
thread.start()
run.fire(go)
thread.join()
t = weft.Schedule(0, 1)
t.event()
try:
    weft.Run(context, t, local_only=True).start().wait(1000)
except KeyboardInterrupt:
    print("interrupted")
def slow_sum(a, b):
    inside.append(1)
    while True:
        time.sleep(0.01)
inside.clear()
other = group.context(1, progress="helper")
request = other.iallreduce(numpy.ones(1))
def both():
    context.allreduce(numpy.ones(1), op=weft.reduction(slow_sum))
interrupted(both, lambda: inside)
def gather(mine):
    inside.append(1)
    while True:
        time.sleep(0.01)
inside.clear()
interrupted(lambda: weft.Context.shared(0, 2, gather=gather), lambda: inside)
"""), "interrupted\n" * 4)


def test_interrupts_by_the_dozen():
    """Whatever is interrupted where: the process goes on, and ends well."""
    ended = execute(INTERRUPT + """
other = group.context(1, progress="helper")
def peer():
    while not stop:
        try:
            other.allreduce(numpy.ones(3))
        except weft.WeftError:
            return
stop = []
threading.Thread(target=peer, daemon=True).start()
def ring():
    for _ in range(60):
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    done.append(1)
done = []
count = 0
thread = threading.Thread(target=ring)
thread.start()
while not done:
    try:
        while not done:
            context.allreduce(numpy.ones(3))
            request = context.iallreduce(numpy.ones(3))
            s = weft.Schedule(0, 1)
            s.join()
            weft.Run(context, s, local_only=True).execute()
            request.wait()
    except KeyboardInterrupt:
        count += 1
while True:
    try:
        thread.join()
        break
    except KeyboardInterrupt:
        pass
signal.signal(signal.SIGINT, signal.SIG_IGN)
context.allreduce(numpy.ones(3))
print(count > 0)
stop.append(1)
context.close()
other.close()
print("end")
""")
    assert ended.code == 0 and ended.out == "True\nend\n", str(ended)
