#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What ninja must make in a build so that the tests of some suites can run: what these depend on, and what is
installed, for tests install it and programs load it.

    tests/targets.py BUILD [--suite SUITE]... [--no-suite SUITE]...      as `meson test` takes them
"""
import argparse
import json
import os
import sys


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=os.path.realpath)
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--no-suite", action="append", default=[])
    given = parser.parse_args()

    def read(name):
        with open(os.path.join(given.build, "meson-info", "intro-%s.json" % name), encoding="utf-8") as file:
            return json.load(file)

    def runs(test):
        suites = {name.split(":")[-1] for name in test["suite"]}
        return not suites & set(given.no_suite) and (not given.suite or suites & set(given.suite))

    wanted = {target for test in read("tests") if runs(test) for target in test["depends"]}
    if not wanted:
        sys.exit("tests/targets.py: no test of these suites depends on anything")
    for target in read("targets"):
        if target["id"] in wanted or target["installed"]:
            for name in target["filename"]:
                print(os.path.relpath(name, given.build))


if __name__ == "__main__":
    main()
