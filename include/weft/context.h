/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Contexts: one rank, with its transport, its engine and its progress.
 *
 * A process may hold any number of contexts. A context may be used from several threads; creation
 * and destruction are not concurrent with other calls on it. Which of them are collective, their
 * functions say.
 */
#ifndef WEFT_CONTEXT_H
#define WEFT_CONTEXT_H

#include <weft/sized.h>
#include <weft/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_context;

/** Who drives the engine. */
typedef enum weft_progress {
    /** WEFT_PROGRESS from the environment ("caller" or "helper"), else caller. */
    WEFT_PROGRESS_DEFAULT,
    /** Threads inside weft_run_wait(), weft_run_test() and weft_context_progress(). While none is,
     *  a large message over MPI to this rank is not taken, wanted or not: its sender's run does not
     *  end, nor a call that destroys that. So a rank that gives up drives on until the others have
     *  heard of it, or destroys its context, before it waits for them by other means. */
    WEFT_PROGRESS_CALLER,
    /** A thread of the context as well, while no caller does. */
    WEFT_PROGRESS_HELPER
} weft_progress_t;

/** Levels of log messages. */
typedef enum weft_log_level {
    WEFT_LOG_DEFAULT,
    WEFT_LOG_ERROR,
    WEFT_LOG_WARNING,
    WEFT_LOG_INFO,
    WEFT_LOG_DEBUG
} weft_log_level_t;

/** Receives one line, without newline. From any thread of the context; must not call weft. @p rank:
 *  in the context that was made on the transport; lines of one that was split have its own too. */
typedef void (*weft_log_fn)(void *user, weft_log_level_t level, int rank, const char *line);

/** Whether weft says on which hardware thread a thread is: weft_context_config.bind_helper and
 *  keep_apart. */
typedef enum weft_bind {
    /** As WEFT_BIND_ON. */
    WEFT_BIND_DEFAULT,
    /** Yes; where hwloc advises. */
    WEFT_BIND_ON,
    /** It is left to the system. */
    WEFT_BIND_OFF
} weft_bind_t;

/** How messages travel whose payload is memory of a device, between ranks that are processes. */
typedef enum weft_device_way {
    /** WEFT_DEVICE_WAY from the environment ("direct" or "staged"), else: read by the receiver's
     *  device where it is, if it gets there; taken by MPI, if that says that it can; and else by
     *  way of pinned memory of the host. */
    WEFT_DEVICE_WAY_DEFAULT,
    /** The same, but MPI is not asked: it takes memory of devices. */
    WEFT_DEVICE_WAY_DIRECT,
    /** By way of pinned memory of the host, all of them. */
    WEFT_DEVICE_WAY_STAGED
} weft_device_way_t;

/** The settings of a context. Members that are 0 mean their defaults. */
struct weft_context_config {
    size_t struct_size;
    weft_progress_t progress;
    /**
     * Idle policy of a thread that drives the engine and finds nothing to do: it polls without
     * rest for spin_ns, then polls and yields its core for yield_ns, then sleeps. Who sends from
     * the same host wakes a sleeper; over MPI with ranks on several hosts it also wakes by itself,
     * to poll, after a tenth of the time that it has waited, at least sleep_min_ns and at most
     * sleep_max_ns. WEFT_NS_NONE: not at all; spin_ns or yield_ns WEFT_NEVER: for ever, it does
     * nothing that comes later. A sleep_min_ns above sleep_max_ns is WEFT_ERR_INVALID if both are
     * given. Default spin: 2 us while the machine has a core for every rank here, none otherwise;
     * yield: 200 us (MPI over several hosts: 1 ms); sleep: 20 us to 15 ms.
     */
    uint64_t spin_ns;
    uint64_t yield_ns;
    uint64_t sleep_min_ns;
    uint64_t sleep_max_ns;
    /** A helper thread never spins: it polls and yields for so long while runs are unfinished, then
     *  sleeps. WEFT_NS_NONE: not at all; WEFT_NEVER: it never sleeps then. Default: 50 us, 1 ms on
     *  MPI over several hosts. */
    uint64_t helper_yield_ns;
    /** Bytes of reduction or copy done before the engine polls again; a reduction does whole
     *  elements, at least one. Default: 256 KiB. */
    size_t slice_bytes;
    /** Logs a stall report of a wait that takes longer, again each time the wait has doubled, and
     *  goes on waiting; WEFT_NEVER: does not. Default: WEFT_STALL (seconds) from the environment,
     *  else WEFT_NEVER. */
    uint64_t stall_ns;
    /** Receives log lines; NULL: standard error. */
    weft_log_fn log;
    void *log_user;
    /** Default: WEFT_LOG ("error", "warning", "info", "debug") from the environment, else
     *  warning. */
    weft_log_level_t log_level;
    weft_bind_t bind_helper;
    /** The device of runs whose plans have slots on one: "cuda:1" is CUDA's second. It is opened
     *  when the first such run is created. "cuda", and NULL, the default, without WEFT_DEVICE in
     *  the environment: that of the CUDA context which is current in the thread that creates that
     *  run, else by the place of the rank on its host. Copied. */
    const char *device;
    /** How messages travel whose payload is memory of a device. */
    weft_device_way_t device_way;
    /** Where they go by way of pinned memory of the host: bytes of a segment, of which a context
     *  has 8; rounded up to a multiple of 64 KiB. At most 1 GiB. Default: 256 KiB. */
    size_t segment_bytes;
    /** Whether the calling threads of ranks that wait keep apart: while this host has a hardware
     *  thread for each of its ranks, one that finds another rank on its own again and again moves
     *  to one where none is, as far as its affinity mask allows. Nothing is bound: the mask stays
     *  as it is. Default: WEFT_APART ("on", "off") from the environment, else on. */
    weft_bind_t keep_apart;
    /**
     * Something else that has to go on while a thread waits: another library's engine, that only
     * moves when it is called (MPI's, where a program has its own messages under way). Called again
     * and again by a thread that drives the engine and has found nothing to do, a helper included,
     * with how long that has been so, in nanoseconds; one call at a time. Returns after how many
     * nanoseconds at most it wants to be called again: the thread sleeps no longer than that; 0: it
     * does not sleep, but yields its core; WEFT_NEVER: whenever it likes. Calls nothing of the
     * context or of its family, and does not block. Not called on virtual ranks. NULL: nothing.
     */
    uint64_t (*meanwhile)(void *user, uint64_t idle_ns);
    void *meanwhile_user;
};

/** All defaults: @p size bytes are written. The macro passes the caller's size. */
WEFT_EXPORT void weft_context_config_init_sized(struct weft_context_config *config, size_t size);
#define weft_context_config_init(config) weft_context_config_init_sized((config), sizeof *(config))

/* ---- local ranks ---- */

/** A group of ranks that are threads of this process. */
struct weft_local;

/** weft_local_config.eager_bytes: no message is copied, every send waits for its receive. */
#define WEFT_EAGER_NONE SIZE_MAX

/** The settings of a group of local ranks. Members that are 0 mean their defaults. */
struct weft_local_config {
    size_t struct_size;
    /** Messages up to so many bytes are copied, so that the send ends at once; larger ones are
     *  copied or reduced by the receiver, straight from the sender's memory. WEFT_EAGER_NONE: all
     *  are. At most 1 TiB. Default: 8 KiB. */
    size_t eager_bytes;
    /** Eager messages in flight from one rank before further sends wait for their receives;
     *  at most 2^31. Default: 256 of up to 192 bytes and 32 larger ones; and, among at most 8
     *  ranks, 256 of up to 32 bytes to each. */
    size_t eager_messages;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_local_config_init_sized(struct weft_local_config *config, size_t size);
#define weft_local_config_init(config) weft_local_config_init_sized((config), sizeof *(config))

/**
 * Makes a group of @p size local ranks.
 * @param config NULL for defaults.
 * @return WEFT_OK, WEFT_ERR_INVALID (size < 1, a setting out of its range), WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_local_create(struct weft_local **local, int size,
                                  const struct weft_local_config *config);

/** Frees the group. Its contexts must have been destroyed. NULL is accepted. */
WEFT_EXPORT void weft_local_destroy(struct weft_local *local);

/**
 * The context of one rank of a local group; each rank once. From any thread, not collective:
 * messages to a rank whose context does not exist yet are kept for it.
 * @param config NULL for defaults.
 * @return WEFT_OK; WEFT_ERR_INVALID (rank out of range); WEFT_ERR_STATE (that rank exists);
 *         WEFT_ERR_MEMORY; WEFT_ERR_SYSTEM (no thread for the helper).
 */
WEFT_EXPORT int weft_context_create_local(struct weft_context **context, struct weft_local *local,
                                          int rank, const struct weft_context_config *config);

/** What a rank of weft_local_run() does; returns its status. */
typedef int (*weft_rank_fn)(struct weft_context *context, void *user);

/**
 * Runs @p fn on @p size local ranks, each in a thread of its own with a context of its own, and
 * waits for all of them. Blocking. When a rank returns an error, the runs and objects of all ranks
 * end with WEFT_ERR_CANCELLED and its text, now and later, so that nobody waits for it. Without
 * helper progress, receives from a rank that has returned fail with WEFT_ERR_PEER if it has not
 * sent their messages.
 * @return WEFT_OK; the status of the rank that failed first, with its text (a rank that
 *         failed with WEFT_ERR_PEER or WEFT_ERR_CANCELLED says that another has failed: it counts
 *         only if no rank says more); else the status of the
 *         lowest rank whose function did not return WEFT_OK; or why the ranks could not be started.
 */
WEFT_EXPORT int weft_local_run(int size, const struct weft_context_config *config, weft_rank_fn fn,
                               void *user);

/* ---- worlds ---- */

/**
 * The context of this process in its world: all processes that its launcher (mpiexec, `weft
 * launch`) has started together; a world of one without a launcher. For programs that are not
 * compiled against what is under the transport: what it needs is loaded when this is called, so
 * that other programs do without. Collective over the processes, blocking. Any number of contexts,
 * one after the other, or at once: the first of each process is of one world, the second ones of
 * another, and so on.
 *
 * `shared`: the processes that `weft launch`, or whoever uses weft_launch_create(), has started on
 * this machine; else those of torchrun, by RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT, if all of them are
 * on one host. They meet within 60 s. weft_context_create_shared() does without a launcher.
 *
 * `mpi`: loads libweft-mpi.so.0, beside libweft or from where the system looks, and with it the MPI
 * that it was built for; the launcher must be of that MPI. MPI is initialised with
 * MPI_THREAD_MULTIPLE unless the program has done so. What was initialised here is finalised when
 * the process exits, provided that all contexts over MPI have been destroyed; if not, the launcher
 * sees a process that died, and ends the others. It is not either where a process of such a context
 * was seen to die: MPI_Finalize would wait for it. Programs that include <mpi.h> call
 * weft_context_create_mpi().
 * @param transport one whose ranks are processes (weft_transport.processes): "shared", "mpi".
 * @param config NULL: the defaults.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, config; variables of a launcher that are incomplete or
 *         make no sense: the text names them); WEFT_ERR_NOT_FOUND (no such transport);
 *         WEFT_ERR_UNSUPPORTED (its ranks are no processes; what it needs is not installed: the
 *         text says what was tried; `shared`: processes on several hosts, or of mpiexec);
 *         WEFT_ERR_STATE (MPI was finalised; its thread level is too low for helper progress; a
 *         libweft-mpi of another build); WEFT_ERR_TRANSPORT; WEFT_ERR_MEMORY; WEFT_ERR_SYSTEM; of
 *         `shared` also what weft_context_create_shared() returns.
 */
WEFT_EXPORT int weft_context_create_world(struct weft_context **context, const char *transport,
                                          const struct weft_context_config *config);

/* ---- contexts of some ranks ---- */

/** Of weft_context_split(): this rank wants no context. */
#define WEFT_COLOUR_NONE (-1)

/**
 * Makes contexts of the ranks of @p parent that give the same @p colour, one for each colour. Its
 * ranks are numbered by @p key, and among those of the same key as in @p parent. Any transport; the
 * context has its parent's settings (weft_context_get_config()), and is used as any other, from any
 * thread, also to split it again. Its runs, objects and failures are its own.
 *
 * Collective over @p parent: all ranks call, in the same order as they create runs and objects of
 * it. Blocking until all ranks have called; a rank of WEFT_COLOUR_NONE does not wait, and gets
 * NULL. Runs of the parent and of others go on meanwhile; splits of several contexts may be under
 * way at once, in threads, and begin in any order. A context is made on all ranks or on none: if
 * one fails, the others get its status and its text. Only if @p parent is aborted meanwhile, or a
 * rank dies before all have told each other that they have called, some may have got one, and
 * others not; for those that have, the others have destroyed it. A rank that dies later may be in
 * the context, and is dead in it. Costs a message from each rank to each.
 *
 * A context and those that were split from it, or from these, are driven as one: by a helper of the
 * first, or by whoever waits on any of them. Those that are idle cost nothing. A rank may have
 * 65535 at a time that not all of their ranks have destroyed. Not in a callback.
 *
 * @param colour from 0, or WEFT_COLOUR_NONE.
 * @param key any number.
 * @param context set to the context, to be freed with weft_context_destroy(), or to NULL.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY; WEFT_ERR_UNSUPPORTED (too many at a time);
 *         WEFT_ERR_PEER (a rank has left); the status of the lowest rank that has failed, or with
 *         which @p parent has been aborted.
 */
WEFT_EXPORT int weft_context_split(struct weft_context *parent, int colour, int key,
                                   struct weft_context **context);

/**
 * Makes a context of some ranks of @p parent; only these call, and nobody else is involved. Rank i
 * of the context is @p ranks[i] of the parent. Of calls with the same ranks and tag the first of
 * one rank meets the first of the others; otherwise, in threads, any order will do. Blocking until
 * all of @p ranks have called. As weft_context_split() in everything else.
 * @param ranks @p count different ranks of @p parent with this one among them, the same list on all
 *        of them; copied.
 * @param tag any number, the same on all of them: tells calls with the same ranks apart.
 * @return as weft_context_split(). With a list that is not valid there is nobody to be told: the
 *         others must have the same error.
 */
WEFT_EXPORT int weft_context_subset(struct weft_context *parent, const int *ranks, int count,
                                    int tag, struct weft_context **context);

/** What has become of a rank. */
typedef enum weft_rank_state {
    /** As far as is known, it is there. */
    WEFT_RANK_PRESENT,
    /** It has destroyed the context, or its function (weft_local_run(), weft_virtual_run()) has
     *  returned. */
    WEFT_RANK_LEFT,
    /** It has died without a word. */
    WEFT_RANK_DEAD
} weft_rank_state_t;

/**
 * What has become of a rank, as far as this one knows: who has died is told by the transport (the
 * kernel, for processes), here or to another rank whose report of it has failed a run here; it is
 * never concluded from a silence. So a rank whose death has failed a run is found by it at once.
 * Everything that spans a rank which has died fails with WEFT_ERR_PEER on all others, at once and
 * from then on: objects (weft/object.h), series, blocking collectives. Of other runs those do that
 * need it: they exchange messages with it, wait for a signal and have to do with it, or wait for a
 * run that has failed so. The rest goes on. Not collective; does not block; from any thread,
 * callbacks included.
 * @param state set.
 * @param how set to how a dead rank has ended, in words ("killed by signal 9 (Killed)"), which may
 *        be unknown, else to ""; valid until the context is destroyed. May be NULL.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, no such rank).
 */
WEFT_EXPORT int weft_context_rank_state(const struct weft_context *context, int rank,
                                        weft_rank_state_t *state, const char **how);

/**
 * Makes a context of the ranks of another that are present: that have neither died nor left. All of
 * them get the same ranks, in their order, also if some die meanwhile: whoever returns has the
 * ranks that all others return with. A rank that dies during the call may still be one of them; it
 * is dead in the new context then (weft_context_rank_state()), which can be shrunk again. Of ranks
 * that are not in it weft_context_rank_state() says why. The context is as one of
 * weft_context_split(), and outlives what has failed in @p context; that one, its runs and its
 * objects can be destroyed before or after.
 *
 * Collective over the ranks that are present: all call, also those that have not heard of a death,
 * and in the same order if often. Blocking until they have. Runs go on meanwhile. Not in a
 * callback; one thread at a time. Works on any context, also when nobody has died. Costs two
 * messages from each rank to each, and three between the lowest rank and each.
 * @param survivors set to the context, to be freed with weft_context_destroy().
 * @return WEFT_OK; WEFT_ERR_UNSUPPORTED: the transport does not tell who dies (MPI over several
 *         hosts; virtual ranks that stop unless weft_virtual_config.deaths is set);
 *         WEFT_ERR_INVALID; WEFT_ERR_STATE (another thread is in it); WEFT_ERR_MEMORY or another
 *         error of some rank, then all have it; that with which @p context has been aborted.
 */
WEFT_EXPORT int weft_context_shrink(struct weft_context *context, struct weft_context **survivors);

/**
 * Which ranks those of a context are in the one that was made on the transport, from which it was
 * split: @p ranks has weft_context_size() elements. Of that one itself: 0, 1, 2 ... Not collective.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL).
 */
WEFT_EXPORT int weft_context_root_ranks(const struct weft_context *context, int *ranks);

/* ---- any context ---- */

/**
 * Destroys a context: stops its helper, cancels its runs. Runs, series and objects of it that the
 * user has not destroyed are invalid afterwards. Objects (weft/object.h, and those for trainers)
 * that have been destroyed are served until all ranks have left them or their time has passed;
 * those that have not, fail on the other ranks. NULL is accepted. On local ranks, peers that wait
 * for a message of this rank, then or later, fail with WEFT_ERR_PEER; so they do over MPI if they
 * are of its host. Over MPI to be called before MPI_Finalize, and collective if its ranks are on
 * several hosts; if one of this host's has died, what MPI has for the context is not given back, as
 * MPI would wait for that rank.
 *
 * Of a context that was split: not collective, waits for nobody, on any transport. Each rank
 * destroys it when it likes, in any order among others and with its parent. Its objects that have
 * been left are served on, for as long as the others need them; peers that wait for a message of
 * this rank fail with WEFT_ERR_PEER. Those that are left when the context on the transport is
 * destroyed are destroyed with it.
 *
 * A context belongs to the process that has made it. In one that was forked from that this does
 * nothing, so that what runs at the end of every process does no harm; nothing else is to be
 * called with it or with what was made on it there.
 * @return WEFT_OK; WEFT_ERR_TRANSPORT: its transport has failed; it is destroyed in any case.
 */
WEFT_EXPORT int weft_context_destroy(struct weft_context *context);

/**
 * This rank gives up: every run, series and object of all ranks of the context ends, now and later,
 * so that nobody waits for it: here with @p status, on the others with WEFT_ERR_PEER, and
 * with a text that names this rank and has @p text. The first call counts. The context can but be
 * destroyed afterwards. Not collective; does not block; from any thread, callbacks included.
 * The news reach a rank when its engine is next driven. With a context that was made on a transport
 * end all that were split from it, also indirectly; one that was split ends alone.
 * @param status an error (below 0).
 * @param text copied; as much of it as news carry (some 400 bytes) reaches the others. NULL: the
 *        status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, no error).
 */
WEFT_EXPORT int weft_context_abort(struct weft_context *context, int status, const char *text);

/** The rank of a context, from 0, and how many ranks there are; WEFT_ERR_INVALID (negative) if
 *  @p context is NULL. Any thread. */
WEFT_EXPORT int weft_context_rank(const struct weft_context *context);
WEFT_EXPORT int weft_context_size(const struct weft_context *context);
/** Who drives its engine: WEFT_PROGRESS_CALLER or WEFT_PROGRESS_HELPER; WEFT_PROGRESS_DEFAULT if
 *  @p context is NULL. */
WEFT_EXPORT weft_progress_t weft_context_progress_mode(const struct weft_context *context);
/** The name of its transport: "local", "mpi" ... Static storage. */
WEFT_EXPORT const char *weft_context_transport(const struct weft_context *context);

/**
 * Which host (machine) each rank is on: hosts[r] is a number from 0 below
 * weft_context_host_count(), equal for ranks that share memory and a network address: a machine, or
 * a container of it. Over MPI, WEFT_HOSTS=0,0,1,1 in the environment (a number from 0 for each
 * process of MPI_COMM_WORLD) has processes of one machine pretend to be on several. @p hosts has
 * weft_context_size() elements. Not collective.
 */
WEFT_EXPORT int weft_context_hosts(const struct weft_context *context, int *hosts);
/** How many hosts the ranks are on: 1 if all share one; 0 if @p context is NULL. Takes no time,
 *  unlike a list of all ranks. Not collective. */
WEFT_EXPORT int weft_context_host_count(const struct weft_context *context);

/**
 * The time of a context, in nanoseconds: monotonic, from an origin of its own. Deadlines and
 * timeouts of its runs are measured on it. On virtual ranks (weft/virtual.h) it is virtual time,
 * the same on all of them. From any thread. 0 if @p context is NULL.
 */
WEFT_EXPORT uint64_t weft_context_now(const struct weft_context *context);

/**
 * Memory that the transport of a context moves best, for what its runs are bound to: on shared
 * memory, and between MPI's processes of one host, in a region that the other ranks read straight
 * from, so a large message is copied or reduced once and needs no system call. On other transports,
 * and when that region is full, as weft_memory_alloc(). count * size bytes, zeroed, aligned to 64
 * bytes, from 4 KiB on to a page. Of a context that was split, memory of the one that was made on
 * the transport, and good on both. Freed with weft_context_memory_free(); what is left is freed
 * when the context that was made on the transport is destroyed. Scratch of runs, and what objects
 * for trainers allocate, comes from here by itself. From any thread. Not collective.
 * @return NULL if there is no memory, on overflow, or if @p context is NULL.
 */
WEFT_EXPORT void *weft_context_memory_alloc(struct weft_context *context, size_t count,
                                            size_t size);
/** Frees memory of weft_context_memory_alloc() of the same context, or of one of its family. NULL
 *  is accepted; what is no such memory is left alone, and logged as an error. From any thread. */
WEFT_EXPORT void weft_context_memory_free(struct weft_context *context, void *memory);

/**
 * Lets @p ns nanoseconds pass, as a computation would: does not drive the engine, so a context
 * without helper progress makes none meanwhile. The thread sleeps; on virtual ranks virtual time
 * passes and no real time does. Blocking.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, WEFT_NS_NONE); on virtual ranks WEFT_ERR_CANCELLED if
 *         the rank has been stopped or its group has failed.
 */
WEFT_EXPORT int weft_context_sleep(struct weft_context *context, uint64_t ns);

/**
 * Drives the engine once if nobody else is.
 * @return WEFT_OK, or WEFT_IN_PROGRESS while runs are unfinished.
 */
WEFT_EXPORT int weft_context_progress(struct weft_context *context);

/** Whether something is so: 0, not yet. */
typedef int (*weft_done_fn)(void *user);

/**
 * Waits until @p done returns other than 0, driving the engine if nobody else is, and idling as
 * weft_run_wait() does: for a condition that weft does not know, such as the end of one of several
 * runs, or of something that weft_context_config.meanwhile drives. Blocking; not in a callback.
 * @param done called by the waiting thread, at least after every step of the engine, often while
 *        it drives; calls nothing of weft that blocks or that ends the context, and does not block.
 *        A thread that sleeps is woken by the end of any run, not by what else makes it true: that
 *        is seen when the thread next looks, at the latest when it would call `meanwhile`.
 * @param timeout_ns as in weft_run_wait().
 * @return WEFT_OK; WEFT_IN_PROGRESS after @p timeout_ns; WEFT_ERR_INVALID (NULL, WEFT_NS_NONE);
 *         WEFT_ERR_STATE (in a callback); on virtual ranks as weft_context_sleep().
 */
WEFT_EXPORT int weft_context_wait(struct weft_context *context, weft_done_fn done, void *user,
                                  uint64_t timeout_ns);

/**
 * Drives every context of this process once, each if nobody else is, as weft_context_progress()
 * does: so one thread can run the local ranks of a whole group, starting their runs and driving
 * until all have ended (weft_run_wait() would wait for peers that nobody drives). Virtual ranks are
 * left out: weft_virtual_run() drives them. From any thread, also while others create and destroy
 * contexts; with contexts over MPI only where MPI may be called. Does not block.
 * @return WEFT_OK, or WEFT_IN_PROGRESS while runs of any of them are unfinished or somebody else
 *         drives one.
 */
WEFT_EXPORT int weft_process_progress(void);

/**
 * The settings of a context, with everything that was left to defaults and the environment settled.
 * @param config begun with weft_context_config_init().
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, or its struct_size).
 */
WEFT_EXPORT int weft_context_get_config(const struct weft_context *context,
                                        struct weft_context_config *config);

/** Ends what is attached to a context. */
typedef void (*weft_end_fn)(void *value);

/**
 * Attaches something to a context: for libraries on top of weft that keep what belongs to one.
 * @param key an address of the library's own, of a static variable, say; what is there is not
 *        looked at.
 * @param value what weft_context_attached() finds with it; not NULL. Borrowed.
 * @param end called once, by weft_context_destroy(), with the value: what was attached last first,
 *        and before anything of the context has ended, so that runs may be destroyed. NULL: none.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL); WEFT_ERR_STATE (the key has a value: of two threads
 *         that attach at once one is told so); WEFT_ERR_MEMORY. Then `end` is not called. Local,
 *         any thread, does not block.
 */
WEFT_EXPORT int weft_context_attach(struct weft_context *context, const void *key, void *value,
                                    weft_end_fn end);

/** What is attached to a context with a key; NULL: nothing. Any thread. */
WEFT_EXPORT void *weft_context_attached(const struct weft_context *context, const void *key);

/** Logs a line as the context does, if its level is loud enough: for objects on top of weft. */
WEFT_EXPORT void weft_context_log(struct weft_context *context, weft_log_level_t level,
                                  const char *line);

/** Counters of a context since its creation. */
struct weft_context_stats {
    /** Set by the caller. */
    size_t struct_size;
    /** Nodes that ended (or were retired), of runs that have ended. */
    uint64_t nodes;
    uint64_t messages_sent;
    uint64_t bytes_sent;
    uint64_t messages_received;
    uint64_t bytes_received;
    uint64_t signals_sent;
    uint64_t signals_received;
    /** Receives that were reduced straight from the sender's memory or a transport's buffer. */
    uint64_t fused;
    uint64_t steps;
    uint64_t sleeps;
    /** Messages sent whose payload was memory of a device: those that the receiver's device has
     *  read where they were, or that MPI has taken as they were; and those that went by way of
     *  pinned memory of the host. */
    uint64_t device_direct;
    uint64_t device_staged;
    /** Times that a thread which waited has moved to another hardware thread
     *  (weft_context_config.keep_apart). */
    uint64_t moves;
};

/** The counters of a context. Any thread.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_context_get_stats(struct weft_context *context,
                                       struct weft_context_stats *stats);

/* ---- transports ---- */

struct weft_cost_model;

/** Description of a transport. Static storage. */
struct weft_transport {
    /** Of this struct in the library: fields beyond it are not there. */
    size_t struct_size;
    /** "local", "mpi" ... */
    const char *name;
    /** What its ranks are, in words. */
    const char *summary;
    /** 1: it is there. For "mpi": libweft-mpi is linked, or lies beside libweft; whether the MPI
     *  under it can be loaded shows when a context is made. */
    int available;
    /** 1: its ranks are processes, which a launcher starts; 0: they are made in one process. */
    int processes;
    /** 1: its ranks live in virtual time (weft_virtual_run()). */
    int virtual_time;
    /** 1: it takes buffers in the memory of a device. */
    int device_memory;
    /** Defaults of weft_context_config.yield_ns and .helper_yield_ns. */
    uint64_t yield_ns;
    uint64_t helper_yield_ns;
    /** What weft_cost_model_init() gives for it; NULL: it has no costs of its own. */
    const struct weft_cost_model *cost;
};

/** How many transports the library knows, there or not; transport number @p index, NULL past the
 *  end. Any thread. */
WEFT_EXPORT size_t weft_transport_count(void);
WEFT_EXPORT const struct weft_transport *weft_transport_at(size_t index);

/** The transport with a name; NULL with an error text that lists the names. Any thread. */
WEFT_EXPORT const struct weft_transport *weft_transport_find(const char *name);

/* ---- topology ---- */

/** What hwloc found on this machine. */
struct weft_topology {
    /** Set by the caller. */
    size_t struct_size;
    int packages;
    int numa_nodes;
    int cores;
    /** Hardware threads this process may use. */
    int threads;
    size_t memory_bytes;
    size_t l1_bytes;
    size_t l2_bytes;
    size_t l3_bytes;
    /** Where a helper of the calling thread would run: operating-system index; -1: anywhere. */
    int caller_thread;
    int helper_thread;
    int caller_numa;
    /** hwloc's version. */
    char hwloc[32];
};

/** Looks at the machine. Blocking (some ms at the first call). */
WEFT_EXPORT int weft_topology_get(struct weft_topology *topology);

#ifdef __cplusplus
}
#endif

#endif
