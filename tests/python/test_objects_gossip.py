# SPDX-License-Identifier: BSD-3-Clause
"""Gossip and averages in pairs, against steps by numpy."""
import pickle
import threading

import numpy as np
import pytest

import weft


def run(size, function, *arguments):
    return weft.run_local(size, function, *arguments, progress="helper")


def test_hops():
    assert weft.gossip_hops("ring", 5, 2, 0) == [1, 4]
    assert weft.gossip_hops("ring", 5, 9, 3) == [1, 4, 2, 3]
    assert [weft.gossip_hops("exponential", 8, 1, version) for version in range(4)] == [[1], [2], [4], [1]]
    assert weft.gossip_hops("ring", 1, 2, 0) == [] and weft.gossip_hops("ring", 4, 0, 0) == []
    with pytest.raises(weft.InvalidError, match="neighbours is -1"):
        weft.gossip_hops("ring", 5, -1, 0)
    with pytest.raises(weft.InvalidError, match="graph is 'rnig' .did you mean 'ring'"):
        weft.gossip_hops("rnig", 5, 1, 0)


def expected_step(models, graph, neighbours, version):
    size = len(models)
    hops = weft.gossip_hops(graph, size, neighbours, version)
    return [(models[rank] + sum(models[(rank - hop) % size] for hop in hops)) / (len(hops) + 1)
            for rank in range(size)]


@pytest.mark.parametrize("graph, neighbours", [
    ("ring", 2), ("ring", 1), ("exponential", 1), ("exponential", 2)])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_step_is_the_mean_of_neighbours(size, graph, neighbours):
    steps = 3

    def program(context):
        tensors = [np.arange(6.0) * context.rank, np.full((2, 2), context.rank + 0.5)]
        with weft.Gossip(context, tensors, graph=graph, neighbours=neighbours, initial="any") as gossip:
            for _ in range(steps):
                assert gossip.step() is None
            assert gossip.next == steps and gossip.stats.steps == steps
        return np.concatenate([tensor.ravel() for tensor in tensors])

    models = [np.concatenate([np.arange(6.0) * rank, np.full(4, rank + 0.5)]) for rank in range(size)]
    for version in range(steps):
        models = expected_step(models, graph, neighbours, version)
    for model, expected in zip(run(size, program), models):
        assert np.allclose(model, expected)


def test_the_weighted_sum_stays():
    weights = [1, 4, 2]

    def program(context):
        tensor = np.array([context.rank + 1.0])
        with weft.Gossip(context, [tensor], weight=weights[context.rank], initial="any") as gossip:
            for _ in range(40):
                gossip.step()
        return tensor[0]

    total = sum(weight * (rank + 1) for rank, weight in enumerate(weights)) / sum(weights)
    assert np.allclose(run(3, program), total)


def test_post_wait_and_a_state():
    def program(context):
        tensor = np.full(3, 1.0, np.float32)
        gossip = weft.Gossip(context, [tensor], neighbours=1)
        tensor[:] = context.rank
        gossip.post()
        with pytest.raises(weft.StateError, match="step 0 has been posted"):
            gossip.state()
        tensor += 10
        gossip.wait()
        state = pickle.loads(pickle.dumps(gossip.state()))
        gossip.close()
        assert state["next"] == 1 and state["stats"]["steps"] == 1
        with weft.Gossip(context, [tensor], neighbours=1, state=state) as gossip:
            assert gossip.next == 1
            gossip.step()
        return tensor[0]

    assert run(2, program) == [10.5, 10.5]


def test_a_gossip_step_times_out_and_goes_on():
    late = threading.Event()

    def program(context):
        tensor = np.full(3, 4.0)
        with weft.Gossip(context, [tensor], deadline=0.05) as gossip:
            if context.rank == 0:
                with pytest.raises(weft.errors.TimeoutError, match=r"within 0\.\d\d\d s:\n(.|\n)*rank 1"):
                    gossip.step()
                late.set()
                gossip.wait(timeout=20)
                with pytest.raises(weft.StateError):
                    gossip.wait()
            else:
                assert late.wait(20)
                gossip.step(20)
            assert gossip.next == 1

    run(2, program)


def test_gossip_with_caller_progress():
    def program(context):
        tensor = np.array([float(context.rank)])
        with weft.Gossip(context, [tensor], neighbours=1, initial="any") as gossip:
            gossip.step()
            gossip.post()  # its end waits for the step
        return tensor[0]

    assert weft.run_local(2, program, progress="caller") == [0.5, 0.5]


def test_who_has_ended_is_named():
    def program(context):
        gossip = weft.Gossip(context, [np.zeros(3)])
        if context.rank == 1:
            gossip.close()
            return
        with pytest.raises(weft.PeerError, match="rank 1"):
            gossip.step()
        gossip.close()  # it has been raised

    run(2, program)


@pytest.mark.parametrize("settings, text", [
    (dict(graph="star"), "graph is 'star'"), (dict(neighbours=0), "neighbours is 0"),
    (dict(weight=-1), "weight"), (dict(weight="much"), "weight is 'much'"), (dict(nan="zero"), "nan"),
    (dict(state={"next": 2**63}), "next"),
])
def test_wrong_settings_of_gossip(settings, text):
    def program(context):
        with pytest.raises(weft.InvalidError, match=text):
            weft.Gossip(context, [np.zeros(3)], **settings)
        with pytest.raises(weft.UnsupportedError):
            weft.Gossip(context, [np.zeros(3, np.float16)])

    run(1, program)


def test_partners_are_odd():
    assert {weft.PairAverage.partner(3, 6, 2, step) for step in range(50)} == {1, 3, 5}
    assert weft.PairAverage.partner(3, 6, 1, 0) is None and weft.PairAverage.partner(3, 1, 0, 0) is None


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_pairs_keep_the_sum(size):
    def program(context):
        tensors = [np.full(4, float(context.rank)), np.arange(3.0)]
        with weft.PairAverage(context, tensors, seed=1, initial="any") as average:
            for _ in range(5):
                average.step()
            average.post()
            tensors[0] += 1
            average.wait()
            average.synchronise()
            stats = average.stats
            assert average.next == 6 and stats.steps == 6
            if size > 1:
                assert stats.begun == (6 if context.rank % 2 == 0 else 0)
        return tensors[0].tobytes(), tensors[1].tobytes()

    results = run(size, program)
    assert len(set(results)) == 1
    assert np.allclose(np.frombuffer(results[0][0]), (size - 1) / 2 + 1)
    assert np.allclose(np.frombuffer(results[0][1]), np.arange(3.0))


def test_two_ranks_exchange_halves():
    begun = threading.Barrier(2)

    def program(context):
        tensor = np.zeros(2, np.float32)
        with weft.PairAverage(context, [tensor]) as average:
            if context.rank == 1:
                tensor[:] = 8
                average.step()  # publishes, and takes over nothing
                begun.wait(20)
                begun.wait(20)
                average.step()
            else:
                begun.wait(20)
                average.step()
                begun.wait(20)
        return tensor[0]

    assert run(2, program) == [4, 4]


def test_a_synchronisation_times_out_and_goes_on():
    late = threading.Event()

    def program(context):
        tensor = np.full(3, 2.0 * context.rank)
        with weft.PairAverage(context, [tensor], initial="any") as average:
            if context.rank == 0:
                with pytest.raises(TimeoutError, match="synchronisation"):
                    average.synchronise(timeout=0.01)
                with pytest.raises(weft.StateError, match="synchronisation"):
                    average.step()
                late.set()
            else:
                assert late.wait(20)
            average.synchronise(timeout=20)
        return tensor[0]

    assert run(2, program) == [1, 1]


def test_a_state_of_pairs_goes_on():
    def program(context):
        tensor = np.full(3, 2.0 * context.rank)
        with weft.PairAverage(context, [tensor], initial="any") as average:
            for _ in range(context.rank + 2):
                average.step()
            average.synchronise()
            state = pickle.loads(pickle.dumps(average.state()))
        with weft.PairAverage(context, [tensor], initial="any", state=state) as average:
            assert average.next == context.rank + 2
            average.synchronise()
        return tensor[0]

    assert np.allclose(run(3, program), 2)


def test_torch_models():
    torch = pytest.importorskip("torch")

    def program(context):
        tensor = torch.full((2, 2), float(context.rank))
        with weft.Gossip(context, [tensor], neighbours=5, initial="any") as gossip:
            gossip.step()
        with weft.PairAverage(context, [tensor], initial="any") as average:
            average.synchronise()
        return tensor.sum().item()

    assert np.allclose(run(3, program), 4)
