# SPDX-License-Identifier: BSD-3-Clause
"""``python -m weft``: the `weft` command."""
import sys

from .tools import command

sys.exit(command())
