# SPDX-License-Identifier: BSD-3-Clause
"""Simulations against closed formulas and against the command; costs; plans of merged gradients."""
import math
import pathlib

import numpy as np
import pytest

import weft
from weft.costs import CostModel, Costs, Fabric, Net

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "corpus"


@pytest.mark.parametrize("size", [2, 4, 16])
def test_closed_formulas(size):
    settings = dict(count=2**20, segment=math.inf, net="L=3,G=0.0001")
    latency, transfer = 3, 2**22 * 0.0001
    ring = weft.sim("allreduce", size, algo="ring", **settings)
    assert ring.time_us == pytest.approx(2 * (size - 1) * latency + 2 * (size - 1) / size * transfer)
    assert ring.messages == 2 * (size - 1) * size and ring.complete and ring.faults == []
    assert ring.bytes == 2 * (size - 1) * 2**22
    doubling = weft.sim("allreduce", size, algo="recursive-doubling", **settings)
    assert doubling.time_us == pytest.approx(math.log2(size) * (latency + transfer))
    assert isinstance(ring.rank_us, np.ndarray) and ring.rank_us.shape == (size,)
    assert ring.rank_us.max() == ring.time_us


def test_the_critical_path_leads_to_the_end():
    result = weft.sim("allreduce", 8, algo="ring", count=65536, net=dict(L=2, o=0.5, G=0.0002),
                      compute={"reduce": 0.0001}, segment=math.inf)
    path = result.critical_path
    assert path[0]["after"] == "first" and path[-1]["end_us"] == result.time_us
    assert all(one["end_us"] <= other["end_us"] for one, other in zip(path, path[1:]))
    assert sum(step["after"] == "message" for step in path) == 14
    assert {step["kind"] for step in path} == {"send", "recv", "reduce"}
    assert all((step["peer"] is None) == (step["kind"] == "reduce") for step in path)


def test_nodes():
    schedules = weft.build_all("allreduce", 4, algo="ring", count=100)
    result = schedules.sim(net="L=1,G=0.01", keep_nodes=True)
    nodes = result.nodes
    assert len(nodes) == result.node_count == sum(one.node_count for one in schedules)
    assert list(np.bincount(nodes["rank"])) == [one.node_count for one in schedules]
    for rank, schedule in enumerate(schedules):
        own = nodes[nodes["rank"] == rank]
        assert list(own["node"]) == list(range(schedule.node_count))
        kinds = [node["kind"] for node in schedule.nodes]
        for kind, did in zip(kinds, own):
            assert (did["peer"] >= 0) == (kind in ("send", "recv"))
            assert did["end_us"] >= did["start_us"] >= 0 and not did["retired"]
            if kind == "recv":  # its other end is the send that ends up here
                other = nodes[(nodes["rank"] == did["peer"]) & (nodes["node"] == did["peer_node"])][0]
                assert other["peer"] == rank and other["peer_node"] == did["node"]
                assert did["end_us"] >= other["end_us"] + 1
    assert weft.sim(schedules).nodes is None
    trace = result.trace()
    assert len(trace) == len(nodes)
    assert max(span["end_us"] for span in trace.spans) == pytest.approx(result.time_us, abs=0.002)
    with pytest.raises(weft.InvalidError, match="keep_nodes=True"):
        weft.sim(schedules).trace()


def test_the_command_says_the_same():
    for options in (dict(n=8, algo="ring", count=1000), dict(n=5), dict(n=6, net="L=1.5,o=0.2,G=0.001,S=100"),
                    dict(n=16, net="torus=4x4,L=1,G=0.0001,hop=0.1"),
                    dict(n=16, net="fat-tree=4x4,oversubscription=2,L=1,G=0.0001"),
                    dict(n=4, compute=0.001, net="L=1")):
        mine = weft.sim("allreduce", **options)
        theirs = weft.tools.sim("allreduce", path=True, **options)[0]
        assert mine.time_us == theirs["time_us"], options
        assert list(mine.rank_us) == theirs["rank_us"]
        assert (mine.messages, mine.bytes, mine.node_count) == (
            theirs["messages"], theirs["bytes"], theirs["nodes"])
        assert [{key: value for key, value in step.items() if value is not None}
                for step in mine.critical_path] == theirs["critical_path"]
        if mine.fabric:
            assert mine.sent_bytes == theirs["traffic"]["sent_bytes"]
            assert [level["bytes"] for level in mine.levels] == [
                level["bytes"] for level in theirs["traffic"]["levels"]]
            assert mine.links[0]["from"] == theirs["traffic"]["busiest"][0]["from"]


def test_what_does_not_end_is_told():
    result = weft.sim(CORPUS / "deadlock-ring.weft", net="L=1,S=0")
    assert not result.complete and result.stuck == 60
    assert result.faults[0]["text"].startswith("deadlock: rank 0 node 0") and result.faults[0]["rank"] == 0
    assert "does not end" in repr(result)
    assert weft.sim(CORPUS / "deadlock-ring.weft", net="L=1").complete  # messages are buffered


def test_firings_and_activators():
    def schedules():
        found = []
        for rank in range(2):
            s = weft.Schedule(rank, 2, track=False)
            x = s.slot("x", "f32", 1)
            s.event().label("ready") >> s.send(x, 1 - rank)
            s.recv(s.slot("y", "f32", 1), 1 - rank)
            found.append(s)
        return found

    assert weft.sim(schedules(), net="L=1").time_us == 1
    assert weft.sim(schedules(), net="L=1", firings={"ready": 10}).time_us == 11
    assert weft.sim(schedules(), net="L=1", firings={"ready": 10, ("ready", 1): 30}).time_us == 31
    assert weft.sim(schedules(), net="L=1", firings=[(0, 5.0), (0, 7.0, 0)]).time_us == 8
    assert weft.sim(schedules(), net="L=1", firings={"ready": 10}).critical_path[0]["after"] == "time"
    with pytest.raises(weft.InvalidError):
        weft.sim(schedules(), firings={"nobody": 1})
    with pytest.raises(weft.InvalidError, match="firings has"):
        weft.sim(schedules(), firings=[("ready",)])
    near = weft.sim("activation", 8, net="L=1", activators=[0]).time_us
    assert near == 3 and weft.sim("activation", 8, net="L=1", activators=range(8)).time_us < near
    with pytest.raises(weft.InvalidError, match="activators has 8, expected ranks from 0 to 7"):
        weft.sim("activation", 8, activators=[8])


def test_costs_of_operations():
    def at(**costs):
        return weft.sim("projected-allreduce", 2, algo="ring", count=6144, slice=768, components=96,
                        net="L=1", **costs).time_us

    assert at() < at(op_costs={"project": 0.001}) < at(op_costs={"project": (0.001, 0.001, 0)})
    assert at() < at(op_costs={"project": (0, 0, 0.001)})
    assert at() < at(compute=0.001) == at(compute={"reduce": 0.001, "call": 0.001})
    assert weft.sim("alltoall", 1, count=1000, compute=1.0).time_us == 0
    assert weft.sim("alltoall", 1, count=1000, compute={"copy": 1.0}).time_us == 4000
    with pytest.raises(weft.InvalidError, match="compute has 'fold'"):
        at(compute={"fold": 1})
    with pytest.raises(weft.InvalidError, match="op_costs"):
        at(op_costs={"project": "dear"})


def test_many_ranks_are_built_one_by_one():
    few = weft.sim("allreduce", 4096, algo="recursive-doubling", count=16, net="L=1")
    many = weft.sim("allreduce", 8192, algo="recursive-doubling", count=16, net="L=1")
    assert few.schedules is not None and many.schedules is None
    assert few.time_us == 12 and many.time_us == 13
    assert many.messages == 8192 * 13 and many.nodes is None
    assert weft.sim("allreduce", 5000, algo="recursive-doubling", threads=1).rank_us.shape == (5000,)
    with pytest.raises(weft.NotFoundError, match="rnig"):
        weft.sim("allreduce", 10000, algo="rnig")


def test_a_builder_that_fails_ends_the_simulation(monkeypatch):
    from weft import simulation

    built = []

    def build(self, rank, schedule):
        if rank == 17:
            raise ZeroDivisionError("rank 17 is special")
        built.append(rank)
        return simulation.lib.weft_template_build(self.name, rank, self.n, self.params.c, schedule)

    monkeypatch.setattr(simulation._Builder, "__call__", build)
    with pytest.raises(weft.ComputeError, match="rank 17 is special") as caught:
        weft.sim("barrier", 5000, threads=1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert max(built) == 16


def test_wrong_arguments():
    with pytest.raises(weft.InvalidError, match="X=3"):
        weft.sim("allreduce", net="X=3")
    with pytest.raises(weft.InvalidError, match="net is 3"):
        weft.sim("allreduce", net=3)
    with pytest.raises(weft.InvalidError, match="expected one for each rank"):
        weft.sim(weft.build_all("allreduce", 3)[:2])
    with pytest.raises(weft.InvalidError, match="compute is 'much'"):
        weft.sim("allreduce", compute="much")
    with pytest.raises(weft.InvalidError):
        weft.sim("allreduce", 64, net="torus=2x2,L=1")


# ---- costs ----


def test_networks():
    net = Net.parse("L=1.5,o=0.1,G=0.0004,S=65536,offload=1")
    assert net == Net(L=1.5, o=0.1, G=0.0004, S=65536, offload=True)
    assert Net.parse(str(net)) == net and Net.parse("S=0").S == 0 and Net.parse("L=1").S is None
    assert Net._of(net._struct().c) == net and Net._of(Net(S=0)._struct().c) == Net(S=0)
    net, fabric = weft.costs.network("torus=4x8,L=1,hop=0.5,ranks-per-host=2,place=random:7")
    assert net.L == 1 and fabric == Fabric("torus", (4, 8), 0, 2, 0.5, 0.0, None, 7, True)
    assert Fabric._of(fabric._struct().c) == fabric
    assert weft.costs.network("L=1")[1] is None and Fabric.parse("fat-tree=4x4").kind == "fat-tree"
    with pytest.raises(weft.InvalidError, match="expected"):
        weft.costs.network("torus=4y8")
    placed = Fabric("torus", (2, 2), hop_us=1.0, hosts=[3, 2, 1, 0])
    assert weft.sim("broadcast", 4, net="L=1,G=0.01", fabric=placed).complete
    assert weft.sim("broadcast", 4, net={"L": 1, "torus": (2, 2), "hop": 1.0}).fabric.extents == (2, 2)


def test_cost_files(tmp_path):
    path = tmp_path / "costs.json"
    model = CostModel(alpha_us=1.0, beta_us_per_byte=0.001, gamma_us_per_byte=0.002, copy_us_per_byte=0.003,
                      node_us=0.01, segment_bytes=4096, eager_bytes=1000)
    weft.costs.write(path, model, Net(L=0.5, o=0.25, G=0.001), "local")
    found = weft.costs.read(path)
    assert found.model.alpha_us == 1.0 and found.model.eager_bytes == 1000 and found.net.L == 0.5
    assert isinstance(found, Costs)
    with pytest.raises(weft.NotFoundError):
        weft.costs.read(path, "mpi")
    with pytest.raises(weft.FileError):
        weft.costs.read(tmp_path / "none.json")
    path2 = tmp_path / "other.json"
    path2.write_text("[]")
    with pytest.raises(weft.FormatError):
        weft.costs.read(path2)
    mine = weft.sim("allreduce", 4, net=found)
    assert mine.time_us == weft.tools.sim("allreduce", n=4, cost=path)[0]["time_us"]
    assert CostModel.default("local").alpha_us > 0
    # They choose algorithms.
    assert weft.choose("allreduce", 8, count=8, cost=CostModel(alpha_us=100.0)).algo == "recursive-doubling"
    slow = weft.choose("allreduce", 8, count=2**20, cost={"beta_us_per_byte": 1.0}).cost_us
    assert slow == pytest.approx(2 * 7 / 8 * 2**22)
    with pytest.raises(TypeError, match="alpha"):
        weft.choose("allreduce", 8, cost={"alpha": 1})
    with weft.LocalGroup(1).context(0) as context:
        assert weft.costs.of_context(context).alpha_us > 0


# ---- merge plans ----

LAYERS = [("a", 250, 1.0), ("b", 250, 2.0), ("c", 250, 4.0)]


def test_the_plan_of_the_documentation():
    plan = weft.merge(LAYERS, net=(2, 0.001))
    assert plan.groups == [[0], [1, 2]] and plan.group_layers == [1, 2]
    assert (plan.end_us, plan.ready_us, plan.optimal) == (8, 4, "all")
    assert plan.hidden_fraction == pytest.approx(3 / 7) and plan.communication_us == 7
    assert [(send["start_us"], send["end_us"]) for send in plan.sends] == [(1, 4), (4, 8)]
    plans = weft.merge(LAYERS, net="a=2,b=0.001", method="all")
    ends = {plan.method.split(":")[0]: plan.end_us for plan in plans}
    assert ends == {"exact": 8, "greedy": 9, "wfbp": 10, "single": 9, "bucket": 9}


def test_no_plan_of_successive_layers_ends_before_the_exact_one():
    random = np.random.default_rng(3)
    for _ in range(10):
        layers = [(int(random.integers(0, 10**6)), float(us)) for us in np.cumsum(random.random(30) * 200)]
        net = (float(random.random() * 300), float(random.random() * 0.001))
        plans = weft.merge(layers, net=net, method="all")
        assert plans.best.end_us == plans[0].end_us and plans[0].optimal == "all"
        assert all(plans[0].end_us <= plan.end_us for plan in plans)
        for plan in plans:
            assert sorted(layer for group in plan.groups for layer in group) == list(range(30))
        again = weft.merge(layers, net=net, groups=plans[0].group_layers)
        assert again.end_us == plans[0].end_us and again.method == "given" and again.optimal == "no"


def test_costs_of_allreduces():
    points = [(0, 10), (1000, 12), (10**6, 1010)]
    cost = weft.merging.Cost(points=points)
    assert cost(500) == 11 and cost(0) == 10
    assert cost(2 * 10**6) == pytest.approx(1010 + 998 / 0.999, rel=1e-3)
    line = weft.merging.fit([(0, 10), (1000, 11), (10**6, 1010)])
    assert line.a_us == pytest.approx(10, rel=1e-3) and line.b_us_per_byte == pytest.approx(0.001, rel=1e-3)
    assert weft.merge(LAYERS, cost=points).end_us == weft.merge(LAYERS, cost=cost).end_us
    assert weft.merge(LAYERS, cost=lambda size: 2 + 0.001 * size).end_us == 8
    predicted = weft.merging.predict(4, 2**20)
    assert len(predicted.points) >= 2 and predicted(2**20) == pytest.approx(
        weft.choose("allreduce", 4, count=2**18).cost_us, rel=0.01)
    assert weft.merge(LAYERS, n=4).end_us == weft.merge(LAYERS, cost=weft.merging.predict(4)).end_us
    with pytest.raises(ZeroDivisionError):
        weft.merge(LAYERS, cost=lambda size: 1 / 0)
    with pytest.raises(weft.InvalidError):
        weft.merge(LAYERS, cost=lambda size: -1)


def test_layers_of_files(tmp_path):
    table = tmp_path / "layers.csv"
    table.write_text("# of a network\nname,elements,ready_us\na,250,1\nb,250,2\nc,250,4\n")
    assert weft.merging.layers_of(table) == [weft.merging.Layer(*layer) for layer in LAYERS]
    document = tmp_path / "layers.json"
    document.write_text('{"layers": [{"elements": 250, "ready_us": 1.5}]}')
    assert weft.merging.layers_of(document) == [weft.merging.Layer("0", 250, 1.5)]
    assert len(weft.merging.layers_of("resnet50")) == 107
    rows = weft.tools.merge("resnet50", net="a=100,b=0.0008", method="all")
    assert [row["end_us"] for row in rows] == [
        plan.end_us for plan in weft.merge("resnet50", net="a=100,b=0.0008", method="all")]
    theirs = weft.tools.merge(table, net={"a": 2, "b": 0.001}, method=["exact", "greedy"])
    mine = weft.merge(table, net={"a": 2, "b": 0.001}, method=["exact", "greedy"])
    assert [(row["method"], row["groups"], row["end_us"]) for row in theirs] == [
        (plan.method, plan.groups, plan.end_us) for plan in mine]


@pytest.mark.parametrize("arguments, text", [
    (dict(method="best"), "`best` is no method"), (dict(net=(1,)), "net is"), (dict(net={"c": 1}), "'c'"),
    (dict(groups=[1, 1]), "add up to 2"), (dict(net=(1, 1), cost=[(0, 1), (1, 2)]), "one of them"),
    (dict(net=(-1, 1)), "a_us")])
def test_wrong_plans(arguments, text):
    with pytest.raises(weft.InvalidError, match=text):
        weft.merge(LAYERS, **arguments)


def test_wrong_layers():
    with pytest.raises(weft.InvalidError, match="layer 1 is 3"):
        weft.merge([(1, 2.0), 3])
    with pytest.raises(weft.InvalidError, match="has -1 elements"):
        weft.merge([(-1, 2.0)])
    with pytest.raises(weft.NotFoundError, match="'resnet5' is neither a file nor one of .*resnet50"):
        weft.merge("resnet5")
    with pytest.raises(weft.FileError, match="cannot read"):
        weft.merge(pathlib.Path("/nowhere/layers.csv"))
    assert weft.merge([], net=(1, 1)).groups == []
