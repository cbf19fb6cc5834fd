#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes what tests/gpu/run.sh has found: report.py OVER BUILD NVCC FILE

OVER is device or standin; BUILD has gpu-stages.tsv, gpu-figures.jsonl and gpu-info.json. FILE is Markdown: the
machine, a table of stages, a table of figures, and all of it as JSON. Figures of a stand-in mean nothing, and
are left out.
"""
import ctypes
import datetime
import json
import pathlib
import platform
import subprocess
import sys


def told(*words):
    """The output of a command; "" if there is none."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def nccl_version():
    version = ctypes.c_int()
    try:
        code = ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return ""
    number = version.value
    return "" if code else f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def stages_of(path):
    stages = []
    for line in path.read_text().splitlines():
        name, *numbers = line.split("\t")
        stages.append(dict(zip(("passed", "failed", "skipped", "seconds"), map(int, numbers)), name=name))
    return stages


def number(value):
    return "" if value is None else f"{value:.4g}"


def main():
    over, build, nvcc, file = sys.argv[1:]
    build = pathlib.Path(build)
    info = json.loads((build / "gpu-info.json").read_text())
    figures = build / "gpu-figures.jsonl"
    rows = [json.loads(line) for line in figures.read_text().splitlines()] if figures.exists() else []
    release = [word for word in told(nvcc, "--version").split() if word.startswith("V")]
    found = {
        "over": over,
        "day": datetime.date.today().isoformat(),
        "weft": info["version"],
        "commit": told("git", "rev-parse", "HEAD"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cuda_driver": info["cuda_driver"],
        "kernel_driver": told("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0],
        "nvcc": release[0][1:] if release else "",
        "nccl": nccl_version(),
        "devices": info["devices"],
        "stages": stages_of(build / "gpu-stages.tsv"),
        "figures": rows if over == "device" else [],
    }
    text = [f"weft {found['weft']} ({found['commit'][:12]}), {found['day']}, {found['system']}: ",
            "over stand-ins, which says nothing of a device" if over != "device" else
            "; ".join(f"{device['device']} {device['name']}, compute capability "
                      f"{device['compute_capability']}, {device['bandwidth'] / 1e9:.4g} GB/s"
                      for device in found["devices"]),
            f". CUDA {found['cuda_driver']} (driver {found['kernel_driver'] or 'unknown'}), nvcc {found['nvcc']}, "
            f"NCCL {found['nccl'] or 'none'}.\n\n",
            "| stage | passed | failed | skipped | seconds |\n| --- | ---: | ---: | ---: | ---: |\n"]
    for stage in found["stages"]:
        text.append("| {name} | {passed} | {failed} | {skipped} | {seconds} |\n".format(**stage))
    if found["figures"]:
        text.append("\n| case | bytes | weft | unit | peer | its | ratio | limit |\n"
                    "| --- | ---: | ---: | --- | --- | ---: | ---: | ---: |\n")
    for row in found["figures"]:
        text.append(f"| {row['case']} | {row.get('bytes', '')} | {number(row['weft'])} | {row['unit']} | "
                    f"{row['peer'] or ''} | {number(row['peer_value'])} | {number(row['ratio'])} | "
                    f"{number(row['limit'])} |\n")
    text.append("\n```json\n" + json.dumps(found, indent=1) + "\n```\n")
    pathlib.Path(file).write_text("".join(text))
    print(f"report: {file}")


if __name__ == "__main__":
    main()
