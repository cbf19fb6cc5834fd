#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Debian packages: built from a copy of the sources, looked at, unpacked side by side into a folder, and
# used from there.   check_debian.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
unset LD_LIBRARY_PATH PKG_CONFIG_PATH
packages=$stage/packages
root=$stage/root
cd "$stage"

said=$(cd "$source/tools" && dpkg-parsechangelog -l debian/changelog -S Version)
[[ ${said%-*} == "$version" ]] || fail "tools/debian/changelog is of $said, the project of $version"

# They are looked at, and not measured: without -O2 and debug information they are there sooner.
DEB_CFLAGS_APPEND="-O1 -g0" DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=2" "$source/tools/scripts/build_deb.sh" "$packages" >log 2>&1 ||
    { tail -n 50 log; fail "build_deb.sh"; }
for package in libweft0 libweft-lapack0 libweft-mpi0 libweft-dev libweft-mpi-dev weft-pmpi weft-tools; do
    file=$packages/${package}_${said}_$(dpkg --print-architecture).deb
    [[ -f $file ]] || fail "no $file"
    dpkg-deb -x "$file" "$root"
    depends=$(dpkg-deb -f "$file" Depends)
    [[ $package != libweft0 || $depends != *blas* ]] || fail "$package depends on a BLAS: $depends"
    case $package in
    libweft0 | libweft-dev | weft-tools) [[ $depends != *mpi* ]] || fail "$package depends on MPI: $depends" ;;
    libweft-lapack0) [[ $depends == *blas* || $depends == *lapack* ]] || fail "$package depends on: $depends" ;;
    libweft-mpi0) [[ $depends == *"libweft0 (= $said)"*libmpich* ]] || fail "$package depends on: $depends" ;;
    weft-pmpi) [[ $depends == *"libweft-mpi0 (= $said)"*libmpich* ]] || fail "$package depends on: $depends" ;;
    libweft-mpi-dev) [[ $depends == *libmpich-dev* ]] || fail "$package depends on: $depends" ;;
    esac
    # Two packages with the same file cannot be installed together.
    dpkg-deb --fsys-tarfile "$file" | tar -t | grep -v '/$' >>files
done
[[ -z $(sort files | uniq -d) ]] || fail "in several packages: $(sort files | uniq -d)"
# Nobody uploads these: there is no address and no bug to close. The manual has tests of its own (tests/man).
lintian --allow-root --no-cfg -X documentation/manual --fail-on error,warning --tag-display-limit 0 --suppress-tags \
    bogus-mail-host,bogus-mail-host-in-debian-changelog,mail-address-loops-or-bounces,initial-upload-closes-no-bugs \
    "$packages"/*.changes >log 2>&1 || { cat log; fail "lintian"; }

library=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
while read -r file; do
    ! readelf -d "$file" 2>/dev/null | grep -E 'RPATH|RUNPATH' || fail "$file has a path to libraries"
done < <(find "$root" -type f \( -name '*.so*' -o -path '*/bin/*' \))

package()
{
    PKG_CONFIG_PATH=$library/pkgconfig pkg-config --define-variable=prefix="$root/usr" "$@"
}
read -ra flags < <(package --cflags --libs weft)
cc -std=c11 -Wall -Werror "$here/user.c" "${flags[@]}" -o user
g++ -std=c++11 -Wall -Werror "$here/user.cpp" "${flags[@]}" -o user++
read -ra flags < <(package --cflags --libs weft-mpi)
cc -std=c11 -Wall -Werror "$here/over_mpi.c" "${flags[@]}" -o over_mpi
cmake -S "$here/cmake" -B cmake -Dweft_DIR="$library/cmake/weft" >log 2>&1 || { cat log; fail "cmake"; }
cmake --build cmake >log 2>&1 || { cat log; fail "cmake --build"; }

export LD_LIBRARY_PATH=$library
runs ./user
runs ./user++
runs cmake/user
over_mpi ./over_mpi
[[ $("$root/usr/bin/weft" --version) == "weft $version" ]] || fail "weft --version"
"$root/usr/bin/weft" run allreduce -n 3 --verify >/dev/null || fail "weft run"
[[ $("$root/usr/bin/weft" info) == *"lapack       yes"* ]] || fail "weft info finds no LAPACK"
over_mpi "$root/usr/bin/weft" run allreduce --transport mpi --verify >/dev/null
mpicc.mpich -Wall -Werror "$here/of_mpi.c" -o of_mpi
over_mpi env LD_PRELOAD=libweft-pmpi.so WEFT_PMPI=always WEFT_PMPI_STATS="$stage/stats" ./of_mpi
[[ $(<"$stage/stats.0") == *'"served":1,'* ]] || fail "libweft-pmpi serves nothing: $(<"$stage/stats.0")"
"$root/usr/bin/weft" profile --pmpi always mpiexec -n 2 ./of_mpi >log || { cat log; fail "weft profile"; }
for name in weft weft-run weft_run_start weft_context_create_mpi; do
    mman -M "$root/usr/share/man" -w $name >/dev/null 2>&1 || fail "man $name"
done
