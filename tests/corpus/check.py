#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks every schedule of the corpus: check.py WEFT DIRECTORY. Prints what was not found as it should
be, and a count; exit 1 if there is any."""

import json
import subprocess
import sys

weft, directory = sys.argv[1], sys.argv[2]
cases = json.load(open(directory + '/manifest.json'))
failed = 0
for case in cases:
    done = subprocess.run([weft, 'check', directory + '/' + case['file'], '--json'],
                          capture_output=True, text=True)
    faults = json.loads(done.stdout)['faults'] if done.stdout else []
    wanted = set(case['ranks'])
    named = [set(f['ranks']) for f in faults if f['kind'] == case['kind']]
    if done.returncode != 1 or not any(ranks == wanted if case['exact'] else ranks >= wanted
                                       for ranks in named):
        failed += 1
        print('%s: exit %d, expected a %s on ranks %s, found %s %s' %
              (case['file'], done.returncode, case['kind'], case['ranks'],
               [(f['kind'], f['ranks']) for f in faults], done.stderr.strip()))
print('%d schedules, %d wrong' % (len(cases), failed))
sys.exit(failed != 0 or len(cases) < 40)
