#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""For `weft bench gpu --beside`: the k numbers of largest magnitude with torch.topk.

topk_torch.py COUNT K answers every line "N" with "SECONDS NAME": of one of N selections on cuda:0.
"""
import sys
import time

import torch


def main():
    count, k = map(int, sys.argv[1:])
    x = torch.randn(count, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    for line in sys.stdin:
        times = int(line)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            where = torch.topk(x.abs(), k, sorted=False).indices
            x[where]  # the values, with their signs
        torch.cuda.synchronize()
        took = (time.perf_counter() - start) / times
        print(f"{took:.9g} torch.topk {torch.__version__}", flush=True)


if __name__ == "__main__":
    main()
