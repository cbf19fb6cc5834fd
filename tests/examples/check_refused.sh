#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program refuses its arguments: exit status 2, how it is used on stderr, nothing on stdout.
set -u
out=$("$@" 2>/dev/null)
status=$?
err=$("$@" 2>&1 >/dev/null)
if ((status != 2)) || [[ -n $out || $err != "usage: "* ]]; then
    echo "$*: exit status $status, expected 2 and a line of usage; printed: $out $err"
    exit 1
fi
