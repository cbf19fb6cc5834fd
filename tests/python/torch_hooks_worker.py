# SPDX-License-Identifier: BSD-3-Clause
"""What test_torch_hooks.py runs under torchrun: prints a line a case on rank 0, "ok NAME" or why not."""
import copy
import gc
import io
import sys
import traceback
import weakref

import torch
import torch.distributed as dist
import torch.utils.checkpoint
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
            losses.append(float(loss.detach()))
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


def refused(kind, said, function):
    """That a function raises an error of a class, with a text."""
    try:
        function()
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError("accepted")


def unknown_name(context):
    model = DistributedDataParallel(Model())
    refused(weft.InvalidError, "gtopk", lambda: weft.torch.register_comm_hook(model, "gtop", context))
    refused(weft.InvalidError, "DistributedDataParallel",
            lambda: weft.torch.register_comm_hook(Model(), "merged", context))


def frozen(context):
    module = Model()
    module.first.weight.requires_grad_(False)
    model = DistributedDataParallel(module)
    state = weft.torch.register_comm_hook(model, "merged", context)
    for step in range(3):
        model.zero_grad()
        backward(model, step, extra=True)
        assert module.first.weight.grad is None
        for found, wanted in zip(gradients(model), expected(step, extra=True)):
            if found is not None:
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    state.close()


def sparse_gradients(context):
    """Those of an embedding come in a bucket of their own, and go back as they came."""
    class Embedded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.table = torch.nn.Embedding(10, 4, sparse=True)
            self.last = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.table(x))

    model = DistributedDataParallel(Embedded())
    state = weft.torch.register_comm_hook(model, "merged", context)
    for step in range(4):
        model.zero_grad(set_to_none=True)
        model(torch.tensor([dist.get_rank(), step])).sum().backward()
        alone = Embedded()
        for rank in range(dist.get_world_size()):
            alone(torch.tensor([rank, step])).sum().backward()
        for found, wanted in zip(gradients(model), gradients(alone)):
            assert found.is_sparse == wanted.is_sparse
            if found.is_sparse:
                found, wanted = found.to_dense(), wanted.to_dense()
            torch.testing.assert_close(found, wanted / dist.get_world_size(), rtol=1e-4, atol=1e-6)
    state.close()


def two_datatypes(context):
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first = torch.nn.Linear(4, 4)
            self.scale = torch.nn.Parameter(torch.ones(4).half())

        def forward(self, x):
            return self.first(x) * self.scale.float()

    for views in (False, True):
        model = DistributedDataParallel(Mixed(), gradient_as_bucket_view=views)
        state = weft.torch.register_comm_hook(model, "merged", context)
        for _ in range(4):
            model.zero_grad(set_to_none=True)
            model(torch.full((2, 4), dist.get_rank() + 1.0)).sum().backward()
            same_on_all([gradient.float() for gradient in gradients(model)])
        assert len(state.plans) == 2
        state.close()


def extreme_buckets(context):
    for size in (1e-9, 1000):
        for name in ("merged", "powersgd"):
            model = DistributedDataParallel(Model(), bucket_cap_mb=size, gradient_as_bucket_view=True)
            state = weft.torch.register_comm_hook(model, name, context)
            for step in range(4):
                model.zero_grad(set_to_none=step % 2 == 0)
                backward(model, step, extra=True)
                same_on_all(gradients(model))
            state.close()


def uneven_inputs(context):
    """Who has no more inputs takes part with zeros, outside of a backward pass."""
    model = DistributedDataParallel(Model(), bucket_cap_mb=0.0005)
    state = weft.torch.register_comm_hook(model, "merged", context)
    with model.join():
        for step in range(3 + dist.get_rank()):
            model.zero_grad()
            backward(model, step, extra=True)
    assert state.stats.steps == 2 + dist.get_world_size()
    state.close()


def recomputation(context):
    """Of checkpoints, whose inner passes call the hook too."""
    class Recomputed(torch.nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
            self.reentrant = reentrant

        def forward(self, x):
            x = torch.utils.checkpoint.checkpoint(self.layers[1], self.layers[0](x),
                                                  use_reentrant=self.reentrant)
            return self.layers[2](x)

    for reentrant in (False, True):
        for settings in ({"bucket_cap_mb": 1e-6}, {"static_graph": True}):
            model = DistributedDataParallel(Recomputed(reentrant), **settings)
            state = weft.torch.register_comm_hook(model, "merged", context)
            for _ in range(4):
                model.zero_grad()
                model(torch.full((2, 4), dist.get_rank() + 1.0)).sum().backward()
                same_on_all(gradients(model))
            state.close()


def groups(context):
    """The default context is of DDP's process group, whatever its backend."""
    some = sorted({0, dist.get_world_size() - 1})
    for group in (dist.new_group(some), dist.new_group(backend="weft")):
        if dist.get_rank(group) < 0:
            continue
        model = DistributedDataParallel(Model(), process_group=group)
        if group.size() < context.size:
            refused(weft.InvalidError, "the process group of DDP",
                    lambda: weft.torch.register_comm_hook(model, "merged", context))
        state = weft.torch.register_comm_hook(model, "merged")
        assert (state.context.rank, state.context.size) == (group.rank(), group.size())
        for step in range(3):
            model.zero_grad()
            backward(model, step, extra=True)
        state.close()
        state.context.close()


def lives(context):
    model = DistributedDataParallel(Model())
    state = weft.torch.register_comm_hook(model, "merged", context)
    refused(RuntimeError, "once", lambda: weft.torch.register_comm_hook(model, "merged", context))
    refused(weft.StateError, "state_dict", lambda: copy.deepcopy(state))
    backward(model, 0, extra=True)
    saved = state.state_dict()
    refused(weft.InvalidError, "one a datatype", lambda: state.load_state_dict({"weft": saved["weft"] * 2}))
    state.close()
    state.close()
    refused(weft.StateError, "closed", state.state_dict)
    refused(weft.StateError, "closed", lambda: backward(model, 1, extra=True))


def dropped(context):
    """DDP keeps the state, and nobody else."""
    model = DistributedDataParallel(Model())
    known = weakref.ref(weft.torch.register_comm_hook(model, "merged", context))
    for step in range(2):
        model.zero_grad()
        gc.collect()
        backward(model, step, extra=True)
    del model
    gc.collect()
    assert known() is None


def errors(context):
    """What goes wrong is raised by backward() as what it is; after NaNs of one rank all go on."""
    for settings in ({}, {"static_graph": True}, {"bucket_cap_mb": 1e-6}):
        model = DistributedDataParallel(Model(), **settings)
        state = weft.torch.register_comm_hook(model, "gtopk", context, density=0.1)
        for step in range(4):
            model.zero_grad()
            if dist.get_rank() == 0 and step % 2 == 0:
                x, _ = batch_of(0, step)
                refused(weft.ComputeError, "NaNs",
                        lambda: (model(x, extra=True).sum() * float("nan")).backward())
            else:
                backward(model, step, extra=True)
            same_on_all(gradients(model))
        state.close()


CASES = {"dense": dense, "small_buckets": small_buckets, "views": views, "static_graph": static_graph,
         "unused_parameters": unused_parameters, "accumulation": accumulation, "gtopk": sparse("gtopk"),
         "topk": sparse("topk"), "oktopk": sparse("oktopk"), "qsgd": compressed("qsgd"),
         "powersgd": compressed("powersgd"), "gradiveq": compressed("gradiveq"), "checkpoint": checkpoint,
         "two_models": two_models, "unknown_name": unknown_name, "frozen": frozen,
         "sparse_gradients": sparse_gradients, "two_datatypes": two_datatypes,
         "extreme_buckets": extreme_buckets, "uneven_inputs": uneven_inputs, "recomputation": recomputation,
         "groups": groups, "lives": lives, "dropped": dropped, "errors": errors}


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
