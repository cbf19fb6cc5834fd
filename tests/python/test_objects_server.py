# SPDX-License-Identifier: BSD-3-Clause
"""Parameter servers: what the synchronisation models promise, against descents by numpy."""
import math
import pickle
import threading

import numpy as np
import pytest

import weft

RATE = 0.125


def run(size, function, *arguments, progress="helper"):
    return weft.run_local(size, function, *arguments, progress=progress)


def new():
    return [np.arange(10.0), np.full((2, 3), 4.0), np.zeros(0)]


def gradient(rank, step):
    """Numbers whose weighted means are exact."""
    return [np.full(10, 8.0 * rank + step), np.arange(6.0).reshape(2, 3) * 4 * (rank + 1), np.zeros(0)]


def put(tensors, values):
    for tensor, value in zip(tensors, values):
        tensor[...] = value


def test_places():
    parts = weft.place_layers([10, 3, 0, 7], 2, split_elements=8)
    assert parts[:2] == [(0, 0, 5, 0), (0, 5, 5, 1)]
    assert [part.layer for part in parts] == [0, 0, 1, 3]
    loads = [sum(part.count for part in parts if part.server == server) for server in range(2)]
    assert sum(loads) == 20 and max(loads) - min(loads) <= 7
    assert [part[:3] for part in weft.place_layers([10, 20], 3)] == [(0, 0, 10), (1, 0, 20)]
    assert weft.place_layers([10, 20], 3) == weft.place_layers([10, 20], 3, math.inf)
    assert weft.place_layers([], 3) == []
    with pytest.raises(weft.InvalidError, match="servers is 0"):
        weft.place_layers([1], 0)


@pytest.mark.parametrize("size, settings", [
    (1, {}), (2, {}), (3, {}), (5, {"servers": 2}), (3, {"place": "colocated"}),
    (3, {"place": "colocated", "servers": 3, "split_bytes": 8}), (3, {"flow": "turns"}),
    (3, {"flow": "paced", "segment_bytes": 16}), (3, {"merge_bytes": 16}),
])
def test_bsp_is_gradient_descent(size, settings):
    steps = 3

    def program(context):
        tensors, gradients = new(), new()
        with weft.Server(context, tensors, gradients=gradients, rate=RATE, **settings) as server:
            assert server.is_worker == (context.rank < server.workers)
            if not server.is_worker:
                assert server.index is not None
                return server.serve(20) and server.workers
            for step in range(steps):
                put(gradients, gradient(context.rank, step))
                if step == 1:
                    for layer in (2, 1, 0):
                        server.ready(layer)
                    for layer in range(3):
                        server.wait(layer)
                    result = server.result
                else:
                    result = server.step()
                assert result.step == step and result.version == step + 1 and result.staleness == 0
            assert server.next == steps and server.layer_version(0) == steps
            assert server.stats.steps == steps
        return tensors

    results = run(size, program)
    tensors = [result for result in results if isinstance(result, list)]
    expected = new()
    for step in range(steps):
        pushed = [gradient(rank, step) for rank in range(len(tensors))]
        mean = [sum(parts) / len(tensors) for parts in zip(*pushed)]
        for one, change in zip(expected, mean):
            one -= RATE * change
    for model in tensors:
        for one, other in zip(model, expected):
            assert np.allclose(one, other)


def test_a_server_alone_with_caller_progress():
    def program(context):
        tensors, gradients = [np.zeros(4, np.float32)], [np.full(4, 8.0 * context.rank, np.float32)]
        with weft.Server(context, tensors, gradients=gradients, rate=0.5) as server:
            if server.is_worker:
                assert server.index is None
                with pytest.raises(weft.StateError, match="worker"):
                    server.serve()
                server.step()
                return tensors[0][0]
            assert server.serve(timeout=0) is False
            with pytest.raises(weft.StateError, match="server alone"):
                server.step()
            assert server.serve() is True
            assert server.stats.updates == 1

    assert run(3, program, progress="caller") == [-2, -2, None]


@pytest.mark.parametrize("sync, settings", [
    ("asp", {}), ("ssp", {"staleness": 1}), ("dssp", {"staleness": 1, "staleness_most": 3}), ("r2sp", {}),
    ("asp", {"optimiser": "worker-updates", "momentum": 0.5}),
])
def test_every_push_is_an_update(sync, settings):
    steps = 4

    def program(context):
        tensors, gradients = [np.zeros(5)], [np.ones(5)]
        with weft.Server(context, tensors, gradients=gradients, rate=RATE, sync=sync, **settings) as server:
            if not server.is_worker:
                server.serve()
                return None
            versions = [server.step().version for _ in range(steps)]
            assert versions == sorted(versions)
            if sync == "ssp":
                assert server.stats.staleness_most <= 2 * (1 + 1)
            done.wait(20)
            server.pull()
        return tensors[0][0]

    done = threading.Barrier(2)
    results = run(3, program)
    if not settings.get("momentum"):
        assert results[:2] == [-RATE * steps] * 2  # each counts half


def test_models_become_their_weighted_mean():
    def program(context):
        tensors = [np.zeros(4)]
        with weft.Server(context, tensors, push="models", weight=context.rank + 1.0) as server:
            if not server.is_worker:
                return server.serve()
            tensors[0][:] = 9.0 * (context.rank + 1)
            server.step()
        return tensors[0][0]

    assert run(3, program) == [(9 * 1 + 18 * 2) / 3] * 2 + [True]


def test_what_is_absent_counts_as_zero_and_rates_change():
    def program(context):
        tensors, gradients = [np.zeros(4), np.zeros(2)], [np.full(4, 4.0), np.full(2, 4.0)]
        with weft.Server(context, tensors, gradients=gradients, layers=[1, 1], rate=1.0) as server:
            if not server.is_worker:
                return server.serve()
            server.set_rate(0.5)
            if context.rank == 0:
                server.absent(1)
                with pytest.raises(weft.StateError, match="layer 1 has been announced"):
                    server.ready(1)
                with pytest.raises(weft.StateError, match="not been announced"):
                    server.wait(0)
                with pytest.raises(weft.StateError, match="under way"):
                    server.set_rate(1)
                with pytest.raises(weft.StateError, match="under way"):
                    server.state()
            server.step()
            server.pull()
            for bad in (2, -1):
                with pytest.raises(weft.InvalidError, match="layer is"):
                    server.ready(bad)
            assert server.next == 2
        return tensors[0][0], tensors[1][0]

    assert run(3, program) == [(-2, -1), (-2, -1), True]


@pytest.mark.parametrize("correction", ["at-end", "before-layer"])
def test_osp_ends_with_one_model(correction):
    def program(context):
        tensors, gradients = [np.zeros(40), np.zeros(40)], [np.zeros(40), np.zeros(40)]
        with weft.Server(context, tensors, gradients=gradients, rate=RATE, sync="osp", osp_share=0.5,
                         momentum=0.5, osp_average=0.5, osp_correction=correction) as server:
            if not server.is_worker:
                return server.serve()
            server.tell_loss(2.0)
            for step in range(4):
                for tensor in gradients:
                    tensor[:] = context.rank + step
                result = server.step()
                assert result.late_layers <= 1
            assert sum(server.layer_late(layer) for layer in range(2)) <= 1
            server.correct()
            assert [server.layer_version(layer) for layer in range(2)] == [4, 4]
            assert server.tuning.first_loss == 2 and server.stats.late_bytes > 0
        return [tensor.tobytes() for tensor in tensors]

    results = run(3, program)
    assert results[0] == results[1]


def test_with_osp_nothing_may_be_late():
    def program(context):
        tensors, gradients = [np.zeros(4), np.zeros(4)], [np.ones(4), np.ones(4)]
        with weft.Server(context, tensors, gradients=gradients, sync="osp", osp_share=0,
                         osp_most=0) as server:
            if server.is_worker:
                server.tell_loss(1)
                assert [server.step().late_layers for _ in range(3)] == [0, 0, 0]
            else:
                server.serve()

    run(3, program)


@pytest.mark.parametrize("settings", [
    dict(momentum=0.5), dict(sync="ssp", staleness=0, momentum=0.5, optimiser="worker-updates"),
    dict(sync="osp", osp_share=0.5, momentum=0.5, osp_average=0.25), dict(place="colocated", momentum=0.5),
])
def test_a_state_goes_on_bit_for_bit(settings):
    exact = settings.get("sync") != "ssp"  # of which updates come one by one, in any order

    def program(context, cut):
        barrier = barriers[cut is None]
        tensors, gradients = [np.zeros(40), np.ones(7)], [np.zeros(40), np.zeros(7)]

        def create(state=None):
            return weft.Server(context, tensors, gradients=gradients, rate=RATE, state=state, **settings)

        server = create()

        def train(steps):
            for step in steps if server.is_worker else ():
                if step == 0 and settings.get("sync") == "osp":
                    server.tell_loss(3.0)
                generator = np.random.default_rng([context.rank if exact else 0, step])
                for tensor in gradients:
                    tensor[:] = generator.integers(0, 64, tensor.size)
                server.step()

        train(range(2))
        if cut is not None:
            if server.is_worker and settings.get("sync") == "osp":
                server.state()
            barrier.wait(20)
            state = pickle.loads(pickle.dumps(server.state(timeout=20)))
            barrier.wait(20)
            assert state["rank"] == context.rank and state["agreed"] == [3, 1, 2]
            assert (state["parameters"] is not None) == (server.index is not None)
            server.close()
            server = create(state)
            assert server.next == (2 if server.is_worker else 0)
        train(range(2, 4))
        if server.is_worker:
            server.correct()
            server.close()
            return [tensor.tobytes() for tensor in tensors]
        server.serve(20)
        server.close()

    barriers = [threading.Barrier(3) for _ in range(2)]
    one, other = run(3, program, 2), run(3, program, None)
    if exact:
        assert one == other
    else:
        assert np.allclose(*[np.frombuffer(result[0][0]) for result in (one, other)])


def test_a_state_of_another_rank_is_refused():
    def program(context):
        tensors, gradients = [np.zeros(40)], [np.zeros(40)]
        with weft.Server(context, tensors, gradients=gradients, momentum=0.5) as server:
            server.step()
            state = server.state()
        with pytest.raises(weft.InvalidError, match="velocity.*39 elements, expected 40"):
            weft.Server(context, tensors, gradients=gradients, state=dict(state, velocity=np.zeros(39)))
        with pytest.raises(weft.InvalidError, match="agreed"):
            weft.Server(context, tensors, gradients=gradients, momentum=0.5,
                        state=dict(state, agreed=[7, 1, 1]))

    run(1, program)


def test_a_wait_times_out_and_goes_on():
    late = threading.Event()

    def program(context):
        tensors, gradients = [np.zeros(4), np.zeros(3)], [np.ones(4), np.ones(3)]
        with weft.Server(context, tensors, gradients=gradients, rate=1.0) as server:
            if not server.is_worker:
                return server.serve()
            if context.rank == 0:
                server.ready(1)
                with pytest.raises(TimeoutError, match="layer 1"):
                    server.wait(1, timeout=0.01)
                with pytest.raises(TimeoutError, match=r"within 0\.\d\d\d s"):
                    server.step(timeout=0.01)
                late.set()
            else:
                assert late.wait(20)
            server.step(timeout=20)
            assert server.next == 1
        return tensors[0][0], tensors[1][0]

    assert run(3, program)[:2] == [(-1, -1)] * 2


def test_a_gradient_with_nans_is_refused_and_may_be_mended():
    def program(context):
        tensors, gradients = [np.zeros(4)], [np.full(4, np.nan)]
        with weft.Server(context, tensors, gradients=gradients, rate=1.0) as server:
            with pytest.raises(weft.ComputeError, match="layer 0"):
                server.step()
            gradients[0][:] = 1
            server.step()
        return tensors[0][0]

    assert run(1, program) == [-1]


def test_a_worker_that_fails_is_named_to_the_servers():
    made = threading.Barrier(3)

    def program(context):
        tensors, gradients = [np.zeros(4)], [np.ones(4)]
        server = weft.Server(context, tensors, gradients=gradients)
        made.wait(20)
        if context.rank == 0:
            server.fail(ValueError("bad data"))
            return
        with pytest.raises(weft.PeerError, match="rank 0.*ValueError: bad data"):
            if server.is_worker:
                server.step()
            else:
                server.serve()

    run(3, program)


@pytest.mark.parametrize("settings, text", [
    (dict(sync="bps"), "sync is 'bps' .did you mean 'bsp'"), (dict(rate=0), "rate is 0"),
    (dict(servers=3), "servers"), (dict(momentum=1), "momentum"), (dict(place="else"), "place is 'else'"),
    (dict(gradients=[np.zeros(4), np.zeros(4)]), "gradients has 2 tensors, expected 1"),
    (dict(gradients=[np.zeros(4, np.float32)]), "gradients are of another datatype"),
    (dict(gradients=[np.zeros(3)]), "gradients"), (dict(gradients=None), "gradients"),
    (dict(push="models"), "push"), (dict(weight=-1), "weight"), (dict(layers=[2]), "layer"),
    (dict(sync="dssp", staleness=3, staleness_most=2), "staleness_most"),
])
def test_wrong_settings(settings, text):
    def program(context):
        with pytest.raises(weft.WeftError, match=text):
            weft.Server(context, [np.zeros(4)], **dict({"gradients": [np.zeros(4)]}, **settings))

    run(1, program)


def test_torch_parameters():
    torch = pytest.importorskip("torch")

    def program(context):
        weights, gradients = [torch.zeros(2, 3)], [torch.full((2, 3), float(context.rank))]
        with weft.Server(context, weights, gradients=gradients, rate=1.0, place="colocated") as server:
            server.step()
        return weights[0].sum().item()

    assert run(3, program) == [-6, -6, -6]
