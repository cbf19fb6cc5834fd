# SPDX-License-Identifier: BSD-3-Clause
"""What setuptools does not do by itself: builds the C library and brings it into the package.

Three things go into a wheel beside the modules:

    weft/_declarations.py   what the C headers declare, for cffi
    weft/_native/           libweft, its companions (MPI, LAPACK, CUDA) and the `weft` command, in the
                            layout in which meson installs them, by which they find each other

The environment has the settings, which pip hands on:

    WEFT_PYTHON_BUILD=DIR       take the library from this build folder of meson, as it is
    WEFT_PYTHON_OPTIONS="..."   options for meson, "-Dmpi_name=openmpi" say
    WEFT_PYTHON_LIBRARY=system  bring no library: one that is installed is loaded at run time
"""
import atexit
import fcntl
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

TOP = pathlib.Path(__file__).resolve().parent.parent
SYSTEM = os.environ.get("WEFT_PYTHON_LIBRARY") == "system"


def require_sources():
    if not (TOP / "include/weft/weft.h").exists():
        sys.exit("weft: the C sources are not beside this folder: install from a checkout of weft, "
                 "by `pip install ./python`")


def scratch_folders():
    """Where this may write, not into the sources: the build of the library, which is kept for the next
    time, and what setuptools makes."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-python-"))
    atexit.register(shutil.rmtree, str(folder), True)
    return TOP / "build-python" if os.access(str(TOP), os.W_OK) else folder / "native", folder / "package"


def wait_for_turn():
    """One after the other of those who build from this checkout; it ends with the process."""
    fcntl.flock(os.open(str(TOP), os.O_RDONLY), fcntl.LOCK_EX)


def version():
    for line in (TOP / "meson.build").read_text(encoding="utf-8").splitlines():
        if line.strip().startswith("version:"):
            return line.split("'")[1]
    sys.exit("weft: meson.build has no version")


def native_build(scratch):
    """The build folder that has the library; made, or made up to date, if none was given."""
    given = os.environ.get("WEFT_PYTHON_BUILD")
    if given:
        build = pathlib.Path(given).resolve()
        if not (build / "build.ninja").exists():
            sys.exit("weft: WEFT_PYTHON_BUILD is %s, which is no build folder of meson; relative paths are "
                     "from %s" % (given, pathlib.Path.cwd()))
        return build
    options = ["-Dtests=disabled", "-Dman=disabled"]
    options += shlex.split(os.environ.get("WEFT_PYTHON_OPTIONS", ""))
    folder = str(scratch)
    # What made an earlier build is gone with pip's environment, or of another version: set up anew then.
    setup = ["meson", "setup", folder, str(TOP)] + options
    if not (scratch / "build.ninja").exists() or subprocess.run(setup + ["--reconfigure"]).returncode:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(setup, check=True)
    subprocess.run(["ninja", "-C", folder], check=True)
    return scratch


def meson_of(build):
    """The meson that has made a build: another version would refuse it."""
    for line in (build / "build.ninja").read_text(encoding="utf-8").splitlines():
        found = re.match(r"\s*command = (.*) --internal regenerate", line)
        if found:
            return shlex.split(found.group(1))
    return ["meson"]


def copy_native(build, destination):
    """Installs the build, and copies what runs, in its layout: by that it finds what belongs to it."""
    shutil.rmtree(destination, ignore_errors=True)
    with tempfile.TemporaryDirectory() as stage:
        environment = dict(os.environ, DESTDIR=stage)
        if environment.get("WEFT_PYTHON_BUILD"):  # its meson is not of the environment that pip has made
            environment.pop("PYTHONPATH", None)
        subprocess.run(meson_of(build) + ["install", "-C", str(build), "--no-rebuild", "--quiet", "--strip",
                                          "--tags", "runtime"],
                       check=True, env=environment)
        libraries = list(pathlib.Path(stage).rglob("libweft.so.0"))
        if not libraries:
            sys.exit("weft: %s has no libweft.so.0" % build)
        prefix = libraries[0].parent
        while prefix.name and not (prefix / "lib").exists() and not (prefix / "lib64").exists():
            prefix = prefix.parent
        for path in sorted(prefix.rglob("*")):
            library = path.name.startswith("libweft")
            if path.is_dir() or library and not path.name.endswith(".so.0"):
                continue
            target = destination / path.relative_to(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(path), str(target))
    if (destination / "bin/weft").exists():  # what `weft train` and `weft merge` read
        for folder in ("optdigits", "layers"):
            shutil.copytree(str(TOP / "tools/data" / folder), str(destination / "share/weft" / folder))


def declarations(build, target):
    """Writes the module of cffi for what the headers declare."""
    import cffi

    compiler = shlex.split(os.environ.get("CC", "cc"))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("stddef.h", "stdint.h"):  # what these declare cffi knows by itself
            pathlib.Path(folder, name).write_text("", encoding="utf-8")
        source = subprocess.run(
            compiler + ["-E", "-P", "-U__GNUC__", "-nostdinc", "-I", folder,
                        "-I", str(TOP / "include"), "-I", str(build / "include"),
                        str(TOP / "include/weft/weft.h")],
            check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    builder = cffi.FFI()
    builder.cdef(source)
    builder.set_source("weft._declarations", None)
    target.parent.mkdir(parents=True, exist_ok=True)
    builder.emit_python_code(str(target))


class BuildPy(build_py):
    def run(self):
        require_sources()
        super().run()
        editable = getattr(self, "editable_mode", False)
        package = pathlib.Path("src/weft") if editable else pathlib.Path(self.build_lib, "weft")
        wait_for_turn()
        build = native_build(SCRATCH)
        declarations(build, package / "_declarations.py")
        shutil.rmtree(package / "_native", ignore_errors=True)
        if not SYSTEM:
            copy_native(build, package / "_native")


class BdistWheel(bdist_wheel):
    """A wheel is of one platform, and of any Python: nothing in it is compiled against Python."""

    def get_tag(self):
        return "py3", "none", "any" if SYSTEM else super().get_tag()[2]


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return not SYSTEM


require_sources()
SCRATCH, PACKAGE = scratch_folders()
PACKAGE.mkdir(parents=True)
setup(version=version(),
      distclass=PlatformDistribution,
      cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel},
      options={"build": {"build_base": str(PACKAGE)}, "egg_info": {"egg_base": str(PACKAGE)}})
