# SPDX-License-Identifier: BSD-3-Clause
"""Trains a classifier of handwritten digits with PyTorch, on ranks of which some are late at times.

    torchrun --standalone --nproc_per_node 3 train.py        (of Debian's torch 1.13 with -r 2 -t 2)
    mpiexec -n 3 python3 train.py

DistributedDataParallel over gloo waits for who is late at every step; WAGMA-SGD does not. The table has what
both took and learned, and --plot draws the accuracy over time.
"""
import argparse
import json
import os
import random
import time

import torch
import torch.distributed as dist
import weft
import weft.datasets
import weft.torch
from torch.nn.parallel import DistributedDataParallel

ALGORITHMS = ("ddp-gloo", "ddp-weft", "ddp-gtopk", "wagma", "local", "d-psgd", "ad-psgd", "merged", "gtopk",
              "powersgd")


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--algorithm", default="ddp-gloo,wagma",
                        help="comma-separated: " + ", ".join(ALGORITHMS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank and step")
    parser.add_argument("--compute", type=float, default=10, metavar="MS",
                        help="so long a step computes besides")
    parser.add_argument("--late", default="1:30", metavar="N:MS", help="so many ranks, drawn anew for each "
                        "step, take so much longer")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="a JSON object an algorithm")
    parser.add_argument("--plot", metavar="FILE.svg")
    given = parser.parse_args()
    for name in given.algorithm.split(","):
        if name not in ALGORITHMS:
            parser.error("--algorithm has %r, expected some of %s" % (name, ", ".join(ALGORITHMS)))
    try:
        late, delay = given.late.split(":")
        given.late, given.delay = int(late), float(delay)
    except ValueError:
        parser.error("--late is %r, expected N:MS" % given.late)
    return given


def init_distributed():
    """torch.distributed over gloo, under torchrun or mpiexec; who starts processes by mpiexec has mpi4py tell
    them where they meet."""
    if "RANK" not in os.environ:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        os.environ.update(RANK=str(comm.rank), WORLD_SIZE=str(comm.size), MASTER_ADDR="127.0.0.1")
        port = None
        if comm.rank == 0:
            import socket

            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
        os.environ["MASTER_PORT"] = str(comm.bcast(port))
        dist.init_process_group("gloo")
        return weft.Context.mpi(comm, progress="helper")
    dist.init_process_group("gloo")
    return weft.torch.context()


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def wrapped(name, model, context, given):
    """The model and the optimizer of an algorithm, and what is to be closed."""
    optimizer = torch.optim.SGD(model.parameters(), lr=given.rate, momentum=0.9)
    if name.startswith("ddp"):
        group = dist.new_group(backend="weft") if name == "ddp-weft" else None
        model = DistributedDataParallel(model, process_group=group)
        hook = weft.torch.register_comm_hook(model, "gtopk", context, density=0.05) if name == "ddp-gtopk" \
            else None
        return model, optimizer, hook
    make = {
        "wagma": lambda: weft.torch.WagmaOptimizer(optimizer, context),
        "local": lambda: weft.torch.LocalSGDOptimizer(optimizer, context, period=10),
        "d-psgd": lambda: weft.torch.GossipOptimizer(optimizer, context, overlap=True),
        "ad-psgd": lambda: weft.torch.PairAverageOptimizer(optimizer, context, overlap=True),
        "merged": lambda: weft.torch.MergedOptimizer(optimizer, context),
        "gtopk": lambda: weft.torch.SparseOptimizer(optimizer, context, density=0.05),
        "powersgd": lambda: weft.torch.CompressedOptimizer(optimizer, context),
    }[name]
    optimizer = make()
    return model, optimizer, optimizer


def accuracy(model, digits):
    with torch.no_grad():
        return float((model(torch.from_numpy(digits.x_test)).argmax(1) ==
                      torch.from_numpy(digits.y_test)).float().mean())


def train(name, context, digits, given):
    rank, size = context.rank, context.size
    x = torch.from_numpy(digits.x_train[rank::size])
    y = torch.from_numpy(digits.y_train[rank::size])
    plain = model_of(given.seed)
    model, optimizer, closing = wrapped(name, plain, context, given)
    batches = torch.Generator().manual_seed(given.seed * 1000 + rank)
    draws = random.Random(given.seed)
    curve, spent = [], 0.0
    context.barrier()
    for step in range(given.steps):
        began = time.perf_counter()
        late = draws.sample(range(size), min(given.late, size))
        busy = given.compute + (given.delay if rank in late else 0)
        time.sleep(busy / 1000)  # as a larger model would compute
        chosen = torch.randint(0, len(x), (given.batch,), generator=batches)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
        spent += time.perf_counter() - began
        if (step + 1) % 10 == 0:
            curve.append((spent, accuracy(plain, digits)))
    seconds = torch.tensor([spent], dtype=torch.float64)
    context.allreduce(seconds, op="max")
    if closing is not None:
        closing.close()
    weft.torch.average_parameters(plain, context)
    return {"algorithm": name, "ranks": size, "steps": given.steps, "seconds": round(float(seconds), 3),
            "samples_per_second": round(size * given.steps * given.batch / float(seconds), 1),
            "test_accuracy": round(accuracy(plain, digits), 4), "curve": curve}


def main():
    given = options()
    torch.set_num_threads(1)
    context = init_distributed()
    digits = weft.datasets.optdigits()
    rows = [train(name, context, digits, given) for name in given.algorithm.split(",")]
    if context.rank == 0:
        if not given.json:
            print("%-10s %6s %9s %11s %9s %9s" % ("algorithm", "ranks", "seconds", "samples/s", "speed-up",
                                                  "accuracy"))
        for row in rows:
            if given.json:
                print(json.dumps({key: value for key, value in row.items() if key != "curve"}), flush=True)
            else:
                print("%-10s %6d %9.2f %11.0f %8.2fx %8.2f %%" % (
                    row["algorithm"], row["ranks"], row["seconds"], row["samples_per_second"],
                    rows[0]["seconds"] / row["seconds"], 100 * row["test_accuracy"]), flush=True)
        if given.plot:
            curves = {row["algorithm"]: row["curve"] for row in rows}
            weft.draw.curves(curves, "seconds", "test accuracy").save(given.plot)
    context.barrier()
    context.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
