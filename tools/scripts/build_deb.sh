#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds Debian packages of these sources: tools/scripts/build_deb.sh FOLDER [ARGUMENT...]
#
# The sources are copied, since dpkg wants debian/ on top of them and leaves what it has built there; the
# packages are in FOLDER then. Arguments are handed to dpkg-buildpackage. DEB_BUILD_OPTIONS=nocheck builds
# them without running the tests.
set -euo pipefail
folder=${1:?usage: tools/scripts/build_deb.sh FOLDER [ARGUMENT of dpkg-buildpackage...]}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/../.."

sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
mkdir "$sources/weft"
tar -c --exclude-vcs --exclude='./build*' --exclude=__pycache__ . | tar -x -C "$sources/weft"
cp -r tools/debian "$sources/weft/debian"
chmod +x "$sources/weft/debian/rules"
cd "$sources/weft"
dpkg-buildpackage --build=binary --no-sign "$@"
mv ../*.deb ../*.changes ../*.buildinfo "$folder"
