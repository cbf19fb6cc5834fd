# SPDX-License-Identifier: BSD-3-Clause
"""The command's functions, against the command; what fails; Ctrl-C; the console script."""
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import weft
from weft import _library, tools

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "corpus"


def command(*words, status=0):
    done = subprocess.run([_library.command()] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    assert done.returncode == status
    return done.stdout


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_every_command_has_a_function():
    names = [row["command"].replace("-", "_") for row in rows_of(command("help", "--json"))
             if row["command"] != "weft"]
    assert len(names) >= 14 and set(names) <= set(dir(tools))
    for name in names:
        function = getattr(tools, name)
        assert callable(function) and function.__name__ == name and len(function.__doc__) > 100
        assert getattr(tools, name) is function
        signature = inspect.signature(function)
        assert "json" not in signature.parameters and "help" not in signature.parameters
    assert "algo" in inspect.signature(tools.sim).parameters
    assert "Parameters\n----------" in tools.list.__doc__ and "InvalidError" in tools.list.__doc__
    assert "ring" not in dir(tools) and not hasattr(tools, "__path__")
    with pytest.raises(AttributeError, match="no command 'nope', expected one of info, list"):
        tools.nope


@pytest.mark.parametrize("name, operands, options, words", [
    ("list", ["allreduce"], {}, []),
    ("list", ["allreduce"], dict(n=4, count=100), ["-n", "4", "--count", "100"]),
    ("check", ["allreduce"], dict(algo="ring", n=8), ["--algo", "ring", "-n", "8"]),
    ("groups", [], dict(n=7, group_size=3, version=2), ["-n", "7", "--group-size", "3", "--version", "2"]),
    ("merge", ["resnet50"], dict(net=dict(a=50, b=0.001), method=["exact", "wfbp"]),
     ["--net", "a=50,b=0.001", "--method", "exact,wfbp"]),
    ("bench", [], {}, [])])
def test_rows_are_the_command_s(name, operands, options, words):
    rows = getattr(tools, name)(*operands, **options)
    assert rows == rows_of(command(name, *operands, "--json", *words))
    assert rows.ok and isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    assert "<table" in rows._repr_html_()


def test_info_run_and_train():
    assert tools.info()[0]["version"] == weft.__version__
    row = tools.run("allreduce", n=2, count=100, verify=True, iterations=3)[0]
    assert row["verified"] is True and row["ranks"] == 2 and row["iterations"] == 3
    names = [row["algorithm"] for row in tools.rows("train", algorithm=["allreduce", "local"], n=2, steps=2)]
    assert names == ["allreduce", "local"]


def test_faults_are_rows_and_not_ok():
    rows = tools.check(CORPUS / "race-tree.weft")
    assert rows.ok is False and rows[0]["ok"] is False and rows[0]["faults"][0]["kind"] == "race"
    rows = tools.sim(CORPUS / "deadlock-ring.weft", net=dict(L=1, S=0))
    assert not rows.ok and rows[0]["complete"] is False
    assert weft.check(CORPUS / "race-tree.weft").faults[0]["text"] == tools.check(
        CORPUS / "race-tree.weft")[0]["faults"][0]["text"]


def test_schedules_in_memory():
    schedules = weft.build_all("allreduce", 4, algo="ring", count=100)
    rows = tools.check(schedules)
    assert rows.ok and rows[0]["messages"] == 24
    assert tools.sim(schedules, net=dict(L=1.0))[0]["time_us"] == 6
    assert tools.run(schedules, verify=True)[0]["verified"] is True
    assert tools.dump(schedules) == schedules.dump() and tools.dump(schedules, rank=2) == schedules[2].dump()
    assert json.loads(tools.dump(schedules[0], format="json"))["size"] == 4
    assert "digraph" in tools.dump(schedules, format="dot")


def test_documents_and_files(tmp_path):
    path = tmp_path / "ring.weft"
    assert tools.dump("allreduce", n=4, algo="ring", count=8, output=path) == path
    assert path.read_text() == tools.dump("allreduce", n=4, algo="ring", count=8)
    assert path.read_text() == command("dump", "allreduce", "-n", "4", "--algo", "ring", "--count", "8")
    page = tools.dump(path, format="html", net="L=1")
    assert isinstance(page, tools.Page) and len(page) > 10000
    result = tools.run("allreduce", n=2, count=8, trace=tmp_path / "trace.json")
    assert result.ok and len(weft.trace(tmp_path / "trace.json")) > 0
    page = tools.dump("allreduce", n=2, count=8, format="html", trace=weft.trace(tmp_path / "trace.json"))
    assert "trace" in page
    plot = tmp_path / "plan.svg"
    rows = tools.merge([("a", 250, 1.0), ("b", 250, 2.0), ("c", 250, 4.0)], net=dict(a=2, b=0.001),
                       method="exact", plot=plot)
    assert rows[0]["groups"] == [[0], [1, 2]] and plot.read_text().startswith("<?xml")


def test_options_that_are_repeated(tmp_path):
    path = tmp_path / "shift.weft"
    path.write_text("""weft 1
schedule "shift" size any
param count = 4
param tag = 7
ranks all {
  input a f32 count
  output b f32 count
  start: event
  send a to (rank + 1) % size tag tag after start
  recv b from (rank - 1) % size tag 7
}
""")
    assert tools.check(path, n=3, define={"count": 10, "tag": 7}).ok
    assert not tools.check(path, n=3, define=["tag=8"]).ok
    assert not tools.check(path, n=3, D={"tag": 8}).ok
    assert tools.sim(path, n=3, net="L=1", fire={"start": 10, ("start", 1): 20})[0]["time_us"] == 21
    assert tools.sim(path, n=3, net="L=1", fire=[("start", 10), ("start", 30.5, 2)])[0]["time_us"] == 31.5
    assert tools.sim("activation", n=4, net="L=1", activate=range(4))[0]["time_us"] < 2


def test_wrong_usage_raises_with_the_command_s_line():
    with pytest.raises(weft.InvalidError, match="^weft check: unknown option '--allgo=ring', did you mean"):
        tools.check("allreduce", allgo="ring")
    with pytest.raises(weft.InvalidError, match="^weft check: 'nope' is neither a template nor a file"):
        tools.check("nope")
    with pytest.raises(weft.InvalidError, match="^weft sim: --net: "):
        tools.sim("allreduce", net=dict(X=3))
    with pytest.raises(weft.InvalidError, match="^weft groups: -n: '0'"):
        tools.groups(n=0)
    with pytest.raises(weft.InvalidError, match="count is True, expected N"):
        tools.sim("allreduce", count=True)
    with pytest.raises(weft.InvalidError, match="no number"):
        tools.train(lr=float("nan"))
    with pytest.raises(weft.InvalidError, match="missing FILE"):
        tools.trace()
    with pytest.raises(weft.NotFoundError, match="no command 'nope'"):
        next(tools.rows("nope"))
    with pytest.raises(weft.InvalidError):
        tools.check("--json")  # an operand is no option


def test_launch(capsys):
    assert tools.launch(sys.executable, "-c", "print('here')", n=2) is None
    assert capsys.readouterr().out.count("here") == 2
    assert tools.launch("echo", "--json", n=1, prefix=True) is None
    assert "--json" in capsys.readouterr().out
    with pytest.raises(tools.CommandError, match="status 3") as caught:
        tools.launch(sys.executable, "-c", "import sys; sys.exit(3)", n=2)
    assert caught.value.returncode == 3
    with pytest.raises(tools.CommandError) as caught:
        tools.launch("no-such-program", n=1)
    assert caught.value.returncode == 127
    with pytest.raises(weft.InvalidError, match="^weft launch: -n"):
        tools.launch("true", n=0)


def test_rows_come_as_they_are_made_and_end_with_the_generator():
    rows = tools.rows("bench")
    assert "bench" in next(rows)
    rows.close()
    generator = tools.rows("train", steps=10**8, n=2, algorithm="local")
    generator.close()  # before it has begun
    with pytest.raises(StopIteration):
        next(generator)


def alive(pid):
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_ctrl_c_ends_the_command():
    script = ("from weft import tools\n"
              "try:\n"
              "    tools.launch('sh', '-c', 'echo $$; exec sleep 100', n=1)\n"
              "except KeyboardInterrupt:\n"
              "    print('interrupted')\n")
    child = subprocess.Popen([sys.executable, "-u", "-c", script], stdout=subprocess.PIPE,
                             universal_newlines=True, start_new_session=True)
    with child.stdout:
        pid = int(child.stdout.readline())
        assert alive(pid)
        os.kill(child.pid, signal.SIGINT)
        assert child.stdout.read() == "interrupted\n"
    assert child.wait() == 0
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_the_console_script():
    for words in (["-c", "import sys; sys.argv[0] = 'weft'; from weft.tools import command; command()"],
                  ["-m", "weft"]):
        done = subprocess.run([sys.executable] + words + ["groups", "-n", "4", "--json"],
                              stdout=subprocess.PIPE, universal_newlines=True)
        assert done.returncode == 0 and json.loads(done.stdout)["groups"] == [[0, 1], [2, 3]]
    done = subprocess.run([sys.executable, "-m", "weft", "nope"], stderr=subprocess.PIPE,
                          universal_newlines=True)
    assert done.returncode == 2 and done.stderr.startswith("weft: unknown command 'nope'")


def test_without_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(_library, "command", lambda: None)
    with pytest.raises(AttributeError, match="the `weft` command was not found.*WEFT_COMMAND"):
        tools.some_command
    assert "rows" in dir(tools)
    with pytest.raises(weft.NotFoundError, match="WEFT_COMMAND"):
        tools.check("allreduce")
    monkeypatch.setattr(sys, "argv", ["weft"])
    assert tools.command() == 2
    other = tmp_path / "weft"
    other.write_text("#!/bin/sh\necho this is another program\n")
    other.chmod(0o755)
    monkeypatch.setattr(_library, "command", lambda: str(other))
    with pytest.raises(weft.FileError, match="no `weft` command"):
        tools.check("allreduce")


def test_rows_are_tables():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(tools.list())
    assert "allreduce" in set(frame["name"])
