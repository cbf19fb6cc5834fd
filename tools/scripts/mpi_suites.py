#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Other projects' tests of MPI's collectives, without and with a library loaded before MPI.

    tools/scripts/mpi_suites.py mpich SOURCE [--preload LIB] [--ranks 2,3,4,5,8] [--only RE]
    tools/scripts/mpi_suites.py osu   SOURCE [--preload LIB] ...
    tools/scripts/mpi_suites.py imb   SOURCE [--preload LIB] ...
    tools/scripts/mpi_suites.py scalapack SOURCE [--preload LIB] --ranks 4 ...

SOURCE is what somebody has unpacked, and stays as it is; the script builds in SOURCE/build-weft or
--build DIR, unless that has been built already:

    mpich   test/mpi, confdb and maint/version.m4 of MPICH, of the version that is installed; needs
            autoconf, automake, libtool and perl. MPICH's rule: a test has passed when it says
            " No Errors" and nothing else, its standard error is empty and its status is 0. The
            lists give a number of ranks for each test; here each runs on every one of --ranks
            (`--ranks listed` keeps the lists' numbers), and what then fails without LIB is not
            counted.
    osu     the OSU micro-benchmarks' collectives, blocking, nonblocking and persistent, with the
            validation of the data (-c).
    imb     Intel's IMB-MPI1 and IMB-NBC, built with -DCHECK: no defect is found in the data.
    scalapack   ScaLAPACK's, PBLAS's and BLACS's own, in a folder where they are built, such as that
            of Debian's scalapack-mpi-test (mpich-tests): they end, and none of their residuals is
            too large. With other numbers of ranks than 4 they leave cases out.

More ranks than processors take long, since MPICH polls: --timeout is per test, and times the ranks
that a processor has. A library given as --both, loaded without LIB and with it, may yield for it.

Each test runs without LIB, and, if it passes, with LIB in LD_PRELOAD, in the ranks alone. A library
that writes counters to WEFT_PMPI_STATS, a file for each rank with an object in each line, {"call":
..., "form": ..., "served": N, "fallen_back": {REASON: N}}, has them summed up at the end. Without
--preload only the first is done; with --baseline FILE, an earlier run's --json, its results are
taken for it. Ends with status 1 when a test fails with LIB alone. Standard library alone.
"""
import argparse
import collections
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

RANKS = "2,3,4,5,8"
OSU_FOLDERS = ["blocking", "non_blocking", "persistent"]
OSU_ARGUMENTS = ["-c", "-m", "1:262144", "-i", "5", "-x", "1"]
OSU_BARRIER = ["-i", "100", "-x", "10"]
IMB_MPI1 = ["Allreduce", "Reduce", "Reduce_local", "Reduce_scatter", "Reduce_scatter_block",
            "Allgather", "Allgatherv", "Gather", "Gatherv", "Scatter", "Scatterv", "Alltoall",
            "Alltoallv", "Bcast", "Barrier", "Sendrecv", "Exchange"]
IMB_NBC = ["Ibcast", "Iallgather", "Iallgatherv", "Igather", "Igatherv", "Iscatter", "Iscatterv",
           "Ialltoall", "Ialltoallv", "Ireduce", "Ireduce_scatter", "Iallreduce", "Ibarrier"]
IMB_ARGUMENTS = ["-iter", "10", "-iter_policy", "off", "-time", "5", "-msglog", "0:18", "-mem", "1",
                 "-root_shift", "on"]

Test = collections.namedtuple("Test", "name folder words environment ranks seconds judge")
Test.__doc__ = """A program with its arguments; `ranks` is None or the list's own number, `seconds`
0 or the list's own limit, and `judge` says from status, output and errors what is wrong."""


# ---- building ----

def do(command, folder, log, allow_failure=False, **environment):
    """Runs a step of building; what it prints goes into a file."""
    print(f"  {' '.join(command)}", file=sys.stderr)
    with open(log, "a", encoding="utf-8") as file:
        done = subprocess.run(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT,
                              check=False, env={**os.environ, **environment})
    if done.returncode and not allow_failure:
        sys.exit(f"mpi_suites.py: {' '.join(command)} failed, see {log}")


def prepare_folder(source, build):
    """Copies source to build, without what was built in it."""
    def skipped(folder, names):
        return [name for name in names if name.startswith("build-") or name == ".git"
                or os.path.realpath(os.path.join(folder, name)) == os.path.realpath(build)]

    shutil.copytree(source, build, ignore=skipped, symlinks=True, dirs_exist_ok=True)


def build_mpich(options):
    """In a copy of test/mpi: it isn't made for being configured from a release without MPICH."""
    tests, log = os.path.join(options.build, "mpi"), os.path.join(options.build, "build.log")
    if not os.path.exists(os.path.join(tests, "Makefile")):
        prepare_folder(os.path.join(options.source, "test", "mpi"), tests)
        for folder in (tests, os.path.join(tests, "dtpools")):
            shutil.copytree(os.path.join(options.source, "confdb"), os.path.join(folder, "confdb"),
                            dirs_exist_ok=True)
        shutil.copy(os.path.join(options.source, "maint", "version.m4"), tests)
        # MPICH generates it: names for functions that its mpi.h has under MPIX_. None is used here.
        with open(os.path.join(tests, "include", "mtest_mpix.h"), "a", encoding="utf-8"):
            pass
        do(["sh", "./autogen.sh"], tests, log)
        do(["autoreconf", "-if"], tests, log)
        prefix = os.path.dirname(os.path.dirname(shutil.which(options.mpicc) or "/usr/bin/mpicc"))
        do(["./configure", f"--with-mpi={prefix}", "--disable-fortran", "--disable-cxx",
            "--disable-romio", "--disable-spawn", "--without-cuda", "--without-hip",
            "--without-ze"], tests, log)
    make = ["make", f"-j{options.make_jobs}"]
    do([*make, "-C", "dtpools"], tests, log)
    do([*make, "-C", "util"], tests, log)
    for folder in options.folders.split(","):
        # What cannot be built fails without LIB.
        do([*make, "-k", "-C", folder], tests, log, allow_failure=True)


def build_osu(options):
    log = os.path.join(options.build, "build.log")
    if not os.path.exists(os.path.join(options.build, "Makefile")):
        do([os.path.join(os.path.abspath(options.source), "configure"), f"CC={options.mpicc}",
            f"CXX={options.mpicxx}"], options.build, log)
    for folder in OSU_FOLDERS:
        do(["make", f"-j{options.make_jobs}", "-C", f"c/mpi/collective/{folder}"], options.build,
           log)


def build_imb(options):
    log = os.path.join(options.build, "build.log")
    if not os.path.exists(os.path.join(options.build, "src_cpp")):
        prepare_folder(options.source, options.build)
    for target in ("MPI1", "NBC"):
        do(["make", f"-j{options.make_jobs}", "-C", "src_cpp", "-f", "Makefile", f"TARGET={target}",
            f"CC={options.mpicc}", f"CXX={options.mpicxx}", "CPPFLAGS=-DCHECK"], options.build, log)


def build_scalapack(options):
    """They are: a copy, since the programs write files beside themselves."""
    if not os.path.exists(os.path.join(options.build, "LU.dat")):
        shutil.copytree(options.source, options.build, dirs_exist_ok=True)


# ---- tests, and what is wrong with their output ----

def judge_mpich(status, output, errors):
    if re.fullmatch(r"\s*No [Ee]rrors\s*", output) and not errors and status == 0:
        return ""
    return first_line(errors) or first_line(output) or f"status {status}, no output"


def judge_osu(status, output, errors):
    wrong = [line for line in output.splitlines() if re.search(r"\bFail\b", line)]
    if wrong or status or errors:
        return first_line(errors) or (wrong and f"not valid: {' '.join(wrong[0].split())}") \
            or f"status {status}"
    return "" if re.search(r"^\s*\d", output, re.M) else "no results"


def judge_imb(status, output, errors):
    if status or errors:
        return first_line(errors) or f"status {status}"
    headed, rows = None, 0
    for line in output.splitlines():
        words = line.split()
        if "#repetitions" in words or "t_ovrl[usec]" in words:
            headed = words
        elif headed and words and re.fullmatch(r"\d+", words[0]):
            rows += 1
            if headed[-1] == "defects" and float(words[-1]) != 0:
                return f"defects: {' '.join(words)}"
    return "" if rows else "no results"


def judge_scalapack(status, output, errors):
    """BLACS's tester ends with a call of MPI_Abort."""
    wrong = [line for line in output.splitlines() if re.search(r"FAILED|failed", line)
             and not re.search(r"\b0 (?:tests completed and )?(?:FAILED|failed)|PASSED +FAILED", line)
             and not re.match(r"(?:THRESH|RESULT|CHECK) ", line)]
    if wrong:
        return first_line(wrong[0])
    if status and "BLACS_ABORT" not in output:
        return first_line(errors) or f"status {status}"
    return "" if re.search("end of tests|BLACS_ABORT", output, re.I) else "does not say that its tests have ended"


def first_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else ""


def listed_tests(path, folder):
    """The tests in a list of MPICH's: program [ranks [key=value ...]] a line."""
    with open(path, encoding="utf-8") as file:
        lines = [line.split("#")[0].split() for line in file]
    for words in filter(None, lines):
        keys = [word.split("=", 1) for word in words[2:] if "=" in word]
        values = collections.defaultdict(list)
        for key, value in keys:
            values[key].append(value)
        if words[0].startswith("!") or values["xfail"] or values["resultTest"]:
            continue  # what is expected to fail, or to end otherwise
        yield Test(" ".join([words[0], *values["arg"], *values["env"]]), folder,
                   [os.path.join(".", words[0]), *values["arg"]], values["env"],
                   int(words[1]) if len(words) > 1 else 2, float((values["timeLimit"] or [0])[0]),
                   judge_mpich)


def tests_of_mpich(options):
    several = len(options.folders.split(",")) > 1
    for name in options.folders.split(","):
        folder = os.path.join(options.build, "mpi", name)
        for listed in options.lists.split(","):
            path = os.path.join(folder, listed)
            for test in listed_tests(path, folder) if os.path.exists(path) else ():
                yield test._replace(name=f"{name}/{test.name}") if several else test


def tests_of_osu(options):
    for name in OSU_FOLDERS:
        folder = os.path.join(options.build, "c", "mpi", "collective", name)
        for source in sorted(os.listdir(os.path.join(options.source, "c/mpi/collective", name))):
            program, ending = os.path.splitext(source)
            if ending == ".c":
                words = OSU_BARRIER if "barrier" in program else OSU_ARGUMENTS
                yield Test(program, folder, [os.path.join(".", program), *words], [], None, 0,
                           judge_osu)


def tests_of_imb(options):
    folder = os.path.join(options.build, "src_cpp")
    for program, names in (("IMB-MPI1", IMB_MPI1), ("IMB-NBC", IMB_NBC)):
        for name in names:
            yield Test(f"{program} {name}", folder,
                       [os.path.join(".", program), name, "-npmin", "{ranks}", *IMB_ARGUMENTS],
                       [], None, 0, judge_imb)


def tests_of_scalapack(options):
    for name in ("", "PBLAS", "BLACS"):
        folder = os.path.join(options.build, name)
        for program in sorted(os.listdir(folder)):
            path = os.path.join(folder, program)
            if os.path.isfile(path) and os.access(path, os.X_OK) and "." not in program:
                yield Test(os.path.join(name, program), folder, [os.path.join(".", program)],
                           ["OPENBLAS_NUM_THREADS=1"], 4, 0, judge_scalapack)


def cases_of(tests, options):
    """Pairs of a test and a number of ranks, each once."""
    found = {}
    for test in tests:
        if not re.search(options.only, test.name):
            continue
        own = options.ranks == "listed"
        for ranks in [test.ranks] if own else map(int, options.ranks.split(",")):
            found.setdefault((test.name, ranks), (test, ranks))
    return list(found.values())


# ---- running ----

def descendants(root):
    """The processes below one, which have groups of their own under some launchers."""
    children = collections.defaultdict(list)
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                after_name = file.read().rpartition(")")[2].split()
            children[int(after_name[1])].append(int(path.split("/")[2]))
        except OSError:
            pass  # has ended meanwhile
    found = [root]
    for process in found:
        found += children[process]
    return found[1:]


def end(process):
    """Ends a launcher and its ranks: asks, and then doesn't."""
    below = descendants(process.pid)
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        below = sorted({*below, *descendants(process.pid)})
    for kill, number in [(os.killpg, process.pid)] + [(os.kill, number) for number in below]:
        try:
            kill(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    process.wait()


def run(test, ranks, options, libraries, extra=()):
    """Runs a test with libraries and more environment in its ranks; says what is wrong, if any."""
    limit = max(options.timeout, test.seconds) * max(1, ranks / (os.cpu_count() or 1))
    words = [word.format(ranks=ranks) for word in test.words]
    libraries = [library for library in libraries + [options.both] if library]
    preload = [f"LD_PRELOAD={':'.join(libraries)}"] if libraries else []
    command = [*options.mpiexec.split(), "-n", str(ranks), "env", *test.environment, *extra,
               *preload, *words]
    outside = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    started = time.monotonic()
    # Files, and not pipes, which a rank that outlives its launcher would keep open.
    with tempfile.TemporaryFile("w+", errors="replace") as output, \
            tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(command, cwd=test.folder, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=errors, start_new_session=True,
                                   env=outside)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if process.poll() is None:
                end(process)
        output.seek(0)
        errors.seek(0)
        texts = output.read(), errors.read()
    seconds = time.monotonic() - started
    wrong = f"no end in {limit:g} s" if status is None else test.judge(status, *texts)
    if wrong and options.verbose:
        print(f"  {' '.join(command)}\n{texts[0]}{texts[1]}", file=sys.stderr)
    return {"wrong": wrong, "seconds": round(seconds, 2)}


def read_stats(pattern):
    """The counters of all ranks: {call: {"served": N, "fallen_back": {reason: N}}}, or None."""
    stats, files = {}, glob.glob(pattern)
    for path in files:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                    name = ", ".join(filter(None, [entry["call"], entry.get("form", "")]))
                    add_stats(stats, {name: entry})
                except (ValueError, KeyError, TypeError, AttributeError):
                    pass  # cut off, or of another kind
    return stats if files else None


def add_stats(stats, more):
    for call, entry in more.items():
        mine = stats.setdefault(call, {"served": 0, "fallen_back": {}})
        mine["served"] += entry.get("served", 0)
        for reason, count in entry.get("fallen_back", {}).items():
            mine["fallen_back"][reason] = mine["fallen_back"].get(reason, 0) + count


def run_case(test, ranks, options, known):
    outcome = {"suite": options.suite, "test": test.name, "ranks": ranks}
    outcome["without"] = known.get((test.name, ranks)) or run(test, ranks, options, [])
    if options.preload and (options.all or not outcome["without"]["wrong"]):
        with tempfile.TemporaryDirectory() as folder:
            stats = os.path.join(folder, "stats")
            outcome["with"] = run(test, ranks, options, [options.preload],
                                  [f"WEFT_PMPI_STATS={stats}"])
            outcome["stats"] = read_stats(stats + "*")
    return outcome


# ---- results ----

def cell(result):
    if result is None:
        return ""
    text = "passed" if not result["wrong"] else \
        "no end" if result["wrong"].startswith("no end") else "failed"
    return f"{text} {result['seconds']:7.2f} s"


def print_row(outcome, width):
    print(f"{outcome['test']:{width}} {outcome['ranks']:5} {cell(outcome['without']):>16} "
          f"{cell(outcome.get('with')):>16}", flush=True)


def print_named(head, outcomes, kind):
    print(f"\n{head}: {len(outcomes)}")
    for outcome in outcomes:
        print(f"  {outcome['test']}, {outcome['ranks']} ranks: {outcome[kind]['wrong']}")


def print_counts(outcomes):
    passed = [o for o in outcomes if not o["without"]["wrong"]]
    others = [o for o in outcomes if o["without"]["wrong"]]
    print(f"\n{len(outcomes)} runs; passed without: {len(passed)}, in "
          f"{sum(o['without']['seconds'] for o in outcomes):.0f} s")
    tried = [o for o in passed if "with" in o]
    failed = [o for o in tried if o["with"]["wrong"]]
    if tried:
        print(f"of these passed with: {len(tried) - len(failed)} of {len(tried)}, in "
              f"{sum(o['with']['seconds'] for o in tried):.0f} s")
        print_named("failed with", failed, "with")
    print_named("failing without, not counted", others, "without")
    better = [o for o in others if "with" in o and not o["with"]["wrong"]]
    if better:
        print_named("of these passed with", better, "without")
    slow = sorted((o for o in outcomes if o["without"]["seconds"] >= 10),
                  key=lambda o: -o["without"]["seconds"])
    if slow:
        print(f"\nslow without: {len(slow)}")
        for outcome in slow[:20]:
            print(f"  {outcome['test']}, {outcome['ranks']} ranks: "
                  f"{outcome['without']['seconds']:.0f} s")
    return not failed


def print_stats(outcomes):
    stats, tried = {}, [o for o in outcomes if "with" in o]
    for outcome in tried:
        add_stats(stats, outcome["stats"] or {})
    missing = sum(outcome["stats"] is None for outcome in tried)
    if missing:
        print(f"\nruns that left no counters: {missing} of {len(tried)}")
    if not stats:
        return
    print("\ncalls of all ranks, served and fallen back:")
    totals = collections.Counter()
    for call, entry in sorted(stats.items()):
        reasons = sorted(entry["fallen_back"].items(), key=lambda pair: -pair[1])
        fallen = sum(entry["fallen_back"].values())
        totals.update(served=entry["served"], fallen=fallen)
        print(f"  {call:32} {entry['served']:10} {fallen:10}  "
              + ", ".join(f"{reason}: {count}" for reason, count in reasons))
    calls = totals["served"] + totals["fallen"]
    share = 100 * totals["served"] / max(calls, 1)
    print(f"served: {totals['served']} of {calls} calls, {share:.1f} %")


SUITES = {"mpich": (build_mpich, tests_of_mpich), "osu": (build_osu, tests_of_osu),
          "imb": (build_imb, tests_of_imb), "scalapack": (build_scalapack, tests_of_scalapack)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("--preload", metavar="LIB", help="left out: only without")
    parser.add_argument("--both", metavar="LIB", help="loaded without and with --preload")
    parser.add_argument("--build", metavar="DIR", help="default: SOURCE/build-weft")
    parser.add_argument("--ranks", default=RANKS, help=f"default: {RANKS}; or: listed")
    parser.add_argument("--timeout", type=float, default=60, metavar="S",
                        help="seconds, times the ranks of a processor if several; default: 60")
    parser.add_argument("--only", default="", metavar="RE", help="the tests whose names have this")
    parser.add_argument("--json", metavar="FILE", help="writes an object a line, for each run")
    parser.add_argument("--baseline", metavar="FILE", help="an earlier --json: not done again")
    parser.add_argument("--jobs", type=int, default=1, help="tests side by side; default: 1")
    parser.add_argument("--make-jobs", type=int, default=2, metavar="N", help="default: 2")
    parser.add_argument("--mpiexec", default="mpiexec", help="with options; default: mpiexec")
    parser.add_argument("--mpicc", default="mpicc")
    parser.add_argument("--mpicxx", default="mpicxx")
    parser.add_argument("--folders", default="coll", help="of mpich; default: coll")
    parser.add_argument("--lists", default="testlist", help="of mpich, also testlist.dtp")
    parser.add_argument("--all", action="store_true",
                        help="does with LIB also what fails without; not counted either")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="shows what failing tests print")
    options = parser.parse_args()
    options.source = os.path.abspath(options.source)
    options.build = os.path.abspath(options.build or os.path.join(options.source, "build-weft"))
    for name in ("preload", "both"):
        library = getattr(options, name)
        if library:
            setattr(options, name, os.path.abspath(library))
            tried = subprocess.run(["env", f"LD_PRELOAD={os.path.abspath(library)}", "true"],
                                   stderr=subprocess.PIPE, text=True, check=False)
            if "cannot open shared object" in tried.stderr:
                parser.error(first_line(tried.stderr))
    return options


def read_baseline(path):
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        outcomes = [json.loads(line) for line in file]
    return {(o["test"], o["ranks"]): o["without"] for o in outcomes}


def main():
    options = parse()
    build, tests = SUITES[options.suite]
    known = read_baseline(options.baseline)
    os.makedirs(options.build, exist_ok=True)
    build(options)
    if options.build_only:
        return
    cases = cases_of(tests(options), options)
    if not cases:
        sys.exit("mpi_suites.py: no tests")
    width = max(len(test.name) for test, _ in cases)
    print(f"{'test':{width}} ranks {'without':>16} {'with':>16}")
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda case: run_case(*case, options, known), cases):
            outcomes.append(outcome)
            print_row(outcome, width)
            if options.json:
                mode = "w" if len(outcomes) == 1 else "a"
                with open(options.json, mode, encoding="utf-8") as file:
                    file.write(json.dumps(outcome) + "\n")
    fine = print_counts(outcomes)
    print_stats(outcomes)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
