# SPDX-License-Identifier: BSD-3-Clause
# weft info and devices, over the stand-in of the driver: $2, libcuda.so.1.
. "$(dirname "$0")/common.sh"
driver=$(cd "$(dirname "$2")" && pwd)
unset LD_LIBRARY_PATH # who runs this may have put the stand-in there

# says PATTERN: a line of the last output, up to spaces.
says() {
    checks=$((checks + 1))
    tr -s ' ' <"$folder/out" | grep -qE "^ ?$1\$" || fail "weft info: expected '$1'"
}

works info
if [ -e /usr/lib/x86_64-linux-gnu/libcuda.so.1 ] || ldconfig -p | grep -q 'libcuda\.so\.1'; then
    echo "without a driver: skipped, there is one"
else
    says 'gpu no device: there is no CUDA driver: libcuda.so.1: cannot open .*'
    works info --json
    json_lines gpu gpu_why cuda_driver devices
    grep -q '"gpu":"no device","gpu_why":"there is no CUDA driver: .*","cuda_driver":"","devices":\[\]' \
        "$folder/out" || fail "weft info --json without a driver"
fi

export LD_LIBRARY_PATH="$driver"
export STANDIN_DEVICES=0
works info
says 'gpu no device: there is a CUDA driver, and no device'
export STANDIN_DEVICES=2
works info
says 'gpu CUDA, a driver of version [0-9]+\.[0-9]+'
says 'cuda:1 stand-in 1: 1 GiB at 32 GB/s, compute capability 8\.6, 4 multiprocessors, PCI 0000:02:00\.0'
says 'to cuda:0: peer access with atomics \(as NVLink\)'
STANDIN_PEERS=0 works info
says 'to cuda:0: copies only'
works info --json
json_lines gpu gpu_why cuda_driver devices
checks=$((checks + 1))
python3 - "$folder/out" <<'END' || fail "weft info --json: devices"
import json, sys
said = json.load(open(sys.argv[1]))
assert said['gpu'] is True and said['gpu_why'] == '', said
first, second = said['devices']
assert first['device'] == 'cuda:0' and first['memory_bytes'] == 1 << 30, first
assert first['bandwidth'] == 32e9, first
assert second['links'] == [{'device': 'cuda:0', 'access': True, 'atomics': True, 'rank': 0}], second
END
# A driver that fails is no error of the command.
STANDIN_FAIL=1 works info
says 'gpu no device: cuInit: CUDA_ERROR_UNKNOWN .*'
STANDIN_FAIL=4:2 works info
says 'gpu no device: cu[A-Za-z]+: CUDA_ERROR_OUT_OF_MEMORY .*'

# Alone, with what else it needs: there is no libweft-cuda.
mkdir "$folder/alone"
cp "$weft" "$folder/alone/weft"
library=$(ldd "$weft" | sed -n 's/.*libweft\.so\.0 => \([^ ]*\).*/\1/p')
cp "$library" "$folder/alone/libweft.so.0"
LD_LIBRARY_PATH=$folder/alone:$LD_LIBRARY_PATH
weft=$folder/alone/weft
works info
says 'gpu not built in'
works info --json
grep -q '"gpu":false,"gpu_why":"libweft-cuda is not installed: ' "$folder/out" ||
    fail "weft info --json without libweft-cuda"
# One of another version.
version=$("$weft" --version | sed 's/.* //')
LC_ALL=C sed "s/$(echo "$version" | sed 's/\./\\./g')\x00/$(echo "$version" | tr 0-9 9)\x00/g" \
    "$(dirname "$library")/libweft-cuda.so.0" >"$folder/alone/libweft-cuda.so.0"
works info
says "gpu no device: .*/libweft-cuda\.so\.0 9\.9\.9 does not belong to libweft $version: install both from one build"
finish
