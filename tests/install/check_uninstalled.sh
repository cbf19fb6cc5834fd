#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs against a build folder, nothing installed.   check_uninstalled.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
export PKG_CONFIG_PATH=$build/meson-uninstalled
unset LD_LIBRARY_PATH
cd "$stage"

read -ra flags < <(pkg-config --cflags --libs weft)
cc -std=c11 -Wall -Werror "$here/user.c" "${flags[@]}" -Wl,-rpath,"$build" -o user
runs ./user
g++ -std=c++11 -Wall -Werror "$here/user.cpp" "${flags[@]}" -Wl,-rpath,"$build" -o user++
runs ./user++
if pkg-config --exists weft-mpi; then
    read -ra flags < <(pkg-config --cflags --libs weft-mpi)
    cc -std=c11 -Wall -Werror "$here/over_mpi.c" "${flags[@]}" -Wl,-rpath,"$build" -o over_mpi
    over_mpi ./over_mpi
fi
