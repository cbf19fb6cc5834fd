#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a program with a libweft that has no libweft-mpi beside it.
#
#   without_companion.sh LIBWEFT PROGRAM ARGUMENT...
set -euo pipefail
library=$1
shift

alone=$(mktemp -d)
trap 'rm -rf "$alone"' EXIT
cp "$library" "$alone/libweft.so.0"
LD_LIBRARY_PATH=$alone "$@"
