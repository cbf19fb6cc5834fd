#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What an allreduce costs that is called from Python, on two processes or more, side by side in one run:

    c          the C call, in a loop of C
    weft       Context.allreduce of a numpy array
    tensor     the same of a tensor of torch
    backend    torch.distributed.all_reduce on the backend "weft"
    gloo       the same on gloo
    mpi4py     Allreduce of mpi4py

    mpiexec -n 2 python3 tools/scripts/python_overhead.py [--json] [--rounds N] [--bytes N,N...]

Each round calls each of them for a while, so that what the machine does besides meets all alike; the table
has the median of the rounds and the quartiles, in microseconds, and the ratio of the medians to C's. Needs
mpi4py, torch and a C compiler.
"""
import argparse
import ctypes
import json
import os
import pathlib
import shlex
import socket
import statistics
import subprocess
import tempfile
import time

import numpy
import torch
import torch.distributed as dist
import weft
import weft.torch
from mpi4py import MPI
from weft._library import ffi, path as library

LOOP = """
#include <weft/weft.h>
int loop(struct weft_context *context, const void *send, void *recv, size_t count, int calls)
{
    for (int i = 0; i < calls; i++) {
        int status = weft_allreduce(context, send, recv, count, WEFT_F32, weft_op_builtin(WEFT_SUM));
        if (status)
            return status;
    }
    return 0;
}
"""


def compiled(comm):
    """The loop of C, compiled once, against the library that the package has loaded."""
    folder = None
    if comm.rank == 0:
        folder = tempfile.mkdtemp()
        source = pathlib.Path(folder, "loop.c")
        source.write_text(LOOP, encoding="utf-8")
        top = pathlib.Path(__file__).resolve().parents[2]
        includes = ["-I%s" % path for path in [top / "include"] + sorted(top.glob("build*/include"))]
        subprocess.run(shlex.split(os.environ.get("CC", "cc")) + ["-O2", "-shared", "-fPIC"] + includes +
                       [str(source), "-o", folder + "/loop.so", library], check=True)
    folder = comm.bcast(folder)
    loop = ctypes.CDLL(folder + "/loop.so").loop
    loop.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_size_t, ctypes.c_int]
    return loop


def calls_of(comm, context, loop, group, count):
    """{name: function(calls)} for arrays of `count` elements."""
    array, result = context.empty(count), context.empty(count)
    array[:] = 1
    tensors = [torch.from_numpy(one) for one in (array, result)]
    plain = torch.ones(count)
    pointer = int(ffi.cast("uintptr_t", context._handle.get()))

    def c(calls):
        assert loop(pointer, array.ctypes.data, result.ctypes.data, count, calls) == 0

    def weft_numpy(calls):
        for _ in range(calls):
            context.allreduce(array, result)

    def weft_tensor(calls):
        for _ in range(calls):
            context.allreduce(tensors[0], tensors[1])

    def backend(calls):
        for _ in range(calls):
            dist.all_reduce(plain, group=group)
        plain.fill_(1)

    def gloo(calls):
        for _ in range(calls):
            dist.all_reduce(plain)
        plain.fill_(1)

    def mpi4py(calls):
        for _ in range(calls):
            comm.Allreduce([array, MPI.FLOAT], [result, MPI.FLOAT])

    return {"c": c, "weft": weft_numpy, "tensor": weft_tensor, "backend": backend, "gloo": gloo,
            "mpi4py": mpi4py}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bytes", default="4,65536,4194304")
    given = parser.parse_args()
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    port = None
    if comm.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % comm.bcast(port), rank=comm.rank,
                            world_size=comm.size)
    group = dist.new_group(backend="weft")
    context = weft.Context.shared(comm.rank, comm.size, gather=comm.allgather)
    loop = compiled(comm)
    for size in map(int, given.bytes.split(",")):
        functions = calls_of(comm, context, loop, group, max(size // 4, 1))
        number = {}
        for name, function in functions.items():  # warmed up, and calls for some 20 ms
            function(5)
            began = time.perf_counter()
            function(20)
            number[name] = comm.bcast(max(3, int(0.02 * 20 / (time.perf_counter() - began))))
        found = {name: [] for name in functions}
        for _ in range(given.rounds):
            for name, function in functions.items():
                comm.Barrier()
                began = time.perf_counter()
                function(number[name])
                found[name].append((time.perf_counter() - began) / number[name] * 1e6)
        if comm.rank == 0:
            base = statistics.median(found["c"])
            for name, times in found.items():
                low, middle, high = statistics.quantiles(times, n=4)
                row = {"bytes": size, "call": name, "us": round(middle, 3),
                       "quartiles": [round(low, 3), round(high, 3)], "ratio_to_c": round(middle / base, 3)}
                line = "%9d B  %-8s %10.2f us  (%.2f to %.2f)  %6.2f of C"
                print(json.dumps(row) if given.json else line % (
                    size, name, middle, low, high, middle / base), flush=True)
    context.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    numpy.seterr(all="ignore")  # sums grow from call to call
    main()
