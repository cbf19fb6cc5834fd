/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Virtual ranks: a function on thousands of ranks in one thread, in virtual time.
 *
 * The engine, runs, series and collective objects are the same as on any other transport; only the
 * clock and the network are simulated, and each rank's function runs on a stack of its own. Time
 * passes where the network or the configuration says so, and in weft_context_sleep(); everything
 * else takes none. The same seed gives the same events in the same order. docs/virtual.md shows how
 * to use it.
 */
#ifndef WEFT_VIRTUAL_H
#define WEFT_VIRTUAL_H

#include <weft/context.h>
#include <weft/sim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A rank that does nothing for a while, or ever again. */
struct weft_virtual_fault {
    int rank;
    /** When it begins, in nanoseconds of virtual time; neither WEFT_NEVER nor WEFT_NS_NONE. */
    uint64_t at_ns;
    /**
     * How long it lasts (not WEFT_NS_NONE): neither the rank's function nor its engine goes on, and
     * what arrives waits. WEFT_NEVER: the rank has stopped; what arrives is lost. When the
     * functions of all other ranks have returned, its calls fail with WEFT_ERR_CANCELLED, so that
     * its function can return too and free what it holds.
     */
    uint64_t for_ns;
};

/** What happens in virtual time, for weft_virtual_config.trace. */
typedef enum weft_virtual_kind {
    /** A rank's function goes on. */
    WEFT_VIRTUAL_RESUME,
    /** A rank's engine is called because it asked for it, or time has come. */
    WEFT_VIRTUAL_STEP,
    /** A message or signal has arrived and is handed to the engine of `rank`. */
    WEFT_VIRTUAL_ARRIVE,
    /** A send of `rank` has ended. */
    WEFT_VIRTUAL_SENT,
    /** A compute node, reduction or copy of `rank` has ended. */
    WEFT_VIRTUAL_COMPUTED,
    /** A message was lost because `rank` had stopped. */
    WEFT_VIRTUAL_LOST,
    /** `rank` has heard that `from` has died. */
    WEFT_VIRTUAL_DIED
} weft_virtual_kind_t;

/** One event. `from`, `object`, `version`, `tag` and `bytes` are those of the message; else 0. */
struct weft_virtual_event {
    uint64_t time_ns;
    weft_virtual_kind_t kind;
    int rank;
    int from;
    /** Its number in the order of creation; of member m of object N (weft/object.h): N + m * 2^44.
     */
    uint64_t object;
    uint32_t tag; /**< Of a signal: its channel. */
    uint64_t version;
    size_t bytes;
    int signal; /**< 1: a signal or a failure, not a payload. */
};

/** What a virtual run was. */
struct weft_virtual_result {
    /** Set by the caller. */
    size_t struct_size;
    /** Virtual time at which the last rank's function returned. */
    uint64_t end_ns;
    uint64_t events;
    /** Payload messages and signals that were sent, duplicates included. */
    uint64_t messages;
    uint64_t signals;
    uint64_t bytes;
    /** Of every event with all that weft_virtual_event has, in order: equal for equal runs. */
    uint64_t hash;
};

/** The virtual machine, its network and its faults. Members that are 0 mean their defaults. */
struct weft_virtual_config {
    size_t struct_size;
    /** Of everything that is random: order, delays, duplicates, pauses. A plain number. */
    uint64_t seed;
    /** 1: simultaneous events happen in an order drawn from the seed, so that seeds explore
     *  interleavings; 0: in the order of their causes. Default 0. */
    int shuffle;
    /** The network; borrowed for the call. NULL: all is free, but for a latency of 1 us. */
    const struct weft_net *net;
    /** A message takes longer than the network says by a uniform time of up to delay_ns, and with
     *  probability heavy_share by a uniform time of up to heavy_ns. Later messages overtake. */
    uint64_t delay_ns;
    double heavy_share;
    uint64_t heavy_ns;
    /** The probability that a signal arrives twice. */
    double duplicate_share;
    /** Each rank pauses that often per second of virtual time, for a uniform time of up to
     *  pause_ns. */
    double pauses_per_second;
    uint64_t pause_ns;
    /** Pauses and stops of given ranks. Borrowed for the call. */
    const struct weft_virtual_fault *faults;
    size_t fault_count;
    /** 1: a rank that stops has died, as a process that is killed: the others hear of it, each
     *  after a uniform time of up to death_ns and after all that it has sent to them
     *  (weft_context_rank_state()). 0: nobody hears of it. Default 0. */
    int deaths;
    uint64_t death_ns;
    /** Messages, reductions, copies and calls take as long as if they had so many times their
     *  bytes: small payloads stand for large ones. Default 1. */
    double byte_scale;
    /** Virtual time of reductions and copies: nanoseconds a byte of the result, and a node. */
    double reduce_ns_per_byte;
    double copy_ns_per_byte;
    double node_ns;
    /** Virtual time of a call of the operation @p op on arguments of @p bytes in all, beside
     *  node_ns. NULL: none. Called in the thread of weft_virtual_run(). */
    uint64_t (*compute_ns)(void *user, int rank, const char *op, size_t bytes);
    void *compute_user;
    /**
     * 1: no payloads. Messages have sizes but no contents; reductions and copies take their time
     * but touch no memory; scratch is not allocated; slots may be bound to NULL. Operations of the
     * user are called, with what their slots are bound to (scratch: NULL). Default 0.
     */
    int no_payload;
    /** Ranks on one node, for weft_context_hosts(). 0: all. */
    int ranks_per_host;
    /** Stack of each rank's function, 16 KiB to 1 TiB. 0: default (256 KiB, of which only what is
     *  used takes memory). */
    size_t stack_bytes;
    /** Ends the run with WEFT_ERR_TIMEOUT at this virtual time. Default: WEFT_NEVER. */
    uint64_t limit_ns;
    /** Settings of the contexts; NULL: defaults. Idle policies and progress have no meaning here.
     */
    const struct weft_context_config *context;
    /** Told of every event. NULL: none. */
    void (*trace)(void *user, const struct weft_virtual_event *event);
    void *trace_user;
    /** Filled before weft_virtual_run() returns, if not NULL, also when it fails. */
    struct weft_virtual_result *result;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_virtual_config_init_sized(struct weft_virtual_config *config, size_t size);
#define weft_virtual_config_init(config) weft_virtual_config_init_sized((config), sizeof *(config))

/**
 * Runs @p fn on @p size virtual ranks, as weft_local_run() does on local ones, in the calling
 * thread. Contexts of virtual ranks have helper progress: their engines go on while their functions
 * sleep. Functions must not wait for each other but by weft: a lock or a loop that waits for
 * another rank without a call of weft waits for ever. weft_call_complete() must come from a rank's
 * function or an operation, not from another thread.
 *
 * If nothing is left that could happen and functions still wait, that is a deadlock: every
 * unfinished run fails with WEFT_ERR_DEADLOCK and a text that names what it waits for, and so do
 * all later waits.
 * @param config NULL for defaults.
 * @return as weft_local_run(); WEFT_ERR_INVALID (size < 1, a fault of a rank that does not exist,
 *         a share outside 0..1); WEFT_ERR_MEMORY; WEFT_ERR_DEADLOCK; WEFT_ERR_TIMEOUT (limit_ns).
 *         What stopped ranks return does not count.
 */
WEFT_EXPORT int weft_virtual_run(int size, const struct weft_virtual_config *config,
                                 weft_rank_fn fn, void *user);

#ifdef __cplusplus
}
#endif

#endif
