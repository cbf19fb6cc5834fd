#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Plants in a house of one file, one after the other, what check_format.sh is to refuse, and looks
# whether it says so. Prints TAP.
set -u
here=$(cd "$(dirname "$0")" && pwd)
house=$(mktemp -d)
trap 'rm -r "$house"' EXIT
mkdir -p "$house"/{include,ops,runtime,schedules,gpu,tools,tests}
cp "$here/../.clang-format" "$house"
cp "$here/check_format.sh" "$house/tests"
count=0

# plant CODE WORDS [FILE]: what is said of CODE begins with WORDS; without WORDS, nothing is.
plant()
{
    local file=$house/${3:-runtime/planted.c}
    printf '/* SPDX-License-Identifier: BSD-3-Clause */\n%s\n' "$1" >"$file"
    said=$("$house/tests/check_format.sh" 2>&1)
    local status=$?
    rm "$file"
    count=$((count + 1))
    if [ -z "$2" ] && [ $status -eq 0 ] ||
        { [ -n "$2" ] && [ $status -ne 0 ] && grep -qF "$2" <<<"$said"; }; then
        echo "ok $count - ${2:-what is well formed is accepted}"
    else
        echo "not ok $count - ${2:-what is well formed is accepted}"
        sed 's/^/# /' <<<"$1: $said"
    fi
}

name='check_format: the name of a public function'
plant 'int weft_x(int *p)
{
    return p ? *p : refuse("%s: argument `p` is NULL", __func__);
}' ''
plant '/* {"weft_cost": 1} */
static const char *const keys[] = {"weft_cost", "weft_rank"};' ''
plant 'int x(int  y);' '[-Wclang-format-violations]'
plant 'int x(int *p)
{
    if (p == NULL)
        return 1;
    return 0;
}' 'check_format: pointers are tested'
plant 'static const size_t x = sizeof(y);' 'check_format: sizeof x'
plant "/* $(printf '%0100d' 0) */" 'check_format: lines end'
plant 'static const char *const x = "weft_run_fire: argument `run` is NULL";' "$name"
plant 'static const char *const x = "weft_run_fire";' "$name"
plant '#define NAME "weft_simulate"' "$name"
plant 'static const char *const x = "see weft_run_bind_peers()";' ''
for file in gpu/planted.cu gpu/planted.cuh tests/planted.cpp; do
    plant 'int x(int  y);' '[-Wclang-format-violations]' "$file"
done
echo "1..$count"
