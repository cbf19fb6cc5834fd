# SPDX-License-Identifier: BSD-3-Clause
"""Pictures: they are XML, show what there is, stay within their edges, and say what they leave out."""
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import weft
from weft import draw, tracing

SVG = "{http://www.w3.org/2000/svg}"
CORPUS = pathlib.Path(__file__).resolve().parent.parent / "corpus"


class Picture:
    def __init__(self, document):
        self.root = ElementTree.fromstring(document)
        assert self.root.tag == SVG + "svg"
        self.width, self.height = (float(self.root.get(name)) for name in ("width", "height"))
        self.texts = ["".join(text.itertext()) for text in self.root.iter(SVG + "text")]
        self.tips = [title.text for title in self.root.iter(SVG + "title")]
        self.inside()

    def of(self, name):
        return [one for one in self.root.iter() if one.get("class") == name]

    def has(self, text):
        return any(text in one for one in self.texts)

    def inside(self):
        """Nothing is beyond the edges, and no number is broken."""
        for one in self.root.iter(SVG + "rect"):
            if one.get("width") == "100%":
                continue
            x, y, width, height = (float(one.get(name)) for name in ("x", "y", "width", "height"))
            assert -1 <= x and x + width <= self.width + 1 and -1 <= y and y + height <= self.height + 1
        for one in self.root.iter(SVG + "text"):
            assert 0 <= float(one.get("x")) <= self.width and 0 < float(one.get("y")) <= self.height
        for one in self.root.iter(SVG + "path"):
            assert not re.search("nan|inf", one.get("d"))


def labels_are_apart(picture):
    """Texts on one line do not overlap, with letters of usual width."""
    lines = {}
    for one in picture.root.iter(SVG + "text"):
        size, text = float(one.get("font-size")), "".join(one.itertext())
        wide = 0.5 * size * len(text)
        left = float(one.get("x")) - {"end": wide, "middle": wide / 2}.get(one.get("text-anchor"), 0)
        if not one.get("transform"):
            lines.setdefault(one.get("y"), []).append((left, left + wide, text))
    for line in lines.values():
        line.sort()
        for one, other in zip(line, line[1:]):
            assert one[1] <= other[0] + 1, (one, other)


def test_a_ring_over_time():
    schedules = weft.build_all("allreduce", 8, algo="ring", count=65536)
    picture = Picture(draw.schedules(schedules, net="L=2,o=0.5,G=0.0002", compute=0.0001))
    assert len(picture.of("message")) == 2 * 7 * 8
    assert len(picture.of("send")) == len(picture.of("recv")) == 112 and len(picture.of("reduce")) == 56
    result = schedules.sim(net="L=2,o=0.5,G=0.0002", compute=0.0001, keep_nodes=True)
    assert len(picture.of("critical")) == len(result.critical_path)
    assert picture.has("allreduce-ring") and picture.has("8 ranks") and picture.has("critical path")
    assert not picture.of("left-out") and [str(rank) in picture.texts for rank in range(8)] == [True] * 8
    labels_are_apart(picture)
    assert Picture(result._repr_svg_()).tips == picture.tips
    assert Picture(draw.simulation(result, ranks=[1, 2])).has("2 of 8 ranks are drawn")
    assert len(Picture(draw.simulation(result, ranks=[1, 2])).of("message")) == 14


def test_the_graph_of_a_rank():
    schedule = weft.build("allreduce", 3, 8, algo="ring", count=65536)
    picture = Picture(draw.schedule(schedule))
    assert len(picture.of("node")) == schedule.node_count == 35
    assert len(picture.of("order")) == len(set(schedule.edges))
    assert picture.has("send → 4") and picture.has("recv ← 2") and picture.has("sum")
    assert picture.has("rank 3 of 8")
    labels_are_apart(picture)
    assert schedule._repr_svg_() == draw.schedule(schedule)


def boxes(picture):
    names = ("x", "y", "width", "height")
    return [tuple(float(one.get(name)) for name in names) for one in picture.of("node")]


def apart(found):
    for i, (x, y, w, h) in enumerate(found):
        for x2, y2, w2, h2 in found[i + 1:]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


@pytest.mark.parametrize("seed", range(4))
def test_boxes_of_any_graph_are_apart(seed):
    random = np.random.default_rng(seed)
    s = weft.Schedule(0, 4, name="any <graph> & \"more\"", track=False)
    x = s.slot("x", "f32", 100)
    nodes = []
    for i in range(60):
        node = s.join() if i % 3 else s.copy(x[i:i + 1], x[99:])
        if i % 5 == 0:
            node.label("<label> & a long one, indeed, number %d" % i)
        if i % 7 == 0:
            node.any()
        for _ in range(int(random.integers(0, 3))):
            if nodes:
                s.order(nodes[int(random.integers(len(nodes)))], node)
        nodes.append(node)
    picture = Picture(draw.schedule(s))
    assert len(picture.of("node")) == 60 and picture.has("any <graph> & \"more\"")
    assert any("<label> & a long one, indeed, number 0" in tip for tip in picture.tips)
    apart(boxes(picture))


def test_large_graphs_are_bounded_and_say_so():
    picture = Picture(draw.schedule(weft.build("allreduce", 3, 256, algo="ring", count=10**5)))
    assert len(picture.of("node")) <= 400 and picture.height < 3000
    assert picture.has("of 1,275 nodes are drawn")
    s = weft.Schedule(0, 1, track=False)
    last = s.join()
    for _ in range(100):
        last = last >> s.join()
    picture = Picture(draw.schedule(s))
    assert len(picture.of("node")) == 40 and picture.has("40 of 101 nodes are drawn: the first 40 steps")
    s = weft.Schedule(0, 1, track=False)
    first = s.join()
    for _ in range(3000):
        first >> s.join()
    picture = Picture(draw.schedule(s))
    assert 1 < len(picture.of("node")) <= 400 and picture.has("of 3,001 nodes are drawn")
    picture = Picture(draw.schedules("allreduce", n=100, algo="ring"))
    assert picture.has("64 of 100 ranks are drawn") and picture.has("the first 3,000 of")
    assert len(picture.of("message")) <= 3000


def test_empty_ones():
    assert Picture(draw.schedule(weft.Schedule(0, 1))).has("The schedule has no nodes.")
    assert Picture(draw.schedules([weft.Schedule(0, 1)])).has("There is nothing to be seen.")
    assert Picture(draw.trace(weft.Trace())).has("There is nothing to be seen.")
    assert draw.Schedules()._repr_svg_() is None


@pytest.mark.parametrize("template", ["wait-avoiding-allreduce", "oktopk", "alltoall", "merged-allreduce",
                                      "scan", "group-allreduce", "server-step", "barrier"])
def test_templates(template):
    schedules = weft.build_all(template, 5, count=64)
    for schedule in schedules:
        picture = Picture(draw.schedule(schedule))
        assert len(picture.of("node")) == schedule.node_count
        apart(boxes(picture))
        labels_are_apart(picture)
    result = schedules.sim(net="L=2,o=0.5", keep_nodes=True)
    picture = Picture(draw.simulation(result))
    assert len(picture.of("message")) == result.messages
    assert len(picture.of("signal")) >= result.signals


def test_what_does_not_end():
    picture = Picture(draw.schedules(CORPUS / "deadlock-ring.weft", net="L=1,S=0"))
    assert picture.of("warning") and picture.has("does not end: 60 nodes left; deadlock:")
    assert picture.has("has not ended") and not picture.of("message")
    assert any("has not ended" in tip for tip in picture.tips)


def test_traces():
    def program(context):
        with tracing.record(context) as trace:
            for _ in range(2):
                context.allreduce(np.ones(64, "f4"))
        return trace

    trace = weft.trace(*weft.run_local(3, program))
    picture = Picture(draw.trace(trace))
    sends = [span for span in trace.spans if span["kind"] == "send"]
    assert len(picture.of("message")) == len(sends) and len(sends) > 0
    assert len(picture.of("run")) == 6 and picture.has("recorded")
    assert trace._repr_svg_() == draw.trace(trace)
    end = max(span["end_us"] for span in trace.spans)
    part = Picture(draw.trace(trace, end_us=end / 2))
    assert part.has("a part of the time") and len(part.of("message")) <= len(sends)
    assert Picture(draw.trace(trace, ranks=[0])).has("1 of 3 ranks")


def test_plans():
    layers = [("layer <%d>" % i, 1000 * i, 100.0 * i) for i in range(12)]
    plans = weft.merge(layers, net=(150, 0.01), method="all")
    picture = Picture(draw.merge(plans))
    assert len(picture.of("allreduce")) == sum(len(plan.groups) for plan in plans)
    for plan in plans:
        assert plan.method in picture.texts
    labels_are_apart(picture)
    single = Picture(plans[0]._repr_svg_())
    assert len(single.of("allreduce")) == len(plans[0].groups) and single.has("no plan ends earlier")
    assert Picture(plans._repr_svg_()).texts == picture.texts
    many = weft.merge([(10, float(i)) for i in range(3000)], net=(0.001, 0), method="wfbp")
    picture = Picture(draw.merge(many))
    assert len(picture.of("allreduce")) == 400 and picture.has("the first 400 of 3,000 allreduces are drawn")
    with pytest.raises(weft.InvalidError):
        draw.merge([plans[0], many])
    with pytest.raises(weft.InvalidError):
        draw.merge([])


def test_curves(tmp_path):
    lines = {"one <&>": [(0, 0.1), (1, 0.5), (2, 0.9)], "two": [(0.5, 0.2), (4, 0.91)], "none": [],
             "three": [(x, 0.9) for x in range(5000)]}
    picture = Picture(draw.curves(lines, "seconds", "test accuracy", "a title"))
    assert len(picture.of("curve")) == 3 and picture.has("one <&>") and picture.has("seconds")
    assert all(one.get("d").count("L") <= 2001 for one in picture.of("curve"))
    labels_are_apart(picture)
    path = draw.curves({"flat": [(1, 2)]}).save(tmp_path / "flat.svg")
    assert len(Picture(path.read_text()).of("curve")) == 1
    for wrong in ({}, {"a": []}, {"a": [(1, float("nan"))]}, {"a": [1, 2]}):
        with pytest.raises(weft.InvalidError, match="curves: "):
            draw.curves(wrong)
    with pytest.raises(weft.FileError, match="cannot write"):
        draw.curves(lines).save(tmp_path / "no" / "folder.svg")
    assert draw.curves(lines)._repr_svg_() == str(draw.curves(lines))


def test_all_schedules_are_a_list_that_shows():
    schedules = weft.build_all("allreduce", 4, algo="ring", count=10)
    assert isinstance(schedules, list) and isinstance(schedules, draw.Schedules)
    assert len(Picture(schedules._repr_svg_()).of("message")) == 24
    assert draw.Schedules(schedules[:2])._repr_svg_() is None
    assert schedules.check().ok and schedules.sim().ranks == 4
    again = weft.read_schedules(schedules.dump())
    assert isinstance(again, draw.Schedules) and again.dump() == schedules.dump()


def test_pages(tmp_path):
    schedules = weft.build_all("allreduce", 4, algo="ring", count=10)
    page = schedules.page(net="L=2,G=0.001")
    assert page.lower().startswith("<!doctype html>")
    assert "L=2" in page and page._repr_html_().startswith("<iframe srcdoc=")
    assert "<script" not in page._repr_html_()
    path = tmp_path / "ring.html"
    assert schedules.page(path) == path and path.stat().st_size > 10000
