/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of MPI that complete requests, and those that wait for one message.
 *
 * While nothing of weft's is under way they are MPI's. Else each is its test, again and again, and
 * weft is driven in between: what a rank waits for in MPI may be sent by one that waits for this
 * rank in weft.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/pmpi/request.h"

static int has_requests(void)
{
    /* Acquire: what has failed before nothing was under way is seen. */
    return atomic_load_explicit(&pmpi_under_way, memory_order_acquire) > 0 ||
           atomic_load_explicit(&pmpi_tokens, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&pmpi_failed, memory_order_relaxed) > 0;
}

static int is_under_way(void)
{
    return atomic_load_explicit(&pmpi_under_way, memory_order_relaxed) > 0;
}

static int have_busy(int count, const MPI_Request *requests)
{
    int busy = 0;
    for (int i = 0; i < count; i++)
        busy |= pmpi_token_is_busy(requests[i]);
    return busy;
}

/* ---- what is tested ---- */

/* The arguments of the functions that complete requests; what they return. */
struct test {
    int count;
    MPI_Request *requests;
    MPI_Request *given; /* as they were */
    int flag, index;
    int *indices;
    MPI_Status *statuses;
    int code;
};

static int test_one(void *user)
{
    struct test *test = user;
    pmpi_request_settle();
    test->flag = 0;
    if (pmpi_token_is_busy(*test->requests))
        pmpi_drive_mpi();
    else
        test->code = PMPI_Test(test->requests, &test->flag, test->statuses);
    return test->flag || test->code != MPI_SUCCESS;
}

static int test_all(void *user)
{
    struct test *test = user;
    pmpi_request_settle();
    test->flag = 0;
    if (have_busy(test->count, test->requests))
        pmpi_drive_mpi();
    else
        test->code = PMPI_Testall(test->count, test->requests, &test->flag, test->statuses);
    return test->flag || test->code != MPI_SUCCESS;
}

static int test_any(void *user)
{
    struct test *test = user;
    pmpi_request_settle();
    int busy = have_busy(test->count, test->requests);
    test->code =
        PMPI_Testany(test->count, test->requests, &test->index, &test->flag, test->statuses);
    if (test->flag && test->index == MPI_UNDEFINED && busy)
        test->flag = 0;
    return test->flag || test->code != MPI_SUCCESS;
}

static int test_some(void *user)
{
    struct test *test = user;
    pmpi_request_settle();
    int busy = have_busy(test->count, test->requests);
    test->code =
        PMPI_Testsome(test->count, test->requests, &test->index, test->indices, test->statuses);
    if (test->index == MPI_UNDEFINED && busy)
        test->index = 0;
    return test->index != 0 || test->code != MPI_SUCCESS;
}

/* ---- what has been completed ---- */

/* Of several: each says whether it has failed. `indices` NULL: all of them, in order. What MPI has
 * said of its own stands. */
static int conclude(const struct test *test, int count)
{
    int tells = test->statuses != MPI_STATUSES_IGNORE, code = test->code;
    for (int i = 0; i < count; i++) {
        int failed = pmpi_request_completed(test->given[test->indices ? test->indices[i] : i]);
        if (failed == MPI_SUCCESS)
            continue;
        for (int other = 0; tells && code != MPI_ERR_IN_STATUS && other < count; other++)
            test->statuses[other].MPI_ERROR = MPI_SUCCESS;
        code = MPI_ERR_IN_STATUS;
        if (tells)
            test->statuses[i].MPI_ERROR = failed;
    }
    return code;
}

/* Nothing is completed. */
static int no_memory(void)
{
    PMPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

/* The handles, which MPI replaces. NULL: no memory. */
static MPI_Request *copy_of(const MPI_Request *requests, int count, MPI_Request *few, int most)
{
    MPI_Request *copy = count <= most ? few : malloc((size_t)count * sizeof *copy);
    if (copy && count > 0)
        memcpy(copy, requests, (size_t)count * sizeof *copy);
    return copy;
}

enum { FEW = 64 };

/* ---- one ---- */

int pmpi_wait(MPI_Request *request, MPI_Status *status)
{
    MPI_Request given = *request;
    struct test test = {.requests = request, .statuses = status};
    pmpi_wait_until(test_one, &test);
    return test.code != MPI_SUCCESS ? test.code : pmpi_request_completed(given);
}

WEFT_EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    return has_requests() && request ? pmpi_wait(request, status) : PMPI_Wait(request, status);
}

WEFT_EXPORT int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    if (!has_requests() || !request || !flag)
        return PMPI_Test(request, flag, status);
    MPI_Request given = *request;
    struct test test = {.requests = request, .statuses = status};
    pmpi_request_progress();
    test_one(&test);
    *flag = test.flag;
    return test.code != MPI_SUCCESS || !test.flag ? test.code : pmpi_request_completed(given);
}

WEFT_EXPORT int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    if (has_requests()) {
        pmpi_request_progress();
        if (pmpi_token_is_busy(request) && flag) {
            *flag = 0;
            return MPI_SUCCESS;
        }
    }
    return PMPI_Request_get_status(request, flag, status);
}

WEFT_EXPORT int MPI_Request_free(MPI_Request *request)
{
    if (!request || !pmpi_token_free(*request))
        return PMPI_Request_free(request);
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

WEFT_EXPORT int MPI_Start(MPI_Request *request)
{
    int code;
    if (atomic_load_explicit(&pmpi_tokens, memory_order_relaxed) > 0 && request &&
        pmpi_token_start(*request, &code))
        return code;
    return PMPI_Start(request);
}

WEFT_EXPORT int MPI_Startall(int count, MPI_Request requests[])
{
    if (atomic_load_explicit(&pmpi_tokens, memory_order_relaxed) == 0 || count < 0 || !requests)
        return PMPI_Startall(count, requests);
    for (int i = 0; i < count; i++) {
        int code = MPI_Start(&requests[i]);
        if (code != MPI_SUCCESS)
            return code;
    }
    return MPI_SUCCESS;
}

/* ---- several ---- */

/* Whether MPI does it alone: it has nothing of weft's, or says what is wrong. */
static int is_plain(int count, const MPI_Request *requests)
{
    return !has_requests() || count <= 0 || !requests;
}

WEFT_EXPORT int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    MPI_Request few[FEW], *given;
    if (is_plain(count, requests))
        return PMPI_Waitall(count, requests, statuses);
    if (!(given = copy_of(requests, count, few, FEW)))
        return no_memory();
    struct test test = {.count = count, .requests = requests, .given = given, .statuses = statuses};
    pmpi_wait_until(test_all, &test);
    int code = test.flag ? conclude(&test, count) : test.code;
    if (given != few)
        free(given);
    return code;
}

WEFT_EXPORT int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    MPI_Request few[FEW], *given;
    if (is_plain(count, requests) || !flag)
        return PMPI_Testall(count, requests, flag, statuses);
    if (!(given = copy_of(requests, count, few, FEW)))
        return no_memory();
    struct test test = {.count = count, .requests = requests, .given = given, .statuses = statuses};
    pmpi_request_progress();
    test_all(&test);
    *flag = test.flag;
    int code = test.flag ? conclude(&test, count) : test.code;
    if (given != few)
        free(given);
    return code;
}

/* The one that MPI_Waitany or MPI_Testany has completed. */
static int conclude_any(const struct test *test, int *index)
{
    *index = test->index;
    if (test->code != MPI_SUCCESS || !test->flag || test->index == MPI_UNDEFINED)
        return test->code;
    return pmpi_request_completed(test->given[test->index]);
}

WEFT_EXPORT int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    MPI_Request few[FEW], *given;
    if (is_plain(count, requests) || !index)
        return PMPI_Waitany(count, requests, index, status);
    if (!(given = copy_of(requests, count, few, FEW)))
        return no_memory();
    struct test test = {.count = count, .requests = requests, .given = given, .statuses = status};
    pmpi_wait_until(test_any, &test);
    int code = conclude_any(&test, index);
    if (given != few)
        free(given);
    return code;
}

WEFT_EXPORT int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag,
                            MPI_Status *status)
{
    MPI_Request few[FEW], *given;
    if (is_plain(count, requests) || !index || !flag)
        return PMPI_Testany(count, requests, index, flag, status);
    if (!(given = copy_of(requests, count, few, FEW)))
        return no_memory();
    struct test test = {.count = count, .requests = requests, .given = given, .statuses = status};
    pmpi_request_progress();
    test_any(&test);
    *flag = test.flag;
    int code = conclude_any(&test, index);
    if (!test.flag)
        *index = MPI_UNDEFINED;
    if (given != few)
        free(given);
    return code;
}

static int conclude_some(const struct test *test, int *count)
{
    int is_known = test->code == MPI_SUCCESS || test->code == MPI_ERR_IN_STATUS;
    *count = test->index;
    return is_known && test->index > 0 ? conclude(test, test->index) : test->code;
}

WEFT_EXPORT int MPI_Waitsome(int count, MPI_Request requests[], int *completed, int indices[],
                             MPI_Status statuses[])
{
    MPI_Request few[FEW], *given;
    if (is_plain(count, requests) || !completed || !indices)
        return PMPI_Waitsome(count, requests, completed, indices, statuses);
    if (!(given = copy_of(requests, count, few, FEW)))
        return no_memory();
    struct test test = {.count = count,
                        .requests = requests,
                        .given = given,
                        .indices = indices,
                        .statuses = statuses};
    pmpi_wait_until(test_some, &test);
    int code = conclude_some(&test, completed);
    if (given != few)
        free(given);
    return code;
}

WEFT_EXPORT int MPI_Testsome(int count, MPI_Request requests[], int *completed, int indices[],
                             MPI_Status statuses[])
{
    MPI_Request few[FEW], *given;
    if (is_plain(count, requests) || !completed || !indices)
        return PMPI_Testsome(count, requests, completed, indices, statuses);
    if (!(given = copy_of(requests, count, few, FEW)))
        return no_memory();
    struct test test = {.count = count,
                        .requests = requests,
                        .given = given,
                        .indices = indices,
                        .statuses = statuses};
    pmpi_request_progress();
    test_some(&test);
    int code = conclude_some(&test, completed);
    if (given != few)
        free(given);
    return code;
}

/* ---- one message ---- */

/* Waits for what has been begun in place of a blocking function. */
static int finish(int code, MPI_Request *request, MPI_Status *status)
{
    return code == MPI_SUCCESS ? pmpi_wait(request, status) : code;
}

/* The receive of an exchange whose send has ended so: one that has failed leaves none behind. */
static int finish_both(int sent, MPI_Request *request, MPI_Status *status)
{
    if (sent == MPI_SUCCESS)
        return pmpi_wait(request, status);
    PMPI_Cancel(request);
    pmpi_wait(request, MPI_STATUS_IGNORE);
    return sent;
}

#define SENDS(Name, iname, suffix, N)                                                              \
    WEFT_EXPORT int MPI_##Name##suffix(const void *data, N count, MPI_Datatype type, int to,       \
                                       int tag, MPI_Comm comm)                                     \
    {                                                                                              \
        MPI_Request request;                                                                       \
        if (!is_under_way())                                                                       \
            return PMPI_##Name##suffix(data, count, type, to, tag, comm);                          \
        int code = PMPI_I##iname##suffix(data, count, type, to, tag, comm, &request);              \
        return finish(code, &request, MPI_STATUS_IGNORE);                                          \
    }

#define RECEIVES(suffix, N)                                                                        \
    WEFT_EXPORT int MPI_Recv##suffix(void *data, N count, MPI_Datatype type, int from, int tag,    \
                                     MPI_Comm comm, MPI_Status *status)                            \
    {                                                                                              \
        MPI_Request request;                                                                       \
        if (!is_under_way())                                                                       \
            return PMPI_Recv##suffix(data, count, type, from, tag, comm, status);                  \
        int code = PMPI_Irecv##suffix(data, count, type, from, tag, comm, &request);               \
        return finish(code, &request, status);                                                     \
    }                                                                                              \
    WEFT_EXPORT int MPI_Mrecv##suffix(void *data, N count, MPI_Datatype type,                      \
                                      MPI_Message *message, MPI_Status *status)                    \
    {                                                                                              \
        MPI_Request request;                                                                       \
        if (!is_under_way())                                                                       \
            return PMPI_Mrecv##suffix(data, count, type, message, status);                         \
        int code = PMPI_Imrecv##suffix(data, count, type, message, &request);                      \
        return finish(code, &request, status);                                                     \
    }

#define EXCHANGES(suffix, N)                                                                       \
    WEFT_EXPORT int MPI_Sendrecv##suffix(const void *send, N send_count, MPI_Datatype send_type,   \
                                         int to, int send_tag, void *recv, N recv_count,           \
                                         MPI_Datatype recv_type, int from, int recv_tag,           \
                                         MPI_Comm comm, MPI_Status *status)                        \
    {                                                                                              \
        MPI_Request requests[2];                                                                   \
        if (!is_under_way())                                                                       \
            return PMPI_Sendrecv##suffix(send, send_count, send_type, to, send_tag, recv,          \
                                         recv_count, recv_type, from, recv_tag, comm, status);     \
        int code =                                                                                 \
            PMPI_Irecv##suffix(recv, recv_count, recv_type, from, recv_tag, comm, &requests[0]);   \
        if (code != MPI_SUCCESS)                                                                   \
            return code;                                                                           \
        code = PMPI_Isend##suffix(send, send_count, send_type, to, send_tag, comm, &requests[1]);  \
        code = finish(code, &requests[1], MPI_STATUS_IGNORE);                                      \
        return finish_both(code, &requests[0], status);                                            \
    }

SENDS(Send, send, , int)
SENDS(Ssend, ssend, , int)
SENDS(Rsend, rsend, , int)
RECEIVES(, int)
EXCHANGES(, int)
#if MPI_VERSION >= 4
SENDS(Send, send, _c, MPI_Count)
SENDS(Ssend, ssend, _c, MPI_Count)
SENDS(Rsend, rsend, _c, MPI_Count)
RECEIVES(_c, MPI_Count)
EXCHANGES(_c, MPI_Count)
#endif

/* What is probed for. */
struct probe {
    int from, tag;
    MPI_Comm comm;
    MPI_Message *message; /* NULL: MPI_Probe */
    MPI_Status *status;
    int code;
};

static int probe(void *user)
{
    struct probe *probed = user;
    int flag = 0;
    pmpi_request_settle();
    probed->code = probed->message ? PMPI_Improbe(probed->from, probed->tag, probed->comm, &flag,
                                                  probed->message, probed->status)
                                   : PMPI_Iprobe(probed->from, probed->tag, probed->comm, &flag,
                                                 probed->status);
    return flag || probed->code != MPI_SUCCESS;
}

WEFT_EXPORT int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    struct probe probed = {from, tag, comm, NULL, status, MPI_SUCCESS};
    if (!is_under_way())
        return PMPI_Probe(from, tag, comm, status);
    pmpi_wait_until(probe, &probed);
    return probed.code;
}

WEFT_EXPORT int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message *message,
                           MPI_Status *status)
{
    struct probe probed = {from, tag, comm, message, status, MPI_SUCCESS};
    if (!is_under_way() || !message)
        return PMPI_Mprobe(from, tag, comm, message, status);
    pmpi_wait_until(probe, &probed);
    return probed.code;
}

WEFT_EXPORT int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    if (is_under_way())
        pmpi_request_progress();
    return PMPI_Iprobe(from, tag, comm, flag, status);
}

WEFT_EXPORT int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                            MPI_Status *status)
{
    if (is_under_way())
        pmpi_request_progress();
    return PMPI_Improbe(from, tag, comm, flag, message, status);
}
