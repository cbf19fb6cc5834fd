# SPDX-License-Identifier: BSD-3-Clause
# weft launch: processes that have a context together, how they end, what they write; and
# --transport shared, by which other commands start their own.
. "$(dirname "$0")/common.sh"

# ends STATUS WORDS: the exit status of weft launch.
ends() {
    checks=$((checks + 1))
    expected=$1
    shift
    run launch "$@"
    [ "$status" -eq "$expected" ] || fail "weft launch $*: exit $status, expected $expected"
}

# says FILE TEXT: in a file of the last run.
says() {
    checks=$((checks + 1))
    grep -qF -- "$2" "$folder/$1" || fail "expected '$2'"
}

# having TEXT [STATES]: processes with it in their command line, in one of these states.
having() {
    for process in /proc/[0-9]*; do
        [ "${process#/proc/}" != $$ ] && tr '\0' ' ' <"$process/cmdline" | grep -qF -- "$1" &&
            grep -q "^State:.[${2-A-Za-z}]" "$process/status" && echo "${process#/proc/}"
    done 2>/dev/null
}

# heeding WORDS: a command that takes no signal for ignored because whoever runs this script does, or
# since it is in the background of a script.
heeding() {
    exec env --default-signal=HUP,INT,QUIT,TERM,USR1 "$@"
}

# gone TEXT: no process has it in its command line, soon.
gone() {
    checks=$((checks + 1))
    for _ in $(seq 100); do
        [ -n "$(having "$1")" ] || return 0
        sleep 0.05
    done
    fail "still there: $(having "$1")"
}

# ---- exit statuses ----
# Digits of times to sleep that no other run of this script has.
long=$(printf %010d $$)
ends 0 -n 3 true
ends 1 -n 2 false
ends 7 -n 3 sh -c '[ $WEFT_RANK != 1 ] || exit 7; exec sleep 600.25'"$long"
says err 'rank 1 has ended with status 7; the others are ended'
ends 137 -n 3 sh -c '[ $WEFT_RANK != 2 ] || kill -9 $$; exec sleep 600.25'"$long"
says err 'rank 2 was ended by signal 9 (Killed); the others are ended'
ends 127 -n 2 "$folder/nothing"
says err "weft launch: $folder/nothing: No such file or directory"
[ "$(wc -l <"$folder/err")" -eq 1 ] || fail 'a program that is not there: expected one line'
touch "$folder/plain"
ends 126 -n 2 "$folder/plain"
says err 'Permission denied'
gone "sleep 600.25$long"

# ---- what a process gets ----
ends 0 -n 3 sh -c 'echo $WEFT_RANK $WEFT_SIZE $WEFT_LOCAL_RANK $#' name one two -n 4 --json
checks=$((checks + 1))
[ "$(sort "$folder/out" | tr '\n' ,)" = '0 3 0 5,1 3 1 5,2 3 2 5,' ] || fail 'ranks and words'
ends 0 -n 2 -- sh -c 'echo --'
checks=$((checks + 1))
printf 'a line\n' | "$weft" launch -n 3 cat >"$folder/out" 2>"$folder/err" ||
    fail 'standard input: an error'
[ "$(cat "$folder/out")" = 'a line' ] || fail 'standard input is not rank 0'"'"'s'
ends 0 -n 2 --prefix sh -c 'printf "a\nb without an end"; echo c >&2'
checks=$((checks + 1))
[ "$(sort "$folder/out" | tr '\n' ,)" = '[0] a,[0] b without an end,[1] a,[1] b without an end,' ] ||
    fail 'prefixes of standard output'
[ "$(sort "$folder/err" | tr '\n' ,)" = '[0] c,[1] c,' ] || fail 'prefixes of standard error'
ends 0 -n 2 --prefix sh -c 'head -c 200000 /dev/zero | tr "\0" x; echo'
checks=$((checks + 1))
[ "$(tr -cd x <"$folder/out" | wc -c)" -eq 400000 ] || fail 'long lines are not complete'
ends 0 -n 2 --bind sh -c 'grep Cpus_allowed_list /proc/self/status'
checks=$((checks + 1))
ends 0 -n 2 sh -c 'ls /proc/self/fd | wc -l'
[ "$(sort -u "$folder/out" | wc -l)" -eq 1 ] || fail 'processes inherit different files'
(exec <&- >&- 2>&- && "$weft" launch -n 2 --prefix true) || fail 'without standard files: an error'

# ---- wrong usage ----
wrong 'missing -n; usage: weft launch -n P PROGRAM' launch true
wrong 'missing PROGRAM' launch -n 2
wrong "-n: '0'; expected an integer from 1 to 1024" launch -n 0 true
wrong "unknown option '--prefx', did you mean '--prefix'" launch --prefx -n 2 true
wrong "--grace: 'x'" launch -n 1 --grace x true

# ---- one fails, the others do not hear of it ----
ends 3 -n 3 --grace 0.2 sh -c 'trap "" TERM; [ $WEFT_RANK = 0 ] && exit 3; while :; do sleep 600.5'"$long"'; done'
gone "sleep 600.5$long"
# what a rank has started itself ends with it
ends 3 -n 2 sh -c '[ $WEFT_RANK = 0 ] && { sleep 0.2; exit 3; }; sh -c "sleep 600.75'"$long"'; true"; true'
gone "sleep 600.75$long"

# also what a rank has left behind that has ended before
ends 3 -n 2 sh -c '(setsid sleep 600.85'"$long"' &); exit 3'
gone "sleep 600.85$long"

# ---- a launch in a launch ----
ends 0 -n 2 "$weft" launch -n 2 sh -c 'echo $WEFT_RANK'
checks=$((checks + 1))
[ "$(sort "$folder/out" | tr '\n' ,)" = '0,0,1,1,' ] || fail 'expected two launches of two'
for outer in 'WEFT_RANK=1 WEFT_SIZE=2 WEFT_LAUNCH=x:1:1' PMI_RANK=1; do
    checks=$((checks + 1))
    # shellcheck disable=SC2086
    env $outer "$weft" launch -n 1 "$folder/nothing" >"$folder/out" 2>"$folder/err"
    status=$?
    [ "$status" -eq 127 ] || fail "with $outer: exit $status, expected 127"
    says err 'No such file or directory'
done

# ---- what a process may have is limited ----
# limited WORD LIMIT STATUS: of a launch by a process with this ulimit, whatever BLAS does.
limited() {
    checks=$((checks + 1))
    (ulimit "$1" "$2" && unset OPENBLAS_NUM_THREADS && exec timeout 60 "$weft" launch -n 3 \
        sh -c 'echo ${OPENBLAS_NUM_THREADS-none}') >"$folder/out" 2>"$folder/err" </dev/null
    status=$?
    [ "$status" -eq "$3" ] || fail "ulimit $1 $2: exit $status, expected $3"
}
if [ "${WEFT_TEST_LIMIT-1}" = 1 ]; then
    for limit in '-v 100000' '-d 20000'; do
        # shellcheck disable=SC2086
        limited $limit 0
        [ "$(sort "$folder/out" | tr '\n' ,)" = 'none,none,none,' ] || fail "ulimit $limit: another environment"
    done
fi
checks=$((checks + 1))
(ulimit -f 0 && exec "$weft" launch -n 3 true 2>&1 >/dev/null) | cat >"$folder/err"
says err 'weft launch: weft_launch_create: '
says err 'ulimit -f'

# ---- what they write cannot be passed on ----
checks=$((checks + 1))
"$weft" launch -n 2 --prefix echo hi >/dev/full 2>"$folder/err"
status=$?
[ "$status" -ne 0 ] || fail 'a full disk: exit 0'
says err 'standard output: No space left on device'
checks=$((checks + 1))
{
    timeout 60 "$weft" launch -n 2 --prefix yes 2>"$folder/err"
    echo $? >"$folder/out"
} | head -n 1 >"$folder/head"
[ "$(cat "$folder/out")" -eq 141 ] || fail 'nobody reads: expected exit 141'

# ---- the others go on ----
ends 0 -n 3 --keep-going sh -c '[ $WEFT_RANK != 0 ] || kill -9 $$; sleep 0.3; echo $WEFT_RANK'
checks=$((checks + 1))
[ "$(sort "$folder/out" | tr '\n' ,)" = '1,2,' ] || fail 'those that are left did not go on'
ends 4 -n 3 -k sh -c '[ $WEFT_RANK != 0 ] || kill -9 $$; [ $WEFT_RANK != 1 ] || exit 4'
ends 137 -n 2 -k sh -c 'kill -9 $$'

# ---- signals ----
# pass SIGNAL STATUS SCRIPT: the launcher gets the signal when all ranks have said so.
pass() {
    checks=$((checks + 1))
    rm -f "$folder"/ready.*
    heeding "$weft" launch -n 2 sh -c "$3" name "$folder" >"$folder/out" 2>"$folder/err" &
    launcher=$!
    while [ ! -e "$folder/ready.0" ] || [ ! -e "$folder/ready.1" ]; do sleep 0.02; done
    kill "-$1" $launcher
    wait $launcher
    status=$?
    [ "$status" -eq "$2" ] || fail "signal $1: exit $status, expected $2"
}
ready='touch $1/ready.$WEFT_RANK; while :; do sleep 0.05; done'
pass TERM 143 "$ready"
pass INT 5 "trap 'exit 5' INT; $ready"
pass HUP 6 "trap 'exit 6' HUP; $ready"
# also where a library has threads, which take signals as well
processors=${OPENBLAS_NUM_THREADS:-}
export OPENBLAS_NUM_THREADS=4
pass TERM 7 "trap 'exit 7' TERM; $ready"
for _ in 1 2 3 4 5 6 7 8 9 10; do
    ends 0 -n 4 true
done
OPENBLAS_NUM_THREADS=$processors
pass USR1 0 "trap 'echo \$WEFT_RANK; exit 0' USR1; $ready"
checks=$((checks + 1))
[ "$(sort "$folder/out" | tr '\n' ,)" = '0,1,' ] || fail 'USR1 did not reach both'
# who is killed takes them along
pass KILL 137 "$ready"
gone "$folder"
# who asks twice means it
checks=$((checks + 1))
rm -f "$folder"/ready.*
heeding "$weft" launch -n 2 --grace 0.1 sh -c "trap '' INT TERM; $ready" name "$folder" \
    2>"$folder/err" &
launcher=$!
while [ ! -e "$folder/ready.0" ] || [ ! -e "$folder/ready.1" ]; do sleep 0.02; done
kill -TERM $launcher
# a second one is lost while the first waits to be taken
while ! grep -q '^ShdPnd:[[:space:]]*0*$' "/proc/$launcher/status"; do sleep 0.02; done
kill -TERM $launcher
wait $launcher
status=$?
[ "$status" -eq 137 ] || fail "TERM twice: exit $status, expected 137"
gone "$folder"
# stopped, they all are, and go on
checks=$((checks + 1))
rm -f "$folder"/ready.*
heeding "$weft" launch -n 2 sh -c "trap 'exit 0' USR1; $ready" name "$folder" 2>"$folder/err" &
launcher=$!
while [ ! -e "$folder/ready.0" ] || [ ! -e "$folder/ready.1" ]; do sleep 0.02; done
kill -TSTP $launcher
for _ in $(seq 100); do
    [ "$(having "name $folder" Tt | wc -l)" -ge 3 ] && break
    sleep 0.02
done
[ "$(having "name $folder" Tt | wc -l)" -ge 3 ] || fail 'TSTP did not stop the launcher and both ranks'
kill -CONT $launcher
kill -USR1 $launcher
wait $launcher
status=$?
[ "$status" -eq 0 ] || fail "TSTP, CONT, USR1: exit $status, expected 0"

# ---- commands whose ranks are processes ----
for ranks in 1 2 3; do
    works run allreduce --transport shared -n $ranks --count 100 --iterations 3 --verify --json
    json_lines ranks transport iterations median_us verified
    [ "$(wc -l <"$folder/out")" -eq 1 ] || fail 'expected one line'
    grep -q '"verified":true' "$folder/out" || fail 'not verified'
    grep -q "\"ranks\":$ranks,\"transport\":\"shared\"" "$folder/out" || fail 'ranks, transport'
done
for name in alltoall barrier 'broadcast --count 100000' gtopk 'oktopk --k 20'; do
    # shellcheck disable=SC2086
    works run $name --transport shared -n 3 --iterations 3 --verify --json
    grep -q '"verified":true' "$folder/out" || fail "$name: not verified"
done
works dump allgather -n 3 -o "$folder/three"
works run "$folder/three" --transport shared --verify --json
grep -q '"ranks":3' "$folder/out" || fail 'a file says how many ranks there are'
works run allreduce --transport shared -n 2 --trace "$folder/trace.json"
[ -s "$folder/trace.json" ] || fail 'no trace'
works train --transport shared -n 2 --steps 3 --json
json_lines algorithm ranks steps
grep -q '"ranks":2' "$folder/out" || fail 'train: expected 2 ranks'
wrong '--count' run allreduce --transport shared -n 2 --count x
wrong 'neither a template nor a file' run nothing --transport shared
ends 0 -n 3 "$weft" run allgather --transport shared --verify --json
json_lines ranks verified
[ "$(wc -l <"$folder/out")" -eq 1 ] || fail 'weft launch weft run: expected one line'
# Two ranks need few descriptors.
checks=$((checks + 1))
(ulimit -n 24 && exec "$weft" launch -n 2 "$weft" run allreduce --transport shared --verify) \
    >"$folder/out" 2>&1 || fail "with 24 descriptors: $(cat "$folder/out")"
ends 0 -n 2 "$weft" train --transport shared --steps 2 --json
[ "$(wc -l <"$folder/out")" -eq 1 ] || fail 'weft launch weft train: expected one line'
ends 0 -n 3 "$weft" groups -n 4 --json
[ "$(wc -l <"$folder/out")" -eq 1 ] || fail 'weft launch weft groups: expected one line'
for words in 'run allreduce' 'train --steps 2'; do
    # shellcheck disable=SC2086
    ends 2 -n 2 "$weft" $words
    says err 'weft launch started 2 processes; expected --transport shared'
done
ends 2 -n 2 "$weft" run allreduce --transport shared -n 3
says err '-n: 3, but weft launch started 2; leave -n out'
ends 2 -n 2 "$weft" run allreduce --transport mpi
says err 'expected --transport shared, or mpiexec'
checks=$((checks + 1))
PMI_RANK=0 PMI_SIZE=2 "$weft" run allreduce --transport shared >"$folder/out" 2>"$folder/err"
status=$?
[ "$status" -eq 2 ] || fail "under mpiexec: exit $status, expected 2"
says err 'mpiexec started several processes; expected --transport mpi'

finish
