#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A build of one's own for a prefix of one's own, without MPI and hwloc; programs against it, one of them
# with no shared library at all; then the whole prefix is moved.   check_prefix.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
unset LD_LIBRARY_PATH
cd "$stage"

meson setup made "$source" --prefix="$stage/opt" --libdir=lib64 --buildtype=plain -Dmpi=disabled -Dhwloc=disabled \
    -Dtools=disabled -Dtests=disabled >log 2>&1 || { cat log; fail "meson setup"; }
ninja -C made -j2 >log 2>&1 || { cat log; fail "ninja"; }
meson install -C made >log 2>&1 || { cat log; fail "meson install"; }

program()
{
    export PKG_CONFIG_PATH=$1/lib64/pkgconfig
    cc -std=c11 "$here/user.c" $(pkg-config --cflags --libs weft) -Wl,-rpath,"$1/lib64" -o user
    runs ./user
    g++ -std=c++11 "$here/user.cpp" $(pkg-config --cflags --libs weft) -Wl,-rpath,"$1/lib64" -o user++
    runs ./user++
    cc -std=c11 -static "$here/user.c" $(pkg-config --static --cflags --libs weft) -o static
    ! readelf -d static | grep -q NEEDED || fail "a static program needs a shared library"
    runs ./static
}

program "$stage/opt"
[[ -f opt/share/man/man3/weft_run_start.3 ]] || fail "no manual"
[[ ! -e opt/include/weft/mpi.h && ! -e opt/share/man/man3/weft-mpi.3 ]] || fail "something of MPI without MPI"
rm -rf made
mkdir elsewhere
mv opt elsewhere/weft
program "$stage/elsewhere/weft"
