#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training throughput beside Table IV of gTop-k's paper (Shi et al., ICDCS 2019), predicted.

    tools/scripts/gtopk_throughput.py [WEFT]        WEFT: the command, `weft` if left out

A step takes the rest of a step and one sum over all ranks, which `weft sim` gives for the paper's
network: alpha = 0.436 ms, beta = 3.6e-5 ms an element of 4 bytes. The rest (computation, selection, and
all that a network model does not see) is what the paper's gTop-k step on 32 ranks leaves when its own sum
is taken off. Prints a table of images a second, and the speed-ups on 32 ranks beside the paper's.
"""
import json
import subprocess
import sys

WEFT = sys.argv[1] if len(sys.argv) > 1 else 'weft'
NET = 'L=436,G=0.009'
DENSITY = 0.001
RANKS = (4, 8, 16, 32)
SUMS = {
    'dense': ['allreduce', '--algo', 'ring'],
    'topk': ['topk-allgather'],
    'gtopk, tree': ['gtopk', '--algo', 'tree'],
    'gtopk, butterfly': ['gtopk', '--algo', 'butterfly'],
    'oktopk': ['oktopk'],
}
# Parameters; images a rank (Table III); images a second, dense, topk and gtopk (Table IV). The paper does
# not give the sizes. VGG-16 for Cifar-10 has 14.7 million parameters, with the three fully connected
# layers of which section IV-E speaks 138 million.
MODELS = {
    'ResNet-20': (270_000, 128, (9212, 22272, 25280)),
    'VGG-16': (14_700_000, 128, (403, 2016, 3020)),
    'VGG-16, 138 M': (138_000_000, 128, (403, 2016, 3020)),
    'ResNet-50': (25_600_000, 256, (343, 978, 1251)),
    'AlexNet': (61_100_000, 64, (39, 296, 505)),
}


def seconds(words, ranks, count):
    """What a sum over `ranks` takes."""
    command = [WEFT, 'sim', *words, '-n', str(ranks), '--count', str(count), '--k',
               str(round(count * DENSITY)), '--net', NET, '--json']
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output)['time_us'] * 1e-6


def main():
    print('| model | ranks | rest of a step | ' + ' | '.join(SUMS) + ' |')
    print('| --- | ---: | ---: |' + ' ---: |' * len(SUMS))
    ratios = []
    for model, (count, images, paper) in MODELS.items():
        times = {ranks: {name: seconds(words, ranks, count) for name, words in SUMS.items()}
                 for ranks in RANKS}
        rest = 32 * images / paper[2] - times[32]['gtopk, tree']
        for ranks in RANKS:
            rates = [ranks * images / (rest + times[ranks][name]) for name in SUMS]
            print(f'| {model} | {ranks} | {rest:.3f} s | '
                  + ' | '.join(f'{rate:,.0f}' for rate in rates) + ' |')
        step = {name: rest + time for name, time in times[32].items()}
        ratios.append((model, paper[2] / paper[0], step['dense'] / step['gtopk, tree'],
                       paper[2] / paper[1], step['topk'] / step['gtopk, tree'],
                       32 * images * (1 / paper[0] - 1 / paper[2]),
                       times[32]['dense'] - times[32]['gtopk, tree']))
    print('\n| model | g/d, paper | predicted | g/t, paper | predicted '
          '| dense step less gtopk step, paper | predicted |')
    print('| --- |' + ' ---: |' * 6)
    for row in ratios:
        print('| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} s | {:.2f} s |'.format(*row))


if __name__ == '__main__':
    main()
