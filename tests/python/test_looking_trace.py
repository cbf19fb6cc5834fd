# SPDX-License-Identifier: BSD-3-Clause
"""Traces: recorded, written, read, merged, and handed to Perfetto's page."""
import json
import threading
import urllib.request

import numpy as np
import pytest

import weft
from weft import tracing


def recorded(size=4, times=2):
    def program(context):
        with tracing.record(context) as trace:
            for _ in range(times):
                context.allreduce(np.ones(64, "f4"))
        return trace

    return weft.run_local(size, program)


def test_a_trace_has_all_nodes():
    size = 4
    plans = [schedule for schedule in weft.build_all("allreduce", size, algo="ring", count=64)]

    def program(context):
        plan = plans[context.rank].commit()
        with plan.run(context, send=np.ones(64, "f4"), recv=np.zeros(64, "f4")) as run:
            with tracing.record(context) as trace:
                for _ in range(3):
                    run.execute()
        return trace

    traces = weft.run_local(size, program)
    for rank, trace in enumerate(traces):
        nodes = plans[rank].nodes
        for version in range(3):
            spans = [span for span in trace.spans if span["version"] == version and span["kind"] != "run"]
            assert sorted(span["node"] for span in spans) == list(range(len(nodes)))
            for span in spans:
                node = nodes[span["node"]]
                assert span["kind"] == node["kind"] and span["peer"] == node["peer"]
                assert span["tag"] == node["tag"] and span["bytes"] == node["bytes"]
                assert span["end_us"] >= span["start_us"] >= 0 and span["end"] == "ended"
                assert (span["arrived_us"] is None) == (span["kind"] != "recv")
        runs = [span for span in trace.spans if span["kind"] == "run"]
        assert [run["version"] for run in runs] == [0, 1, 2] and all(run["status"] == 0 for run in runs)
        assert {run["plan"] for run in runs} == {"allreduce-ring"} and runs[0]["node"] is None


def test_files(tmp_path):
    traces = recorded()
    paths = [trace.save(tmp_path / ("%d.json" % rank)) for rank, trace in enumerate(traces)]
    whole = weft.trace(*paths)
    assert len(whole) == sum(map(len, traces)) and [entry.rank for entry in whole.ranks] == [0, 1, 2, 3]
    assert all(entry.size == 4 and entry.dropped == 0 for entry in whole.ranks)
    assert all(entry.uncertainty_us == 0 for entry in whole.ranks)  # one clock
    assert len(weft.trace(*traces)) == len(whole) == len(tracing.merge(traces, align=False))
    assert min(span["start_us"] for span in whole.spans) == 0
    document = json.loads(whole.json())
    complete = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(complete) == len(whole)
    assert weft.Trace.read(paths[0]).add_text(traces[1].json()).spans != []
    with pytest.raises(weft.FileError):
        weft.trace(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{]")
    with pytest.raises(weft.FormatError):
        weft.trace(tmp_path / "bad.json")
    with pytest.raises(weft.FileError):
        whole.save(tmp_path / "no" / "folder.json")


def test_the_command_merges_the_same(tmp_path):
    traces = recorded(2)
    paths = [trace.save(tmp_path / ("%d.json" % rank)) for rank, trace in enumerate(traces)]
    theirs = weft.tools.trace(*paths)
    assert theirs.spans == weft.trace(*paths).spans
    assert len(weft.tools.trace(*traces)) == len(theirs)
    row = weft.tools.trace(*paths, output=tmp_path / "all.json")[0]
    assert row["ranks"] == 2 and row["spans"] == len(theirs)


def test_recording_of_several_contexts_and_what_is_dropped():
    group = weft.LocalGroup(2)
    contexts = [group.context(rank) for rank in range(2)]
    try:
        with tracing.record(*contexts, records=16) as trace:
            threads = [threading.Thread(target=lambda c=c: [c.allreduce(np.ones(8, "f4")) for _ in range(20)])
                       for c in contexts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert [entry.rank for entry in trace.ranks] == [0, 1]
        assert all(entry.dropped > 0 for entry in trace.ranks) and "dropped" in repr(trace)
        with pytest.raises(weft.StateError):
            trace.collect(contexts[0])  # it records no more
        tracing.start(contexts[0])
        assert len(weft.Trace().collect(contexts[0])) == 0
        tracing.stop(contexts[0])
    finally:
        for context in contexts:
            context.close()


def test_spans_of_ones_own():
    trace = weft.Trace()
    trace.add_span(0, "send", 1.0, 2.5, peer=1, tag=3, bytes=40, label="take", plan="mine", object=0)
    trace.add_span(1, "recv", 2.0, 4.0, peer=0, tag=3, bytes=40, arrived_us=3.5, plan="mine", object=0)
    trace.add_span(1, "run", 0.5, 4.0, plan="mine")
    first, run, second = trace.spans
    assert first["label"] == "take" and first["start_us"] == 0.5 and first["end_us"] == 2.0
    assert run["kind"] == "run" and run["node"] is None and run["start_us"] == 0
    assert second["arrived_us"] == 3.0 and second["plan"] == "mine"
    assert len(trace) == 3 and "3 spans" in repr(trace)
    with pytest.raises(weft.InvalidError, match="start_us is -1"):
        trace.add_span(0, "send", -1, 2)
    with pytest.raises(weft.InvalidError, match="kind is 'sedn' .did you mean 'send'"):
        trace.add_span(0, "sedn", 0, 2)
    with pytest.raises(weft.InvalidError):
        trace.add_span(0, "send", 3, 2)


def test_clocks_are_brought_together():
    """Two machines, of which one is 1000 us ahead; messages take 5 us at least, both ways."""
    documents = []
    for rank, offset in ((0, 0), (1, 1000)):
        trace = weft.Trace()
        for version in range(3):
            at = 100.0 * version
            if rank == 0:
                trace.add_span(0, "send", at, at + 1, peer=1, version=version, object=0, bytes=4)
                trace.add_span(0, "recv", at, at + 30, peer=1, version=version, object=0, node=1,
                               arrived_us=at + 25, bytes=4)
            else:
                trace.add_span(1, "recv", at + offset, at + offset + 6, peer=0, version=version, object=0,
                               node=1, arrived_us=at + offset + 5, bytes=4)
                trace.add_span(1, "send", at + offset + 20, at + offset + 21, peer=0, version=version,
                               object=0, bytes=4)
        document = json.loads(trace.json())
        for event in document["traceEvents"]:
            if event["name"] == "weft_rank":
                event["args"]["clock"] = "machine %d" % rank
                event["args"]["size"] = 2
        documents.append(json.dumps(document))
    trace = weft.Trace()
    for document in documents:
        trace.add_text(document)
    trace.align()
    assert trace.ranks[1].offset_us == pytest.approx(-1000, abs=0.01)
    assert trace.ranks[1].uncertainty_us == pytest.approx(5, abs=0.01)


def test_a_closed_trace_context():
    group = weft.LocalGroup(1)
    with tracing.record(group.context(0)) as trace:
        pass
    assert len(trace) == 0
    context = weft.LocalGroup(1).context(0)
    with tracing.record(context) as trace:
        context.allreduce(np.ones(4))
        context.close()
    assert len(trace) == 0


def test_what_is_recorded_before_a_failure_is_there():
    kept = []

    def program(context):
        with tracing.record(context) as trace:
            kept.append(trace)
            context.allreduce(np.ones(4))
            raise ZeroDivisionError("after an allreduce")

    with pytest.raises(ZeroDivisionError):
        weft.run_local(2, program)
    assert len(kept) == 2 and all(len(trace) > 0 for trace in kept)


def test_perfetto_fetches_it(monkeypatch):
    from weft import _serve

    trace = recorded(2)[0]
    fetched = []

    def browser(address):
        assert address.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
        where = address.split("url=", 1)[1]

        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def fetch():
            request = urllib.request.Request(where.replace("weft.json", "other"))
            with pytest.raises(urllib.error.HTTPError):
                opener.open(request, timeout=10)
            with opener.open(where, timeout=10) as answer:
                assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
                fetched.append(json.loads(answer.read()))

        thread = threading.Thread(target=fetch)
        thread.start()
        fetched.append(thread)
        return True

    monkeypatch.setattr(_serve.webbrowser, "open", browser)
    assert _serve.perfetto(trace.json(), 20, port=0) is True
    fetched[0].join()
    assert len([event for event in fetched[1]["traceEvents"] if event["ph"] == "X"]) == len(trace)
    monkeypatch.setattr(_serve.webbrowser, "open", lambda address: False)
    assert _serve.perfetto("{}", 0.1, port=0) is False
