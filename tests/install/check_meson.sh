#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs by meson: dependency('weft') of what is installed, and weft as a subproject.
#   check_meson.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
install_it
mpi=disabled
pkg-config --exists weft-mpi && mpi=enabled
mkdir "$stage/project"
cd "$stage/project"
cp "$here"/meson/* "$here"/user.c "$here"/user.cpp "$here"/over_mpi.c .

meson setup installed -Dover_mpi=$mpi --wrap-mode=nofallback >log 2>&1 || { cat log; fail "meson setup"; }
ninja -C installed >log 2>&1 || { cat log; fail "ninja"; }
export LD_LIBRARY_PATH=$library
runs installed/user
runs installed/user_cpp
[[ $mpi == disabled ]] || over_mpi installed/over_mpi
unset LD_LIBRARY_PATH PKG_CONFIG_PATH

# A wrap would fetch it; the folder is what it makes. Only the libraries are built.
mkdir -p subprojects
ln -s "$source" subprojects/weft
meson setup sub --wrap-mode=forcefallback -Dbuildtype=plain -Dweft:mpi=disabled -Dweft:hwloc=disabled >log 2>&1 ||
    { cat log; fail "meson setup with a subproject"; }
ninja -C sub -j2 user user_cpp >log 2>&1 || { cat log; fail "ninja with a subproject"; }
runs sub/user
runs sub/user_cpp
targets=$(meson introspect sub --targets |
    python3 -c 'import json,sys; print(" ".join(t["name"] for t in json.load(sys.stdin) if t["type"] == "executable"))')
[[ $targets == "user user_cpp" ]] || fail "a subproject builds more than libraries: $targets"
