#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Writes the assembler's source of an object with a table as image.h has it, PREFIX_images, and how long
# that is, PREFIX_image_count: embed.sh OUTPUT PREFIX FATBIN...
set -eu
output=$1
prefix=$2
shift 2
{
    echo '    .section .rodata'
    for file; do
        name=$(basename "$file" .fatbin)
        echo "    .balign 64
image_$name:
    .incbin \"$(realpath "$file")\"
image_end_$name:
name_$name:
    .asciz \"$name\""
    done
    echo "    .balign 4
    .globl ${prefix}_image_count
    .hidden ${prefix}_image_count
    .type ${prefix}_image_count, %object
    .size ${prefix}_image_count, 4
${prefix}_image_count:
    .4byte $#
    .section .data.rel.ro, \"aw\"
    .balign 8
    .globl ${prefix}_images
    .hidden ${prefix}_images
    .type ${prefix}_images, %object
    .size ${prefix}_images, 24 * $#
${prefix}_images:"
    for file; do
        name=$(basename "$file" .fatbin)
        echo "    .8byte name_$name, image_$name, image_end_$name - image_$name"
    done
    echo '    .section .note.GNU-stack, "", %progbits'
} >"$output"
