/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of what is under way, and the table of tokens. One lock for both; error handlers of the
 * program are called without it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "tools/pmpi/request.h"

struct token;

/* A call under way; or one that has failed, until MPI completes it. */
struct operation {
    struct pmpi_call call;
    struct pmpi_kept_types types;
    struct weft_request *request;
    MPI_Request handle;  /* the generalised request */
    struct token *token; /* or the token whose it is */
    int code;            /* what it has failed with */
    struct operation *next;
};

/* It has all that a start takes. */
struct token {
    MPI_Request handle;
    struct pmpi_call call;
    struct operation operation;
    struct pmpi_kept_types types[2];
    struct weft_run *run;
    /* Started, and MPI has not completed it; weft's has not ended; MPI's is started. */
    int active, busy, started;
    int freed, holds_op;
    int code;           /* what the call has failed with */
    struct token *next; /* of its chain, or of those that are to be ended */
};

enum { CHAINS = 64 };

_Atomic int pmpi_under_way;
_Atomic int pmpi_tokens;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct operation *first, **last = &first; /* in the order of their calls */
static struct token *tokens[CHAINS];
static struct token *dead; /* freed, and not under way: ended by who does not drive */
static struct operation *failures;
_Atomic int pmpi_failed;

/* ---- generalised requests ---- */

static int query(void *state, MPI_Status *status)
{
    (void)state;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int release(void *state)
{
    (void)state;
    return MPI_SUCCESS;
}

static int cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

static int take_failure(MPI_Request handle, MPI_Comm *comm)
{
    int code = MPI_SUCCESS;
    pthread_mutex_lock(&lock);
    struct operation **link = &failures;
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    if (*link) {
        struct operation *failure = *link;
        code = failure->code;
        *comm = failure->call.state->comm;
        *link = failure->next;
        pmpi_comm_leave(failure->call.state);
        free(failure);
        atomic_fetch_sub(&pmpi_failed, 1);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- starting ---- */

/* What an operation that is none of a token's needs no more. */
static void strip(struct operation *operation)
{
    pmpi_drop_types(&operation->types);
    free(operation->call.lists);
    operation->call.lists = NULL;
}

static void discard(struct operation *operation)
{
    strip(operation);
    free(operation);
}

static size_t *make_lists(const struct pmpi_call *call)
{
    return malloc(PMPI_LISTS * (size_t)call->state->size * sizeof *call->lists);
}

/* A call that outlives its function: the lists are its own. */
static struct operation *copy_of(const struct pmpi_call *call)
{
    struct operation *operation = calloc(1, sizeof *operation);
    if (!operation)
        return NULL;
    operation->call = *call;
    operation->handle = MPI_REQUEST_NULL;
    operation->call.lists = make_lists(call);
    if (operation->call.lists)
        return operation;
    free(operation);
    return NULL;
}

/* The datatypes that are looked at again, by an operation or to unpack, are kept; a token has kept
 * its own. */
static int open_sides(struct operation *operation)
{
    struct pmpi_call *call = &operation->call;
    int status = WEFT_OK;
    if (!operation->token && pmpi_is_reduction(call->kind))
        status = pmpi_keep_types(call, 1, &operation->types);
    if (status == WEFT_OK)
        status = pmpi_wire_open(call, &call->reason);
    if (status == WEFT_OK && call->reason == PMPI_SERVED && !operation->token &&
        call->received.packed && !call->reduction)
        status = pmpi_keep_types(call, 1, &operation->types);
    return status;
}

/* Whether functions of MPI, or of the program, combine its elements. */
static int is_by_others(const struct pmpi_call *call)
{
    return call->reduction && call->reduction->own;
}

/* From then on it is driven, by any thread. */
static int execute(struct operation *operation)
{
    struct pmpi_call *call = &operation->call;
    struct token *token = operation->token;
    int by_others = is_by_others(call);
    int status = token ? WEFT_OK : pmpi_op_hold(call);
    if (status != WEFT_OK) {
        weft_collectives_fail(call->state->context, status, weft_error_text());
        return status;
    }
    pmpi_rescue_allow(by_others);
    status =
        token ? pmpi_persistent_start(call, token->run) : pmpi_execute(call, &operation->request);
    if (status != WEFT_OK)
        pmpi_rescue_disarm(by_others);
    if (status != WEFT_OK && !token)
        pmpi_op_leave(call);
    return status;
}

/* 1: it is under way; 0: it is MPI's; an error of weft below that. */
static int begin(struct operation *operation)
{
    struct pmpi_call *call = &operation->call;
    int status = open_sides(operation);
    if (call->reason != PMPI_SERVED)
        return 0;
    if (status == WEFT_OK)
        status = execute(operation);
    else if (!operation->token)
        weft_collectives_fail(call->state->context, status, weft_error_text());
    if (status != WEFT_OK)
        pmpi_wire_close(call, status);
    return status == WEFT_OK ? 1 : status;
}

/* From then on another thread may end it. */
static void append(struct operation *operation)
{
    operation->next = NULL;
    pmpi_comm_hold(operation->call.state);
    pthread_mutex_lock(&lock);
    *last = operation;
    last = &operation->next;
    atomic_fetch_add(&pmpi_under_way, 1);
    pthread_mutex_unlock(&lock);
    pmpi_rescue_arm();
}

/* There is no memory for what is under way: the call fails, in its turn. */
static int give_up(struct pmpi_call *call)
{
    weft_error_set(WEFT_ERR_MEMORY, "no memory for a call that does not block");
    weft_collectives_fail(call->state->context, WEFT_ERR_MEMORY, weft_error_text());
    return pmpi_comm_raise(call->state, WEFT_ERR_MEMORY);
}

int pmpi_request_start(struct pmpi_call *call, MPI_Request *request, int *code)
{
    if (!pmpi_is_served(call, PMPI_NONBLOCKING))
        return 0;
    struct operation *operation = copy_of(call);
    if (!operation) {
        *code = give_up(call);
        return 1;
    }
    int status = begin(operation);
    if (status <= 0) {
        call->reason = operation->call.reason;
        discard(operation);
        if (status == 0)
            return 0;
        *code = pmpi_comm_raise(call->state, status);
        return 1;
    }
    *code = PMPI_Grequest_start(query, release, cancel, NULL, &operation->handle);
    *request = operation->handle;
    append(operation);
    return 1;
}

/* ---- tokens ---- */

static struct token **chain_of(MPI_Request handle)
{
    uint64_t word = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
    return &tokens[(word >> 58) % CHAINS];
}

static struct token *find(MPI_Request handle)
{
    struct token *token = *chain_of(handle);
    while (token && token->handle != handle)
        token = token->next;
    return token;
}

/* Requests for tokens, which are never given back to MPI before the end: MPICH 4.0.2 uses the
 * memory of a persistent send for a persistent collective of its own, which never ends then. */
struct spare {
    MPI_Request handle;
    struct spare *next;
};

static struct spare *spares;

static int take_spare(MPI_Request *handle)
{
    pthread_mutex_lock(&lock);
    struct spare *spare = spares;
    if (spare)
        spares = spare->next;
    pthread_mutex_unlock(&lock);
    if (!spare)
        return PMPI_Send_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, pmpi_self, handle);
    *handle = spare->handle;
    free(spare);
    return MPI_SUCCESS;
}

static void give_back(MPI_Request handle)
{
    struct spare *spare = malloc(sizeof *spare);
    if (!spare) /* it stays MPI's */
        return;
    pthread_mutex_lock(&lock);
    *spare = (struct spare){handle, spares};
    spares = spare;
    pthread_mutex_unlock(&lock);
}

static void end_token(struct token *token)
{
    weft_run_destroy(token->run);
    pmpi_drop_types(&token->types[0]);
    pmpi_drop_types(&token->types[1]);
    if (token->holds_op)
        pmpi_op_leave(&token->call);
    pmpi_comm_leave(token->call.state);
    free(token->call.sent.packed);
    free(token->call.received.packed);
    free(token->call.lists);
    free(token);
}

static void bury(void)
{
    pthread_mutex_lock(&lock);
    int any = dead != NULL;
    pthread_mutex_unlock(&lock);
    if (!any || pmpi_comm_drives())
        return;
    pthread_mutex_lock(&lock);
    struct token *token = dead;
    dead = NULL;
    pthread_mutex_unlock(&lock);
    while (token) {
        struct token *next = token->next;
        end_token(token);
        token = next;
    }
}

/* A token with its run, and a handle. 0: it is MPI's; 1: there is one; below that: an error. */
static int prepare(struct token *token, struct pmpi_call *given)
{
    struct pmpi_call *call = &token->call;
    token->handle = MPI_REQUEST_NULL;
    *call = *given;
    pmpi_comm_hold(call->state);
    call->lists = make_lists(call);
    int status = call->lists ? WEFT_OK : WEFT_ERR_MEMORY;
    if (status == WEFT_OK)
        status = pmpi_keep_types(call, 0, &token->types[0]);
    if (status == WEFT_OK)
        status = pmpi_keep_types(call, 1, &token->types[1]);
    if (status == WEFT_OK)
        status = pmpi_op_hold(call);
    token->holds_op = status == WEFT_OK;
    if (status == WEFT_OK)
        status = pmpi_wire_open(call, &given->reason);
    if (given->reason != PMPI_SERVED)
        return 0;
    if (status == WEFT_OK)
        status = pmpi_persistent_make(call, &token->run);
    if (status == WEFT_OK && take_spare(&token->handle) != MPI_SUCCESS)
        status = WEFT_ERR_MEMORY;
    return status == WEFT_OK ? 1 : status;
}

static void add_token(struct token *token)
{
    struct token **chain = chain_of(token->handle);
    pthread_mutex_lock(&lock);
    token->next = *chain;
    *chain = token;
    atomic_fetch_add(&pmpi_tokens, 1);
    pthread_mutex_unlock(&lock);
}

/* Whether all ranks have made it, or MPI refuses it on all. Else some have counted a run that
 * others have not: requests of a communicator find each other by the order in which they are made,
 * so this one is MPI's, and so are those to come. 1: it is made. */
static int is_made_by_all(struct pmpi_call *call, int status)
{
    enum { MADE, REFUSED, FAILED };
    int outcomes = pmpi_comm_gather(call->comm, status < 0 ? FAILED : status == 0 ? REFUSED : MADE);
    if (outcomes == 1 << MADE || outcomes == 1 << REFUSED)
        return status == 1;
    call->state->persists_not = outcomes & 1 << FAILED ? PMPI_NO_MEMORY : PMPI_ARGUMENT;
    if (status != 0)
        call->reason = call->state->persists_not;
    return 0;
}

int pmpi_request_init(struct pmpi_call *call, MPI_Request *request, int *code)
{
    bury();
    int status = 0, is_served = pmpi_is_served(call, PMPI_PERSISTENT);
    struct token *token = NULL;
    if (!pmpi_is_by_size(call))
        return 0;
    if (is_served) {
        token = calloc(1, sizeof *token);
        status = token ? prepare(token, call) : WEFT_ERR_MEMORY;
    }
    if (is_made_by_all(call, status)) {
        *code = MPI_SUCCESS;
        *request = token->handle;
        add_token(token);
        return 1;
    }
    if (token && token->handle != MPI_REQUEST_NULL)
        give_back(token->handle);
    if (token)
        end_token(token);
    return 0;
}

/* What is sent and received is looked at anew: the program may have written it. */
static int start(struct token *token)
{
    struct operation *operation = &token->operation;
    *operation = (struct operation){.call = token->call, .token = token};
    operation->call.began_ns = pmpi_counts ? pmpi_now() : 0;
    return begin(operation);
}

int pmpi_token_start(MPI_Request request, int *code)
{
    pthread_mutex_lock(&lock);
    struct token *token = find(request);
    if (token) {
        token->active = token->busy = 1;
        token->started = 0;
        token->code = MPI_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    if (!token)
        return 0;
    int status = start(token);
    *code = MPI_SUCCESS;
    if (status == 1) {
        append(&token->operation);
        return 1;
    }
    *code = pmpi_comm_raise(token->call.state, status < 0 ? status : WEFT_ERR_INVALID);
    pthread_mutex_lock(&lock);
    token->active = token->busy = 0;
    pthread_mutex_unlock(&lock);
    return 1;
}

int pmpi_token_is_busy(MPI_Request request)
{
    int busy = 0;
    if (atomic_load_explicit(&pmpi_tokens, memory_order_relaxed) == 0 ||
        request == MPI_REQUEST_NULL)
        return 0;
    pthread_mutex_lock(&lock);
    struct token *token = find(request);
    if (token && token->active) {
        busy = token->busy;
        if (!busy && !token->started) {
            token->started = 1;
            PMPI_Start(&token->handle);
        }
    }
    pthread_mutex_unlock(&lock);
    return busy;
}

int pmpi_request_completed(MPI_Request request)
{
    int code = MPI_SUCCESS;
    MPI_Comm comm = MPI_COMM_NULL;
    if (atomic_load_explicit(&pmpi_failed, memory_order_relaxed) > 0)
        code = take_failure(request, &comm);
    if (atomic_load_explicit(&pmpi_tokens, memory_order_relaxed) > 0) {
        pthread_mutex_lock(&lock);
        struct token *token = find(request);
        if (token && token->started) {
            code = token->code;
            comm = token->call.state->comm;
            token->active = token->started = 0;
        }
        pthread_mutex_unlock(&lock);
    }
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(comm, code);
    return code;
}

int pmpi_token_free(MPI_Request request)
{
    int started = 0;
    if (atomic_load_explicit(&pmpi_tokens, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&lock);
    struct token **link = chain_of(request);
    while (*link && (*link)->handle != request)
        link = &(*link)->next;
    struct token *token = *link;
    if (token) {
        started = token->started;
        *link = token->next;
        token->freed = 1;
        atomic_fetch_sub(&pmpi_tokens, 1);
        if (!token->busy) {
            token->next = dead;
            dead = token;
        }
    }
    pthread_mutex_unlock(&lock);
    if (token && started)
        PMPI_Wait(&request, MPI_STATUS_IGNORE);
    if (token)
        give_back(request);
    bury();
    return token != NULL;
}

/* ---- going on ---- */

/* Its request has failed: MPI says so to who completes it. */
static void keep_failure(struct operation *operation, int code)
{
    strip(operation);
    operation->code = code;
    pmpi_comm_hold(operation->call.state);
    operation->next = failures;
    failures = operation;
    atomic_fetch_add(&pmpi_failed, 1);
}

static void conclude_token(struct token *token, int code)
{
    token->busy = 0;
    token->code = code;
    if (token->freed) {
        token->next = dead;
        dead = token;
    }
}

/* What comes of an operation of weft that has ended. Under the lock. */
static void conclude(struct operation *operation, int status)
{
    struct pmpi_call *call = &operation->call;
    struct pmpi_comm *state = call->state;
    struct token *token = operation->token;
    MPI_Request handle = operation->handle;
    int by_others = is_by_others(call);
    if (status < 0)
        weft_error_set(status, "%s",
                       token ? weft_run_error(token->run) : weft_request_error(operation->request));
    weft_request_destroy(operation->request);
    status = pmpi_wire_close(call, status);
    if (pmpi_counts)
        pmpi_stats_count(call);
    int code = status == WEFT_OK ? MPI_SUCCESS : pmpi_comm_code(status);
    if (token) {
        conclude_token(token, code);
    } else {
        pmpi_op_leave(call);
        if (code == MPI_SUCCESS)
            discard(operation);
        else
            keep_failure(operation, code);
        PMPI_Grequest_complete(handle);
    }
    pmpi_rescue_disarm(by_others);
    pmpi_comm_leave(state);
}

/* Whether it has ended: the first of each context is asked, and those behind it if it has. */
static int ask(struct operation *operation, unsigned pass)
{
    struct pmpi_comm *state = operation->call.state;
    if (operation->token)
        return weft_run_test(operation->token->run);
    if (state->waits_in == pass)
        return WEFT_IN_PROGRESS;
    int status = weft_request_test(operation->request);
    if (status == WEFT_IN_PROGRESS)
        state->waits_in = pass;
    return status;
}

void pmpi_request_settle(void)
{
    static unsigned pass;
    pthread_mutex_lock(&lock);
    struct operation **link = &first;
    pass++;
    while (*link) {
        struct operation *operation = *link;
        int status = ask(operation, pass);
        if (status == WEFT_IN_PROGRESS) {
            link = &operation->next;
            continue;
        }
        *link = operation->next;
        if (!*link)
            last = link;
        conclude(operation, status);
        /* Behind that: who sees nothing under way sees what has failed. */
        atomic_fetch_sub(&pmpi_under_way, 1);
    }
    pthread_mutex_unlock(&lock);
}

void pmpi_request_progress(void)
{
    weft_context_progress(pmpi_world);
    pmpi_request_settle();
    bury();
    pmpi_comm_bury();
}

/* A condition that is asked no more once it has been so: MPI gives a status once. */
struct condition {
    weft_done_fn done;
    void *user;
    int met;
};

static int is_met(void *user)
{
    struct condition *condition = user;
    if (!condition->met)
        condition->met = condition->done(condition->user);
    return condition->met;
}

/* In a function that MPI has called meanwhile there is nothing to drive: another call of this
 * thread does. */
void pmpi_wait_until(weft_done_fn done, void *user)
{
    struct condition condition = {done, user, 0};
    int status = WEFT_IN_PROGRESS;
    while (status == WEFT_IN_PROGRESS)
        status = weft_context_wait(pmpi_world, is_met, &condition, WEFT_NEVER);
    while (status != WEFT_OK && !is_met(&condition))
        sched_yield();
    pmpi_comm_bury();
}

/* ---- the end ---- */

static int is_idle(void *user)
{
    (void)user;
    pmpi_request_settle();
    return atomic_load(&pmpi_under_way) == 0;
}

void pmpi_request_close(void)
{
    if (atomic_load(&pmpi_under_way) > 0)
        pmpi_wait_until(is_idle, NULL);
    for (int i = 0; i < CHAINS; i++)
        while (tokens[i]) { /* that the program may free yet: a persistent request of MPI's */
            struct token *token = tokens[i];
            tokens[i] = token->next;
            token->next = dead;
            dead = token;
        }
    atomic_store(&pmpi_tokens, 0);
    bury();
    while (failures) {
        struct operation *failure = failures;
        failures = failure->next;
        pmpi_comm_leave(failure->call.state);
        free(failure);
    }
    atomic_store(&pmpi_failed, 0);
    while (spares) {
        MPI_Request handle;
        take_spare(&handle);
        PMPI_Request_free(&handle);
    }
}
