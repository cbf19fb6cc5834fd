# SPDX-License-Identifier: BSD-3-Clause
"""Checking schedules, and groups."""
import json
import pathlib

import pytest

import weft

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "corpus"


def test_a_ring_has_no_fault():
    report = weft.check("allreduce", 8, algo="ring", count=100)
    assert report and report.ok and report.faults == []
    assert report.summary.ranks == 8 and report.summary.messages == 2 * 7 * 8
    assert report.summary.results == 8 and report.summary.executions == 1
    schedules = weft.build_all("allreduce", 8, algo="ring", count=100)
    assert report.summary.nodes == sum(one.node_count for one in schedules)
    assert report.raise_for_faults() is report
    assert "no fault" in repr(report) and "8 ranks" in repr(report)


def test_templates_work_on_defaults():
    for template in weft.templates():
        report = weft.check(template["name"], 3)
        assert report.ok and report.summary.nodes > 0, template["name"]


def ring(size, peer_of=lambda rank, size: (rank + 1) % size, op="sum"):
    """Each rank sends to the right, and adds what comes from the left."""
    schedules = []
    for rank in range(size):
        s = weft.Schedule(rank, size, name="once around")
        x, y = s.slot("x", "f32", 4, "input"), s.slot("y", "f32", 4, "output")
        t = s.slot("t", "f32", 4, "scratch")
        s.send(x, peer_of(rank, size))
        s.recv(t, (rank - 1) % size)
        s.reduce("sum", y, x, t)
        s.result(y, x, op=op, ranks=[(rank - 1) % size, rank] if rank else [0, size - 1])
        schedules.append(s)
    return schedules


def test_schedules_in_memory():
    assert weft.check(ring(4))
    report = weft.check(ring(4, lambda rank, size: 0 if rank == 2 else (rank + 1) % size))
    assert not report
    assert [fault["kind"] for fault in report.faults] == ["match"]
    assert {2, 3} <= set(report.faults[0]["ranks"])
    assert all(set(node) == {"rank", "node", "line"} for node in report.faults[0]["nodes"])
    with pytest.raises(weft.FaultError, match="match: rank") as caught:
        report.raise_for_faults()
    assert caught.value.report is report and isinstance(caught.value, ValueError)


def test_a_wrong_result_is_found():
    report = weft.check(ring(3, op="max"))
    assert not report and {fault["kind"] for fault in report.faults} == {"result"}
    assert "should hold max" in report.faults[0]["text"]


def test_a_missing_rank_is_a_fault():
    report = weft.check(ring(3)[:2])
    assert "match" in [fault["kind"] for fault in report.faults]


def test_the_corpus_has_what_its_manifest_says():
    entries = json.loads((CORPUS / "manifest.json").read_text())
    assert len(entries) > 40
    for entry in entries:
        report = weft.check(CORPUS / entry["file"])
        kinds = [fault["kind"] for fault in report.faults]
        assert entry["kind"] in kinds, (entry, report)
        named = {rank for fault in report.faults if fault["kind"] == entry["kind"] for rank in fault["ranks"]}
        assert set(entry["ranks"]) <= named, (entry, report)


def test_lines_of_files():
    fault = weft.check(CORPUS / "race-tree.weft").faults[0]
    assert fault["kind"] == "race" and fault["bytes"] == 20
    lines = (CORPUS / "race-tree.weft").read_text().splitlines()
    assert [lines[node["line"] - 1].split(":")[0].strip() for node in fault["nodes"]] == ["n0", "n1"]


def test_settings():
    path = CORPUS / "match-drop-send.weft"
    assert weft.check(path, faults=1).summary.faults >= len(weft.check(path, faults=1).faults) == 1
    assert weft.check(CORPUS / "deadlock-pair.weft", local_only=True).ok
    report = weft.check("allreduce", 4, algo="ring", in_order=True)
    assert report.ok and report.summary.ordered == 24 and report.summary.rounds == 6
    assert "24 messages in 6 rounds" in repr(report)
    report = weft.check("activation", 5, executions=10)
    assert report.ok and report.summary.executions > 1 and report.summary.bounded


def test_what_cannot_be_checked_raises(tmp_path):
    with pytest.raises(weft.NotFoundError, match="'nope' is neither a template nor a file.*allreduce"):
        weft.check("nope")
    with pytest.raises(weft.NotFoundError, match="rnig"):
        weft.check("allreduce", algo="rnig")
    with pytest.raises(TypeError, match="cuont.*did you mean 'count'"):
        weft.check("allreduce", cuont=3)
    with pytest.raises(weft.InvalidError, match="target is 3"):
        weft.check(3)
    with pytest.raises(weft.InvalidError, match="empty"):
        weft.check([])
    with pytest.raises(TypeError, match="count: parameters are of templates"):
        weft.check(ring(3), count=3)
    with pytest.raises(weft.InvalidError, match="n is 4, and the schedules are of 3 ranks"):
        weft.check(ring(3), 4)
    with pytest.raises(weft.FileError, match="cannot read"):
        weft.check(tmp_path)
    (tmp_path / "bad.weft").write_text("weft 1\nwhat is this\n")
    with pytest.raises(weft.FormatError, match="line 2"):
        weft.check(tmp_path / "bad.weft")


SHIFT = """weft 1
schedule "shift" size any
param count = 4
param seed = 7
ranks all {
  input a f32 count
  output b f32 count
  send a to (rank + 1) % size tag seed
  recv b from (rank - 1) % size tag 7
}
"""


def test_parameters_of_a_file(tmp_path):
    path = tmp_path / "shift.weft"
    path.write_text(SHIFT)
    assert weft.check(path, 5).summary.messages == 5
    assert weft.check(path, 3, count=0, parameters={"seed": 7}).ok  # `seed` is an argument of check, too
    assert [fault["kind"] for fault in weft.check(path, 3, parameters={"seed": 8}).faults] == ["match"] * 3
    with pytest.raises(weft.FormatError, match="no parameter `n`"):
        weft.check(path, 3, parameters={"n": 1})


def test_reports_show_in_notebooks():
    shown = weft.check(CORPUS / "match-peer-send.weft")._repr_html_()
    assert "1 fault" in shown and "match" in shown and "the ranks differ" in shown
    assert "no fault" in weft.check("barrier")._repr_html_()
    escaped = weft.Report(False, [{"kind": "race", "ranks": [0], "nodes": [], "bytes": 0, "text": "<b>&"}],
                          weft.check("barrier").summary._replace(faults=3), "x")
    assert "&lt;b&gt;&amp;" in escaped._repr_html_() and "and 2 more" in escaped._repr_html_()
    assert "and 2 more" in repr(escaped)


# ---- groups ----


def test_groups():
    assert weft.groups(7, 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert weft.groups(7, 3, 1) == [[0, 3, 5], [1, 4], [2, 6]]
    groups = weft.Groups(7, 3)
    assert groups.at(1) == [[0, 3, 5], [1, 4], [6, 2]] and groups[2] == [[0, 1, 6], [3, 4], [2, 5]]
    assert len(groups) == 3 and groups.largest == 3 and [groups.size(g) for g in range(3)] == [3, 2, 2]
    for version in (0, 1, 5, 2**63):
        for rank in range(7):
            place = groups.find(rank, version)
            assert groups.members(place.group, version)[place.place] == rank
            assert groups.of(rank, version) == groups.members(place.group, version)
    assert weft.grouping.default_size(64) == 8 and weft.Groups(64).group_size == 8
    assert set(groups.places(0)) == {(len(groups.of(0, v)), groups.find(0, v).place) for v in range(100)}


def test_groups_that_cannot_be():
    with pytest.raises(weft.InvalidError, match="ranks"):
        weft.Groups(0)
    with pytest.raises(weft.InvalidError, match="group_size"):
        weft.groups(4, 5)
    with pytest.raises(weft.InvalidError, match="version is -1"):
        weft.groups(4, 2, -1)
    with pytest.raises(weft.InvalidError):
        weft.Groups(4).find(4)
    with pytest.raises(TypeError, match="no end of versions"):
        list(weft.Groups(4))
