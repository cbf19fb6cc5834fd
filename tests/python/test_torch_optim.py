# SPDX-License-Identifier: BSD-3-Clause
"""Optimizers that average, on local ranks."""
import io
import threading

import numpy
import pytest

torch = pytest.importorskip("torch")

import weft  # noqa: E402
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

            assert float(optimizer.step(closure)) > 0
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
