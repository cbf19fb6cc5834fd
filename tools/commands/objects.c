/* SPDX-License-Identifier: BSD-3-Clause */
/* The collective objects of the library, as `weft list` shows them beside the templates. */
#include "tools/commands/objects.h"

#include <stddef.h>

/* m: the bytes of a model. */
static const struct weft_algorithm group_average[] = {
    {.name = "wait-avoiding",
     .cost = "ceil(log2 P) alpha from activation to the last rank; allreduce of m bytes in S ranks",
     .notes = "every sync period steps an allreduce over P ranks. Li et al., TPDS 2021, sections 3 "
              "and 4; eager-SGD: Li et al., PPoPP 2020. weft/group_average.h"},
};

static const struct weft_algorithm gossip[] = {
    {.name = "ring",
     .cost = "n (alpha + m beta + m gamma)",
     .notes = "D-PSGD, n = 2: Lian et al., NeurIPS 2017. weft/gossip.h"},
    {.name = "exponential",
     .cost = "n (alpha + m beta + m gamma)",
     .notes = "SGP, n = 1: Assran et al., ICML 2019. weft/gossip.h"},
};

static const struct weft_algorithm pair_average[] = {
    {.name = "bipartite",
     .cost = "3 alpha + 2 m beta + m gamma",
     .notes = "AD-PSGD: Lian et al., ICML 2018. weft/gossip.h"},
};

static const struct weft_algorithm sparse_average[] = {
    {.name = "gtopk",
     .cost = "2 ceil(log2 P) (alpha + 8 k beta)",
     .notes = "gTop-k: Shi et al., ICDCS 2019, Algorithm 4. weft/sparse_average.h"},
    {.name = "gtopk-butterfly",
     .cost = "log2 P (alpha + 8 k beta); P no power of two: + 2 (alpha + 8 k beta)",
     .notes = "at powers of two bitwise the result of gtopk, else another one as valid"},
    {.name = "allgather",
     .cost = "log2 P alpha + (P - 1) 8 k beta; P no power of two: + 2 alpha + (P + 1) 8 k beta",
     .notes = "top-k by allgather: Shi et al., ICDCS 2019, Algorithm 1"},
    {.name = "oktopk",
     .cost = "(P - 1 + ceil(log2 P)) alpha + (P - 1)/P 24 k beta",
     .notes = "sums by regions, above a threshold: Li and Hoefler, PPoPP 2022"},
};

static const struct weft_algorithm gradients[] = {
    {.name = "dense",
     .cost = "an allreduce a group of layers, behind the backward pass",
     .notes = "MG-WFBP: Shi et al., INFOCOM 2019. weft/gradients.h"},
    {.name = "sparse",
     .cost = "a sparse average a group, side by side",
     .notes = "the methods of sparse-average"},
    {.name = "compressed",
     .cost = "a compressed average a group, side by side",
     .notes = "the methods of compressed-average"},
};

static const struct weft_algorithm compressed_average[] = {
    {.name = "gradiveq",
     .cost = "an allreduce of m/ratio bytes, projections",
     .notes = "GradiVeQ: Yu et al., NeurIPS 2018. weft/compressed_average.h"},
    {.name = "qsgd",
     .cost = "2 (P - 1) alpha + 2 (P - 1)/P m bits/32 beta",
     .notes = "QSGD over shards: Alistarh et al., NeurIPS 2017"},
    {.name = "powersgd",
     .cost = "two allreduces of rank (rows + columns) elements a matrix",
     .notes = "PowerSGD: Vogels et al., NeurIPS 2019"},
};

/* W workers, N servers; a step. */
static const struct weft_algorithm server[] = {
    {.name = "bsp",
     .cost = "4 alpha + W m/N beta each way, overlapping; merges W m/N gamma",
     .notes = "answers when all have pushed: Gerbessiotis and Valiant 1994. weft/server.h"},
    {.name = "asp",
     .cost = "4 alpha + 2 m/N beta, as far as the link is free",
     .notes = "answers at once: Dean et al., NIPS 2012"},
    {.name = "ssp",
     .cost = "as asp",
     .notes = "nobody more than s steps ahead of the slowest: Ho et al., NIPS 2013"},
    {.name = "dssp", .cost = "as asp", .notes = "s is chosen in a range: Zhao et al., ICDCS 2019"},
    {.name = "r2sp",
     .cost = "as asp; W (alpha + m/N beta) a round",
     .notes = "pushes in turns, beside pulls: Chen, Wang and Li, INFOCOM 2019"},
    {.name = "osp",
     .cost = "as bsp of the important layers; of the others behind the next step",
     .notes = "two stages: Chen et al., ICPP 2023"},
};

static const struct weft_template table[] = {
    {.name = "group-average",
     .summary = "models or gradients averaged in groups that change, waiting for nobody",
     .parameters = "count dtype group-size sync-period mode activation contribution patience seed "
                   "algo",
     .result = "tensors: the mean over a group, of all ranks at a synchronisation",
     .algorithms = group_average,
     .algorithm_count = 1},
    {.name = "gossip",
     .summary = "models averaged with a few neighbours, together",
     .parameters = "count dtype graph neighbours weight",
     .result = "tensors: the weighted mean over this rank and those that send to it",
     .algorithms = gossip,
     .algorithm_count = 2},
    {.name = "pair-average",
     .summary = "models averaged in pairs, waiting for nobody that computes",
     .parameters = "count dtype seed",
     .result = "tensors: the mean with one rank drawn at random",
     .algorithms = pair_average,
     .algorithm_count = 1},
    {.name = "sparse-average",
     .summary = "gradients of which each rank sends the largest entries, and keeps the others",
     .parameters = "count dtype method scope residual density k warmup momentum clip-norm nan "
                   "threshold-steps balance-steps",
     .result = "tensors: the mean over all ranks of what was selected (gtopk, oktopk: of what of "
               "it was kept)",
     .algorithms = sparse_average,
     .algorithm_count = 4},
    {.name = "compressed-average",
     .summary = "gradients that travel in fewer bits",
     .parameters = "count dtype method nan bits norm bucket rank slice components loss residual",
     .result = "tensors: the mean over all ranks, up to what compression drops",
     .algorithms = compressed_average,
     .algorithm_count = 3},
    {.name = "gradients",
     .summary = "layers' gradients, merged and averaged while the backward pass goes on",
     .parameters = "count dtype layers method reduction wire-dtype merge measure-steps check-steps",
     .result = "tensors: the mean over all ranks",
     .algorithms = gradients,
     .algorithm_count = 3},
    {.name = "server",
     .summary = "parameters on servers, to which workers push and from which they pull",
     .parameters = "count dtype layers servers co-located sync staleness push optimiser rate "
                   "momentum flow weight",
     .result = "tensors of workers: the parameters, with whole updates",
     .algorithms = server,
     .algorithm_count = 6},
};

const struct weft_template *object_at(size_t index)
{
    return index < sizeof table / sizeof table[0] ? &table[index] : NULL;
}
