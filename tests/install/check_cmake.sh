#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs by CMake: find_package(weft CONFIG) and its targets.   check_cmake.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
install_it
cd "$stage"
# CMake's target of MPI is found by pkg-config, and only there
mpi=OFF
pkg-config --exists weft-mpi && mpi=ON
unset PKG_CONFIG_PATH

cmake -S "$here/cmake" -B both -DOVER_MPI=$mpi >log 2>&1 || { cat log; fail "cmake"; }
cmake --build both >log 2>&1 || { cat log; fail "cmake --build"; }
for program in user user_static user_cpp; do
    runs "both/$program"
done
! readelf -d both/user_static | grep -q libweft || fail "weft::weft_static needs libweft.so"
if [[ $mpi == ON ]]; then
    over_mpi both/over_mpi
    over_mpi both/over_mpi_static
fi

# A project in C++ alone; and versions that this one does not serve.
cmake -S "$here/cmake" -B cpp -DONLY_CXX=ON >log 2>&1 || { cat log; fail "cmake, C++ alone"; }
cmake --build cpp >log 2>&1 || { cat log; fail "cmake --build, C++ alone"; }
runs cpp/user_cpp
for wanted in 0.1 0.3 1.0; do
    if cmake -S "$here/cmake" -B "not$wanted" -DWANTED=$wanted >log 2>&1; then
        fail "weft $version serves who asks for $wanted"
    fi
done
