# SPDX-License-Identifier: BSD-3-Clause
"""What test_mpi.py runs under mpiexec; prints "ok" on rank 0."""
import sys

import numpy
from mpi4py import MPI

import weft


def collectives(comm):
    with weft.Context.mpi(comm) as context:
        assert (context.rank, context.size) == (comm.rank, comm.size)
        assert context.transport == "mpi"
        x = numpy.arange(1000.0) + context.rank
        context.allreduce(x)
        expected = numpy.empty(1000)
        comm.Allreduce(numpy.arange(1000.0) + comm.rank, expected)
        assert (x == expected).all()
        request = context.iallgather(numpy.full(3, context.rank))
        assert (request.wait()[:, 0] == numpy.arange(comm.size)).all()


def communicators(comm):
    """Several at once, of parts of the ranks, with a helper."""
    part = comm.Split(comm.rank % 2, -comm.rank)
    with weft.Context.mpi(part, progress="helper") as context, weft.Context.mpi() as whole:
        assert (context.rank, context.size) == (part.rank, part.size)
        x = numpy.ones(5, "f4")
        requests = [context.iallreduce(x), whole.ibarrier()]
        weft.wait_all(requests)
        assert (x == part.size).all()
        half = whole.split(whole.rank % 2)
        assert half.size == part.size
        model = numpy.full(100, float(context.rank))
        with weft.GroupAverage(context, [model], initial="any", mode="waiting", group_size=context.size) as average:
            average.step()
        assert numpy.allclose(model, (context.size - 1) / 2)
    part.Free()


def graphs(comm):
    with weft.Context.mpi(comm) as context:
        s = weft.Schedule(context.rank, context.size)
        x = s.slot("x", "i8", 4, "input")
        y = s.slot("y", "i8", 4, "output")
        s.send(x, (context.rank + 1) % context.size)
        s.recv(y, (context.rank - 1) % context.size)
        given, got = numpy.full(4, context.rank, "i1"), numpy.zeros(4, "i1")
        with s.commit().run(context, x=given, y=got) as run:
            for _ in range(3):
                run.execute()
        assert (got == (context.rank - 1) % context.size).all()


def memory(comm):
    """Arrays over memory of a context are good after its end, also where MPI has brought UCX."""
    for make in (lambda: weft.Context.mpi(comm),
                 lambda: weft.Context.shared(comm.rank, comm.size, gather=comm.allgather)):
        with make() as context:
            x, y = context.empty(1 << 20), context.empty(1 << 20)
            x[:] = context.rank + 1
            context.allreduce(x, y)
        assert (y == comm.size * (comm.size + 1) / 2).all() and (x == comm.rank + 1).all()


def errors(comm):
    for wrong in (3, MPI.COMM_NULL, "world"):
        try:
            weft.Context.mpi(wrong)
        except weft.InvalidError:
            continue
        raise AssertionError("accepted %r" % (wrong,))


def main():
    comm = MPI.COMM_WORLD
    for case in (collectives, communicators, graphs, memory, errors):
        case(comm)
    if sys.argv[1:] == ["finalize"]:
        left = weft.Context.mpi(comm)
        MPI.Finalize()
        try:
            left.barrier()
        except weft.StateError:
            pass
        else:
            raise AssertionError("a context has outlived MPI")
    elif sys.argv[1:] == ["leave"]:
        globals()["left"] = weft.Context.mpi(comm, progress="helper")
    if comm.rank == 0 if sys.argv[1:] != ["finalize"] else left.rank == 0:
        print("ok", flush=True)


if __name__ == "__main__":
    main()
