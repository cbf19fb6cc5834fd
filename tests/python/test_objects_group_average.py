# SPDX-License-Identifier: BSD-3-Clause
"""Group averages against sums by numpy."""
import math
import pickle
import threading

import numpy as np
import pytest

import weft

SIZES = [1, 2, 3, 5]


def model(rank, step, dtype=np.float32):
    """Numbers of which sums over a few ranks are exact."""
    return [np.arange(7, dtype=dtype) * (rank + 1) + step, np.full((2, 3), rank - step, dtype)]


def put(tensors, values):
    for tensor, value in zip(tensors, values):
        tensor[...] = value


def mean(size, step, dtype=np.float32):
    return [sum(parts) / dtype(size) for parts in zip(*[model(rank, step, dtype) for rank in range(size)])]


def run(size, function, *arguments):
    return weft.run_local(size, function, *arguments, progress="helper")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_waiting_group_of_all_has_the_mean(size, dtype):
    def program(context):
        tensors = model(0, 0, dtype)
        with weft.GroupAverage(context, tensors, mode="waiting", group_size=size) as average:
            for step in range(3):
                put(tensors, model(context.rank, step, dtype))
                result = average.step()
                assert result.members == size and not result.stale and result.version == step
                for tensor, expected in zip(tensors, mean(size, step, dtype)):
                    assert np.allclose(tensor, expected, rtol=1e-6)
            assert average.next == 3 and average.stats.steps == 3
        return [tensor.tobytes() for tensor in tensors]

    assert len({tuple(bits) for bits in run(size, program)}) == 1


def test_without_groups_there_are_synchronisations_alone():
    def program(context):
        tensors = [np.zeros(4, np.float64)]
        with weft.GroupAverage(context, tensors, mode="none", sync_period=2) as average:
            seen = []
            for _ in range(4):
                tensors[0] += context.rank
                seen.append((average.step().synchronised, tensors[0][0]))
        return seen

    for rank, seen in enumerate(run(3, program)):
        assert seen == [(0, rank), (1, 2), (0, 2 + rank), (1, 4)]


def test_nobody_waits_for_a_late_rank():
    size, early = 3, threading.Event()

    def program(context):
        tensor = np.full(5, 9, np.float64)
        average = weft.GroupAverage(context, [tensor], group_size=size, sync_period=math.inf, patience=0)
        tensor[:] = 10 * (context.rank + 1)
        if context.rank == 0:
            result = average.step(timeout=20)
            early.set()
        else:
            assert early.wait(20)
            result = average.step(timeout=20)
        average.close()
        return result.members, result.stale, tensor[0]

    # Those that are late are in the sum with what they had at creation, and take it with their own instead.
    assert run(size, program) == [(3, 0, (10 + 9 + 9) / 3), (3, 1, (10 + 20 + 9) / 3),
                                  (3, 1, (10 + 9 + 30) / 3)]


def test_as_in_the_paper_the_old_model_stays():
    early = threading.Event()

    def program(context):
        tensor = np.full(2, 6, np.float64)
        with weft.GroupAverage(context, [tensor], group_size=2, sync_period=math.inf, patience=0,
                               stale_mix="paper") as average:
            if context.rank == 1:
                assert early.wait(20)
            tensor[:] = 12
            average.step()
            early.set()
        return tensor[0]

    assert run(2, program) == [9, (12 + 6 + 12) / 3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_that_nobody_has_consumed_are_in_the_state(dtype):
    early = threading.Event()
    settings = dict(contribution="accumulate", group_size=2, sync_period=2, patience=0)

    def program(context):
        gradient = np.zeros(3, dtype)
        average = weft.GroupAverage(context, [gradient], **settings)
        if context.rank == 1:
            assert early.wait(20)
        gradient[:] = 8 * (context.rank + 1)
        result = average.step()
        assert result.stale == context.rank and gradient[0] == 4
        early.set()
        state = average.take_state()
        assert average.state()["pending"] is None
        average.close()
        if context.rank == 1:
            assert state["pending"].dtype == dtype and list(state["pending"]) == [16, 16, 16]
        state = pickle.loads(pickle.dumps(state))
        with weft.GroupAverage(context, [gradient], state=state, **settings) as average:
            assert average.next == 1
            gradient[:] = context.rank + 1
            assert average.step().synchronised
        return gradient[0]

    assert run(2, program) == [(1 + 2 + 16) / 2] * 2


def test_a_state_goes_on_with_steps_and_counts():
    def program(context):
        tensors = model(0, 0)
        with weft.GroupAverage(context, tensors, mode="waiting", group_size=context.size) as average:
            for _ in range(3):
                average.step()
            state = pickle.loads(pickle.dumps(average.state()))
        with weft.GroupAverage(context, tensors, mode="waiting", group_size=context.size,
                               state=state) as average:
            assert average.next == 3 and average.stats.steps == 3
            assert average.step().version == 3
            state["next"] = "soon"
            with pytest.raises(weft.InvalidError, match="next"):
                weft.GroupAverage(context, tensors, state=state)
            state = dict(average.state(), velocity=None)
            with pytest.raises(weft.InvalidError, match="velocity"):
                weft.GroupAverage(context, tensors, state=state)

    run(2, program)


def test_what_is_done_between_post_and_wait_is_kept():
    def program(context):
        tensor = np.full(3, 2.0 * context.rank)
        with weft.GroupAverage(context, [tensor], mode="waiting", group_size=2, sync_period=math.inf,
                               initial="broadcast") as average:
            tensor[:] = 2.0 * context.rank
            average.post()
            with pytest.raises(weft.StateError):
                average.post()
            with pytest.raises(weft.StateError):
                average.state()
            tensor += 100
            average.wait()
            with pytest.raises(weft.StateError):
                average.wait()
        return tensor[0]

    assert run(2, program) == [101, 101]


def test_test_does_not_wait():
    late = threading.Event()

    def program(context):
        tensor = np.zeros(3)
        with weft.GroupAverage(context, [tensor], mode="waiting", group_size=2) as average:
            if context.rank == 0:
                average.post()
                assert average.test() is None
                late.set()
                result = None
                while result is None:
                    result = average.test()
                with pytest.raises(weft.StateError):
                    average.test()
            else:
                assert late.wait(20)
                result = average.step()
            assert result.members == 2
            assert "rank" in average.report(0.1)

    run(2, program)


def test_a_step_that_has_timed_out_is_ended_by_wait():
    late = threading.Event()

    def program(context):
        tensor = np.full(3, 4.0)
        with weft.GroupAverage(context, [tensor], mode="waiting", group_size=2, sync_period=1) as average:
            tensor[:] = 10 * context.rank
            if context.rank == 0:
                with pytest.raises(TimeoutError, match="not arrived: 1 "):
                    average.step(timeout=0.01)
                with pytest.raises(weft.errors.TimeoutError, match=r"after 0\.[4-9]"):
                    average.wait(timeout=0.4)
                with pytest.raises(weft.StateError):
                    average.step()
                late.set()
                average.wait(timeout=20)
            else:
                assert late.wait(20)
                average.step(20)
        return tensor[0]

    assert run(2, program) == [5, 5]


def test_a_model_with_nans_is_refused_and_may_be_mended():
    def program(context):
        tensor = np.ones(3)
        with weft.GroupAverage(context, [tensor], group_size=1) as average:
            tensor[1] = np.nan
            with pytest.raises(weft.ComputeError, match="tensor 0"):
                average.step()
            tensor[1] = 1
            assert average.step().members == 1 and average.next == 1 and average.stats.nans == 1

    run(1, program)


def test_the_drawn_rank_is_one_of_them():
    drawn = {weft.GroupAverage.activator(7, 5, version) for version in range(100)}
    assert drawn == set(range(5))
    assert weft.GroupAverage.activator(7, 0, 0) == -1


@pytest.mark.parametrize("settings, text", [
    (dict(mode="waitng"), "mode is 'waitng' .did you mean 'waiting'"),
    (dict(group_size=3), "group_size"),
    (dict(group_size=0), "group_size is 0"),
    (dict(group_size=1.5), "group_size is 1.5"),
    (dict(sync_period=-1), "sync_period is -1"),
    (dict(patience=-1), "patience is -1, expected 0 or more seconds"),
    (dict(algo="magic"), "magic"),
    (dict(deadline="soon"), "deadline is 'soon'"),
    (dict(contribution="accumulate", stale_mix="paper"), "stale_mix"),
    (dict(nan="zero"), "nan"),
    (dict(state=[]), "state is a list"),
    (dict(state={"pending": np.zeros(2)}), "pending"),
])
def test_a_wrong_setting_is_named(settings, text):
    def program(context):
        with pytest.raises(weft.WeftError, match=text):
            weft.GroupAverage(context, [np.zeros(3)], **settings)

    run(1, program)


def test_wrong_tensors_are_named():
    def program(context):
        with pytest.raises(TypeError, match="groupsize"):
            weft.GroupAverage(context, [np.zeros(3)], groupsize=2)
        with pytest.raises(weft.InvalidError, match="several datatypes: f32, f64"):
            weft.GroupAverage(context, [np.zeros(3), np.zeros(3, np.float32)])
        with pytest.raises(weft.InvalidError, match=r"tensors\[1\] is not contiguous"):
            weft.GroupAverage(context, [np.zeros(3), np.zeros((4, 4))[:, 1]])
        with pytest.raises(weft.InvalidError, match="expected a list"):
            weft.GroupAverage(context, np.zeros(3))
        with pytest.raises(weft.UnsupportedError):
            weft.GroupAverage(context, [np.zeros(3, np.int32)])
        frozen = np.zeros(3)
        frozen.flags.writeable = False
        with pytest.raises(weft.InvalidError, match="read-only"):
            weft.GroupAverage(context, [frozen])

    run(1, program)


def test_ranks_that_do_not_agree_are_told():
    def program(context):
        weft.GroupAverage(context, [np.zeros(3)], seed=context.rank)

    with pytest.raises(weft.WeftError, match="seed"):
        run(2, program)
    with pytest.raises(weft.StateError, match="progress"):
        weft.run_local(1, lambda context: weft.GroupAverage(context, [np.zeros(3)]), progress="caller")


def test_a_model_of_nothing():
    def program(context):
        with weft.GroupAverage(context, [], mode="waiting", group_size=context.size) as average:
            assert average.step().members == context.size

    run(3, program)


def test_torch_tensors():
    torch = pytest.importorskip("torch")

    def program(context):
        tensors = [torch.zeros(5, dtype=torch.bfloat16), torch.zeros(2, 2, dtype=torch.bfloat16)]
        with weft.GroupAverage(context, tensors, mode="waiting", group_size=context.size) as average:
            for tensor in tensors:
                tensor.fill_(float(context.rank + 1))
            average.step()
        layer = torch.nn.Linear(3, 2)
        with weft.GroupAverage(context, list(layer.parameters()), initial="broadcast") as average:
            average.step()
        return [tensor.float().sum().item() for tensor in tensors]

    assert run(3, program) == [[10, 8]] * 3
