#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts test cases in meson's testlog.json and prints `N passed, N failed, N skipped`.

A suite that prints TAP counts case by case, one that prints `N checks, N failed` check by check, any
other program as one case. A program that fails
without a failing case of its own (a crash, a time-out, a leak found at its end) counts as one failed
case. Exit 1 if anything failed or nothing ran.

    tests/tally.py TESTLOG.JSON
"""
import json
import re
import sys

TAP_LINE = re.compile(r"^(not )?ok\b(.*)$")
CHECKS = re.compile(r"^(\d+) checks, (\d+) failed$", re.MULTILINE)
SKIP = re.compile(r"#\s*skip", re.IGNORECASE)


def count_tap(text):
    """(passed, failed, skipped, names of the failed) of a TAP stream."""
    passed = failed = skipped = 0
    names = []
    for line in text.splitlines():
        match = TAP_LINE.match(line)
        if not match:
            continue
        if match.group(1):
            failed += 1
            names.append(match.group(2).strip(" -"))
        elif SKIP.search(match.group(2)):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped, names


def count_test(test):
    """(passed, failed, skipped, names of the failed) of one program that meson ran."""
    result = test["result"]
    output = test.get("stdout", "") + "\n" + test.get("stderr", "")
    passed, failed, skipped, names = count_tap(output)
    for checks, bad in CHECKS.findall(output):
        passed += max(0, int(checks) - int(bad))
        failed += int(bad)
        names += ["%s of %s checks" % (bad, checks)] if int(bad) else []
    if passed + failed + skipped == 0:
        if result in ("OK", "EXPECTEDFAIL"):
            return 1, 0, 0, []
        if result == "SKIP":
            return 0, 0, 1, []
    if result not in ("OK", "EXPECTEDFAIL", "SKIP") and failed == 0:
        failed, names = 1, ["(the program itself: %s)" % result.lower()]
    return passed, failed, skipped, names


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tests/tally.py TESTLOG.JSON")
    total = [0, 0, 0]
    with open(sys.argv[1], encoding="utf-8") as log:
        for line in log:
            test = json.loads(line)
            *counts, names = count_test(test)
            total = [a + b for a, b in zip(total, counts)]
            for name in names:
                print("FAILED %s %s" % (test["name"], name))
    print("%d passed, %d failed, %d skipped" % tuple(total))
    sys.exit(1 if total[1] or total[0] == 0 else 0)


if __name__ == "__main__":
    main()
