#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sums and training on a slow network that this machine does not have: every rank in a network
# namespace of its own, a veth pair from each to a bridge, and a token bucket (tc tbf) on both ends of
# each pair, so that a rank sends and receives no faster than the rate. MPICH over TCP between them.
#
#   sudo tools/scripts/limited_link.sh [OPTION...] [-- COMMAND...]
#
#   --rates R,...     of a link, as tc writes them          (1gbit,100mbit)
#   --ranks P,...     one namespace a rank                  (4,8)
#   --bytes SIZE,...  dense vectors, for weft bench gtopk   (4000000,40000000)
#   --density D,...   pairs by elements                     (0.001)
#   --rounds N        turns of each contender               (3)
#   --steps N         of training, 0: none                  (20)
#   --hidden N,...    widths of the perceptron              (1024,1024)
#   --burst SIZE      of the token bucket                   (2kb)
#   --queue SIZE      room in front of the link to a rank   (2mb)
#   --tcp NAME        congestion control, as reno or bbr    (this machine's)
#   --weft PATH       the command                           (build/tools/weft)
#   --output DIR      keeps costs.json of every network there
#
# For each rate and number of ranks: a check that what ranks send does cross the links, and no faster
# than they allow; alpha and beta on this network (weft bench model); dense, top-k and gTop-k sums beside
# the formulas with these (weft bench gtopk); training throughput. With COMMAND: that alone, on all
# ranks, and what crossed each rank's link, was sent again, or waited for TCP's timer, and what the
# queue in front of the link did not take: a port of a switch has room for some packets (--queue 32kb),
# and where many ranks send to one that is not enough. The defaults take some ten minutes.
# Everything is made in namespaces weft-link-PID-* and taken away in the end, also after an error or
# a signal. Exit status 2: what it needs is not here.
set -euo pipefail

say() { echo "limited_link.sh: $*" >&2; }
refuse() {
    say "$*"
    exit 2
}

rates=1gbit,100mbit ranks=4,8 bytes=4000000,40000000 density=0.001 rounds=3 steps=20
hidden=1024,1024 burst=2kb queue=2mb tcp= output=
weft=$(dirname "$0")/../../build/tools/weft
while (($#)); do
    case $1 in
    --rates | --ranks | --bytes | --density | --rounds | --steps | --hidden | --burst | --queue | --tcp | --weft | --output)
        (($# > 1)) || refuse "$1: expected a value after it"
        declare "${1#--}=$2"
        shift 2
        ;;
    -h | --help)
        sed -n 's/^# \{0,1\}//; 3,/^set/ { /^set/d; p; }' "$0"
        exit 0
        ;;
    --)
        shift
        break
        ;;
    *) refuse "'$1' is unknown; expected an option (see --help), or -- and a command" ;;
    esac
done

# every NAME PATTERN EXPECTED: each item of the list in the variable of that name is so.
every() {
    local item list=${!1}
    [[ -n $list ]] || refuse "--$1: ''; expected $3"
    while IFS= read -r -d, item; do
        [[ $item =~ ^($2)$ ]] || refuse "--$1: '$item'; expected $3"
    done <<<"$list,"
}

every rates '0*[1-9][0-9]*([.][0-9]+)?([kKmMgGtT]i?)?(bit|bps)' 'rates as tc writes them, as 100mbit'
every ranks '[1-9][0-9]{0,2}' '2 to 250'
for P in ${ranks//,/ }; do
    ((P >= 2 && P <= 250)) || refuse "--ranks: '$P'; expected 2 to 250"
done
every bytes '[1-9][0-9]*[kMG]|([1-9][0-9]*)?([02468][048]|[13579][26])|[48]' \
    'multiples of 4, or sizes as 4M'
every density '1([.]0*)?|0?[.]0*[1-9][0-9]*|[1-9]([.][0-9]+)?e-[1-9][0-9]*' 'shares above 0, up to 1'
every rounds '[1-9][0-9]?|10[01]' '1 to 101'
every steps '0|[1-9][0-9]{0,8}' 'a number of steps'
every hidden '[1-9][0-9]{0,7}' 'widths of layers'
[[ -z $output ]] || mkdir -p "$output" 2>/dev/null ||
    refuse "--output: cannot make '$output'; expected a directory to write to"

# ---- what it needs ----

missing=()
for program in ip tc mpiexec awk; do
    command -v "$program" >/dev/null || missing+=("$program")
done
((${#missing[@]} == 0)) ||
    refuse "not found: ${missing[*]}; expected ip and tc (package iproute2), MPICH's mpiexec, awk"
(($(id -u) == 0)) || refuse "needs root, to make network namespaces; expected: sudo $0"
[[ -x $weft ]] || refuse "--weft: $weft is no program; expected the weft command"
weft=$(readlink -f "$weft")
# (Read as a whole, not by grep -q, which leaves before the writer has ended.)
[[ $(mpiexec --version 2>&1) == *HYDRA* ]] ||
    refuse "$(command -v mpiexec) is not MPICH's; expected hydra, whose launcher can be replaced"
[[ $("$weft" info --json) == *'"mpi"'* ]] || refuse "$weft was built without MPI"
if [[ ! $burst =~ ^([0-9]+)(k?)b$ ]]; then
    refuse "--burst: '$burst'; expected bytes, as 2kb or 3000b"
fi
burst_bytes=$((BASH_REMATCH[1] * (${#BASH_REMATCH[2]} ? 1024 : 1)))
if [[ ! $queue =~ ^0*[1-9][0-9]*(k|m)?b$ ]]; then
    refuse "--queue: '$queue'; expected bytes, as 32kb or 2mb"
fi

# ---- the network ----

prefix='weft-link'
id=$prefix-$$
folder=$(mktemp -d)

namespaces() { ip netns list | awk -v start="$1-" 'index($1, start) == 1 { print $1 }'; }

# Ends what runs in namespaces, then the namespaces; links go with them.
remove() {
    local namespace pids
    for namespace in $(namespaces "$1"); do
        while pids=$(ip netns pids "$namespace" 2>/dev/null) && [[ -n $pids ]]; do
            # shellcheck disable=SC2086
            kill -KILL $pids 2>/dev/null || true
            wait 2>/dev/null || true
        done
        ip netns del "$namespace" || true
    done
}

cleanup() {
    trap '' INT TERM HUP
    remove "$id"
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# What a run that was killed (-KILL) has left.
for namespace in $(namespaces "$prefix"); do
    owner=${namespace#"$prefix"-}
    owner=${owner%%-*}
    if [[ $owner =~ ^[0-9]+$ && ! -d /proc/$owner ]]; then
        say "removing $namespace, left by a process that is gone"
        remove "$prefix-$owner"
    fi
done

# try WHAT COMMAND...: COMMAND, or the reason why there is no such network here.
try() {
    local what=$1 why
    shift
    why=$("$@" 2>&1) || refuse "cannot make $what here: ${why:-$1 failed}; expected a kernel with" \
        "network namespaces, veth, bridge and sch_tbf, and the right to use them"
}

limit() { # NAMESPACE INTERFACE RATE QUEUE
    try "a token bucket of $3" ip netns exec "$1" \
        tc qdisc add dev "$2" root tbf rate "$3" burst "$burst" limit "$4"
}

make_network() { # RATE P
    local r
    try "a network namespace" ip netns add "$id-hub"
    try "a bridge" ip -n "$id-hub" link add bridge0 type bridge
    try "a bridge" ip -n "$id-hub" addr add 10.0.0.254/24 dev bridge0
    ip -n "$id-hub" link set bridge0 up
    ip -n "$id-hub" link set lo up
    for ((r = 0; r < $2; r++)); do
        try "a network namespace" ip netns add "$id-$r"
        try "a veth pair" ip -n "$id-hub" link add "port$r" type veth peer name eth0 netns "$id-$r"
        ip -n "$id-hub" link set "port$r" master bridge0 up
        ip -n "$id-$r" link set lo up
        ip -n "$id-$r" addr add "10.0.0.$((r + 1))/24" dev eth0
        ip -n "$id-$r" link set eth0 up
        [[ -z $tcp ]] || try "congestion control '$tcp'" ip netns exec "$id-$r" \
            sysctl -qw "net.ipv4.tcp_congestion_control=$tcp"
        limit "$id-$r" eth0 "$1" 2mb
        limit "$id-hub" "port$r" "$1" "$queue"
    done
}

# hydra calls this as it would ssh: options, host, command.
cat >"$folder/launcher" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec ip netns exec "$id-\$((\${host##*.} - 1))" sh -c "\$*"
END
chmod +x "$folder/launcher"

# on_ranks P COMMAND...: one rank a namespace; over TCP on the limited link and nothing else. In the
# background, so that a signal ends it. WEFT_FINALIZE: docs/cli.md.
on_ranks() {
    local P=$1 hosts r child status=0
    shift
    hosts=10.0.0.1:1
    for ((r = 1; r < P; r++)); do hosts+=,10.0.0.$((r + 1)):1; done
    ip netns exec "$id-hub" env UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 FI_PROVIDER=tcp \
        FI_TCP_IFACE=eth0 OPENBLAS_NUM_THREADS=1 WEFT_FINALIZE=0 mpiexec -launcher ssh \
        -launcher-exec "$folder/launcher" -iface bridge0 -hosts "$hosts" -ppn 1 -n "$P" "$@" \
        </dev/null &
    child=$!
    wait "$child" || status=$?
    return "$status"
}

sent() { # RANK: bytes that its link has taken, frames and all
    ip netns exec "$id-$1" cat /sys/class/net/eth0/statistics/tx_bytes
}

# counter RANK FILE NAME: of TCP there, a line of names and a line of numbers.
counter() {
    ip netns exec "$id-$1" cat "/proc/net/$2" | awk -v name="$3" '{
        for (i = 2; i <= NF; i++)
            if (names[$1 " " i] == name) print $i; else names[$1 " " i] = $i
    }'
}

dropped() { # RANK: packets for it that found the queue full
    ip netns exec "$id-hub" tc -s qdisc show dev "port$1" |
        sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | head -n 1
}

field() { # NAME: of JSON lines, where it is a number
    sed -n 's/.*"'"$1"'":\(-\{0,1\}[0-9][0-9.eE+-]*\).*/\1/p'
}

rate_of() { # bits a second, as tc has understood it
    ip netns exec "$id-0" tc -d qdisc show dev eth0 | awk '{
        for (i = 1; i < NF; i++) if ($i == "rate") {
            r = $(i + 1) + 0
            if ($(i + 1) ~ /Gbit/) r *= 1e9; else if ($(i + 1) ~ /Mbit/) r *= 1e6
            else if ($(i + 1) ~ /Kbit/) r *= 1e3
            print r
            exit
        } }'
}

# A ring allreduce of 1 MB and a half: each rank sends 2 (P - 1) / P of that. All of it must have gone
# through the rank's link, and have taken the time that this needs.
check_network() { # RATE P
    local P=$2 r before=() count=375000 payload us status=0
    payload=$((2 * (P - 1) * (count / P) * 4))
    for ((r = 0; r < P; r++)); do before[r]=$(sent "$r"); done
    on_ranks "$P" "$weft" run allreduce --transport mpi --algo ring --count "$count" --iterations 1 \
        --verify --json >"$folder/run"
    us=$(field median_us <"$folder/run")
    for ((r = 0; r < P; r++)); do
        local through=$(($(sent "$r") - before[r]))
        if ((through < payload)); then
            say "rank $r sent $payload bytes, of which $through went through its link: MPI has" \
                "another way, and nothing that is measured here would be true"
            status=1
        fi
    done
    awk -v us="$us" -v bytes="$payload" -v burst="$burst_bytes" -v rate="$(rate_of)" -v P="$P" \
        'BEGIN {
            least = (bytes - burst) * 8e6 / rate
            printf "%d ranks: %d bytes of each in %.0f us through its link, %.0f Mbit/s of %.0f\n",
                   P, bytes, us, bytes * 8 / us, rate / 1e6
            exit us < least
        }' || {
        say "that is faster than the link allows: it is not limited"
        status=1
    }
    return "$status"
}

# ---- what is measured ----

train() { # P
    local name algorithms=
    for name in allreduce topk gtopk oktopk; do
        if [[ $("$weft" train --help) =~ $'\n  '${name}[[:space:]] ]]; then
            algorithms+=,$name
        fi
    done
    echo "Training with hidden layers $hidden, density ${density%%,*}, $steps steps; images a second:"
    on_ranks "$1" "$weft" train --transport mpi --algorithm "${algorithms#,}" --steps "$steps" \
        --hidden "$hidden" --density "${density%%,*}" --json >"$folder/train"
    awk '/^{/ {
            match($0, /"algorithm":"[^"]*"/); name = substr($0, RSTART + 13, RLENGTH - 14)
            match($0, /"samples_per_second":[0-9.eE+-]*/)
            rate = substr($0, RSTART + 21, RLENGTH - 21) + 0
            if (NR == 1) first = rate
            printf "  %-10s %10.1f   %.2f times allreduce\n", name, rate, rate / first
        }' "$folder/train"
    echo "  (32 nodes, 1 Gbit/s, 4 models: gTop-k 2.7 to 12.8 times dense, 1.1 to 1.7 times top-k;"
    echo "  Shi et al., ICDCS 2019, Table IV)"
}

measure() { # RATE P
    local costs=$folder/costs.json
    rm -f "$costs"
    on_ranks "$2" "$weft" bench model --rounds "$rounds" -o "$costs" >/dev/null
    if [[ -n $output ]]; then
        cp "$costs" "$output/costs-$1-$2.json"
    fi
    on_ranks "$2" "$weft" bench gtopk --cost "$costs" --bytes "$bytes" --density "$density" \
        --rounds "$rounds"
    if ((steps > 0)); then
        train "$2"
    fi
}

for rate in ${rates//,/ }; do
    for P in ${ranks//,/ }; do
        echo
        echo "== $rate, $P ranks"
        make_network "$rate" "$P"
        if (($# > 0)); then
            on_ranks "$P" "$@"
            for ((r = 0; r < P; r++)); do
                echo "rank $r: $(sent "$r") bytes through its link," \
                    "$(counter "$r" snmp RetransSegs) segments again," \
                    "$(counter "$r" netstat TCPTimeouts) timeouts, $(dropped "$r") dropped for it"
            done
        else
            check_network "$rate" "$P"
            measure "$rate" "$P"
        fi
        remove "$id"
    done
done
