#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs in C and C++ by pkg-config, shared and static, from a prefix that has been moved; the command
# starts from there.   check_pkg_config.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
install_it
cd "$stage"

[[ $(pkg-config --modversion weft) == "$version" ]] || fail "weft.pc: $(pkg-config --modversion weft)"
read -ra flags < <(pkg-config --cflags --libs weft)
for flag in "${flags[@]}"; do
    [[ $flag != -l* || $flag == -lweft ]] || fail "a shared program is linked with $flag"
done
warnings=(-Wall -Wextra -pedantic -Werror)

cc -std=c11 "${warnings[@]}" "$here/user.c" "${flags[@]}" -Wl,-rpath,"$library" -o user
runs ./user
for example in ring_sum chain_broadcast halo; do
    cc -std=c11 -Wall -Werror "$source/tools/examples/$example.c" "${flags[@]}" -Wl,-rpath,"$library" \
        -o "$example"
    "./$example" >/dev/null || fail "$example"
done
for standard in c++11 c++17; do
    g++ -std=$standard "${warnings[@]}" "$here/user.cpp" "${flags[@]}" -Wl,-rpath,"$library" -o "$standard"
    runs "./$standard"
done

# The static library: nothing of weft is left to be found when it starts.
read -ra flags < <(pkg-config --static --cflags --libs weft | sed 's/-lweft\b/-l:libweft.a/')
# libhwloc.a may want what only the shared one brings
have=()
for flag in "${flags[@]}"; do
    [[ $flag == -ludev ]] && ! cc -shared -ludev -o /dev/null 2>/dev/null || have+=("$flag")
done
cc -std=c11 "${warnings[@]}" "$here/user.c" "${have[@]}" -o static
! readelf -d static | grep -q libweft || fail "the static program needs libweft.so"
runs ./static
g++ -std=c++17 "${warnings[@]}" "$here/user.cpp" "${have[@]}" -o static++
runs ./static++

if pkg-config --exists weft-mpi; then
    read -ra flags < <(pkg-config --cflags --libs weft-mpi)
    cc -std=c11 -Wall -Werror "$here/over_mpi.c" "${flags[@]}" -Wl,-rpath,"$library" -o over_mpi
    over_mpi ./over_mpi
    read -ra flags < <(pkg-config --static --cflags --libs weft-mpi |
        sed 's/-lweft\b/-l:libweft.a/g; s/-l:libweft.a-mpi/-l:libweft-mpi.a/g')
    have=()
    for flag in "${flags[@]}"; do
        # what MPI itself is made of is in its shared library
        case $flag in
        -ludev | -luc[ps]) ;;
        *) have+=("$flag") ;;
        esac
    done
    cc -std=c11 -Wall -Werror "$here/over_mpi.c" "${have[@]}" -o static_over_mpi
    ! readelf -d static_over_mpi | grep -q libweft || fail "the static program over MPI needs libweft"
    over_mpi ./static_over_mpi
fi

if [[ -x $prefix/bin/weft ]]; then
    [[ $("$prefix/bin/weft" --version) == "weft $version" ]] || fail "weft --version"
    "$prefix/bin/weft" run allreduce -n 3 --verify >/dev/null || fail "weft run"
    if pkg-config --exists weft-mpi; then
        timeout 120 mpiexec -n 2 "$prefix/bin/weft" run allreduce --transport mpi --verify >/dev/null ||
            fail "weft run over MPI"
    fi
    "$prefix/bin/weft" train --steps 2 -n 2 --json >/dev/null || fail "weft train finds no data"
    : >"$prefix/share/weft/optdigits/optdigits-train.csv"
    ! "$prefix/bin/weft" train --steps 2 -n 2 --json >/dev/null 2>&1 ||
        fail "weft train takes its data from elsewhere than where it is installed"
    [[ -f $prefix/$(option mandir)/man1/weft-run.1 ]] || fail "no page of weft run"
    [[ -f $prefix/$(option mandir)/man3/weft_run_start.3 ]] || fail "no page of weft_run_start"
    [[ -f $prefix/share/bash-completion/completions/weft ]] || fail "no completion"
fi
