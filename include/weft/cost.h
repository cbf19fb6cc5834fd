/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Costs: what messages and arithmetic take, as a template chooses by (weft_cost_model) and as a
 * simulation has it (weft_net); and the files that hold what was measured of both.
 */
#ifndef WEFT_COST_H
#define WEFT_COST_H

#include <weft/sized.h>
#include <weft/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_context;

/**
 * What messages and arithmetic cost, in microseconds, plain numbers of which 0 is free: a message
 * of m bytes takes alpha + m * beta, a reduction of m bytes m * gamma, a copy of m bytes m * copy;
 * a node of a schedule `node`. What is said of larger messages, of both directions and of cores
 * comes on top, and 0 is that there is no such thing.
 */
struct weft_cost_model {
    size_t struct_size;
    double alpha_us;
    double beta_us_per_byte;
    double gamma_us_per_byte;
    double copy_us_per_byte;
    double node_us;
    /** Segments smaller than this are not worth their overhead: a plain number. */
    size_t segment_bytes;
    /** Messages of more bytes wait for their receives, and take rendezvous_us more. 0: none do. */
    size_t eager_bytes;
    double rendezvous_us;
    /** A byte of a message where its receiver sends as much to its sender at the same time: both
     *  directions of one connection may share what it carries. 0: as beta. */
    double exchange_us_per_byte;
    /** Ranks of one host that run at once, and how long one that waits takes to get a core from
     *  another. 0: all run at once. */
    size_t cores;
    double switch_us;
    /** So much more takes a byte of a message of at most eager_bytes: it is copied in and out. */
    double eager_us_per_byte;
};

/** The defaults for a transport ("local", "mpi"); any other name gives those of "local". They are
 *  estimates for ranks that share a machine, not fitted to this one. */
WEFT_EXPORT void weft_cost_model_init_sized(struct weft_cost_model *model, size_t size,
                                            const char *transport);
#define weft_cost_model_init(model, transport)                                                     \
    weft_cost_model_init_sized((model), sizeof *(model), (transport))

/* ---- networks ---- */

/** weft_net.flags: LogGOPSim to the letter, for comparisons with that program: a message of m bytes
 *  takes (m - 1) G and not m G, and of the nodes that become ready at one instant, sends go before
 *  receives before computations, and not each in its order of creation. */
#define WEFT_NET_LOGGOPSIM 1u
/** weft_net.flags: the adapter moves data by itself. A message comes in when the incoming link is
 *  free, whatever the processor does, and takes of the processor o + m O alone, as soon as it is
 *  free, and not the time of the bytes; the receive ends when it would have. Without it taking in a
 *  message occupies the processor until the receive has ended, as in LogGOPS, and nothing is
 *  computed meanwhile. */
#define WEFT_NET_OFFLOAD 2u
/** weft_net.S: every message with bytes waits for its receive. */
#define WEFT_NET_NO_EAGER (UINT64_MAX - 1)

/**
 * A LogGOPS network: times in microseconds, or microseconds a byte, plain numbers, 0 is none.
 * A message of m bytes that a rank begins to send at t occupies its processor until t + o + m O,
 * its outgoing link until t + g + m G; the first byte is at the receiver at t + o + L. There it
 * occupies the processor for o + max(m O, m G), then the receive has ended, and the incoming link
 * for g + m G. Outgoing and incoming links are two. What finds its processor or link busy waits.
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
    /** The largest message that is sent eagerly, in bytes; or WEFT_NET_NO_EAGER: those of no bytes
     *  alone are. Default: UINT64_MAX, all are. The send of a larger one ends when its
     *  receive has been posted and its first byte is there, and not before. */
    uint64_t S;
    /** WEFT_NET_LOGGOPSIM, WEFT_NET_OFFLOAD, both, or 0. */
    unsigned flags;
};

/** A network on which everything is free and every message eager, as weft_context_config_init(). */
WEFT_EXPORT void weft_net_init_sized(struct weft_net *net, size_t size);
#define weft_net_init(net) weft_net_init_sized((net), sizeof *(net))

/**
 * Reads "L=1.5,o=0.1,g=0,G=0.0004,O=0,S=65536": any of the six letters, and "offload=1" or
 * "offload=0" (WEFT_NET_OFFLOAD), each once, in any order; what is left out keeps its value in @p
 * net (so call weft_net_init() first).
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
 * @param model receives the costs, complete but for segment_bytes, cores and switch_us, which stay
 * where the file has none.
 * @param net receives the network; NULL: not wanted.
 * @return WEFT_OK; WEFT_ERR_IO; WEFT_ERR_FORMAT with a text that names the key, what was found and
 *         what was expected; WEFT_ERR_NOT_FOUND (the file has nothing of this transport);
 *         WEFT_ERR_INVALID; WEFT_ERR_MEMORY. After an error nothing has changed.
 */
WEFT_EXPORT int weft_cost_model_read(const char *path, const char *transport,
                                     struct weft_cost_model *model, struct weft_net *net);

/**
 * What things cost on a context: as the file says that WEFT_COST named when the context was made,
 * or by default (weft_cost_model_init()) if there was none, or nothing of its transport in it. A
 * file that could not be read has been logged as a warning. weft_template_create_run() chooses by
 * it; all ranks must have read the same.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_context_get_cost(const struct weft_context *context,
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

#ifdef __cplusplus
}
#endif

#endif
