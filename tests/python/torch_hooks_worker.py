# SPDX-License-Identifier: BSD-3-Clause
"""What test_torch_hooks.py runs under torchrun: prints a line a case on rank 0, "ok NAME" or why not."""
import copy
import io
import sys
import traceback

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import weft
import weft.torch

torch.set_num_threads(1)


class Model(torch.nn.Module):
    """Parameters of which some are not used at times."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(20, 16)
        self.filters = torch.nn.Conv2d(1, 4, 3)
        self.unused = torch.nn.Linear(16, 16)
        self.last = torch.nn.Linear(16, 5)

    def forward(self, x, extra=False):
        x = torch.tanh(self.first(x))
        x = self.filters(x.view(-1, 1, 4, 4)).reshape(-1, 16)
        if extra:
            x = x + self.unused(x)
        return self.last(x)


def batch_of(rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(8, 20, generator=generator), torch.randint(0, 5, (8,), generator=generator)


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def backward(model, step, rank=None, **settings):
    x, y = batch_of(dist.get_rank() if rank is None else rank, step)
    torch.nn.functional.cross_entropy(model(x, **settings), y).backward()


def expected(step, **settings):
    """The mean of all ranks' gradients, computed here."""
    model = Model()
    for rank in range(dist.get_world_size()):
        backward(model, step, rank, **settings)
    return [None if p.grad is None else p.grad / dist.get_world_size() for p in model.parameters()]


def same_on_all(tensors):
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors if tensor is not None])
    everything = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(everything, flat)
    for rank, other in enumerate(everything):
        assert torch.equal(other, flat), "rank %d has other bits" % rank


def check_dense(context, **ddp):
    model = DistributedDataParallel(Model(), **ddp)
    state = weft.torch.register_comm_hook(model, "merged", context)
    for step in range(8):
        for p in model.parameters():
            p.grad = None
        backward(model, step, extra=True)
        for found, wanted in zip(gradients(model), expected(step, extra=True)):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
        same_on_all(gradients(model))
    assert state.stats.steps == 8
    assert state.plans[0].groups
    state.close()


def dense(context):
    check_dense(context)


def small_buckets(context):
    check_dense(context, bucket_cap_mb=0.0005)


def views(context):
    check_dense(context, gradient_as_bucket_view=True)


def static_graph(context):
    check_dense(context, static_graph=True)


def unused_parameters(context):
    model = DistributedDataParallel(Model(), find_unused_parameters=True, bucket_cap_mb=0.0005)
    state = weft.torch.register_comm_hook(model, "merged", context)
    for step in range(6):
        model.zero_grad()
        extra = step % 2 == 1
        backward(model, step, extra=extra)
        for found, wanted in zip(gradients(model), expected(step, extra=extra)):
            if wanted is not None:
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    state.close()


def accumulation(context):
    model = DistributedDataParallel(Model())
    state = weft.torch.register_comm_hook(model, "merged", context)
    for step in range(4):
        model.zero_grad()
        with model.no_sync():
            backward(model, 2 * step, extra=True)
        backward(model, 2 * step + 1, extra=True)
        for found, one, other in zip(gradients(model), expected(2 * step, extra=True),
                                     expected(2 * step + 1, extra=True)):
            torch.testing.assert_close(found, one + other, rtol=1e-4, atol=1e-6)
    state.close()


def sparse(name):
    def case(context):
        """Nothing is lost: over all steps what was given out and what is kept is what came in."""
        model = DistributedDataParallel(Model(), bucket_cap_mb=0.0005)
        state = weft.torch.register_comm_hook(model, name, context, density=0.1)
        total = [torch.zeros_like(p, dtype=torch.float64) for p in model.parameters()]
        wanted = [torch.zeros_like(p, dtype=torch.float64) for p in model.parameters()]
        for step in range(8):
            model.zero_grad()
            backward(model, step, extra=True)
            same_on_all(gradients(model))
            for sum_, found in zip(total, gradients(model)):
                sum_ += found
            for sum_, found in zip(wanted, expected(step, extra=True)):
                sum_ += found
        residual = state.state_dict()["weft"][0]["residual"].double()
        dist.all_reduce(residual)
        residual /= dist.get_world_size()
        flat = torch.cat([sum_.reshape(-1) for sum_ in total])
        torch.testing.assert_close(flat + residual, torch.cat([sum_.reshape(-1) for sum_ in wanted]),
                                   rtol=1e-4, atol=1e-5)
        assert 0 < int((gradients(model)[0] != 0).sum()) < gradients(model)[0].numel()
        state.close()

    return case


def compressed(name):
    def case(context):
        model = DistributedDataParallel(Model())
        settings = {"gradiveq": {"warmup_steps": 2, "sample_steps": 4}} if name == "gradiveq" else {}
        state = weft.torch.register_comm_hook(model, name, context, **settings)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        for step in range(24):
            optimizer.zero_grad()
            x, y = batch_of(dist.get_rank(), 0)
            loss = torch.nn.functional.cross_entropy(model(x, extra=True), y)
            loss.backward()
            same_on_all(gradients(model))
            optimizer.step()
            losses.append(float(loss))
        assert losses[-1] < 0.9 * losses[0], losses
        state.close()

    return case


def checkpoint(context):
    """A training that goes on from a checkpoint has the gradients of one that did not stop."""
    def training(state, model, first, steps):
        found = []
        for step in range(first, first + steps):
            model.zero_grad()
            backward(model, step, extra=True)
            found.append(gradients(model))
        return found

    model = DistributedDataParallel(Model())
    state = weft.torch.register_comm_hook(model, "gtopk", context, density=0.1)
    training(state, model, 0, 12)
    file = io.BytesIO()
    torch.save(copy.deepcopy(state.state_dict()), file)
    one = training(state, model, 12, 3)
    state.close()
    file.seek(0)
    model = DistributedDataParallel(Model())
    state = weft.torch.register_comm_hook(model, "gtopk", context, density=0.1)
    state.load_state_dict(torch.load(file))
    for found, wanted in zip(training(state, model, 12, 3), one):
        for a, b in zip(found, wanted):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
    state.close()


def two_models(context):
    models = [DistributedDataParallel(Model()) for _ in range(2)]
    states = [weft.torch.register_comm_hook(model, "merged", context) for model in models]
    for step in range(4):
        for model in models:
            model.zero_grad()
            backward(model, step, extra=True)
        for one, other in zip(gradients(models[0]), gradients(models[1])):
            torch.testing.assert_close(one, other)
    for state in states:
        state.close()


def unknown_name(context):
    model = DistributedDataParallel(Model())
    try:
        weft.torch.register_comm_hook(model, "gtop", context)
    except weft.InvalidError as error:
        assert "gtopk" in str(error)
    else:
        raise AssertionError("accepted")


CASES = {"dense": dense, "small_buckets": small_buckets, "views": views, "static_graph": static_graph,
         "unused_parameters": unused_parameters, "accumulation": accumulation, "gtopk": sparse("gtopk"),
         "topk": sparse("topk"), "oktopk": sparse("oktopk"), "qsgd": compressed("qsgd"),
         "powersgd": compressed("powersgd"), "gradiveq": compressed("gradiveq"), "checkpoint": checkpoint,
         "two_models": two_models, "unknown_name": unknown_name}


def main():
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    with weft.torch.context() as context:
        for name, case in CASES.items():
            problem = None
            try:
                case(context)
            except Exception:
                problem = traceback.format_exc()
                print("rank %d: %s: %s" % (dist.get_rank(), name, problem), file=sys.stderr, flush=True)
            problems = [None] * dist.get_world_size()
            dist.all_gather_object(problems, problem)
            if dist.get_rank() == 0:
                print("%s %s" % ("not ok" if any(problems) else "ok", name), flush=True)
            if any(problems):
                return 1
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
