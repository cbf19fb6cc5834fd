/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Simulation: what schedules cost on a network that need not exist.
 *
 * A network is described by the LogGOPS model (Hoefler, Schneider, Lumsdaine: "LogGOPSim", HPDC
 * 2010, section 2), and the rules are those of that simulator: docs/simulation.md states them.
 */
#ifndef WEFT_SIM_H
#define WEFT_SIM_H

#include <weft/cost.h>
#include <weft/fabric.h>
#include <weft/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes the schedule of a rank: weft_template_build() with its parameters bound, say. Called once
 * for each rank; with weft_sim_config.threads > 1 from several threads at a time.
 * @return WEFT_OK, with a schedule that the simulation destroys; anything else ends the simulation.
 */
typedef int (*weft_sim_build_fn)(void *user, int rank, struct weft_schedule **schedule);

/** weft_sim_config.flags: keep what every node did (weft_sim_result.nodes_at): 40 bytes a node. */
#define WEFT_SIM_KEEP_NODES 1u

/** weft_sim_firing.rank: of all ranks. */
#define WEFT_SIM_EVERY_RANK (-1)

/** When the application of a rank fires an event: when its computation has got there, say, which is
 *  not the processor's that is simulated. */
struct weft_sim_firing {
    /** Of the event, as weft_schedule_set_label() has it; several may have it. NULL: `event` is its
     *  node. */
    const char *label;
    weft_node_t event;
    /** WEFT_SIM_EVERY_RANK, or of which. */
    int rank;
    /** Microseconds from the start of the simulation. */
    double us;
};

/** What the calls of an operation cost: the sum of the three. */
struct weft_sim_op_cost {
    /** The beginning of its name: "project" is of project-768 and of all others. */
    const char *op;
    /** Microseconds a byte of what it writes, and of what it reads. */
    double written_us_per_byte;
    double read_us_per_byte;
    /** Microseconds a multiply-add, of operations that multiply (weft/compress.h): project,
     *  reconstruct and correlate have n d of n elements and d components, orthonormalise 4 n d^2
     *  of n rows and d columns. */
    double product_us;
};

/** What is simulated. weft_sim_config_init() first. */
struct weft_sim_config {
    size_t struct_size;
    /** Ranks, at least 1. */
    int ranks;
    /** Makes the schedules, one after the other, so that only one is there at a time; `user` is
     *  handed to it. NULL: `schedules` has them. */
    weft_sim_build_fn build;
    void *user;
    /** The schedules of ranks 0 .. ranks - 1; borrowed. */
    const struct weft_schedule *const *schedules;
    /** The network; borrowed for the call. NULL: all is free, as weft_net_init() has it. */
    const struct weft_net *net;
    /** What computing costs, in microseconds a byte of what is written: reductions, copies, calls
     *  of a user's operation. Defaults 0. Joins and events cost nothing. */
    double reduce_us_per_byte;
    double copy_us_per_byte;
    double compute_us_per_byte;
    /** Ranks whose application fires its events, those without a channel, at time 0; borrowed.
     *  NULL: rank 0. On the other ranks the application fires, at time 0 too, only what nothing
     *  else can: not those in a choice with an event that has a channel. Signals fire the events
     *  that have. */
    const int *activators;
    size_t activator_count;
    /** Threads that build schedules; 0 or 1: the caller's alone. The result does not depend on it.
     */
    int threads;
    /** WEFT_SIM_KEEP_NODES, or 0. */
    unsigned flags;
    /** Events that the application fires at times of their own, whatever `activators` says;
     *  borrowed. Of several entries for one event of a rank the last one counts. Each must name
     *  some event. */
    const struct weft_sim_firing *firings;
    size_t firing_count;
    /** Operations of compute nodes with costs of their own; borrowed. Others cost as
     *  `compute_us_per_byte` says. Of several entries for an operation the longest one counts. */
    const struct weft_sim_op_cost *op_costs;
    size_t op_cost_count;
    /** How hosts are wired; borrowed for the call. NULL, or of no kind: no two messages share
     *  anything, and all that is below stays empty. */
    const struct weft_fabric *fabric;
    /** So many of the links that carried most are told of (weft_sim_result.links). Default 8. */
    int links;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_sim_config_init_sized(struct weft_sim_config *config, size_t size);
#define weft_sim_config_init(config) weft_sim_config_init_sized((config), sizeof *(config))

/** What a node did. Times are microseconds from the start of the simulation, -1: it never came. */
struct weft_sim_node {
    /** Its predecessors had ended. */
    double ready_us;
    /** It took the processor; a receive: its message began to come in; an event: it has fired. */
    double start_us;
    /** It ended. A receive may have started before it was ready, and ends no earlier than that. */
    double end_us;
    /** Send and receive: the other side; signals and all else: -1. */
    int peer;
    weft_node_t peer_node;
    /** 1: retired by a choice, it never starts. */
    int retired;
};

/** Why a step of the critical path could not start earlier. */
typedef enum weft_sim_reason {
    /** It starts at time 0. */
    WEFT_SIM_FIRST,
    /** The step before it is a predecessor that had to end. */
    WEFT_SIM_ORDER,
    /** A receive: the step before it is the send of its message. */
    WEFT_SIM_MESSAGE,
    /** The step before it occupied the processor. */
    WEFT_SIM_PROCESSOR,
    /** The step before it occupied the link. */
    WEFT_SIM_LINK,
    /** A rendezvous send that waited for its receive, the step before it, to be posted. */
    WEFT_SIM_RENDEZVOUS,
    /** An event: the application fired it then (weft_sim_config.firings). */
    WEFT_SIM_TIME
} weft_sim_reason_t;

/** "first", "order", "message", "processor", "link", "rendezvous", "time"; NULL if there is no such
 *  reason. */
WEFT_EXPORT const char *weft_sim_reason_name(weft_sim_reason_t reason);

/** A step of the critical path. */
struct weft_sim_step {
    int rank;
    weft_node_t node;
    weft_node_kind_t kind;
    /** Send, receive, signal: the other rank, and the bytes of the message; else -1, and the bytes
     *  that are computed. */
    int peer;
    uint64_t bytes;
    double start_us;
    double end_us;
    weft_sim_reason_t reason;
};

/** Something because of which a schedule does not end, or a message that nobody receives. */
struct weft_sim_fault {
    int rank;
    /** -1: none in particular. */
    weft_node_t node;
    /** One line that names rank, node, and what is missing. */
    const char *text;
};

/** What came over the links of a dimension of a torus, or over those up to and down from the
 *  switches of a level of a fat tree. */
struct weft_sim_level {
    /** Links, each direction counted by itself. */
    uint64_t links;
    /** Their bytes together: a message counts on each that it crosses. */
    uint64_t bytes;
    /** Bytes of the messages that cross any of them; a message counts once. */
    uint64_t crossing_bytes;
    /** What they carried of what they could have carried until the end: 0 .. 1. */
    double utilisation;
};

/** A link, in one direction. */
struct weft_sim_link {
    /** What it leaves, and where it leads: coordinates on a torus, "(31,0)"; in a fat tree
     *  "host 7", "switch 1.3", which is number 3 of those of level 1. */
    char from[48];
    char to[48];
    /** Its dimension, or its level, as in weft_sim_result.levels. */
    int level;
    /** What it carried: messages, and their bytes. */
    uint64_t messages;
    uint64_t bytes;
    /** What it carried of what it could have carried until the end: 0 .. 1. */
    double utilisation;
};

/** What came out. Made by weft_simulate(), freed by weft_sim_result_destroy(). */
struct weft_sim_result {
    size_t struct_size;
    int ranks;
    /** 1: every node of every rank ended or was retired, and every message was received. */
    int complete;
    /** When the last rank had finished, in microseconds. */
    double time_us;
    /** When each rank's processor had finished, in microseconds; [ranks]. */
    const double *rank_us;
    /** Nodes there are; those that never ended; payload messages and their bytes; signals. */
    uint64_t nodes;
    uint64_t stuck;
    uint64_t messages;
    uint64_t bytes;
    uint64_t signals;
    /** What led to the end of the last rank, in the order of time. Of equals, the lowest rank. If
     *  that took in a signal in the end, the path ends with its sending. */
    const struct weft_sim_step *path;
    size_t path_length;
    /** If it is not complete: the first faults, beginning with a cycle of waits where there is one.
     */
    const struct weft_sim_fault *faults;
    size_t fault_count;
    /** With WEFT_SIM_KEEP_NODES: node n of rank r is nodes_at[first_node[r] + n]; [ranks + 1]. */
    const uint64_t *first_node;
    const struct weft_sim_node *nodes_at;
    /** With a fabric: bytes of all messages and signals; its dimensions, or levels from the hosts
     *  up, [level_count]. Of a fat tree the last one's crossing_bytes are those that go over the
     *  top. */
    uint64_t sent_bytes;
    const struct weft_sim_level *levels;
    size_t level_count;
    /** The busiest links, by bytes, of equals the lowest number first; those that carried nothing
     *  are not among them. */
    const struct weft_sim_link *links;
    size_t link_count;
};

/**
 * Simulates one run of the schedules, all ranks starting at time 0, without payloads: messages have
 * the sizes that their regions state, so up-to receives and regions with a value count as full.
 * Peers are the ranks of the schedules. Deterministic: the same input gives the same result.
 * @return WEFT_OK, also if the schedules do not end (result->complete is 0 then);
 *         WEFT_ERR_INVALID (an argument; schedules that do not fit together: rank, size);
 *         WEFT_ERR_DUPLICATE as weft_schedule_commit(); WEFT_ERR_UNSUPPORTED (a time beyond 26
 *         days); WEFT_ERR_MEMORY; what `build` returned. More ranks than a fabric has room for are
 *         WEFT_ERR_INVALID; hosts may have none. Any thread; does not block.
 */
WEFT_EXPORT int weft_simulate(const struct weft_sim_config *config,
                              struct weft_sim_result **result);

/** Frees a result. NULL is accepted. */
WEFT_EXPORT void weft_sim_result_destroy(struct weft_sim_result *result);

#ifdef __cplusplus
}
#endif

#endif
