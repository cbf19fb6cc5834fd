# SPDX-License-Identifier: BSD-3-Clause
"""Sparse averages: nothing is lost, and what is applied is what was summed."""
import pickle
import threading

import numpy as np
import pytest

import weft

METHODS = ["gtopk", "gtopk-butterfly", "allgather", "oktopk"]


def run(size, function, *arguments):
    return weft.run_local(size, function, *arguments, progress="helper")


def gradient(rank, step, count=200):
    return np.random.default_rng([rank, step]).integers(-500, 500, count).astype(np.float32)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_sums_and_residuals_have_all_gradients(size, method):
    steps = 3

    def program(context):
        tensors = [np.zeros(150, np.float32), np.zeros((5, 10), np.float32)]
        total = np.zeros(200)
        with weft.SparseAverage(context, tensors, method=method, density=0.05) as average:
            for step in range(steps):
                whole = gradient(context.rank, step)
                tensors[0][:], tensors[1][:] = whole[:150], whole[150:].reshape(5, 10)
                result = average.step()
                assert result.version == step and result.k == 10 and 0 < result.selected <= 10
                indices, values = average.pairs()
                assert indices.dtype == np.uint32 and len(indices) == len(values) == result.pairs
                dense = np.zeros(200, np.float32)
                dense[indices] = values
                mean = np.concatenate([tensors[0], tensors[1].ravel()])
                assert np.allclose(mean, dense / size, rtol=1e-6)
                total += dense
            state = average.state()
            assert average.next == steps and average.stats.steps == steps
            assert np.isclose(average.residual_norm, np.linalg.norm(state["residual"]))
        return total, state["residual"], mean.tobytes()

    results = run(size, program)
    assert len({bits for _, _, bits in results}) == 1
    everything = sum(gradient(rank, step) for rank in range(size) for step in range(steps))
    assert np.allclose(results[0][0] + sum(residual for _, residual, _ in results), everything, atol=1e-2)


def test_all_pairs_are_the_dense_sum():
    def program(context):
        tensor = gradient(context.rank, 0)
        with weft.SparseAverage(context, [tensor], method="allgather", density=1.0) as average:
            average.post()
            tensor[:] = 7  # it may be overwritten
            assert average.wait().selected <= 200
            weights = [np.ones(200)]
            average.apply(-0.5, weights)
        assert np.all(tensor == 7)
        return weights[0]

    mean = sum(gradient(rank, 0).astype(float) for rank in range(3)) / 3
    for weights in run(3, program):
        assert np.allclose(weights, 1 - 0.5 * mean)


def test_tensors_one_by_one_in_any_order():
    def program(context):
        tensors = [gradient(context.rank, 0, 40), gradient(context.rank, 1, 60)]
        with weft.SparseAverage(context, tensors, method="allgather", scope="tensor", k=1000) as average:
            order = (0, 1) if context.rank else (1, 0)
            for tensor in order:
                average.post_tensor(tensor)
            with pytest.raises(weft.StateError, match="posted"):
                average.post_tensor(0)
            for tensor in (1, 0):
                assert average.wait_tensor(tensor).k == len(tensors[tensor])
            weights = [np.zeros(40, np.float32), np.zeros(60, np.float32)]
            for tensor in (0, 1):
                average.apply_tensor(tensor, 2.0, weights[tensor])
            for bad in (-1, 2):
                with pytest.raises(weft.InvalidError, match="tensor is"):
                    average.post_tensor(bad)
            with pytest.raises(weft.InvalidError, match="60 elements, expected 40"):
                average.apply_tensor(0, 1.0, weights[1])
            with pytest.raises(weft.StateError):
                average.wait_tensor(0)
            average.post_tensor(0)  # the end waits for it
        return weights

    for weights in run(2, program):
        assert np.array_equal(weights[0], gradient(0, 0, 40) + gradient(1, 0, 40))
        assert np.array_equal(weights[1], gradient(0, 1, 60) + gradient(1, 1, 60))


def test_warmup_and_densities():
    def program(context):
        tensors = [np.zeros(1000, np.float32)]
        with weft.SparseAverage(context, tensors, density=0.01, warmup_steps=2, warmup=[0.5, 0.1]) as average:
            assert [average.density(step) for step in range(5)] == [0.5, 0.5, 0.1, 0.1, 0.01]
            assert average.density() == 0.5

    run(1, program)


@pytest.mark.parametrize("method", ["gtopk", "oktopk"])
def test_a_state_goes_on_bit_for_bit(method):
    settings = dict(method=method, density=0.05, momentum=0.9, threshold_steps=2, balance_steps=2)

    def program(context, cut):
        tensor = np.zeros(200, np.float32)
        average = weft.SparseAverage(context, [tensor], **settings)
        seen = []
        for step in range(6):
            if step == cut:
                state = pickle.loads(pickle.dumps(average.state()))
                assert state["velocity"].shape == (200,) and state["next"] == cut
                assert (state["regions"] is not None) == (method == "oktopk")
                average.close()
                average = weft.SparseAverage(context, [tensor], state=state, **settings)
            tensor[:] = gradient(context.rank, step)
            average.step()
            seen.append(tensor.tobytes())
        average.close()
        return seen

    assert run(3, program, 3) == run(3, program, None)


def test_a_state_of_other_tensors_is_refused():
    def program(context):
        with weft.SparseAverage(context, [np.zeros(20, np.float32)]) as average:
            average.step()
            state = average.state()
        with pytest.raises(weft.InvalidError, match=r"residual.*20 elements, expected 21"):
            weft.SparseAverage(context, [np.zeros(21, np.float32)], state=state)
        with pytest.raises(weft.InvalidError, match="pending"):
            weft.SparseAverage(context, [np.zeros(20, np.float32)], state=dict(state, pending=None))
        with pytest.raises(weft.InvalidError, match="steps.*'many'"):
            state["stats"]["steps"] = "many"
            weft.SparseAverage(context, [np.zeros(20, np.float32)], state=state)

    run(1, program)


def test_nans_count_as_zero_and_are_told():
    def program(context):
        tensor = np.full(10, 2.0, np.float32)
        with weft.SparseAverage(context, [tensor], density=1.0) as average:
            if context.rank == 1:
                tensor[3] = np.inf
                with pytest.raises(weft.ComputeError, match="tensor 0"):
                    average.step()
            else:
                average.step()
            assert average.next == 1
        return tensor[0]

    assert run(2, program) == [1, 1]


def test_a_step_times_out_and_goes_on():
    late = threading.Event()

    def program(context):
        tensor = np.ones(10, np.float32)
        with weft.SparseAverage(context, [tensor], density=1.0) as average:
            if context.rank == 0:
                with pytest.raises(TimeoutError, match="within 0"):
                    average.step(timeout=0.01)
                late.set()
                average.wait(timeout=20)
                with pytest.raises(weft.StateError):
                    average.wait()
            else:
                assert late.wait(20)
                average.step(20)
        return tensor[0]

    assert run(2, program) == [1, 1]  # the step is that of step(), in place


@pytest.mark.parametrize("settings, text", [
    (dict(method="topk"), "method is 'topk'"), (dict(density=2.0), "density"),
    (dict(density=0), "density is 0"),
    (dict(k=-1), "k is -1"), (dict(momentum=1.5), "momentum"), (dict(scope="layer"), "scope is 'layer'"),
    (dict(method="oktopk", residual="paper"), "residual"),
])
def test_wrong_settings(settings, text):
    def program(context):
        with pytest.raises(weft.WeftError, match=text):
            weft.SparseAverage(context, [np.zeros(3, np.float32)], **settings)

    run(1, program)


def test_before_the_first_step_there_are_no_pairs():
    def program(context):
        with pytest.raises(weft.UnsupportedError):
            weft.SparseAverage(context, [np.zeros(3)])
        with weft.SparseAverage(context, [np.zeros(3, np.float32)]) as average:
            with pytest.raises(weft.StateError):
                average.pairs()
            average.step()
            assert [len(part) for part in average.pairs()] == [0, 0]
            with pytest.raises(weft.InvalidError):
                average.pairs(1)
            with pytest.raises(weft.InvalidError, match="count"):
                average.apply(1.0, [np.zeros(4)])

    run(1, program)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_torch_gradients_of_16_bits(name):
    torch = pytest.importorskip("torch")

    def program(context):
        tensor = torch.full((2, 4), float(context.rank), dtype=getattr(torch, name))
        with weft.SparseAverage(context, [tensor], density=1.0) as average:
            average.step()
            weights = torch.zeros(2, 4, dtype=getattr(torch, name))
            average.apply(1.0, [weights])
        return tensor.float().sum().item(), weights.float().sum().item()

    assert run(3, program) == [(8, 8)] * 3
