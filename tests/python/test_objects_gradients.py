# SPDX-License-Identifier: BSD-3-Clause
"""Merged gradients: averages, whatever is merged with what, and the rules of announcing and waiting."""
import math
import pickle
import threading

import numpy as np
import pytest

import weft

SHAPES = [(30,), (4, 5), (1,), (100,), (7, 3)]
COST = {"a_us": 10, "b_us_per_byte": 0.01}


def run(size, function, *arguments, progress="helper"):
    return weft.run_local(size, function, *arguments, progress=progress)


def values(rank, step, dtype=np.float32):
    generator = np.random.default_rng([rank, step])
    return [generator.standard_normal(shape).astype(dtype) for shape in SHAPES]


def put(tensors, rank, step):
    for tensor, value in zip(tensors, values(rank, step)):
        tensor[...] = value


def mean(size, step):
    return [sum(parts) / size for parts in zip(*[values(rank, step, np.float64) for rank in range(size)])]


def new():
    return [np.zeros(shape, np.float32) for shape in SHAPES]


@pytest.mark.parametrize("progress", ["helper", "caller"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_rank_has_the_mean_bit_for_bit(size, progress):
    def program(context):
        tensors, seen = new(), []
        with weft.Gradients(context, tensors, cost=COST, measure_steps=2) as gradients:
            for step in range(4):
                put(tensors, context.rank, step)
                order = np.random.default_rng([context.rank, step, 1]).permutation(len(tensors))
                for layer in order:
                    gradients.ready(layer)
                result = gradients.wait_all()
                assert result.step == step and result.absent == 0 and gradients.next == step + 1
                assert gradients.result == result
                for tensor, expected in zip(tensors, mean(size, step)):
                    assert np.allclose(tensor, expected, atol=1e-6)
                seen.append(b"".join(tensor.tobytes() for tensor in tensors))
            assert gradients.stats.steps == 4 and gradients.phase == "warmup"
        return seen

    results = run(size, program, progress=progress)
    assert all(result == results[0] for result in results)


def test_layers_are_waited_for_one_by_one():
    def program(context):
        tensors = new()
        with weft.Gradients(context, tensors, layers=[2, 0, 3], cost=COST, reduction="sum") as gradients:
            for step in range(3):
                put(tensors, context.rank, step)
                with pytest.raises(weft.StateError, match="not been announced"):
                    gradients.ready(2)
                    gradients.wait(0)
                with pytest.raises(weft.StateError, match="layer 2 has been announced"):
                    gradients.ready(2)
                gradients.ready(1)
                gradients.ready(0)
                with pytest.raises(weft.StateError):
                    gradients.state()
                for layer in range(3):
                    gradients.wait(layer)
                for tensor, expected in zip(tensors, mean(2, step)):
                    assert np.allclose(tensor, 2 * expected, atol=1e-5)
                assert gradients.result.step == step
            for bad in (3, -1):
                with pytest.raises(weft.InvalidError, match="layer is"):
                    gradients.ready(bad)

    run(2, program)


def test_what_is_absent_counts_as_zero():
    def program(context):
        tensors = new()
        with weft.Gradients(context, tensors, cost=COST) as gradients:
            with pytest.raises(weft.StateError, match="layers 0, 1, 2, 3, 4 have not been announced"):
                gradients.wait_all()
            put(tensors, context.rank, 0)
            for layer in range(len(tensors)):
                (gradients.absent if context.rank == 1 else gradients.ready)(layer)
            assert gradients.wait_all().absent == (5 if context.rank == 1 else 0)
        with weft.Gradients(context, tensors, cost=COST, missing="zero") as gradients:
            assert gradients.wait_all().absent == 5
            assert not tensors[3].any()
            put(tensors, context.rank, 0)
            if context.rank == 0:
                gradients.ready(3)
            gradients.wait_all()
        return tensors[3]

    for tensor in run(2, program):
        assert np.array_equal(tensor, values(0, 0)[3] / 2)


def test_threads_announce_and_wait():
    def program(context):
        tensors = new()
        with weft.Gradients(context, tensors, cost=COST) as gradients:
            put(tensors, context.rank, 0)
            problems = []

            def wait(layer):
                try:
                    gradients.ready(layer)
                    gradients.wait(layer, timeout=20)
                except BaseException as problem:  # noqa: B902 - looked at below
                    problems.append(problem)

            threads = [threading.Thread(target=wait, args=(layer,)) for layer in range(len(tensors))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not problems and gradients.next == 1
            gradients.wait(0)  # between steps
        return b"".join(tensor.tobytes() for tensor in tensors)

    assert len(set(run(3, program))) == 1


@pytest.mark.parametrize("merge, sizes", [
    ("wfbp", [1] * 5), ("single", [5]), ("bucket:80", None),
    ({"method": "given", "group_layers": [2, 3]}, [2, 3]), ({"group_layers": [4, 1]}, [4, 1]),
    ({"method": "buckets", "bucket_bytes": 80}, None), ("exact", None),
    ("greedy", None),
])
def test_plans(merge, sizes):
    def program(context):
        tensors = new()
        with weft.Gradients(context, tensors, merge=merge, cost=COST,
                            ready=[0.5, 0.4, 0.3, 0.2, 0.1]) as gradients:
            plan = gradients.plan
            assert plan.order == [4, 3, 2, 1, 0] and plan.since == 0 and plan.ready is None
            assert [layer for group in plan.groups for layer in group] == plan.order
            assert sizes is None or [len(group) for group in plan.groups] == sizes
            assert plan.predicted.group_count == len(plan.groups)
            assert plan.predicted.optimal in ("no", "contiguous", "all")
            for layer in plan.order:
                gradients.ready(layer)
            gradients.wait_all()
            plan = gradients.plan
            assert len(plan.ready) == 5 and len(plan.start) == len(plan.end) == len(plan.groups)
            assert all(end >= start >= 0 for start, end in zip(plan.start, plan.end))
        return plan.groups

    groups = run(2, program)
    assert groups[0] == groups[1]


def test_costs_of_every_kind():
    asked = []

    def cost(size):
        asked.append(size)
        return 5 + size / 100

    def broken(size):
        raise KeyError("no such size")

    def program(context):
        for given in (COST, [(0, 5), (1000, 15)], cost, weft.merging.Cost(5, 0.01), None):
            with weft.Gradients(context, new(), cost=given) as gradients:
                assert gradients.plan.order == [4, 3, 2, 1, 0]
        with pytest.raises(weft.InvalidError, match="cost") as caught:
            weft.Gradients(context, new(), cost=broken)
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(weft.InvalidError, match="cost is {'a': 2}"):
            weft.Gradients(context, new(), cost={"a": 2})

    run(1, program)
    assert asked


def test_a_plan_that_was_made_before_is_taken():
    plan = weft.merging.merge([(21, 1.0), (100, 2.0), (1, 3.0), (20, 4.0), (30, 5.0)], net=(2, 0.001),
                              groups=[3, 2])

    def program(context):
        with weft.Gradients(context, new(), merge=plan, cost=COST) as gradients:
            return gradients.plan.groups

    assert run(1, program) == [[[4, 3, 2], [1, 0]]]


@pytest.mark.parametrize("wire", ["bf16", "float16", np.float16])
def test_fewer_bits_on_the_wire(wire):
    def program(context):
        tensors = [np.full(8, float(context.rank), np.float32)]
        with weft.Gradients(context, tensors, wire_dtype=wire, cost=COST) as gradients:
            gradients.ready(0)
            gradients.wait_all()
        return tensors[0][0]

    assert run(3, program) == [1, 1, 1]


@pytest.mark.parametrize("method", ["gtopk", "oktopk"])
def test_sparse_groups_lose_nothing(method):
    steps = 3

    def program(context):
        tensors, total = new(), 0
        with weft.Gradients(context, tensors, sparse={"method": method, "density": 0.1}, reduction="sum",
                            merge={"group_layers": [3, 2]}, cost=COST) as gradients:
            for step in range(steps):
                put(tensors, context.rank, step)
                for layer in range(len(tensors)):
                    gradients.ready(layer)
                gradients.wait_all()
                total = total + np.concatenate([tensor.ravel() for tensor in tensors]).astype(float)
            state = gradients.state()
        return total, state["residual"]

    results = run(3, program)
    everything = sum(np.concatenate([value.ravel() for value in values(rank, step, np.float64)])
                     for rank in range(3) for step in range(steps))
    assert np.allclose(results[0][0] + sum(residual for _, residual in results), everything, atol=1e-4)


def test_compressed_groups():
    def program(context):
        tensors = new()
        with weft.Gradients(context, tensors, method="compressed", cost=COST, merge="single",
                            compressed={"method": "powersgd",
                                        "powersgd": {"rank": 5, "least_ratio": 0}}) as gradients:
            put(tensors, context.rank, 0)
            for layer in range(len(tensors)):
                gradients.ready(layer)
            result = gradients.wait_all()
            assert result.compressed_groups == 1 and result.bits > 0
            assert gradients.phase == "compressed"
            assert gradients.tensor(1).components == 4 and gradients.tensor(0).slice == 0
        for tensor, expected in zip(tensors, mean(2, 0)):
            assert np.allclose(tensor, expected, atol=1e-4)

    run(2, program)


@pytest.mark.parametrize("settings", [
    dict(), dict(sparse={"density": 0.1, "momentum": 0.5}),
    dict(compressed={"method": "powersgd"}, merge="wfbp"),
])
def test_a_state_goes_on_bit_for_bit(settings):
    settings = dict(settings, ready=[5, 4, 3, 2, 1], cost=COST, check_steps=math.inf)

    def program(context, cut):
        tensors, seen = new(), []
        gradients = weft.Gradients(context, tensors, **settings)
        for step in range(4):
            if step == cut:
                state = pickle.loads(pickle.dumps(gradients.state()))
                assert state["next"] == cut and state["agreed"].dtype == np.uint64
                gradients.close()
                gradients = weft.Gradients(context, tensors, state=state, **settings)
                assert gradients.next == cut and gradients.stats.steps == cut
            put(tensors, context.rank, step)
            for layer in range(len(tensors)):
                gradients.ready(layer)
            gradients.wait_all()
            seen.append(b"".join(tensor.tobytes() for tensor in tensors))
        gradients.close()
        return seen

    assert run(2, program, 2) == run(2, program, None)


def test_a_wait_times_out_and_goes_on():
    late = threading.Event()

    def program(context):
        tensors = new()
        with weft.Gradients(context, tensors, merge="single", cost=COST) as gradients:
            if context.rank == 0:
                for layer in range(4):
                    gradients.ready(layer)
                with pytest.raises(TimeoutError, match="layer 4 has not been announced"):
                    gradients.wait(0, timeout=0.01)
                gradients.ready(4)
                with pytest.raises(weft.errors.TimeoutError, match=r"within 0\.\d\d\d s"):
                    gradients.wait_all(timeout=0.01)
                late.set()
            else:
                assert late.wait(20)
                for layer in range(5):
                    gradients.ready(layer)
            assert gradients.wait_all(timeout=20).step == 0

    run(2, program)


def test_gradients_that_are_not_finite_are_told_once():
    def program(context):
        tensors = new()
        with weft.Gradients(context, tensors, sparse={"density": 1.0}, cost=COST) as gradients:
            tensors[1][0, 0] = np.nan if context.rank == 1 else 4
            for layer in range(5):
                gradients.ready(layer)
            if context.rank == 1:
                with pytest.raises(weft.ComputeError):
                    gradients.wait_all()
            else:
                gradients.wait_all()
            assert gradients.next == 1
        return tensors[1][0, 0]

    assert run(2, program) == [2, 2]


def test_the_end_within_a_step_fails_the_others():
    announced = threading.Barrier(2)

    def program(context):
        tensors = new()
        gradients = weft.Gradients(context, tensors, cost=COST, merge="single")
        for layer in range(5):
            if layer < 4 or context.rank == 0:
                gradients.ready(layer)
        announced.wait(20)
        if context.rank == 1:
            with pytest.raises(weft.StateError, match="layer 4"):
                gradients.close()
            return
        with pytest.raises(weft.PeerError, match="rank 1"):
            gradients.wait_all()
        state = gradients.state()
        assert state["failed"] == 1 and list(state["taken"]) == [0] * 5
        gradients.close()

    run(2, program)


@pytest.mark.parametrize("settings, text", [
    (dict(method="dens"), "method is 'dens'"), (dict(merge="best"), "best"),
    (dict(merge=3), "merge is a int"),
    (dict(merge={"group_layers": [1, 2]}), "group_layers"), (dict(layers=[2, 2]), "layer"),
    (dict(layers=[2, -1]), "layers is"), (dict(ready=[1.0]), "ready has 1 entries, expected 5"),
    (dict(ready=[1, 2, 3, 4, -5]), r"ready\[4\] is -5"), (dict(gain=2), "gain"),
    (dict(wire_dtype="f65"), "f65"), (dict(wire_dtype="f64"), "wire_dtype"),
    (dict(sparse={"scope": "tensor"}), "scope"), (dict(sparse=3), "sparse is a int"),
    (dict(compressed={"method": "qsgd", "shapes": [None]}), "shapes has 1 entries"),
    (dict(missing="nothing"), "missing is 'nothing'"), (dict(measure_steps=0), "measure_steps is 0"),
    (dict(state={"residual": np.zeros(3)}), "residual"),
])
def test_wrong_settings(settings, text):
    def program(context):
        with pytest.raises(weft.WeftError, match=text):
            weft.Gradients(context, new(), **dict({"cost": COST}, **settings))

    run(1, program)


def test_an_unknown_setting_is_named():
    def program(context):
        with pytest.raises(TypeError, match="sparse.*no setting 'densitty' .did you mean 'density'"):
            weft.Gradients(context, new(), sparse={"densitty": 1})

    run(1, program)


def test_a_model_without_layers():
    def program(context):
        with weft.Gradients(context, [], cost=COST) as gradients:
            assert gradients.wait_all().step == 0 and gradients.next == 1
            assert gradients.plan.groups == []

    run(2, program)


def test_torch_gradients():
    torch = pytest.importorskip("torch")

    def program(context):
        torch.manual_seed(1)
        layers = torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)
        network = torch.nn.Sequential(*layers).bfloat16()
        inputs = torch.full((2, 4), float(context.rank + 1)).bfloat16()
        network(inputs).sum().backward()
        own = [parameter.grad.clone() for parameter in network.parameters()]
        tensors = [parameter.grad for parameter in network.parameters()]
        with weft.Gradients(context, tensors, cost=COST) as gradients:
            for layer in reversed(range(len(tensors))):
                gradients.ready(layer)
            gradients.wait_all()
        return own, tensors

    results = run(2, program)
    for i in range(4):
        expected = (results[0][0][i].float() + results[1][0][i].float()) / 2
        assert torch.allclose(results[0][1][i].float(), expected, rtol=1e-2)
        assert torch.equal(results[0][1][i], results[1][1][i])
