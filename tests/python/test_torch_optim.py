# SPDX-License-Identifier: BSD-3-Clause
"""Optimizers that average, on local ranks."""
import copy
import gc
import io
import pathlib
import pickle
import threading
import time
import warnings
import weakref

import numpy
import pytest

torch = pytest.importorskip("torch")

import weft  # noqa: E402
import weft.datasets  # noqa: E402
import weft.torch  # noqa: E402

torch.set_num_threads(1)
SEEDING = threading.Lock()


def model_of(seed=0, dtype=torch.float32):
    with SEEDING:  # torch has one generator for all threads
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(20, 12), torch.nn.Tanh(), torch.nn.Linear(12, 5)).to(dtype)


def batch_of(rank, step, dtype=torch.float32, size=8):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return (torch.randn(size, 20, generator=generator).to(dtype),
            torch.randint(0, 5, (size,), generator=generator))


def flat(model):
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in model.parameters()]).numpy()


def backward(model, rank, step, dtype=torch.float32):
    x, y = batch_of(rank, step, dtype)
    loss = torch.nn.functional.cross_entropy(model(x).float(), y)
    loss.backward()
    return loss


def train(model, optimizer, rank, steps, first=0):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        backward(model, rank, step)
        optimizer.step()


def sgd(model, **settings):
    return torch.optim.SGD(model.parameters(), **dict({"lr": 0.1}, **settings))


def synchronous(size, steps, **settings):
    """What SGD with the mean of all ranks' gradients makes, in one process."""
    model = model_of()
    optimizer = sgd(model, **settings)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(size):
            backward(model, rank, step)
        for parameter in model.parameters():
            parameter.grad /= size
        optimizer.step()
    return flat(model)


MAKERS = {
    "wagma": lambda o, c: weft.torch.WagmaOptimizer(o, c),
    "wagma-overlap": lambda o, c: weft.torch.WagmaOptimizer(o, c, overlap=True),
    "local": lambda o, c: weft.torch.LocalSGDOptimizer(o, c, period=3),
    "gossip": lambda o, c: weft.torch.GossipOptimizer(o, c),
    "sgp": lambda o, c: weft.torch.GossipOptimizer(o, c, graph="exponential", overlap=True),
    "pair": lambda o, c: weft.torch.PairAverageOptimizer(o, c, overlap=True),
    "eager": lambda o, c: weft.torch.EagerOptimizer(o, c),
    "majority": lambda o, c: weft.torch.EagerOptimizer(o, c, activation="drawn"),
    "gtopk": lambda o, c: weft.torch.SparseOptimizer(o, c, density=0.1),
    "topk": lambda o, c: weft.torch.SparseOptimizer(o, c, method="allgather", density=0.1),
    "oktopk": lambda o, c: weft.torch.SparseOptimizer(o, c, method="oktopk", density=0.1),
    "powersgd": lambda o, c: weft.torch.CompressedOptimizer(o, c),
    "qsgd": lambda o, c: weft.torch.CompressedOptimizer(o, c, method="qsgd"),
    "merged": lambda o, c: weft.torch.MergedOptimizer(o, c),
    "merged-gtopk": lambda o, c: weft.torch.MergedOptimizer(o, c, method="sparse", sparse={"density": 0.1}),
}


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["merged", "dense-eager", "dense-sparse"])
def test_gradients_of_all_ranks_are_averaged(name, size):
    """Where nothing is dropped, and all are waited for, it is synchronous SGD."""
    makers = {
        "merged": MAKERS["merged"],
        "dense-eager": lambda o, c: weft.torch.EagerOptimizer(o, c, mode="waiting"),
        "dense-sparse": lambda o, c: weft.torch.SparseOptimizer(o, c, method="allgather", density=1),
    }

    def program(context):
        model = model_of()
        with makers[name](sgd(model, momentum=0.9), context) as optimizer:
            train(model, optimizer, context.rank, 4)
        return flat(model)

    found = weft.run_local(size, program, progress="helper")
    for other in found[1:]:
        assert (other == found[0]).all()
    numpy.testing.assert_allclose(found[0], synchronous(size, 4, momentum=0.9), rtol=1e-4, atol=1e-6)


def test_local_sgd_is_the_mean_of_what_the_ranks_have_learned():
    def alone(rank):
        model = model_of()
        train(model, sgd(model), rank, 3)
        return flat(model)

    def program(context):
        model = model_of()
        with MAKERS["local"](sgd(model), context) as optimizer:
            train(model, optimizer, context.rank, 3)
            assert optimizer.result.synchronised and optimizer.result.members == 3
            assert optimizer.stats.syncs == 1
        return flat(model)

    expected = sum(alone(rank) for rank in range(3)) / 3
    for found in weft.run_local(3, program, progress="helper"):
        numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("overlap", [False, True])
def test_gossip_of_all_neighbours_is_the_mean(overlap):
    """On three ranks a ring of two neighbours is everybody: W <- mean(W) - rate g with overlap."""
    def program(context):
        model = model_of()
        optimizer = weft.torch.GossipOptimizer(sgd(model), context, neighbours=2, overlap=overlap)
        train(model, optimizer, context.rank, 3)
        optimizer.close()
        return flat(model)

    models = [model_of() for _ in range(3)]
    optimizers = [sgd(model) for model in models]
    for step in range(3):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            optimizer.zero_grad()
            backward(model, rank, step)
        before = [[p.detach().clone() for p in model.parameters()] for model in models]
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            for parameters, was in zip(zip(*[model.parameters() for model in models]), zip(*before)):
                mean = sum(was) / 3 if overlap else sum(parameters) / 3
                for parameter, old in zip(parameters, was):
                    # What is posted behind a step is taken before the next one, or at the end.
                    parameter.copy_(mean if not overlap else mean + (parameter - old))
    found = weft.run_local(3, program, progress="helper")
    if not overlap:
        for rank in range(3):
            numpy.testing.assert_allclose(found[rank], flat(models[rank]), rtol=1e-5, atol=1e-6)
    else:
        # After the last average all are equal.
        for rank in range(3):
            numpy.testing.assert_allclose(found[rank], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_checkpoint_goes_on(name):
    """After a state through a file a training goes on; of what is deterministic as if it had not stopped."""
    exact = name in ("local", "gossip", "sgp", "gtopk", "topk", "oktopk", "merged", "qsgd", "powersgd")

    def whole(context):
        model = model_of()
        with MAKERS[name](sgd(model, momentum=0.5), context) as optimizer:
            train(model, optimizer, context.rank, 3)
            optimizer.flush()
            train(model, optimizer, context.rank, 3, 3)
        return flat(model)

    def cut(context):
        model = model_of()
        file = io.BytesIO()
        with MAKERS[name](sgd(model, momentum=0.5), context) as optimizer:
            train(model, optimizer, context.rank, 3)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        saved = torch.load(file)
        model = model_of()
        with MAKERS[name](sgd(model, momentum=0.5), context) as optimizer:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            train(model, optimizer, context.rank, 3, 3)
        return flat(model)

    found = weft.run_local(3, cut, progress="helper")
    assert all(numpy.isfinite(one).all() for one in found)
    if exact:
        for one, other in zip(found, weft.run_local(3, whole, progress="helper")):
            numpy.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_late_rank_takes_part_without_having_arrived():
    """Rank 2 stays away until the others have taken their steps: they do not wait for it."""
    gone = threading.Event()

    def program(context):
        model = model_of()
        optimizer = weft.torch.WagmaOptimizer(sgd(model), context, sync_period=float("inf"), group_size=3)
        if context.rank == 2:
            gone.wait(60)
        train(model, optimizer, context.rank, 4)
        if context.rank != 2:
            counted.append(optimizer.stats.steps)
            if len(counted) == 2:
                gone.set()
        stats = optimizer.stats
        optimizer.close()
        return stats

    counted = []
    stats = weft.run_local(3, program, progress="helper")
    assert [one.steps for one in stats] == [4, 4, 4]
    assert stats[2].passive_versions >= 4
    assert stats[2].stale_steps >= 3


def test_two_datatypes_and_frozen_parameters():
    def program(context):
        model = torch.nn.ModuleList([model_of(), model_of(1, torch.float64)])
        model[0][0].bias.requires_grad_(False)
        frozen = model[0][0].bias.detach().clone()
        with weft.torch.MergedOptimizer(sgd(model), context) as optimizer:
            for step in range(3):
                optimizer.zero_grad()
                backward(model[0], context.rank, step)
                optimizer.step()
        assert (model[0][0].bias == frozen).all()
        return flat(model[0])

    with pytest.raises(weft.UnsupportedError):  # merged gradients are f32, f16 and bf16
        weft.run_local(2, program, progress="helper")

    def averaged(context):
        model = torch.nn.ModuleList([model_of(), model_of(1, torch.float64)])
        with weft.torch.LocalSGDOptimizer(sgd(model), context, period=1) as optimizer:
            for step in range(2):
                optimizer.zero_grad()
                backward(model[0], context.rank, step)
                backward(model[1], context.rank, step, torch.float64)
                optimizer.step()
            assert len(optimizer.results) == 2
        return flat(model[0]), flat(model[1])

    one, other = weft.run_local(2, averaged, progress="helper")
    assert (one[0] == other[0]).all() and (one[1] == other[1]).all()


def test_merged_gradients_accumulate_without_synchronising():
    def program(context):
        model = model_of()
        with weft.torch.MergedOptimizer(sgd(model), context) as optimizer:
            for step in range(2):
                optimizer.zero_grad()
                with optimizer.no_sync():
                    backward(model, context.rank, 2 * step)
                backward(model, context.rank, 2 * step + 1)
                optimizer.step()
            result = flat(model)
            with pytest.raises(weft.StateError, match="no_sync"):
                optimizer.zero_grad()
                backward(model, context.rank, 9)
                backward(model, context.rank, 10)
            with pytest.raises(weft.StateError, match="was changed"):  # both gradients are in it
                optimizer.step()
        return result

    found = weft.run_local(2, program, progress="helper")
    assert (found[0] == found[1]).all()


def test_a_parameter_without_a_gradient_counts_as_zero():
    def program(context):
        model = model_of()
        with SEEDING:
            torch.manual_seed(3)
            other = torch.nn.Linear(3, 3)
        everything = torch.nn.ModuleList([model, other])
        with weft.torch.MergedOptimizer(sgd(everything), context) as optimizer:
            optimizer.zero_grad()
            loss = backward(model, context.rank, 0)
            if context.rank == 0:
                other(torch.ones(3)).sum().backward()
            optimizer.step()
            assert loss is not None
            assert optimizer.stats.absent == (0 if context.rank == 0 else 2)
        return flat(other)

    found = weft.run_local(2, program, progress="helper")
    assert (found[0] == found[1]).all()


def test_it_is_an_optimizer():
    def program(context):
        model = model_of()
        inner = sgd(model, lr=1.0)
        with weft.torch.WagmaOptimizer(inner, context) as optimizer:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            assert isinstance(optimizer, torch.optim.Optimizer)

            def closure():
                optimizer.zero_grad()
                return backward(model, context.rank, 0)

            assert float(optimizer.step(closure).detach()) > 0
            scheduler.step()
            assert inner.param_groups[0]["lr"] == 0.5
            assert "SGD" in repr(optimizer)
            with pytest.raises(weft.StateError, match="new wrapper"):
                optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
        with pytest.raises(weft.InvalidError, match="optimizer is a int"):
            weft.torch.WagmaOptimizer(3, context)
        with pytest.raises(TypeError, match="group_sise"):
            weft.torch.WagmaOptimizer(inner, context, group_sise=2)
        return True

    assert all(weft.run_local(1, program, progress="helper"))


def test_broadcast_and_average_parameters():
    def program(context):
        model = torch.nn.Sequential(model_of(context.rank), torch.nn.BatchNorm1d(5))
        weft.torch.broadcast_parameters(model, context, root=1)
        first = flat(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += context.rank
            model[1].num_batches_tracked += context.rank
        weft.torch.average_parameters(model, context)
        return first, flat(model), int(model[1].num_batches_tracked)

    found = weft.run_local(3, program)
    expected = flat(torch.nn.Sequential(model_of(1), torch.nn.BatchNorm1d(5)))
    for first, second, batches in found:
        assert (first == expected).all()
        numpy.testing.assert_allclose(second, expected + 1, rtol=1e-6)
        assert batches == 0


def test_models_that_differ_are_refused():
    def program(context):
        model = model_of(context.rank)
        weft.torch.WagmaOptimizer(sgd(model), context)

    with pytest.raises(weft.InvalidError, match="contents of the tensors"):
        weft.run_local(2, program, progress="helper")


def test_a_rank_that_fails_is_not_waited_for():
    def program(context):
        model = model_of()
        optimizer = weft.torch.MergedOptimizer(sgd(model), context)
        train(model, optimizer, context.rank, 2)
        if context.rank == 1:
            raise RuntimeError("out of data")
        train(model, optimizer, context.rank, 2)

    with pytest.raises(RuntimeError, match="out of data"):
        weft.run_local(3, program, progress="helper")


# ---- gradients between the backward pass and the step ----

AVERAGES = ("gtopk", "topk", "oktopk", "powersgd", "qsgd", "merged", "merged-gtopk")
GRADIENTS = AVERAGES + ("eager", "majority")
ALL = pytest.mark.parametrize("name", list(MAKERS))


def same(found):
    return all((one == found[0]).all() for one in found)


@pytest.mark.parametrize("name", GRADIENTS)
def test_averages_can_be_clipped(name):
    def program(context):
        model = model_of()
        with MAKERS[name](sgd(model), context) as optimizer:
            for step in range(4):
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                backward(model, context.rank, step)
                optimizer.synchronise()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                optimizer.step()
        return flat(model)

    found = weft.run_local(3, program, progress="helper")
    if name in AVERAGES:
        assert same(found)
    if name == "merged":
        model = model_of()
        optimizer = sgd(model)
        for step in range(4):
            optimizer.zero_grad()
            for rank in range(3):
                backward(model, rank, step)
            for parameter in model.parameters():
                parameter.grad /= 3
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
        numpy.testing.assert_allclose(found[0], flat(model), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("none", [False, True])
def test_merged_gradients_belong_to_weft_until_the_step(none):
    def program(context):
        model = model_of()
        with MAKERS["merged"](sgd(model), context) as optimizer:
            def begin(step):
                optimizer.zero_grad(set_to_none=none)
                backward(model, context.rank, step)

            begin(0)
            optimizer.step()
            begin(1)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            with pytest.raises(weft.StateError, match="synchronise"):
                optimizer.step()
            begin(1)
            with pytest.raises(weft.StateError, match="zeroed"):
                optimizer.zero_grad()
            model.zero_grad(set_to_none=none)
            with pytest.raises(weft.StateError, match="was changed"):
                optimizer.step()
            begin(1)  # thrown away
            optimizer.synchronise()
            begin(2)
            optimizer.step()
            optimizer.step()  # without a backward pass
            optimizer.zero_grad(set_to_none=True)
            optimizer.step()
        return flat(model)

    assert same(weft.run_local(3, program, progress="helper"))


@pytest.mark.parametrize("name", ["gtopk", "topk", "oktopk", "powersgd", "qsgd", "merged-gtopk", "eager"])
def test_nans_of_one_rank_do_not_part_the_models(name):
    """It takes the step as the others do, and then raises."""
    def program(context):
        model = model_of()
        raised = 0
        with MAKERS[name](sgd(model), context) as optimizer:
            for step in range(4):
                optimizer.zero_grad()
                x, y = batch_of(context.rank, step)
                loss = torch.nn.functional.cross_entropy(model(x), y)
                (loss * (float("nan") if (context.rank, step) == (1, 2) else 1)).backward()
                try:
                    optimizer.step()
                except weft.ComputeError:
                    raised += 1
        assert raised == (context.rank == 1)
        return flat(model)

    found = weft.run_local(3, program, progress="helper")
    assert numpy.isfinite(found).all()
    if name != "eager":
        assert same(found)


class Embedded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with SEEDING:
            torch.manual_seed(1)
            self.table = torch.nn.Embedding(10, 4, sparse=True)
            self.last = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.table(x))


@pytest.mark.parametrize("name", GRADIENTS)
def test_sparse_gradients(name):
    def program(context):
        model = Embedded()
        with MAKERS[name](sgd(model), context) as optimizer:
            for step in range(3):
                optimizer.zero_grad(set_to_none=step != 1)
                model(torch.tensor([context.rank, step])).sum().backward()
                optimizer.step()
        return flat(model)

    found = weft.run_local(2, program, progress="helper")
    if name in AVERAGES:
        assert same(found)
    if name == "merged":
        model = Embedded()
        for step in range(3):
            model.zero_grad(set_to_none=True)
            for rank in range(2):
                model(torch.tensor([rank, step])).sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                    parameter -= 0.1 * gradient / 2
        numpy.testing.assert_allclose(found[0], flat(model), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("name", AVERAGES)
def test_lbfgs(name, line_search):
    """Its closure is called as often on all ranks, by losses and gradients that are averages."""
    def program(context):
        model = model_of()
        inner = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn=line_search)
        with MAKERS[name](inner, context) as optimizer:
            for step in range(3):
                def closure():
                    optimizer.zero_grad()
                    return backward(model, context.rank, step)

                optimizer.step(closure)
        return flat(model)

    assert same(weft.run_local(3, program, progress="helper"))


def test_lbfgs_of_eager_gradients_is_refused():
    with weft.LocalGroup(1).context(0, progress="helper") as context:
        with pytest.raises(weft.InvalidError, match="L-BFGS"):
            weft.torch.EagerOptimizer(torch.optim.LBFGS(model_of().parameters()), context)


def test_gradients_have_the_order_of_their_parameters():
    """Channels last: torch would warn of gradients in another order, and be slower."""
    def program(context):
        with SEEDING:
            torch.manual_seed(0)
            model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        x = (context.rank + torch.ones(2, 3, 8, 8)).to(memory_format=torch.channels_last)
        with MAKERS["merged"](sgd(model), context) as optimizer:
            for _ in range(3):
                optimizer.zero_grad(set_to_none=False)
                model(x).sum().backward()
                optimizer.step()
        assert model.weight.grad.stride() == model.weight.stride()
        return flat(model)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(weft.run_local(2, program, progress="helper"))


def test_a_merged_optimizer_can_be_made_without_gradients():
    def program(context):
        model = model_of()
        with torch.no_grad():
            optimizer = MAKERS["merged"](sgd(model), context)
        with optimizer:
            train(model, optimizer, context.rank, 2)
        return flat(model)

    found = weft.run_local(2, program, progress="helper")
    numpy.testing.assert_allclose(found[0], synchronous(2, 2), rtol=1e-4, atol=1e-6)


# ---- what goes on after a time has passed ----


@pytest.mark.parametrize("name", ["local", "overlap", "gtopk", "merged"])
def test_a_step_goes_on_after_a_timeout(name):
    """Of two datatypes: what has ended is not repeated, what has not begun is begun."""
    makers = {
        "local": lambda o, c, d: weft.torch.LocalSGDOptimizer(o, c, period=1, deadline=d),
        "overlap": lambda o, c, d: weft.torch.LocalSGDOptimizer(o, c, period=1, overlap=True, deadline=d),
        "gtopk": lambda o, c, d: weft.torch.SparseOptimizer(o, c, density=0.1, deadline=d),
        "merged": lambda o, c, d: weft.torch.MergedOptimizer(o, c, deadline=d),
    }

    def retried(function, optimizer):
        timeouts = 0
        while True:
            try:
                function()
                return timeouts
            except weft.TimeoutError:
                timeouts += 1
                if name == "local":  # its own step has been taken
                    function = optimizer.flush

    def training(late):
        def program(context):
            models = torch.nn.ModuleList([model_of(), model_of(1, torch.bfloat16)])
            optimizer = makers[name](sgd(models, momentum=0.5), context, 0.1 if late else None)
            timeouts = 0
            for step in range(4):
                optimizer.zero_grad()
                backward(models[0], context.rank, step)
                backward(models[1], context.rank, step, torch.bfloat16)
                if late and (context.rank, step) == (1, 2):
                    time.sleep(0.5)
                timeouts += retried(optimizer.step, optimizer)
            timeouts += retried(optimizer.flush, optimizer)
            optimizer.close()
            assert timeouts or not late or context.rank == 1
            return flat(models)

        return program

    for one, other in zip(weft.run_local(2, training(False), progress="helper"),
                          weft.run_local(2, training(True), progress="helper")):
        numpy.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


# ---- parameters that are not what they were ----


@ALL
def test_parameters_that_have_changed_are_refused(name):
    def program(context):
        model = model_of()
        inner = sgd(model)
        optimizer = MAKERS[name](inner, context)
        train(model, optimizer, context.rank, 1)
        if name not in GRADIENTS:  # they are averaged where they were
            model.double()
            with pytest.raises(weft.StateError, match="parameter 0 has moved"):
                optimizer.step()
        inner.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
        with pytest.raises(weft.StateError, match="other parameters"):
            optimizer.step()
        optimizer.close()

    weft.run_local(2, program, progress="helper")


@pytest.mark.parametrize("name", ["gtopk", "merged"])
def test_a_parameter_that_was_frozen_has_no_average(name):
    def program(context):
        model = model_of()
        model[0].bias.requires_grad_(False)
        optimizer = MAKERS[name](sgd(model), context)
        train(model, optimizer, context.rank, 1)
        model[0].bias.requires_grad_(True)
        optimizer.zero_grad()
        backward(model, context.rank, 1)
        with pytest.raises(weft.StateError, match="was frozen"):
            optimizer.step()

    weft.run_local(1, program, progress="helper")


# ---- checkpoints, and the end ----


@ALL
def test_the_end(name):
    def program(context):
        model = model_of()
        optimizer = MAKERS[name](sgd(model), context)
        train(model, optimizer, context.rank, 2)
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(weft.StateError, match="state_dict"):
                copied(optimizer)
        optimizer.close()
        optimizer.close()
        for function in (optimizer.step, optimizer.state_dict, lambda: optimizer.load_state_dict({})):
            with pytest.raises(weft.StateError, match="closed"):
                function()
        optimizer.zero_grad()
        backward(model, context.rank, 2)  # which is of nobody's interest

    weft.run_local(2, program, progress="helper")


@ALL
def test_one_that_is_dropped_makes_way(name):
    def program(context):
        model = model_of()
        optimizer = MAKERS[name](sgd(model), context)
        train(model, optimizer, context.rank, 2)
        optimizer.zero_grad()
        backward(model, context.rank, 2)
        known = weakref.ref(optimizer)
        del optimizer
        gc.collect()
        assert known() is None
        model.load_state_dict(model_of().state_dict())
        with MAKERS[name](sgd(model), context) as optimizer:
            train(model, optimizer, context.rank, 2)

    weft.run_local(2, program, progress="helper")


@ALL
def test_a_training_rolls_back(name):
    """What is under way is dropped, and does not reach the model that was loaded."""
    def plain(value):
        if isinstance(value, dict):
            return all(map(plain, value.values()))
        if isinstance(value, (list, tuple)):
            return all(map(plain, value))
        return value is None or type(value) in (int, float, bool, str, torch.Tensor)

    def program(context):
        model = model_of()
        with MAKERS[name](sgd(model), context) as optimizer:
            train(model, optimizer, context.rank, 2)
            saved = copy.deepcopy(optimizer.state_dict())
            assert plain(saved)  # for torch.load(weights_only=True)
            weights = copy.deepcopy(model.state_dict())
            train(model, optimizer, context.rank, 2, 2)
            model.load_state_dict(weights)
            before = flat(model)
            optimizer.load_state_dict(saved)
            assert (flat(model) == before).all()
            train(model, optimizer, context.rank, 2, 2)
            with pytest.raises(weft.InvalidError, match="one a datatype"):
                optimizer.load_state_dict(dict(saved, weft=saved["weft"] * 2))

    weft.run_local(2, program, progress="helper")


@ALL
def test_the_state_of_a_plain_optimizer(name):
    def program(context):
        model = model_of()
        with MAKERS[name](sgd(model), context) as optimizer:
            optimizer.load_state_dict(sgd(model, lr=0.7).state_dict())
            assert optimizer.param_groups[0]["lr"] == 0.7
            train(model, optimizer, context.rank, 2)

    weft.run_local(2, program, progress="helper")


def test_learning_rates():
    def program(context):
        model = model_of()
        kinds = torch.optim.lr_scheduler
        with MAKERS["merged"](sgd(model, momentum=0.9), context) as optimizer:
            schedulers = [
                kinds.StepLR(optimizer, 1), kinds.LambdaLR(optimizer, lambda epoch: 0.9),
                kinds.MultiplicativeLR(optimizer, lambda epoch: 0.9), kinds.MultiStepLR(optimizer, [1, 2]),
                kinds.ExponentialLR(optimizer, 0.9), kinds.CosineAnnealingLR(optimizer, 5),
                kinds.CosineAnnealingWarmRestarts(optimizer, 3), kinds.LinearLR(optimizer),
                kinds.CyclicLR(optimizer, 0.01, 0.1), kinds.OneCycleLR(optimizer, 0.1, total_steps=10),
                kinds.SequentialLR(optimizer, [kinds.ConstantLR(optimizer),
                                               kinds.ExponentialLR(optimizer, 0.9)], [2])]
            plateau = kinds.ReduceLROnPlateau(optimizer, patience=0)
            for step in range(3):
                train(model, optimizer, context.rank, 1, step)
                for scheduler in schedulers:
                    scheduler.step()
                plateau.step(1.0)
            assert optimizer.param_groups[0]["lr"] == optimizer.optimizer.param_groups[0]["lr"] != 0.1
        return flat(model)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of epochs that SequentialLR hands on
        assert same(weft.run_local(2, program, progress="helper"))


def test_a_rank_that_fails_in_its_optimizer_is_named():
    """Also where nobody would wait for it until the next synchronisation."""
    def program(context):
        model = model_of()
        try:
            with weft.torch.WagmaOptimizer(sgd(model), context, sync_period=3) as optimizer:
                train(model, optimizer, context.rank, 2)
                if context.rank == 1:
                    raise RuntimeError("out of data")
                train(model, optimizer, context.rank, 2)
        except (RuntimeError, weft.PeerError) as problem:
            return str(problem)

    found = weft.run_local(3, program, progress="helper")
    assert all("rank 1 has failed: RuntimeError: out of data" in found[rank] for rank in (0, 2)), found


# ---- parameters ----


class Odd(torch.nn.Module):
    """Tensors of many kinds, and what is no tensor."""

    def __init__(self, rank):
        super().__init__()
        self.plain = torch.nn.Linear(2, 2)
        self.tied = self.plain.weight
        self.c64 = torch.nn.Parameter(torch.full((2,), rank + 1j, dtype=torch.complex64))
        self.f16 = torch.nn.Parameter(torch.full((5,), 30000.0).half())  # f16 has no room for the sum
        self.bf16 = torch.nn.Parameter(torch.full((4,), float(rank)).bfloat16())
        self.f64 = torch.nn.Parameter(torch.tensor(1.5 * rank, dtype=torch.float64))
        self.turned = torch.nn.Parameter(torch.randn(4, 5).t())
        self.register_buffer("passing", torch.full((3,), float(rank)), persistent=False)
        self.register_buffer("flag", torch.tensor(rank == 1))
        self.register_buffer("count", torch.tensor([rank], dtype=torch.int16))
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("none", None)

    def get_extra_state(self):
        return {"no": "tensor"}

    def set_extra_state(self, state):
        pass


def test_tensors_of_all_kinds_are_broadcast_and_averaged():
    def program(context):
        model = Odd(context.rank)
        weft.torch.average_parameters(model, context)
        for tensor, value in ((model.c64, 1 + 1j), (model.f16, 30000), (model.bf16, 1),
                              (model.f64, 1.5), (model.passing, 1), (model.flag, False), (model.count, 0)):
            assert (tensor == value).all(), tensor
        mean = model.turned.detach().clone()
        model = Odd(context.rank)
        weft.torch.broadcast_parameters(model, context, root=1)
        for tensor, value in ((model.c64, 1 + 1j), (model.bf16, 1), (model.f64, 1.5),
                              (model.passing, 1), (model.flag, True), (model.count, 1)):
            assert (tensor == value).all(), tensor
        weft.torch.broadcast_parameters([], context)
        weft.torch.broadcast_parameters({"tensor": torch.ones(2), "number": 3}, context)
        with pytest.raises(weft.InvalidError, match=r"tensors\[0\] is a str"):
            weft.torch.broadcast_parameters(["x"], context)
        return torch.cat([mean.flatten(), model.turned.detach().flatten()]).numpy()

    assert same(weft.run_local(3, program))


def test_where_the_digits_are_looked_for(monkeypatch):
    """Also of a package near the root of the file system."""
    monkeypatch.setattr(weft.datasets, "__file__", "/weft/datasets.py")
    assert pathlib.Path("/weft/_native/share/weft/optdigits") in list(weft.datasets._folders())
