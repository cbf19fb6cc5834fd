/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Fabrics: how the hosts of a simulated network are wired, so that messages share the links of
 * their routes. docs/simulation.md states the rules.
 */
#ifndef WEFT_FABRIC_H
#define WEFT_FABRIC_H

#include <weft/cost.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The most levels: dimensions of a torus, levels of switches of a fat tree. */
#define WEFT_FABRIC_LEVELS 8

/** weft_fabric.flags: ranks are on hosts drawn at random, by `seed`: a random allocation. */
#define WEFT_FABRIC_RANDOM 1u

/** How hosts are wired. */
typedef enum weft_fabric_kind {
    /** Not at all: no two messages share anything, as in LogGOPS. */
    WEFT_FABRIC_NONE,
    /** A torus of `extents[0]` x `extents[1]` x ... hosts, numbered as MPI_Cart_create() numbers:
     *  the last dimension is the fastest. A host has a link in each direction of each dimension;
     *  one in a dimension of 2, none in one of 1. Routes are minimal and dimension-ordered, from
     *  dimension 0 on. Of two ways round a ring that are as long, the one in the positive direction
     *  is taken from even coordinates, the other one from odd. */
    WEFT_FABRIC_TORUS,
    /** A fat tree: extents[0] hosts at a leaf switch, extents[1] leaf switches under each
     *  subtree of level 2, and so on; equal extents are a k-ary n-tree (Petrini, Vanneschi, IPPS
     *  1997), any are XGFT(n; m; w) (Oehring, Ibel, Das, Kumar, IPPS 1995). A host has one link up,
     *  a leaf switch extents[0] / `oversubscription`, a switch above as many as down. Routes go up
     *  to the lowest common switch and down again; the way up is chosen by the destination
     *  (D-mod-k: Zahavi, "Fat-tree routing and node ordering providing contention free traffic for
     *  MPI global collectives", JPDC 2012). */
    WEFT_FABRIC_FAT_TREE
} weft_fabric_kind_t;

/** The wiring of a network. weft_fabric_init() first. Links are two, one for each direction, each
 *  with a latency and a bandwidth. */
struct weft_fabric {
    size_t struct_size;
    weft_fabric_kind_t kind;
    /** Of `extents` that count: 1 to WEFT_FABRIC_LEVELS. */
    int levels;
    /** Each at least 1; their product, the number of hosts, at most 2^30. */
    int extents[WEFT_FABRIC_LEVELS];
    /** Of leaf switches: links down for each link up. Default 1. A divisor of extents[0]. */
    int oversubscription;
    /** Ranks of a host, which share its links; default 1. Rank r is on host r / ranks_per_host. */
    int ranks_per_host;
    /** Latency of a link, in microseconds, on top of L of the network. */
    double hop_us;
    /** 1 / bandwidth of a link. Default: G of the network. */
    double link_us_per_byte;
    /** The host of each rank, as many as there are ranks; borrowed. NULL: as `ranks_per_host` and
     *  `flags` say. */
    const int *hosts;
    /** A plain number. */
    uint64_t seed;
    /** WEFT_FABRIC_RANDOM, or 0. */
    unsigned flags;
};

/** No fabric, as weft_context_config_init(). */
WEFT_EXPORT void weft_fabric_init_sized(struct weft_fabric *fabric, size_t size);
#define weft_fabric_init(fabric) weft_fabric_init_sized((fabric), sizeof *(fabric))

/** "torus", "fat-tree"; NULL: WEFT_FABRIC_NONE, or there is no such kind. */
WEFT_EXPORT const char *weft_fabric_kind_name(weft_fabric_kind_t kind);

/**
 * Reads "torus=32x32,hop=0.05,L=1,G=0.0001": the words of weft_net_parse(), into @p net, and into
 * @p fabric "torus=AxB..." or "fat-tree=AxB..." (extents) and, with one of them,
 * "oversubscription=F", "ranks-per-host=R", "hop=US", "link=US_PER_BYTE", and "place=linear" or
 * "place=random:SEED" (WEFT_FABRIC_RANDOM); each once, in any order. What is left out keeps its
 * value. Any thread.
 * @return WEFT_OK; WEFT_ERR_INVALID with a text that says which word is wrong and what was
 *         expected; then neither has changed.
 */
WEFT_EXPORT int weft_fabric_parse(const char *text, struct weft_fabric *fabric,
                                  struct weft_net *net);

#ifdef __cplusplus
}
#endif

#endif
