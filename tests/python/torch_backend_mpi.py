# SPDX-License-Identifier: BSD-3-Clause
"""A rank of mpiexec, of the tests of the backend ``weft`` of torch.distributed over MPI.

    torch_backend_mpi.py FILE
"""
import faulthandler
import os
import sys

import torch
import torch.distributed as dist

import weft.torch.backend as backend


def main():
    faulthandler.dump_traceback_later(100, exit=True)
    rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
    size = int(os.environ.get("PMI_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group("weft", init_method="file://" + sys.argv[1], rank=rank, world_size=size)
    assert backend.context_of().transport == "mpi"
    tensor = torch.full((1000,), rank + 1.0)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size * (size + 1) / 2] * 1000
    for count in (5, 100000):
        got = torch.zeros(count)
        work = dist.isend(torch.full((count,), float(rank)), (rank + 1) % size)
        dist.recv(got, (rank - 1) % size)
        work.wait()
        assert got[0] == got[-1] == (rank - 1) % size
    group = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [2.0] * 3
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.full((2, 4), float(rank))).sum().backward()
    gradient = model.module.weight.grad
    found = [torch.zeros_like(gradient) for _ in range(size)]
    dist.all_gather(found, gradient)
    assert all(torch.equal(one, gradient) for one in found)
    dist.barrier()
    os.write(1, b"CASE mpi rank %d ok\n" % rank)


if __name__ == "__main__":
    main()
