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

#include <weft/context.h>
#include <weft/schedule.h>
#include <weft/template.h>

#ifdef __cplusplus
extern "C" {
#endif

/** weft_net.flags: LogGOPSim to the letter, for comparisons with that program: a message of m bytes
 *  takes (m - 1) G and not m G, and of the nodes that become ready at one instant, sends go before
 *  receives before computations, and not each in its order of creation. */
#define WEFT_NET_LOGGOPSIM 1u

/**
 * A LogGOPS network: times in microseconds, or microseconds a byte. A message of m bytes that a
 * rank begins to send at t occupies its processor until t + o + m O, its outgoing link until t + g
 * + m G; the first byte is at the receiver at t + o + L. There it occupies the processor for
 * o + max(m O, m G), then the receive has ended, and the incoming link for g + m G. Outgoing and
 * incoming links are two. What finds its processor or link busy waits.
 */
struct weft_net {
    size_t struct_size;
    /** Latency: from the end of the sender's overhead to the first byte at the receiver. */
    double L;
    /** Overhead of a message, on the processors of the sender and of the receiver. */
    double o;
    /** Gap between messages on a link, beside their bytes. */
    double g;
    /** Gap a byte: 1 / bandwidth. */
    double G;
    /** Overhead a byte, on the processors of the sender and of the receiver. */
    double O;
    /** The largest message that is sent eagerly, in bytes. The send of a larger one ends when its
     *  receive has been posted and its first byte is there, and not before. */
    uint64_t S;
    /** WEFT_NET_LOGGOPSIM, or 0. */
    unsigned flags;
};

/** A network on which everything is free: all times 0, S = UINT64_MAX (every message is eager). */
WEFT_EXPORT void weft_net_init(struct weft_net *net);

/**
 * Reads "L=1.5,o=0.1,g=0,G=0.0004,O=0,S=65536": any of the six letters, each once, in any order;
 * what is left out keeps its value in @p net (so call weft_net_init() first).
 * @return WEFT_OK; WEFT_ERR_INVALID with a text that says which word is wrong and what was expected
 *         (L, o, g: 0 .. 1e12 microseconds; G, O: 0 .. 1e9 microseconds a byte; S: bytes); then
 *         @p net is as it was.
 */
WEFT_EXPORT int weft_net_parse(const char *text, struct weft_net *net);

/* ---- what was measured ---- */

/**
 * Reads what a transport costs from a file that `weft bench model -o` has written;
 * docs/simulation.md gives its form.
 * @param transport "local" or "mpi".
 * @param model receives the costs, complete but for segment_bytes, which stays where the file has
 * none.
 * @param net receives the network; NULL: not wanted.
 * @return WEFT_OK; WEFT_ERR_IO; WEFT_ERR_FORMAT with a text that names the key, what was found and
 *         what was expected; WEFT_ERR_NOT_FOUND (the file has nothing of this transport);
 *         WEFT_ERR_INVALID; WEFT_ERR_MEMORY. After an error nothing has changed.
 */
WEFT_EXPORT int weft_cost_model_read(const char *path, const char *transport,
                                     struct weft_cost_model *model, struct weft_net *net);

/**
 * What the file that WEFT_COST named when a context was made says of its transport. A file that
 * could not be read has been logged as a warning. weft_template_create_run() chooses by it; all
 * ranks must have read the same.
 * @return WEFT_OK; WEFT_ERR_NOT_FOUND (there was none, or nothing of this transport in it);
 *         WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_context_cost(const struct weft_context *context,
                                  struct weft_cost_model *model);

/**
 * Writes what a transport costs to a file; what the file holds of other transports is kept.
 * @param residual how far the measurements were off the fit: root mean square of the relative
 * errors.
 * @return WEFT_OK; WEFT_ERR_IO; WEFT_ERR_FORMAT (there is a file, and it is something else: it is
 *         left alone); WEFT_ERR_INVALID; WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_cost_model_write(const char *path, const char *transport,
                                      const struct weft_cost_model *model,
                                      const struct weft_net *net, double residual);

/* ---- schedules on a network ---- */

/**
 * Makes the schedule of a rank: weft_template_build() with its parameters bound, say. Called once
 * for each rank; with weft_sim_config.threads > 1 from several threads at a time.
 * @return WEFT_OK, with a schedule that the simulation destroys; anything else ends the simulation.
 */
typedef int (*weft_sim_build_fn)(void *user, int rank, struct weft_schedule **schedule);

/** weft_sim_config.flags: keep what every node did (weft_sim_result.nodes_at): 40 bytes a node. */
#define WEFT_SIM_KEEP_NODES 1u

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
    struct weft_net net;
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
};

WEFT_EXPORT void weft_sim_config_init(struct weft_sim_config *config);

/** What a node did. Times are microseconds from the start of the simulation, -1: it never came. */
struct weft_sim_node {
    /** Its predecessors had ended. */
    double ready_us;
    /** It took the processor; a receive: its message began to come in. */
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
    WEFT_SIM_RENDEZVOUS
} weft_sim_reason_t;

/** "first", "order", "message", "processor", "link", "rendezvous"; NULL if there is no such reason.
 */
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
};

/**
 * Simulates one run of the schedules, all ranks starting at time 0, without payloads: messages have
 * the sizes that their regions state, so up-to receives and regions with a value count as full.
 * Peers are the ranks of the schedules. Deterministic: the same input gives the same result.
 * @return WEFT_OK, also if the schedules do not end (result->complete is 0 then);
 *         WEFT_ERR_INVALID (an argument; schedules that do not fit together: rank, size);
 *         WEFT_ERR_DUPLICATE as weft_schedule_commit(); WEFT_ERR_UNSUPPORTED (a time beyond 26
 *         days); WEFT_ERR_MEMORY; what `build` returned. Any thread; does not block.
 */
WEFT_EXPORT int weft_simulate(const struct weft_sim_config *config,
                              struct weft_sim_result **result);

/** Frees a result. NULL is accepted. */
WEFT_EXPORT void weft_sim_result_destroy(struct weft_sim_result *result);

#ifdef __cplusplus
}
#endif

#endif
