# SPDX-License-Identifier: BSD-3-Clause
"""The `weft` command from Python: a function for each of its subcommands, with its options as arguments.

>>> weft.tools.check("allreduce", algo="ring", n=8).ok
True
>>> pandas.DataFrame(weft.tools.bench("allreduce", bytes=[4, 1024]))
>>> weft.tools.merge("resnet50", net={"a": 50, "b": 0.001})

``dir(weft.tools)`` has what there is, ``help(weft.tools.sim)`` what ``weft sim --help`` says. An option is a
keyword argument: ``--group-size 4`` is ``group_size=4``, a flag ``verify=True``, a short name works, too
(``n=8``); a list is joined by commas, a dict is ``a=1,b=2``, and options that may be repeated take a list or
dict of what is repeated (``define={"rounds": 3}``). Where the command reads a file, schedules, traces and
lists of layers that are in memory are taken as well.

What the command prints with ``--json`` is returned: a list of dicts (:class:`Rows`). Its exit status 1, "it
ran and the answer is no", is ``rows.ok`` False where it has said why; everything else raises.
"""
import contextlib
import inspect
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Iterator

from . import _library
from .errors import FileError, InvalidError, NotFoundError, WeftError
from .schedule import Schedule, write_schedules
from .tracing import Trace

__all__ = ["CommandError", "Page", "Rows", "command", "rows"]

#: Options that are given several times, and not with commas.
REPEATED = ("define", "fire")

#: Commands that start programs of the user: what these write is passed on, and options come first.
STARTERS = ("launch", "profile")

#: What the command is given to end after Ctrl-C, in seconds.
GRACE = 10


class CommandError(WeftError):
    """The command has failed: the text is its own.

    Attributes
    ----------
    returncode : int
        Its exit status; below 0: the signal that ended it.
    """

    def __init__(self, message, returncode):
        super().__init__(message, _library.lib.WEFT_ERR_SYSTEM)
        self.returncode = returncode


class Rows(list):
    """What a subcommand has printed, a dict a line.

    Attributes
    ----------
    ok : bool
        Its exit status was 0. False: it ran, and the answer is no (faults, a failed verification).
    text : str
        What it has said beside the rows (on standard error).
    """

    def __init__(self, rows=(), ok=True, text=""):
        super().__init__(rows)
        self.ok, self.text = ok, text

    def _repr_html_(self):
        import html

        keys = list(dict.fromkeys(key for row in self for key in row))[:16]
        if not keys:
            return None
        style = ("padding:2px 12px 2px 0;text-align:left;color:#1b2330;max-width:28em;overflow:hidden;"
                 "text-overflow:ellipsis")

        def cell(kind, value):
            text = value if isinstance(value, str) else "" if value is None else "%.6g" % value \
                if isinstance(value, float) else json.dumps(value)
            return '<%s style="%s">%s</%s>' % (
                kind, style, html.escape(text if len(text) <= 80 else text[:79] + "…"), kind)

        body = "".join('<tr style="background:#ffffff">%s</tr>' % "".join(
            cell("td", row.get(key)) for key in keys) for row in self[:200])
        more = "" if len(self) <= 200 else '<div>%d more rows</div>' % (len(self) - 200)
        return ('<table style="background:#ffffff;font-size:13px"><tr style="background:#f3f5f8">%s</tr>%s'
                '</table>%s' % ("".join(cell("th", key) for key in keys), body, more))


class Page(str):
    """A page for a browser. In a notebook it shows, in a frame of its own."""

    def _repr_html_(self):
        import html

        return ('<iframe srcdoc="%s" style="width:100%%;height:560px;border:1px solid #dfe3e9;'
                'border-radius:6px;background:#ffffff"></iframe>' % html.escape(self, quote=True))


# ---- what the command knows ----

_known = {}


def _path():
    found = _library.command()
    if found is None:
        raise NotFoundError("the `weft` command was not found: it comes with the package and with an "
                            "installation of weft; WEFT_COMMAND may name it")
    return found


def _specs():
    """{subcommand: what ``weft help --json`` says of it}, with its options by name."""
    path = _path()
    if path not in _known:
        try:
            output = subprocess.run([path, "help", "--json"], stdin=subprocess.DEVNULL, check=True,
                                    stdout=subprocess.PIPE, universal_newlines=True).stdout
            lines = [json.loads(line) for line in output.splitlines()]
        except (OSError, subprocess.CalledProcessError, ValueError) as problem:
            raise FileError("'%s' is no `weft` command that can be started: %s"
                            % (path, problem)) from problem
        for spec in lines:
            spec["by_name"] = {option["name"]: option for option in spec["options"]}
            spec["by_letter"] = {option["letter"]: option for option in spec["options"] if "letter" in option}
        _known[path] = {spec["command"]: spec for spec in lines if spec["command"] != "weft"}
    return _known[path]


# ---- what becomes of arguments ----


class _Files:
    """Files for what is in memory; gone with the call."""

    def __init__(self, stack):
        self.stack = stack
        self.folder = None

    def write(self, name, document):
        if self.folder is None:
            self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-"))
        path = os.path.join(self.folder, name)
        while os.path.exists(path):
            path = os.path.join(self.folder, "x" + os.path.basename(path))
        pathlib.Path(path).write_text(document, encoding="utf-8")
        return path

    def word(self, thing):
        """An operand, or the value of an option, as the command line has it."""
        if isinstance(thing, Schedule):
            thing = [thing]
        if isinstance(thing, Trace):
            return self.write("trace.json", thing.json())
        if isinstance(thing, (list, tuple)) and thing and isinstance(thing[0], Schedule):
            return self.write("%s.weft" % _file_name(thing[0].name), write_schedules(thing))
        if isinstance(thing, (list, tuple)) and thing and (isinstance(thing[0], (dict, list, tuple))):
            from .merging import layers_of

            layers = [layer._asdict() for layer in layers_of(thing)]
            return self.write("layers.json", json.dumps({"layers": layers}))
        if isinstance(thing, os.PathLike):
            return os.fspath(thing)
        if isinstance(thing, dict):
            return ",".join("%s=%s" % (key, self.word(value)) for key, value in thing.items())
        if isinstance(thing, (list, tuple, range)):
            return ",".join(self.word(one) for one in thing)
        if isinstance(thing, bool):
            return "1" if thing else "0"
        if hasattr(thing, "item") and getattr(thing, "ndim", 1) == 0:  # a number of numpy
            thing = thing.item()
        if isinstance(thing, float):
            if not math.isfinite(thing):
                raise InvalidError("%r is no number that the command takes" % thing)
            return "%d" % thing if thing.is_integer() and abs(thing) < 1e15 else repr(thing)
        return str(thing)


def _file_name(name):
    """A name that may be one of a file; the page shows it."""
    clean = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
    return clean[:80].lstrip(".-") or "schedule"


def _repeated(one, files):
    """NAME=VALUE, or EVENT=US@RANK, of a pair, ((event, rank), us) or (event, us, rank)."""
    if isinstance(one, str):
        return one
    key, value, *rank = one
    if isinstance(key, tuple):
        key, *rank = key
    return "%s=%s%s" % (key, files.word(value), "".join("@%d" % one for one in rank if one is not None))


def _options(spec, options, files):
    words = []
    for key, value in options.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        option = spec["by_name"].get(name) or spec["by_letter"].get(name)
        if option is not None:
            name = option["name"]
        if value is True:
            if option is not None and option["kind"] != "flag":
                raise InvalidError("weft %s: %s is True, expected %s: %s" % (
                    spec["command"], key, option.get("value", "a value"), option["help"]))
            words.append("--" + name)
        elif name in REPEATED and not isinstance(value, str):
            for one in value.items() if isinstance(value, dict) else value:
                words.append("--%s=%s" % (name, _repeated(one, files)))
        else:  # what the command does not know it refuses by itself, and says what was meant
            words.append("--%s=%s" % (name, files.word(value)))
    return words


def _line(name, operands, options, files):
    """The whole command line."""
    spec = _specs()[name]
    words = _options(spec, options, files)
    operands = [files.word(one) for one in operands]
    if name in STARTERS:
        words += operands
    else:
        words += ["--"] * any(one.startswith("-") for one in operands) + operands
    json_words = ["--json"] if "json" in spec["by_name"] else []
    return [_path(), name] + json_words + words


# ---- running it ----


def _has_heard(process):
    """Whether Ctrl-C at a terminal has reached the child, too."""
    try:
        return os.tcgetpgrp(0) == os.getpgid(process.pid)
    except OSError:
        return False


def _end(process, problem):
    """Ends the child, kindly first."""
    with contextlib.suppress(ProcessLookupError):
        if not (isinstance(problem, KeyboardInterrupt) and _has_heard(process)):
            process.send_signal(signal.SIGINT)
        for more in (signal.SIGTERM, signal.SIGKILL, None):
            try:
                process.wait(GRACE if more == signal.SIGTERM else 2)
                return
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                if more is not None:
                    process.send_signal(more)


class _Errors(threading.Thread):
    """What the child says on standard error; passed on at once, or kept."""

    def __init__(self, stream, live):
        super().__init__(name="weft command", daemon=True)
        self.stream, self.live, self.lines = stream, live, []
        self.start()

    def run(self):
        for line in self.stream:
            self.lines.append(line)
            del self.lines[:-1000]
            if self.live:
                sys.stderr.write(line)

    def text(self):
        self.join()
        return "".join(self.lines).strip()


def _lines(words, live):
    """Runs the command, and yields its lines; then (status, what it said on standard error)."""
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, universal_newlines=True, encoding="utf-8",
                                   errors="replace")
    except OSError as problem:
        raise FileError("'%s' cannot be started: %s" % (words[0], problem.strerror)) from problem
    errors = _Errors(process.stderr, live)
    try:
        yield from process.stdout
        status = process.wait()
        return status, errors.text()
    except BaseException as problem:
        _end(process, problem)
        raise
    finally:
        process.stdout.close()
        errors.join(1)
        if not errors.is_alive():  # else a process that the command has left behind keeps it
            process.stderr.close()


def _failure(words, status, said, has_rows):
    """The exception for an exit status; None where rows say it."""
    if status == 0 or (status == 1 and has_rows):
        return None
    message = said or "weft %s: %s" % (words[1], "ended by signal %d" % -status if status < 0
                                       else "exit status %d" % status)
    if status == 2 and said.startswith("weft "):
        return InvalidError(message)
    return CommandError(message, status)


def rows(name: str, *operands: Any, **options: Any) -> Iterator[dict]:
    """Runs a subcommand, and yields its rows as they come: for measurements and trainings that take long.

    Parameters
    ----------
    name : str
        Of the subcommand: ``"bench"``.
    *operands, **options
        As for the function of that name.

    Yields
    ------
    dict

    Raises
    ------
    InvalidError
        Wrong usage or unreadable input: the command's own line.
    CommandError
        Another failure. Closing the generator, and Ctrl-C, end the command.
    """
    name = name.rstrip("_").replace("_", "-")
    if name not in _specs():
        raise NotFoundError("weft has no command %r, expected one of %s" % (name, ", ".join(_specs())))
    yield from _rows(name, operands, options)


def _rows(name, operands, options):
    with contextlib.ExitStack() as stack:
        words = _line(name, operands, options, _Files(stack))
        count = 0
        lines = _lines(words, False)
        with contextlib.closing(lines):
            while True:
                try:
                    line = next(lines)
                except StopIteration as end:
                    status, said = end.value
                    break
                if line.strip():
                    count += 1
                    yield json.loads(line)
    problem = _failure(words, status, said, count > 0)
    if problem is not None:
        raise problem
    if said:
        sys.stderr.write(said + "\n")
    return status == 0, said


def _collect(name, operands, options):
    result = Rows()
    made = _rows(name, operands, options)
    while True:
        try:
            result.append(next(made))
        except StopIteration as end:
            result.ok, result.text = end.value
            return result


def _document(name, operands, options):
    """Of a command that prints one document, or writes it to a file."""
    with contextlib.ExitStack() as stack:
        words = [word for word in _line(name, operands, options, _Files(stack)) if word != "--json"]
        text, (status, said) = _whole(words, False)
    problem = _failure(words, status, said, False)
    if problem is not None:
        raise problem
    return text


def _whole(words, live):
    parts = []
    lines = _lines(words, live)
    with contextlib.closing(lines):
        while True:
            try:
                parts.append(next(lines))
                if live:
                    sys.stdout.write(parts.pop())
                    sys.stdout.flush()
            except StopIteration as end:
                return "".join(parts), end.value


# ---- the functions that are not all alike ----


def _dump(operands, options):
    text = _document("dump", operands, options)
    output = options.get("output") or options.get("o")
    if output is not None:
        return output
    return Page(text) if (options.get("format") or options.get("f")) == "html" else text


def _trace(operands, options):
    output = options.get("output") or options.get("o")
    if output is not None:
        return _collect("trace", operands, options)
    return Trace().add_text(_document("trace", operands, options))


def _start(name, operands, options):
    """Of programs of the user."""
    with contextlib.ExitStack() as stack:
        words = _line(name, operands, options, _Files(stack))
        text, (status, said) = _whole(words, name == "launch")
    if status == 2 and said.split("\n")[-1].startswith("weft %s: " % name):
        raise InvalidError(said.split("\n")[-1])
    if status:
        raise CommandError(said or "weft %s: exit status %d" % (name, status), status)
    return text, said


def _launch(operands, options):
    _start("launch", operands, options)


def _profile(operands, options):
    text, said = _start("profile", operands, options)
    found, written = [], []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # what the program itself has written
            written.append(line)
    if written:
        sys.stdout.write("\n".join(written) + "\n")
    return Rows((row for row in found if isinstance(row, dict)), True, said)


_SPECIAL = {"dump": _dump, "trace": _trace, "launch": _launch, "profile": _profile}

_RETURNS = {
    "dump": "str\n    The document; :class:`Page` with ``format=\"html\"``. With `output`: that.",
    "trace": "Trace\n    With `output`: Rows.",
    "launch": "None\n    What the processes write is written here.",
}


# ---- functions by name ----


def _doc(spec):
    lines = ["%s: ``weft %s%s``." % (spec["summary"], spec["command"],
                                     " " + spec["operands"] if spec["operands"] else ""), ""]
    lines[0] = lines[0][0].upper() + lines[0][1:]
    lines += [spec["about"], "", "Parameters", "----------"]
    if spec["operands"]:
        lines += ["*operands", "    %s%s" % (spec["operands"], " (%s, below)" % spec["operands_among"].lower()
                                             if spec.get("operands_among") else "")]
    types = {"flag": "bool", "integer": "int", "size": "int or str", "number": "float", "file": "path"}
    for option in _listed(spec):
        kind = types.get(option["kind"], "str")
        if "choices" in option:
            kind = "{%s}" % ", ".join('"%s"' % word for word in option["choices"])
        lines.append("%s : %s%s" % (_argument(option), kind, ", default %s" % option["default"]
                                    if "default" in option else ", optional"))
        lines.append("    %s" % option["help"])
    lines += ["", "Returns", "-------",
              _RETURNS.get(spec["command"], "Rows\n    A list of dicts, with ``ok``.")]
    lines += ["", "Raises", "------", "InvalidError",
              "    Wrong usage or unreadable input: the command's own line.", "CommandError",
              "    Another failure."]
    for section in spec["sections"]:
        lines += ["", section["title"] + ":", ""]
        lines += ["- ``%s``: %s" % (term["word"], term["text"]) for term in section["terms"]]
        lines += ["", section["closing"]] if section.get("closing") else []
    return "\n".join(lines) + "\n"


def _argument(option):
    return option["name"].replace("-", "_")


def _listed(spec):
    return [option for option in spec["options"] if option["name"] not in ("json", "help")]


def _make(name, spec):
    special = _SPECIAL.get(name)

    def function(*operands, **options):
        return special(operands, options) if special else _collect(name, operands, options)

    function.__name__ = function.__qualname__ = name.replace("-", "_")
    function.__doc__ = _doc(spec)
    parameters = [inspect.Parameter("operands", inspect.Parameter.VAR_POSITIONAL)] if spec["operands"] else []
    parameters += [inspect.Parameter(_argument(option), inspect.Parameter.KEYWORD_ONLY, default=None)
                   for option in _listed(spec)]
    parameters.append(inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD))
    function.__signature__ = inspect.Signature(parameters)
    return function


_functions = {}


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    found = _functions.get(name)
    if found is None:
        try:
            specs = _specs()
        except WeftError as problem:
            raise AttributeError("weft.tools.%s: %s" % (name, problem)) from problem
        word = name.replace("_", "-")
        if word not in specs:
            raise AttributeError("weft has no command %r, expected one of %s" % (word, ", ".join(specs)))
        found = _functions[name] = _make(word, specs[word])
    return found


def __dir__():
    try:
        names = [name.replace("-", "_") for name in _specs()]
    except WeftError:
        names = []
    return sorted(set(__all__) | set(names))


def command() -> int:
    """The console script `weft`: becomes the command."""
    try:
        path = _path()
        os.execv(path, [path] + sys.argv[1:])
    except (WeftError, OSError) as problem:
        sys.stderr.write("weft: %s\n" % problem)
        return 2
