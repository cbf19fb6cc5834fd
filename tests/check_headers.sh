#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every public header compiles alone, as C11 and as C++.
set -euo pipefail
cd "$(dirname "$0")/.."

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
# What the build makes of version.h.in
version=$(sed -n "s/^ *version: '\(.*\)',$/\1/p" meson.build)
IFS=. read -r major minor patch <<<"$version"
mkdir "$directory/weft"
sed "s/@MAJOR@/$major/g; s/@MINOR@/$minor/g; s/@PATCH@/$patch/g" include/weft/version.h.in >"$directory/weft/version.h"

warnings=(-Wall -Wextra -Werror -pedantic-errors -fsyntax-only -Iinclude "-I$directory")
status=0
for header in include/weft/*.h "$directory"/weft/*.h; do
    name=weft/${header##*/}
    printf '#include <%s>\n' "$name" >"$directory/alone.c"
    cp "$directory/alone.c" "$directory/alone.cpp"
    mpis=(none)
    [[ $name != weft/mpi.h ]] || mpis=(mpich ompi-c)
    for mpi in "${mpis[@]}"; do
        flags=()
        # MPI's own header is not ours to judge.
        [[ $mpi == none ]] ||
            read -ra flags < <(pkg-config --cflags "$mpi" | sed 's/-I/-isystem /g')
        flags+=(-DMPICH_SKIP_MPICXX -DOMPI_SKIP_MPICXX)
        gcc -std=c11 "${warnings[@]}" "${flags[@]}" "$directory/alone.c" || status=1
        g++ -std=c++11 "${warnings[@]}" "${flags[@]}" "$directory/alone.cpp" || status=1
    done
    echo "check_headers: $name"
done
exit "$status"
