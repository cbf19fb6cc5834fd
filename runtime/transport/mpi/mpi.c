/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts over MPI: how they begin and end.
 *
 * Everything collective is non-blocking and waited for with yields: MPI's own waits spin, and with
 * more ranks than cores each would cost a scheduler quantum. Ending takes three steps, in which
 * what arrives is still taken, and thrown away: own sends end (peers may be late, so they may take
 * long); all ranks get there; each learns how many packets were sent to it, and takes the last of
 * them. Then nothing is under way, and posted receives can be cancelled. Where all ranks are near
 * (near.c) the first step is all: nothing has gone by MPI.
 */
#include "runtime/transport/mpi/mpi_transport.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weft/mpi.h>
#include <weft/version.h>

#include "runtime/base/alloc.h"
#include "runtime/context/context.h"

enum {
    POLLS_SPIN = 100,   /* polls in vain before the core is given up */
    POLLS_YIELD = 1000, /* and before the thread sleeps */
    SLEEP_MIN_NS = 20000,
    SLEEP_MAX_NS = 1000000
};

/* ---- waiting ---- */

struct idle {
    unsigned polls;
    long sleep_ns;
};

static void idle_more(struct idle *idle)
{
    if (++idle->polls < POLLS_SPIN)
        return;
    if (idle->polls < POLLS_YIELD) {
        sched_yield();
        return;
    }
    idle->sleep_ns = idle->sleep_ns == 0 ? SLEEP_MIN_NS : idle->sleep_ns * 2;
    if (idle->sleep_ns > SLEEP_MAX_NS)
        idle->sleep_ns = SLEEP_MAX_NS;
    nanosleep(&(struct timespec){.tv_nsec = idle->sleep_ns}, NULL);
}

int weft__mpi_wait(MPI_Request *request, int code, const char *call)
{
    struct idle idle = {0};
    int flag = 0;

    while (code == MPI_SUCCESS && !flag) {
        code = PMPI_Test(request, &flag, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && !flag)
            idle_more(&idle);
    }
    return code == MPI_SUCCESS ? WEFT_OK : weft__mpi_error(code, call, -1);
}

/* ---- the table ---- */

int weft__mpi_poll(struct weft__transport *transport)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);
    int status = weft__mpi_ready(mpi);
    int arrived, ended = 0;

    if (status < 0)
        return status;
    arrived = weft__mpi_ring_poll(mpi);
    if (arrived >= 0 && mpi->active != 0)
        ended = weft__mpi_active_poll(mpi);
    if (mpi->undrained)
        weft__mpi_drain_again(mpi);
    if (mpi->stopped)
        weft__mpi_stop(mpi);
    if (arrived < 0 || ended < 0)
        mpi->failed = arrived < 0 ? arrived : ended;
    return mpi->failed < 0 ? mpi->failed : arrived + ended;
}

int weft__mpi_hosts(struct weft__transport *transport, int *numbers)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);

    memcpy(numbers, mpi->hosts, (size_t)transport->size * sizeof *numbers);
    return WEFT_OK;
}

/* Somebody of this host has died: MPI would wait for it. */
static int anyone_died(const struct weft__mpi *mpi)
{
    return mpi->channel && weft__channel_deaths(mpi->channel) > 0;
}

/* Whether nobody needs anything of this rank's that goes by the channel. Polls that. */
static int settles(struct weft__mpi *mpi)
{
    if (mpi->channel && !mpi->settled)
        mpi->settled = weft__channel_settled(mpi->channel);
    return !mpi->channel || mpi->settled;
}

/* Polls until request (if any) and done(mpi) are, or never will be. */
static void poll_until(struct weft__mpi *mpi, MPI_Request *request,
                       int (*done)(const struct weft__mpi *))
{
    struct idle idle = {0};
    int flag = !request;

    for (;;) {
        int did = weft__mpi_poll(&mpi->base);

        settles(mpi);
        if (did < 0 || anyone_died(mpi))
            return;
        if (!flag && PMPI_Test(request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            mpi->failed = WEFT_ERR_TRANSPORT;
            return;
        }
        if (flag && done(mpi))
            return;
        if (did > 0)
            idle = (struct idle){0};
        else
            idle_more(&idle);
    }
}

static int sends_done(const struct weft__mpi *mpi)
{
    return mpi->active == 0 && !mpi->delayed && !mpi->undrained && !mpi->lent &&
           (!mpi->channel || mpi->settled);
}

static int anyhow(const struct weft__mpi *mpi)
{
    (void)mpi;
    return 1;
}

static int all_arrived(const struct weft__mpi *mpi)
{
    return mpi->received >= mpi->expected && sends_done(mpi);
}

static void drain_all(struct weft__mpi *mpi)
{
    MPI_Request request;
    uint64_t *packets;

    poll_until(mpi, NULL, sends_done);
    if (mpi->failed < 0 || anyone_died(mpi) || PMPI_Ibarrier(mpi->comm, &request) != MPI_SUCCESS)
        return;
    poll_until(mpi, &request, anyhow);
    mpi->final = 1;
    packets = mpi->totals;
    for (int rank = 0; rank < mpi->base.size; rank++)
        packets[rank] = mpi->peers[rank].packets;
    if (mpi->failed < 0 || anyone_died(mpi) ||
        PMPI_Ireduce_scatter_block(packets, &mpi->expected, 1, MPI_UINT64_T, MPI_SUM, mpi->comm,
                                   &request) != MPI_SUCCESS)
        return;
    poll_until(mpi, &request, anyhow);
    if (mpi->failed == 0 && !anyone_died(mpi))
        poll_until(mpi, NULL, all_arrived);
}

/* ---- the end of MPI ---- */

/*
 * MPI_Finalize tells by the attributes of MPI_COMM_SELF. One for the whole process, set with the
 * first context and never deleted: others may have attributes there too, and destroy contexts when
 * theirs are deleted, while MPICH walks the list and must not lose an entry of it.
 */
static struct {
    pthread_mutex_t lock;
    struct weft__mpi *first; /* of the open transports */
    int set;
    int died; /* a process that MPI_Finalize would wait for */
} finalize = {PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0};

static void remove_open(struct weft__mpi *mpi)
{
    if (!mpi->open)
        return;
    mpi->open = 0;
    if (mpi->open_previous)
        mpi->open_previous->open_next = mpi->open_next;
    else
        finalize.first = mpi->open_next;
    if (mpi->open_next)
        mpi->open_next->open_previous = mpi->open_previous;
}

int weft__mpi_may_finalize(void)
{
    int may;

    pthread_mutex_lock(&finalize.lock);
    may = !finalize.first && !finalize.died;
    pthread_mutex_unlock(&finalize.lock);
    return may;
}

static struct weft__mpi *take_open(void)
{
    struct weft__mpi *mpi;

    pthread_mutex_lock(&finalize.lock);
    mpi = finalize.first;
    if (mpi)
        remove_open(mpi);
    pthread_mutex_unlock(&finalize.lock);
    return mpi;
}

/* Called by MPI_Finalize before it does anything. Receives that are still posted would make MPI
 * complain. */
static int on_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    struct weft__mpi *mpi;

    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    while ((mpi = take_open())) {
        struct weft_context *context = mpi->base.engine ? mpi->base.engine->context : NULL;

        atomic_store_explicit(&mpi->finalized, 1, memory_order_release); /* weft__mpi_ready() */
        if (mpi->closing || !context)
            continue;
        weft__drive_lock(context); /* a helper may be polling */
        weft__mpi_ring_close(mpi);
        weft__drive_unlock(context);
    }
    return MPI_SUCCESS;
}

/* From now on MPI_Finalize knows the transport. */
static int add_open(struct weft__mpi *mpi)
{
    int code = MPI_SUCCESS;

    pthread_mutex_lock(&finalize.lock);
    if (!finalize.set) {
        int keyval = MPI_KEYVAL_INVALID;

        code = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &keyval, NULL);
        if (code == MPI_SUCCESS)
            code = PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
        if (keyval != MPI_KEYVAL_INVALID)
            PMPI_Comm_free_keyval(&keyval); /* the attribute keeps it */
        finalize.set = code == MPI_SUCCESS;
    }
    if (code == MPI_SUCCESS) {
        mpi->open = 1;
        mpi->open_next = finalize.first;
        if (finalize.first)
            finalize.first->open_previous = mpi;
        finalize.first = mpi;
    }
    pthread_mutex_unlock(&finalize.lock);
    return code == MPI_SUCCESS ? WEFT_OK : weft__mpi_error(code, "an attribute", -1);
}

/* Gives the communicator back. MPI may wait for all of its ranks, so not if one has died. */
static void free_comm(struct weft__mpi *mpi)
{
    if (!anyone_died(mpi)) {
        PMPI_Comm_free(&mpi->comm);
        return;
    }
    pthread_mutex_lock(&finalize.lock);
    finalize.died = 1;
    pthread_mutex_unlock(&finalize.lock);
}

/* Ends the transport; collective unless MPI is gone, or everybody is near. */
static void end(struct weft__mpi *mpi)
{
    struct idle idle = {0};

    mpi->closing = 1;
    pthread_mutex_lock(&finalize.lock);
    remove_open(mpi);
    pthread_mutex_unlock(&finalize.lock);
    if (mpi->channel)
        weft__channel_leave(mpi->channel);
    if (!mpi->all_near && weft__mpi_ready(mpi) != WEFT_ERR_STATE) {
        drain_all(mpi);
        weft__mpi_ring_close(mpi);
    }
    while (!settles(mpi))
        idle_more(&idle);
    if (weft__mpi_ready(mpi) != WEFT_ERR_STATE)
        free_comm(mpi);
    if (mpi->channel)
        weft__channel_close(mpi->channel);
    weft__mpi_free_memory(mpi);
}

void weft__mpi_close(struct weft__transport *transport)
{
    struct weft__mpi *mpi = weft__mpi_of(transport);

    mpi->closed = 1;
    if (!mpi->held_open)
        end(mpi);
}

static const struct weft__transport_ops ops = {
    .send = weft__mpi_send,
    .send_device = weft__mpi_send_device,
    .staged = weft__mpi_staged,
    .control = weft__mpi_control,
    .poll = weft__mpi_poll,
    .fetch = weft__mpi_fetch,
    .fetch_device = weft__mpi_fetch_device,
    .pull = weft__mpi_pull,
    .release = weft__mpi_release,
    .cancel = weft__mpi_cancel,
    .hosts = weft__mpi_hosts,
    .close = weft__mpi_close,
};

/* ---- creation ---- */

static const char *level_name(int level)
{
    switch (level) {
    case MPI_THREAD_SINGLE:
        return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
        return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
        return "MPI_THREAD_SERIALIZED";
    default:
        return "MPI_THREAD_MULTIPLE";
    }
}

static int check_mpi(MPI_Comm comm, int helper)
{
    int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE, main_thread = 1, inter = 0;

    PMPI_Initialized(&initialized);
    PMPI_Finalized(&finalized);
    if (!initialized || finalized)
        return weft__error(WEFT_ERR_STATE, "MPI is not running: %s",
                           finalized ? "MPI_Finalize was called"
                                     : "call MPI_Init_thread before weft_context_create_mpi()");
    PMPI_Query_thread(&level);
    PMPI_Is_thread_main(&main_thread);
    if (helper && level < MPI_THREAD_MULTIPLE)
        return weft__error(WEFT_ERR_STATE,
                           "helper progress needs MPI_THREAD_MULTIPLE, MPI provides %s: ask "
                           "MPI_Init_thread for it, or use caller progress",
                           level_name(level));
    if (level < MPI_THREAD_SERIALIZED && !main_thread)
        return weft__error(WEFT_ERR_STATE,
                           "a context outside the main thread needs MPI_THREAD_SERIALIZED, MPI "
                           "provides %s",
                           level_name(level));
    if (comm == MPI_COMM_NULL)
        return WEFT__INVALID("argument `comm` is MPI_COMM_NULL, expected an intracommunicator");
    PMPI_Comm_test_inter(comm, &inter);
    if (inter)
        return WEFT__INVALID(
            "argument `comm` is an intercommunicator, expected an intracommunicator");
    return WEFT_OK;
}

/* Tags 1 .. 2^bits carry payloads. */
static int set_tags(struct weft__mpi *mpi, MPI_Comm comm, unsigned wanted)
{
    int *bound = NULL;
    int flag = 0;
    unsigned bits = 1;

    PMPI_Comm_get_attr(comm, MPI_TAG_UB, (void *)&bound, &flag);
    while (bits < 30 && (INT32_C(2) << bits) <= (flag && bound ? *bound : 32767))
        bits++;
    if (wanted > bits)
        return WEFT__INVALID("mpi.tag_bits is %u, expected at most %u (MPI_TAG_UB)", wanted, bits);
    mpi->base.tag_bits = wanted == 0 ? bits : wanted;
    mpi->half_shift = mpi->base.tag_bits - 1;
    return WEFT_OK;
}

/* The lowest status of all ranks, with the text of the rank that it is from: all ranks have a
 * context or none has. Returns the own status if that is an error. */
static int agree(MPI_Comm comm, int status)
{
    MPI_Request request;
    struct {
        int status;
        int rank;
    } own = {status, 0}, lowest;
    char text[WEFT__ERROR_BYTES];
    int waited;

    PMPI_Comm_rank(comm, &own.rank);
    lowest = own;
    waited = weft__mpi_wait(&request,
                            PMPI_Iallreduce(&own, &lowest, 1, MPI_2INT, MPI_MINLOC, comm, &request),
                            "MPI_Iallreduce");
    if (waited < 0 || lowest.status == WEFT_OK)
        return status < 0 ? status : waited;
    snprintf(text, sizeof text, "%s", weft_error_text());
    waited = weft__mpi_wait(
        &request, PMPI_Ibcast(text, (int)sizeof text, MPI_CHAR, lowest.rank, comm, &request),
        "MPI_Ibcast");
    if (status < 0 || waited < 0)
        return status < 0 ? status : waited;
    text[sizeof text - 1] = '\0';
    return weft__error(lowest.status, "creating the context failed on rank %d: %s", lowest.rank,
                       text);
}

/* The transport without its communicator: what can fail on one rank alone. */
static int make(struct weft__mpi **made, MPI_Comm comm, unsigned tag_bits)
{
    struct weft__mpi *mpi = weft__calloc(1, sizeof *mpi);
    int status;

    if (!mpi)
        return weft__error_memory("the MPI transport");
    mpi->base =
        (struct weft__transport){.ops = &ops, .about = &weft__transport_mpi, .bell = &mpi->bell};
    mpi->base.largest_message = (size_t)PTRDIFF_MAX;
    mpi->base.takes_back = 1;
    mpi->comm = MPI_COMM_NULL;
    mpi->delayed_end = &mpi->delayed;
    for (unsigned place = 0; place < WEFT__MPI_RING; place++)
        mpi->ring_requests[place] = MPI_REQUEST_NULL; /* it may end before its ring is open */
    PMPI_Comm_rank(comm, &mpi->base.rank);
    PMPI_Comm_size(comm, &mpi->base.size);
    mpi->peers = weft__calloc((size_t)mpi->base.size, sizeof *mpi->peers);
    mpi->homes = weft__calloc((size_t)mpi->base.size, sizeof *mpi->homes);
    mpi->hosts = weft__calloc((size_t)mpi->base.size, sizeof *mpi->hosts);
    mpi->members = weft__calloc((size_t)mpi->base.size, sizeof *mpi->members);
    mpi->near = weft__calloc((size_t)mpi->base.size, sizeof *mpi->near);
    mpi->totals = weft__calloc((size_t)mpi->base.size, sizeof *mpi->totals);
    status =
        !mpi->peers || !mpi->homes || !mpi->hosts || !mpi->members || !mpi->near || !mpi->totals
            ? weft__error_memory("the peers of the MPI transport")
            : set_tags(mpi, comm, tag_bits);
    if (status == WEFT_OK)
        status = weft__mpi_home(&mpi->own_home);
    if (status < 0)
        weft__mpi_free_memory(mpi);
    else
        *made = mpi;
    return status;
}

/* The halves of a message find each other by tags, so all ranks must have as many. The smallest and
 * the largest number and the lowest ranks that have them. The same return on all ranks. */
static int compare_tags(MPI_Comm comm, const struct weft__mpi *mpi)
{
    MPI_Request request;
    struct {
        int bits;
        int rank;
    } own = {(int)mpi->base.tag_bits, mpi->base.rank}, least = own, most = own;
    int status = weft__mpi_wait(
        &request, PMPI_Iallreduce(&own, &least, 1, MPI_2INT, MPI_MINLOC, comm, &request),
        "MPI_Iallreduce");

    if (status == WEFT_OK)
        status = weft__mpi_wait(
            &request, PMPI_Iallreduce(&own, &most, 1, MPI_2INT, MPI_MAXLOC, comm, &request),
            "MPI_Iallreduce");
    if (status < 0 || least.bits == most.bits)
        return status;
    return WEFT__INVALID(
        "mpi.tag_bits is %d on rank %d and %d on rank %d, expected the same on all", least.bits,
        least.rank, most.bits, most.rank);
}

/* Duplicates the communicator and gets ready to receive. */
static int open_transport(struct weft__mpi *mpi, MPI_Comm comm, const char *who)
{
    MPI_Request request;
    struct weft__mpi_home *own = &mpi->own_home;
    const int words = sizeof *own / sizeof own->host;
    int status =
        weft__mpi_wait(&request, PMPI_Comm_idup(comm, &mpi->comm, &request), "MPI_Comm_idup");

    if (status < 0)
        return status;
    PMPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    status = weft__mpi_wait(&request,
                            PMPI_Iallgather(own, words, MPI_UINT64_T, mpi->homes, words,
                                            MPI_UINT64_T, mpi->comm, &request),
                            "MPI_Iallgather");
    mpi->base.group = (own->kernel ^ weft__now() << 20 ^ (uint64_t)getpid()) | 1;
    if (status == WEFT_OK)
        status = weft__mpi_wait(
            &request, PMPI_Ibcast(&mpi->base.group, 1, MPI_UINT64_T, 0, mpi->comm, &request),
            "MPI_Ibcast");
    if (status == WEFT_OK) {
        weft__mpi_number_hosts(mpi);
        status = agree(mpi->comm, weft__mpi_near_find(mpi));
    }
    if (status == WEFT_OK) {
        status = weft__mpi_near_open(mpi, who);
        if (status == WEFT_OK)
            status = add_open(mpi);
        if (status == WEFT_OK && !mpi->all_near)
            status = weft__mpi_ring_open(mpi);
    }
    return status;
}

/* The context of an open transport, on all ranks or on none. */
static int make_context(struct weft_context **context, struct weft__mpi *mpi, int status,
                        const struct weft_context_config *config)
{
    struct weft_context *made = NULL;

    mpi->held_open = 1;
    if (status == WEFT_OK)
        status = weft__context_create(&made, &mpi->base, config);
    status = agree(mpi->comm, status);
    mpi->held_open = 0;
    if (status == WEFT_OK) {
        weft__mpi_near_log(mpi, made);
        *context = made;
    } else if (made)
        weft_context_destroy(made);
    else
        end(mpi);
    return status;
}

void weft_mpi_config_init_sized(struct weft_mpi_config *config, size_t size)
{
    weft_sized_init(config, size);
}

int weft_context_create_mpi(struct weft_context **context, MPI_Comm comm,
                            const struct weft_context_config *config,
                            const struct weft_mpi_config *given)
{
    struct weft_context_config settings, wanted;
    struct weft_mpi_config own;
    struct weft__mpi *mpi = NULL;
    int status = weft__companion_check("libweft-mpi", WEFT_VERSION, WEFT__LAYOUT);
    int read;

    if (status < 0)
        return status;
    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL, expected where to write it",
                             __func__);
    read = weft__context_config_read(__func__, "config", config, &settings);
    if (read >= 0)
        read = weft_sized_read(__func__, "mpi", given, &own, sizeof own);
    wanted = settings;
    weft__env_apply(&settings);
    status = check_mpi(comm, settings.progress == WEFT_PROGRESS_HELPER);
    if (status < 0)
        return status;
    /* What one rank alone was given wrong must not leave the others waiting. */
    status = agree(comm, read < 0 ? read : make(&mpi, comm, own.tag_bits));
    if (status == WEFT_OK)
        status = compare_tags(comm, mpi);
    if (status < 0) {
        if (mpi)
            weft__mpi_free_memory(mpi);
        return status;
    }
    status = open_transport(mpi, comm, __func__);
    if (mpi->comm == MPI_COMM_NULL) {
        weft__mpi_free_memory(mpi);
        return status;
    }
    return make_context(context, mpi, status, &wanted);
}
