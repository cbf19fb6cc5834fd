# SPDX-License-Identifier: BSD-3-Clause
# What the tests of users' programs share. Sourced by TEST BUILD SOURCE: installs the build into a folder
# of its own that is not the prefix it was made for, as a package is, or a prefix that has been moved.
set -euo pipefail
build=$1
source=$2
here=$source/tests/install
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

fail()
{
    echo "FAILED: $*" >&2
    exit 1
}

# option NAME: the value of an option of the build
option()
{
    meson introspect "$build" --buildoptions |
        python3 -c 'import json,sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == sys.argv[1]))' "$1"
}

version=$(meson introspect "$build" --projectinfo |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["version"])')

# Sets prefix and library, and where pkg-config and CMake look.
install_it()
{
    DESTDIR=$stage meson install -C "$build" --no-rebuild --quiet >/dev/null
    prefix=$stage$(option prefix)
    library=$(dirname "$(find "$stage" -name libweft.so)")
    # A build that was told so, or set up before that was the default, names its prefix.
    [[ $(option pkgconfig.relocatable) == True ]] || sed -i "s|^prefix=.*|prefix=$prefix|" "$library"/pkgconfig/*.pc
    export PKG_CONFIG_PATH=$library/pkgconfig
    export CMAKE_PREFIX_PATH=$prefix
    # A search path of the caller's would hide that something is not found.
    unset LD_LIBRARY_PATH
}

# runs PROGRAM: it must say the version
runs()
{
    local said
    said=$("$@") || fail "$*: exit $?"
    [[ $said == "weft $version" ]] || fail "$*: said '$said'"
}

# over_mpi PROGRAM: on two ranks
over_mpi()
{
    timeout 120 mpiexec -n 2 "$@" || fail "mpiexec -n 2 $*"
}
