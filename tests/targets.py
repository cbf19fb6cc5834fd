#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What ninja must make in a build so that the tests of a suite can run: what these depend on, and what is
installed, for tests install it and programs load it.

    tests/targets.py BUILD SUITE
"""
import json
import os
import sys


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tests/targets.py BUILD SUITE")
    build, suite = os.path.realpath(sys.argv[1]), sys.argv[2]

    def read(name):
        with open(os.path.join(build, "meson-info", "intro-%s.json" % name), encoding="utf-8") as file:
            return json.load(file)

    wanted = {target for test in read("tests") if suite in
              (name.split(":")[-1] for name in test["suite"]) for target in test["depends"]}
    if not wanted:
        sys.exit("tests/targets.py: no test of the suite %s depends on anything" % suite)
    for target in read("targets"):
        if target["id"] in wanted or target["installed"]:
            for name in target["filename"]:
                print(os.path.relpath(name, build))


if __name__ == "__main__":
    main()
