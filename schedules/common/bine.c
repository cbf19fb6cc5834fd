/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bine (binomial negabinary) trees and butterflies: peers are about a third nearer than those of
 * binomial ones. De Sensi et al., Bine Trees, SC 2025 (arXiv 2508.17311); the butterfly has the
 * peers of Swing (De Sensi et al., NSDI 2024, arXiv 2401.09356).
 *
 * In step k the even rank r meets r + rho(k), the odd one r - rho(k), modulo p, where
 * rho(k) = (1 - (-2)^(k+1)) / 3 = 1, -1, 3, -5, 11 ... In negabinary (base -2), rho(k) is k + 1
 * ones. Numbers of log digits are all residues modulo 2^log.
 *
 * Butterfly: the Gray code of the negabinary digits of r (odd) or -r (even) has the same lowest k
 * bits on two ranks that meet in step k, and another bit k. That is all that halving needs; higher
 * bits are any, so it is no hypercube: what two ranks have combined after a step is of different
 * ranks. Hence reduce-scatter and allgather, in which a block is combined on one rank, and no
 * recursive doubling: ranks would add in different orders and get different bits.
 *
 * Tree: the Gray code of the digits of r itself makes it a binomial tree: a parent's code is the
 * child's without its lowest one, which is bit k if they are |rho(k)| apart.
 */
#include "schedules/common/butterfly.h"

/* Digits of a number modulo 2^log in base -2, and back. */
static uint32_t to_negabinary(uint32_t number, int log)
{
    const uint32_t odd = 0xAAAAAAAAu; /* digits that count negatively */
    return ((number + odd) ^ odd) & (uint32_t)(((uint64_t)1 << log) - 1);
}

static uint32_t from_negabinary(uint32_t digits, int log)
{
    const uint32_t odd = 0xAAAAAAAAu;
    return ((digits ^ odd) - odd) & (uint32_t)(((uint64_t)1 << log) - 1);
}

static uint32_t gray(uint32_t bits)
{
    return bits ^ (bits >> 1);
}

static uint32_t gray_back(uint32_t code)
{
    for (int shift = 1; shift < 32; shift *= 2)
        code ^= code >> shift;
    return code;
}

static uint32_t modulo(int64_t number, int log)
{
    return (uint32_t)((uint64_t)number & (((uint64_t)1 << log) - 1));
}

int weft__bine_peer(int v, int k, int log)
{
    int64_t power = (int64_t)1 << (k + 1);
    int64_t rho = (1 + (k & 1 ? -power : power)) / 3;
    return (int)modulo(v & 1 ? v - rho : v + rho, log);
}

int weft__bine_place(int v, int log)
{
    return (int)gray(to_negabinary(modulo(v & 1 ? v : -(int64_t)v, log), log));
}

int weft__bine_at(int place, int log)
{
    uint32_t number = from_negabinary(gray_back((uint32_t)place), log);
    return (int)(number & 1 ? number : modulo(-(int64_t)number, log));
}

/* The participant whose code from that of the root is `code`. */
static int with_code(const struct weft__butterfly *all, int root, uint32_t code)
{
    int64_t away = from_negabinary(gray_back(code), all->log);
    return (int)modulo(root + away, all->log);
}

static void add_child(struct weft__tree *tree, int index)
{
    tree->child[tree->child_count++] = (struct weft__tree_child){.index = index};
}

void weft__bine_tree_make(struct weft__tree *tree, int index, int size, int root)
{
    const struct weft__group group = {.size = size, .me = index};
    struct weft__butterfly all;
    weft__butterfly_make(&all, &group, WEFT__BINE, root);
    *tree = (struct weft__tree){.parent = -1};
    if (all.me < 0) {
        tree->parent = all.partner;
        return;
    }
    int head = weft__butterfly_participant(&all, root);
    uint32_t code = gray(to_negabinary(modulo((int64_t)all.me - head, all.log), all.log));
    int lowest = 0; /* how many children */
    while (lowest < all.log && !(code >> lowest & 1))
        lowest++;
    if (code)
        tree->parent = weft__butterfly_rank(&all, with_code(&all, head, code & (code - 1)));
    for (int k = lowest; k-- > 0;)
        add_child(tree, weft__butterfly_rank(&all, with_code(&all, head, code | 1u << k)));
    if (all.partner >= 0)
        add_child(tree, all.partner);
}
