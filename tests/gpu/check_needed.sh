#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_needed.sh PROGRAM LIBRARY...: the linker has each in place before the program starts.
set -euo pipefail

program=$1
shift
needed=$(readelf --dynamic --wide "$program")
for library; do
    [[ $needed == *"(NEEDED)"*"[$library]"* ]] || { echo "$program does not need $library" >&2; exit 1; }
done
