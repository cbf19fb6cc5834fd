# SPDX-License-Identifier: BSD-3-Clause
# The command brings no MPI into processes that do without one, and works where none is installed.
. "$(dirname "$0")/common.sh"

# The libraries are those beside the command.
unset LD_LIBRARY_PATH

: >"$folder/err"
mpi='lib(weft-mpi|o?mpi|mpich|uc[pst])'
library=$(ldd "$weft" | sed -n 's/.*libweft\.so\.0 => \([^ ]*\) .*/\1/p')
for file in "$weft" "$library"; do
    checks=$((checks + 2))
    ldd "$file" >"$folder/out" || fail "ldd $file"
    ! grep -qE "$mpi" "$folder/out" || fail "$file is linked with an MPI"
    nm -D "$file" >"$folder/out" || fail "nm $file"
    ! grep -qE ' P?MPI_' "$folder/out" || fail "$file has symbols of MPI"
done

# Nothing loads one later.
checks=$((checks + 2))
LD_DEBUG=files LD_DEBUG_OUTPUT="$folder/debug" "$weft" run allreduce -n 3 --verify >/dev/null
cat "$folder"/debug.* >"$folder/out"
grep -q 'calling init: .*libweft' "$folder/out" || fail 'expected what the loader did'
! grep -qE "calling init: .*$mpi" "$folder/out" || fail 'local ranks loaded an MPI'

# caught PID: whether a process catches SIGHUP, by the last bit of the mask.
caught() {
    case $(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status") in
    *[13579bdf]) return 0 ;;
    *) return 1 ;;
    esac
}

# hung_up: a long run ends by SIGHUP, when `ready PID` says that it may come. Whoever runs this script may
# have it ignored.
hung_up() {
    checks=$((checks + 1))
    env --default-signal=HUP "$weft" run allreduce -n 3 --count 1M --iterations 10000000 >"$folder/out" 2>"$folder/err" </dev/null &
    pid=$!
    until ready $pid; do
        kill -0 $pid || break
    done
    [ -n "${WEFT_TRACE:-}" ] || ! caught $pid || fail 'somebody catches SIGHUP'
    kill -HUP $pid
    wait $pid
    status=$?
    [ $status -eq 129 ] || fail "exit $status, expected 129, of SIGHUP"
}

# Signals are the program's.
ready() {
    [ "$(ls "/proc/$1/task" | wc -l)" -ge 3 ]
}
hung_up

# With WEFT_TRACE they are weft's, which writes the traces first.
ready() {
    caught "$1"
}
mkdir "$folder/traces"
WEFT_TRACE=$folder/traces
export WEFT_TRACE
hung_up
unset WEFT_TRACE
works trace "$folder"/traces/*

# The command and libweft alone; then with libweft-mpi but without the command's own module.
mkdir "$folder/tools"
cp "$weft" "$folder/tools/weft"
cp "$library" "$folder/libweft.so.0"
whole=$weft
weft=$folder/tools/weft
works run allreduce -n 3 --verify
works info
grep -q 'transports *local shared virtual$' "$folder/out" || fail 'expected no mpi'
wrong 'mpi is not installed' run allreduce --transport mpi
wrong 'mpi is not installed' train --transport mpi
if [ -e "$(dirname "$library")/libweft-mpi.so.0" ]; then
    cp "$(dirname "$library")/libweft-mpi.so.0" "$folder/libweft-mpi.so.0"
    works info
    grep -q ' mpi ' "$folder/out" || fail 'expected mpi'
    wrong 'command-mpi.so, which runs the command over MPI, is not installed' \
        run allreduce --transport mpi
    wrong 'command-mpi.so' run allreduce --transport mpi -n 3
fi
weft=$whole
finish
