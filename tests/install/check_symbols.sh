#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What the libraries show, and what they need: what headers declare and what was released, and of MPI nothing
# in libweft.   check_symbols.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
install_it

"$here/abi.py" check "$build" "$source" ||
    fail "programs that were compiled before may not run; if nothing of it has been released:" \
        "tests/install/abi.py write BUILD SOURCE"

# Nothing but the public API is visible, and what libweft-mpi needs as private.
for file in libweft libweft-mpi; do
    [[ -e $library/$file.so ]] || continue
    hidden=$(nm -D --defined-only "$library/$file.so" | awk '{ print $3 }' |
        grep -vE '^(weft_[a-z].*@@WEFT_[0-9.]+|weft__.*@@WEFT_PRIVATE|WEFT_[0-9.]+|WEFT_PRIVATE)$' || true)
    [[ -z $hidden ]] || fail "$file.so shows what is not public: $hidden"
    readelf -d "$library/$file.so" | grep -q "soname: \[$file.so.${version%%.*}\]" || fail "the soname of $file.so"
done
# libweft knows no LAPACK, and what it loads has that, and nothing of libweft.
! nm -D "$library/libweft.so" | grep -E ' U .*(dgesdd|cblas|openblas)' || fail "libweft.so calls LAPACK"
! nm -D "$library"/libweft-lapack.so* 2>/dev/null | grep -E ' U weft' || fail "libweft-lapack.so calls libweft"
if [[ -e $library/libweft-lapack.so.0 && -x $prefix/bin/weft ]]; then
    [[ $("$prefix/bin/weft" info) == *"lapack       yes"* ]] || fail "weft info does not find libweft-lapack"
    hidden=$library/libweft-lapack.so.0.hidden
    mv "$library/libweft-lapack.so.0" "$hidden"
    said=$("$prefix/bin/weft" info)
    mv "$hidden" "$library/libweft-lapack.so.0"
    [[ $said == *"lapack       no"* ]] || fail "weft info finds libweft-lapack where it is not: $said"
fi
# libweft knows no MPI, libweft-mpi calls it by its second names: the first may be a tool's.
! nm -D "$library/libweft.so" | grep -E ' P?MPI_| ompi_' || fail "libweft.so has symbols of MPI"
if [[ -e $library/libweft-mpi.so ]]; then
    ! nm -D "$library/libweft-mpi.so" | grep -E ' U MPI_' || fail "libweft-mpi.so calls MPI_* where it is to call PMPI_*"
    # What is preloaded shows MPI's functions alone, and calls them by their second names, too.
    ! nm -D "$library/libweft-pmpi.so" | grep -E ' U MPI_' || fail "libweft-pmpi.so calls MPI_* where it is to call PMPI_*"
    ! nm -D --defined-only "$library/libweft-pmpi.so" | grep -v ' T MPI_' || fail "libweft-pmpi.so shows more than MPI"
    # Private is what the companions use, and no more; libweft-cuda is there where nvcc was.
    if [[ -e $library/libweft-cuda.so.${version%%.*} ]]; then
        spare=$(comm -23 \
            <(nm -D --defined-only "$library/libweft.so" | sed -n 's/.* \(weft__.*\)@@.*/\1/p' | sort) \
            <(nm -D -u "$library/libweft-mpi.so" "$library/libweft-cuda.so.${version%%.*}" |
                sed -n 's/.* \(weft__.*\)@.*/\1/p' | sort -u))
        [[ -z $spare ]] || fail "libweft.so shows as WEFT_PRIVATE what nobody uses: $spare"
    fi
fi
