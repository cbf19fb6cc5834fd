#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The arrows of the house go one way (docs/architecture.md): who may include whom, and that the
# runtime knows no collective by name.
set -euo pipefail
cd "$(dirname "$0")/.."

faults=0

fault()
{
    echo "$1" >&2
    faults=$((faults + 1))
}

# includes DIR: every include of our own headers in DIR, as FILE:LINE:HEADER.
includes()
{
    [[ -d $1 ]] || return 0
    grep -rnE --include='*.[ch]' --include='*.cu' '^[[:space:]]*#[[:space:]]*include' "$1" |
        sed -E 's/^([^:]+:[0-9]+):[^<"]*[<"]([^>"]+)[>"].*/\1:\2/'
}

# Of which directory is HEADER, included from FILE? Prints include, ops, runtime, ... or system.
layer_of()
{
    local header=$1 file=$2 layer
    case $header in
    weft/*) echo include && return ;;
    esac
    if [[ -e $(dirname "$file")/$header ]]; then
        (cd "$(dirname "$file")" && cd "$(dirname "$header")" && pwd) |
            sed "s|^$PWD/||; s|/.*||"
        return
    fi
    layer=${header%%/*}
    if [[ -e $header && $layer != "$header" ]]; then
        echo "$layer"
    else
        echo system
    fi
}

# allow DIR LAYER...: files of DIR include headers of these layers only.
allow()
{
    local directory=$1 place header file layer
    shift
    while IFS= read -r line; do
        header=${line##*:}
        place=${line%:*}
        file=${place%:*}
        layer=$(layer_of "$header" "$file")
        [[ " system $* " == *" $layer "* ]] ||
            fault "$place: $directory/ must not include $layer/ (\"$header\")"
    done < <(includes "$directory")
}

# forbid PATTERN WHAT FILE...: no code (comments and strings apart) matches.
forbid()
{
    local pattern=$1 what=$2 file found
    shift 2
    for file in "$@"; do
        [[ -e $file ]] || continue
        found=$(gcc -fpreprocessed -dD -E -P "$file" 2>/dev/null | sed 's/"[^"]*"//g' |
            grep -oE "$pattern" | sort -u | tr '\n' ' ' || true)
        [[ -z $found ]] || fault "$file: $what: $found"
    done
}

allow include include
allow ops include ops
allow runtime include ops runtime
allow schedules include schedules
allow tools include tools
allow gpu include ops runtime gpu

# Public headers need nothing but <stddef.h> and <stdint.h>, and MPI in its own header.
while IFS= read -r line; do
    header=${line##*:}
    case $header in
    weft/* | stddef.h | stdint.h) ;;
    mpi.h) [[ $line == include/weft/mpi.h:* ]] || fault "${line%:*}: <mpi.h> outside weft/mpi.h" ;;
    *) fault "${line%:*}: a public header must not include <$header>" ;;
    esac
done < <(includes include)

# Arithmetic has no threads and no communication; templates and objects may have locks, but start no
# thread (below); MPI is one file of the runtime, hwloc another.
while IFS= read -r line; do
    case $line in
    ops/*:pthread.h | ops/*:threads.h | ops/*:mpi.h | schedules/*:mpi.h)
        fault "${line%:*}: <${line##*:}> does not belong here" ;;
    runtime/transport/mpi/*:mpi.h | runtime/base/topology*:hwloc.h) ;;
    runtime/*:mpi.h | runtime/*:hwloc.h) fault "${line%:*}: <${line##*:}> has its own file" ;;
    esac
done < <(includes ops; includes runtime; includes schedules)

collectives='(allreduce|all_reduce|broadcast|bcast|reduce_scatter|allgather|all_gather|alltoall)'
names="\\b(weft_*)?$collectives[a-z_]*|\\b(g?topk|wagma)[a-z_]*"
forbid "$names" "the runtime knows no collective by name" $(find runtime -name "*.[ch]")
forbid '\b(malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|strndup)[[:space:]]*\(' \
    "memory comes from runtime/base/alloc.h" \
    $(find ops runtime -name '*.c' -not -path runtime/base/alloc.c 2>/dev/null)
forbid '\b(malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|strndup)[[:space:]]*\(' \
    "memory comes from weft_memory_alloc()" $(find schedules -name '*.c')
forbid '\b(pthread_create|thrd_create)[[:space:]]*\(' "templates and objects start no threads" \
    $(find ops schedules -name '*.c')
forbid '\bgetenv[[:space:]]*\(' "the environment is read in runtime/context/env.c" \
    $(find ops runtime schedules -name '*.c' -not -path runtime/context/env.c 2>/dev/null)

# A file that no meson.build lists would silently be left out.
while IFS= read -r file; do
    name=$(basename "$file" .c)
    folder=$(dirname "$file")
    while [[ ! -e $folder/meson.build ]]; do
        folder=$(dirname "$folder")
    done
    grep -qE "'([a-z_/]*/)?(${name#test_}|${name#test_mpi_}|$name)(\\.c)?'" "$folder/meson.build" ||
        fault "$file: not listed in $folder/meson.build"
done < <(find runtime schedules tools tests/unit tests/mpi -name '*.c')

if ((faults)); then
    echo "check_layers: $faults faults" >&2
    exit 1
fi
echo "check_layers: all arrows go one way"
