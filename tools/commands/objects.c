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
};

const struct weft_template *object_at(size_t index)
{
    return index < sizeof table / sizeof table[0] ? &table[index] : NULL;
}
