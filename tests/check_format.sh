#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every source file is as .clang-format would have it, and starts with the licence.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t files < <(find include ops runtime schedules gpu tools tests \
    -regex '.*\.\(c\|h\|cpp\|cu\|cuh\)' -not -path '*/build*' 2>/dev/null | sort)
status=0
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 50 clang-format --dry-run -Werror || status=1

# What has templates has types of any name.
mapfile -t of_c < <(printf '%s\n' "${files[@]}" | grep '\.[ch]$' | xargs grep -L '^template <')

# refuse PATTERN WHAT [FILE...]: what clang-format does not see (docs/contributing.md, "One hand").
refuse()
{
    local pattern=$1 what=$2
    shift 2
    (($# > 0)) || set -- "${files[@]}"
    if grep -nHP "$pattern" "$@"; then
        echo "check_format: $what" >&2
        status=1
    fi
}
refuse '^.{101,}$' 'lines end at column 100'
refuse '[!=]= NULL\)? (&&|\|\||\?)|(if|while) \(.*[!=]= NULL\)|== NULL' \
    'pointers are tested as x and !x'
refuse '^(?!.*(#|\\$)).*sizeof\(\*?(?!(const|struct|union|enum|(un)?signed|int|char|short|long|float|double|void)\b|\w+_t\b)[a-z]' \
    'sizeof x: parentheses are for types' "${of_c[@]}"

# Names of public functions in errors: __func__, or `who`. Texts that are put together without
# formatting spell them, and files have keys that begin so.
if find include ops runtime schedules -name '*.[ch]' 2>/dev/null | sort |
    xargs grep -nHP '"weft_[a-z][a-z0-9_]*(: |")' |
    grep -vP '^[^:]*:\d+:\s*(/?\*|.*(weft__error_of\(|"weft_(cost|rank)"))'; then
    echo 'check_format: the name of a public function is __func__ or who, not spelled' >&2
    status=1
fi
for file in "${files[@]}"; do
    if ! head -n 1 "$file" | grep -q 'SPDX-License-Identifier: BSD-3-Clause'; then
        echo "$file:1: the first line is not the SPDX licence line" >&2
        status=1
    fi
done
echo "check_format: ${#files[@]} files"
exit "$status"
