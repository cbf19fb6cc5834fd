# SPDX-License-Identifier: BSD-3-Clause
"""The data that comes with weft, for examples."""
import os
import pathlib
from typing import NamedTuple

import numpy

from . import _library
from .errors import FileError

__all__ = ["Digits", "optdigits"]


class Digits(NamedTuple):
    """Images of handwritten digits, 8 x 8 pixels, and what they show.

    Attributes
    ----------
    x_train, x_test : numpy.ndarray
        float32, shape (n, 64), 0 .. 1.
    y_train, y_test : numpy.ndarray
        int64, shape (n,), 0 .. 9.
    """

    x_train: numpy.ndarray
    y_train: numpy.ndarray
    x_test: numpy.ndarray
    y_test: numpy.ndarray


def _folders():
    here = pathlib.Path(__file__).resolve()
    if "WEFT_DATA" in os.environ:
        yield pathlib.Path(os.environ["WEFT_DATA"])
    yield here.parent / "_native/share/weft/optdigits"
    command = _library.command()
    if command:
        yield pathlib.Path(command).resolve().parent.parent / "share/weft/optdigits"
    if len(here.parents) > 3:
        yield here.parents[3] / "tools/data/optdigits"


def optdigits() -> Digits:
    """Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, UCI Machine Learning Repository,
    1998, https://doi.org/10.24432/C50P49, CC BY 4.0): 3823 images for training, 1797 for tests.

    Returns
    -------
    Digits

    Raises
    ------
    FileError
        The files were not found; the text says where they were looked for. WEFT_DATA names their folder.
    """
    folders = list(_folders())
    for folder in folders:
        if (folder / "optdigits-train.csv").exists():
            parts = []
            for name in ("train", "test"):
                rows = numpy.loadtxt(str(folder / ("optdigits-%s.csv" % name)), delimiter=",",
                                     dtype=numpy.int64)
                parts += [(rows[:, :64] / 16).astype(numpy.float32), rows[:, 64]]
            return Digits(*parts)
    raise FileError("optdigits-train.csv is in none of %s" % ", ".join(map(str, folders)))
