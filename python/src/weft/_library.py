# SPDX-License-Identifier: BSD-3-Clause
"""Finds and loads libweft: `lib` has its functions, `ffi` its types.

In this order: the file that WEFT_LIBRARY names; the library that came with the package; the one that
the system finds. Nothing here needs MPI: what does is loaded with the first context over it.
"""
import os
import pathlib
import sysconfig

from ._declarations import ffi

#: The oldest library that these modules know how to call.
OLDEST = (0, 2, 0)


def _candidates():
    named = os.environ.get("WEFT_LIBRARY")
    if named:
        return [named]
    native = pathlib.Path(__file__).parent / "_native"
    return [str(path) for path in sorted(native.rglob("libweft.so.0"))] or ["libweft.so.0"]


def _load():
    tried = []
    for path in _candidates():
        try:
            # It stays where it is to the very end: threads may be in it when the interpreter has gone.
            return path, ffi.dlopen(path, ffi.RTLD_NOW | os.RTLD_NODELETE)
        except OSError as error:
            tried.append("%s (%s)" % (path, error))
    raise ImportError(
        "weft: libweft was not found: tried %s. Install weft (docs/getting-started.md) or set "
        "WEFT_LIBRARY to the path of libweft.so.0" % "; ".join(tried))


path, lib = _load()


def text(pointer, default=""):
    """A C string as `str`; `default` for NULL."""
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else default


def take_text(pointer):
    """A string that the caller was handed: copied, and given back."""
    try:
        return text(pointer)
    finally:
        lib.weft_memory_free(pointer)


version = text(lib.weft_version())
if tuple(int(part) for part in version.split(".")[:3]) < OLDEST:
    raise ImportError("weft: %s is version %s, but these modules need %s or later"
                      % (path, version, ".".join(map(str, OLDEST))))


def companion(name):
    """The path of a library that came beside libweft; its bare name, for the system to find, if none
    did."""
    beside = pathlib.Path(path).parent / name
    return str(beside) if beside.exists() else name


def command():
    """The path of the `weft` command: WEFT_COMMAND, that of the package, or the first in PATH; None."""
    named = os.environ.get("WEFT_COMMAND")
    if named:
        return named
    native = pathlib.Path(__file__).parent / "_native"
    for found in sorted(native.rglob("bin/weft")):
        if os.access(str(found), os.X_OK):
            return str(found)
    # The package's own script of that name would start itself again.
    own = os.path.realpath(os.path.join(sysconfig.get_path("scripts"), "weft"))
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder, "weft")
        if os.access(candidate, os.X_OK) and os.path.realpath(candidate) != own:
            return candidate
    return None
