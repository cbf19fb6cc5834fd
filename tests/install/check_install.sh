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
    if moved --exists weft-mpi; then
        LD_LIBRARY_PATH=$library timeout 120 mpiexec -n 2 "$stage$prefix/bin/weft" run allreduce \
            --transport mpi --verify >/dev/null
    fi
fi

# Nothing but the public API is visible, and what libweft-mpi needs as private.
for file in libweft libweft-mpi; do
    [[ -e $library/$file.so ]] || continue
    hidden=$(nm -D --defined-only "$library/$file.so" | awk '{ print $3 }' |
        grep -vE '^(weft_[a-z].*@@WEFT_0.2|weft__.*@@WEFT_PRIVATE|WEFT_0.2|WEFT_PRIVATE)$' || true)
    if [[ -n $hidden ]]; then
        echo "$file.so shows what is not public: $hidden" >&2
        exit 1
    fi
done
# libweft knows no MPI, libweft-mpi calls it by its second names: the first may be a tool's.
if nm -D "$library/libweft.so" | grep -E ' P?MPI_| ompi_'; then
    echo "libweft.so has symbols of MPI" >&2
    exit 1
fi
if [[ -e $library/libweft-mpi.so ]] && nm -D "$library/libweft-mpi.so" | grep -E ' U MPI_'; then
    echo "libweft-mpi.so calls MPI_* where it is to call PMPI_*" >&2
    exit 1
fi
# Private is what the companion uses, and no more.
if [[ -e $library/libweft-mpi.so ]]; then
    spare=$(comm -23 \
        <(nm -D --defined-only "$library/libweft.so" | sed -n 's/.* \(weft__.*\)@@.*/\1/p' | sort) \
        <(nm -D -u "$library/libweft-mpi.so" | sed -n 's/.* \(weft__.*\)@.*/\1/p' | sort))
    if [[ -n $spare ]]; then
        echo "libweft.so shows as WEFT_PRIVATE what nobody uses: $spare" >&2
        exit 1
    fi
fi
