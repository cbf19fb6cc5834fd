# SPDX-License-Identifier: BSD-3-Clause
# What a terminal gets, and what becomes of a training that the user interrupts: check_terminal.py.
. "$(dirname "$0")/common.sh"

checks=$((checks + 1))
python3 "$(dirname "$0")/check_terminal.py" "$weft" >"$folder/out" 2>"$folder/err" ||
    fail 'check_terminal.py'
finish
