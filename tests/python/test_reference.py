# SPDX-License-Identifier: BSD-3-Clause
"""docs/python-reference.md is what the docstrings say, and says something of all that is public."""
import inspect
import pathlib
import subprocess
import sys

import pytest

import weft

TOP = pathlib.Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_docstrings_say():
    pytest.importorskip("torch")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("signatures are written differently by other versions of Python")
    done = subprocess.run([sys.executable, str(TOP / "tools/scripts/python_reference.py"), "--check"],
                          stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0, done.stderr


def test_all_that_is_public_has_a_docstring():
    missing = [name for name in weft.__all__
               if callable(getattr(weft, name)) and not inspect.getdoc(getattr(weft, name))]
    assert not missing
    page = (TOP / "docs/python-reference.md").read_text(encoding="utf-8")
    missing = [name for name in weft.__all__
               if inspect.isclass(getattr(weft, name)) and "### %s\n" % name not in page]
    assert not missing
