#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What `meson install` puts in place is enough: a user's program finds weft with pkg-config, compiles
# against the installed headers alone, links, and runs; over MPI too where there is one.
#
#   check_install.sh BUILD SOURCE
set -euo pipefail
build=$1
source=$2

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR=$stage meson install -C "$build" --no-rebuild --quiet >/dev/null
prefix=$(meson introspect "$build" --buildoptions |
    python3 -c 'import json,sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
pc=$(find "$stage" -name weft.pc)
[[ -n $pc ]] || { echo "weft.pc was not installed" >&2; exit 1; }
library=$(dirname "$(find "$stage" -name libweft.so)")
pc_path=$(dirname "$pc")

# The files lie under $stage, but the prefix they were made for does not.
moved()
{
    PKG_CONFIG_PATH=$pc_path pkg-config --define-variable=prefix="$stage$prefix" "$@"
}

version=$(meson introspect "$build" --projectinfo |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["version"])')
if [[ $(moved --modversion weft) != "$version" ]]; then
    echo "weft.pc says $(moved --modversion weft), the project $version" >&2
    exit 1
fi

for example in ring_sum chain_broadcast halo; do
    # shellcheck disable=SC2046
    "${CC:-cc}" -std=c11 -Wall -Werror "$source/tools/examples/$example.c" \
        $(moved --cflags --libs weft) -o "$stage/$example"
    LD_LIBRARY_PATH=$library "$stage/$example" >/dev/null
done

if moved --exists weft-mpi; then
    # shellcheck disable=SC2046
    "${CC:-cc}" -std=c11 -Wall -Werror "$source/tests/install/over_mpi.c" \
        $(moved --cflags --libs weft-mpi) -o "$stage/over_mpi"
    LD_LIBRARY_PATH=$library timeout 120 mpiexec -n 2 "$stage/over_mpi"
fi

# The command, where it was built.
if [[ -x $stage$prefix/bin/weft ]]; then
    LD_LIBRARY_PATH=$library "$stage$prefix/bin/weft" run allreduce -n 3 --verify >/dev/null
fi

# Nothing but the public API is visible.
hidden=$(nm -D --defined-only "$library/libweft.so" | awk '{ print $3 }' | grep -v '^weft_[a-z]' |
    grep -vE '^(_init|_fini|_edata|_end|__bss_start)$' || true)
if [[ -n $hidden ]]; then
    echo "libweft.so shows what is not public: $hidden" >&2
    exit 1
fi
