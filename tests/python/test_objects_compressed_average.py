# SPDX-License-Identifier: BSD-3-Clause
"""Averages in fewer bits: how far they are off, that nothing is lost, and what they take for granted."""
import math
import pickle
import threading

import numpy as np
import pytest

import weft
from weft._library import lib

needs_lapack = pytest.mark.skipif(not lib.weft_pca_available(), reason="there is no LAPACK")


def run(size, function, *arguments):
    return weft.run_local(size, function, *arguments, progress="helper")


def gradient(rank, step, shape=(40, 30)):
    return np.random.default_rng([rank, step]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("way", ["shards", "ring"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_qsgd_is_near_the_mean(size, way):
    def program(context):
        tensors = [gradient(context.rank, 0), gradient(context.rank, 1, 17)]
        with weft.CompressedAverage(context, tensors, method="qsgd", quantiser={"bits": 8},
                                    qsgd_way=way) as average:
            result = average.step()
            assert result.step == 0 and result.phase == "compressed" and 8 <= result.bits <= 9
            assert average.next == 1 and average.stats.elements == 1217
        return [tensor.copy() for tensor in tensors]

    results = run(size, program)
    for i, shape in enumerate([(40, 30), 17]):
        mean = sum(gradient(rank, i, shape).astype(float) for rank in range(size)) / size
        assert np.abs(results[0][i] - mean).max() < 0.02 * (size + 1)
        assert len({result[i].tobytes() for result in results}) == 1


def test_what_is_kept_is_not_lost():
    steps = 4

    def program(context):
        tensor, total = np.zeros((40, 30), np.float32), np.zeros((40, 30))
        with weft.CompressedAverage(context, [tensor], method="qsgd", quantiser={"bits": "sign"},
                                    sum=True) as average:
            for step in range(steps):
                tensor[:] = gradient(context.rank, step)
                average.step()
                total += tensor
            state = average.state()
            assert np.isclose(average.residual_norm, np.linalg.norm(state["residual"]))
        return total, state["residual"].reshape(40, 30)

    results = run(3, program)
    everything = sum(gradient(rank, step).astype(float) for rank in range(3) for step in range(steps))
    assert np.allclose(results[0][0] + sum(residual for _, residual in results), everything, atol=1e-3)


@pytest.mark.parametrize("size", [1, 3])
def test_powersgd_of_full_rank_is_exact(size):
    def program(context):
        tensors = [gradient(context.rank, 0, (8, 6)), gradient(context.rank, 1, 5)]
        with weft.CompressedAverage(context, tensors, method="powersgd",
                                    powersgd={"rank": 6, "least_ratio": 0}) as average:
            average.step()
            matrix, vector = average.tensor(0), average.tensor(1)
            assert matrix.components == 6 and vector.slice == 0
            with pytest.raises(weft.InvalidError, match="tensor is"):
                average.tensor(2)
        return tensors

    for tensors in run(size, program):
        for i, shape in enumerate([(8, 6), 5]):
            mean = sum(gradient(rank, i, shape).astype(float) for rank in range(size)) / size
            assert np.allclose(tensors[i], mean, atol=1e-4)


def test_a_state_goes_on_bit_for_bit():
    def program(context, cut):
        tensor = np.zeros((20, 10), np.float32)
        average = weft.CompressedAverage(context, [tensor], method="powersgd", powersgd={"seed": 3})
        seen = []
        for step in range(4):
            if step == cut:
                state = pickle.loads(pickle.dumps(average.state()))
                assert state["next"] == cut and state["residual"].size == 200
                average.close()
                average = weft.CompressedAverage(context, [tensor], method="powersgd", powersgd={"seed": 3},
                                                 state=state)
            tensor[:] = gradient(context.rank, step, (20, 10))
            average.step()
            seen.append(tensor.tobytes())
        average.close()
        return seen

    assert run(2, program, 2) == run(2, program, None)


@needs_lapack
def test_gradiveq_goes_through_its_phases():
    def program(context):
        tensors = [np.zeros((16, 4, 3, 3), np.float32)]
        directions = np.random.default_rng(5).standard_normal((2, 576)).astype(np.float32)
        phases, losses = [], []
        with weft.CompressedAverage(
                context, tensors, method="gradiveq",
                gradiveq=dict(warmup_steps=0, sample_steps=4, compressed_steps=2, uncompressed="dense",
                              reuse=1, loss=0.001)) as average:
            for step in range(7):
                mix = np.random.default_rng([context.rank, step]).standard_normal(2).astype(np.float32)
                tensors[0][:] = (mix @ directions).reshape(16, 4, 3, 3)
                phases.append(average.phase)
                result = average.step()
                assert result.phase == phases[-1]
                losses.append(result.loss)
            assert average.tensor(0).slice > 0 and average.tensor(0).components > 0
        assert phases == ["sampling"] * 4 + ["compressed"] * 2 + ["sampling"]
        assert 0 <= losses[4] < 0.01
        return tensors[0].tobytes()

    assert len(set(run(2, program))) == 1


@needs_lapack
def test_settings_of_gradiveq_that_are_none_at_all():
    def program(context):
        tensors = [np.zeros((4, 4), np.float32)]
        with weft.CompressedAverage(context, tensors) as average:
            assert average.phase == "warmup"
        with weft.CompressedAverage(context, tensors, gradiveq=dict(
                warmup_steps=0, loss="exact", compressed_steps=math.inf)) as average:
            assert average.phase == "sampling"
        with pytest.raises(weft.InvalidError, match="warmup_steps is inf"):
            weft.CompressedAverage(context, tensors, gradiveq=dict(warmup_steps=math.inf))
        with pytest.raises(weft.InvalidError, match="slice is 0"):
            weft.CompressedAverage(context, tensors, gradiveq=dict(slice=0))

    run(1, program)


def test_shapes():
    from weft.compressed_average import shapes_array

    def read(shapes, tensors):
        array = shapes_array(shapes, tensors, "test")
        return [(shape.layout, shape.outputs, shape.inputs, shape.height, shape.width)
                for shape in array[0:len(tensors)]]

    vector, dense, oihw, ohwi, hwio = range(5)
    dense_tensor, filters = np.zeros((3, 4)), np.zeros((5, 4, 3, 2))
    assert read(None, [dense_tensor, filters, np.zeros(3), np.zeros((2, 3, 5)), np.zeros((2,) * 5)]) == [
        (dense, 3, 4, 0, 0), (oihw, 5, 4, 3, 2), (vector, 0, 0, 0, 0), (oihw, 2, 3, 1, 5),
        (vector, 0, 0, 0, 0)]
    assert read(None, [np.asfortranarray(dense_tensor), np.asfortranarray(filters)]) == [
        (dense, 4, 3, 0, 0), (vector, 0, 0, 0, 0)]
    assert read([("dense", 3, 4), ("hwio", 5, 4, 3, 2), None, "vector", (3, 4),
                 dict(layout="ohwi", outputs=1, inputs=2, height=3, width=4)], [0] * 6) == [
        (dense, 3, 4, 0, 0), (hwio, 5, 4, 3, 2), (vector, 0, 0, 0, 0), (vector, 0, 0, 0, 0),
        (dense, 3, 4, 0, 0), (ohwi, 1, 2, 3, 4)]
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(5, 4, 3, 2)
    assert read(None, [tensor, tensor.to(memory_format=torch.channels_last), torch.zeros(3, 4).t()]) == [
        (oihw, 5, 4, 3, 2), (ohwi, 5, 4, 3, 2), (dense, 3, 4, 0, 0)]


@pytest.mark.parametrize("settings, text", [
    (dict(method="zip"), "method is 'zip'"), (dict(method="qsgd", quantiser={"bits": 3}), "bits"),
    (dict(method="qsgd", quantiser={"bits": 0}), "bits is 0"), (dict(quantiser=4), "quantiser is a int"),
    (dict(method="powersgd", powersgd={"rank": -2}), "rank is -2"),
    (dict(shapes=[("dense", 2, 2)]), "shapes has 1 entries, expected 2"),
    (dict(method="qsgd", shapes=[("dense", 2, 3), None]), r"shapes\[0\]"),
    (dict(shapes=[("donut", 2, 3), None]), "donut"), (dict(shapes=[("dense", "a"), None]), "whole numbers"),
    (dict(residual="some"), "residual is 'some'"),
])
def test_wrong_settings(settings, text):
    def program(context):
        with pytest.raises(weft.InvalidError, match=text):
            weft.CompressedAverage(context, [np.zeros((2, 4), np.float32), np.zeros(3, np.float32)],
                                   **settings)

    run(1, program)


def test_an_unknown_setting_of_a_method_is_named():
    def program(context):
        with pytest.raises(TypeError, match="powersgd.*no setting 'ranc' .did you mean 'rank'"):
            weft.CompressedAverage(context, [np.zeros(2, np.float32)], powersgd={"ranc": 2})

    run(1, program)


def test_a_step_times_out_and_goes_on():
    late = threading.Event()

    def program(context):
        tensor = np.full(16, 1.0, np.float32)
        with weft.CompressedAverage(context, [tensor], method="qsgd") as average:
            if context.rank == 0:
                average.post()
                tensor[:] = 5
                with pytest.raises(TimeoutError, match="within 0"):
                    average.wait(timeout=0.01)
                with pytest.raises(weft.StateError):
                    average.state()
                late.set()
                average.wait()
            else:
                assert late.wait(20)
                average.step()
        return tensor[0]

    assert run(2, program) == [1, 1]


def test_nans_count_as_zero_and_are_told():
    def program(context):
        tensor = np.full(16, 2.0, np.float32)
        with weft.CompressedAverage(context, [tensor], method="qsgd") as average:
            if context.rank == 1:
                tensor[3] = np.nan
                with pytest.raises(weft.ComputeError, match="tensor 0"):
                    average.step()
            else:
                average.step()
        return tensor[0]

    assert run(2, program) == [1, 1]


def test_torch_bfloat16():
    torch = pytest.importorskip("torch")

    def program(context):
        tensors = [torch.full((4, 4), float(context.rank), dtype=torch.bfloat16)]
        with weft.CompressedAverage(context, tensors, method="powersgd",
                                    powersgd={"rank": 2, "least_ratio": 0.1}) as average:
            average.step()
        return tensors[0].float().sum().item()

    assert np.allclose(run(3, program), 16, rtol=1e-2)
