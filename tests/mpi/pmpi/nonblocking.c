/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every nonblocking and every persistent collective, completed in every way that MPI has: alone,
 * many at once, on several communicators, in any order, and in one array with messages and with
 * requests that are none.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"

enum way {
    WAIT,
    WAIT_BACKWARDS,
    TEST,
    WAITALL,
    WAITANY,
    WAITSOME,
    TESTALL,
    TESTANY,
    TESTSOME,
    GET_STATUS,
    WAYS
};
static const char *const ways[] = {
    "MPI_Wait",     "MPI_Wait backwards", "MPI_Test",    "MPI_Waitall",  "MPI_Waitany",
    "MPI_Waitsome", "MPI_Testall",        "MPI_Testany", "MPI_Testsome", "MPI_Request_get_status",
};

enum { TRIALS = 5, MESSAGES = 2, NONE = 2, REQUESTS = TRIALS + MESSAGES + NONE, TAG = 11 };
enum { MESSAGE_BYTES = 100000 };

/* ---- completion ---- */

struct set {
    MPI_Request *requests;
    MPI_Status *statuses; /* of each request; NULL: they are ignored */
    bool *complete;
    MPI_Request *kept;
    int count;
    const char *text;
};

static MPI_Status *status_at(const struct set *set, int index)
{
    return set->statuses ? &set->statuses[index] : MPI_STATUS_IGNORE;
}

static void wait_each(const struct set *set, bool backwards)
{
    for (int i = 0; i < set->count; i++) {
        int at = backwards ? set->count - 1 - i : i;
        MUST(MPI_Wait(&set->requests[at], status_at(set, at)));
    }
}

static void test_each(const struct set *set, bool ask_first)
{
    for (int i = 0; i < set->count; i++) {
        int flag = 0;

        while (ask_first && !flag) {
            MUST(MPI_Request_get_status(set->requests[i], &flag, MPI_STATUS_IGNORE));
            sched_yield();
        }
        if (ask_first) { /* it is complete, and says so again */
            MUST(MPI_Test(&set->requests[i], &flag, status_at(set, i)));
            if (!flag)
                test_mismatch("%s: request %d is complete, but MPI_Test says it is not", set->text,
                              i);
        }
        while (!flag) {
            MUST(MPI_Test(&set->requests[i], &flag, status_at(set, i)));
            sched_yield();
        }
    }
}

/* The array of statuses is written even where the caller wants none of them. */
static void all_at_once(const struct set *set, bool wait)
{
    MPI_Status *volatile ignored = MPI_STATUSES_IGNORE;
    MPI_Status *statuses = set->statuses ? set->statuses : ignored;
    int flag = 0;

    if (wait)
        MUST(MPI_Waitall(set->count, set->requests, statuses));
    while (!wait && !flag) {
        MUST(MPI_Testall(set->count, set->requests, &flag, statuses));
        sched_yield();
    }
}

/*
 * What was persistent is not looked at again: MPICH 4.0.2 does not see that a persistent collective
 * is not active, and MPI_Waitany returns it time and again.
 */
static void completed(const struct set *set, int index, const MPI_Status *status)
{
    if (index < 0 || index >= set->count || set->complete[index]) {
        test_mismatch("%s: index %d of %d is complete%s", set->text, index, set->count,
                      index >= 0 && index < set->count ? " for the second time" : "");
        return;
    }
    set->complete[index] = true;
    set->kept[index] = set->requests[index];
    set->requests[index] = MPI_REQUEST_NULL;
    if (set->statuses)
        set->statuses[index] = *status;
}

static void one_by_one(const struct set *set, bool wait)
{
    for (;;) {
        int index = 0, flag = wait;
        MPI_Status status, *wanted = set->statuses ? &status : MPI_STATUS_IGNORE;

        if (wait)
            MUST(MPI_Waitany(set->count, set->requests, &index, wanted));
        else
            MUST(MPI_Testany(set->count, set->requests, &index, &flag, wanted));
        if (flag && index == MPI_UNDEFINED)
            return;
        if (flag)
            completed(set, index, &status);
        else
            sched_yield();
    }
}

static void some_by_some(const struct set *set, bool wait)
{
    int *indices = test_alloc(sizeof(int) * (size_t)set->count);
    MPI_Status *found = test_alloc(sizeof *found * (size_t)set->count);
    MPI_Status *volatile ignored = MPI_STATUSES_IGNORE;

    for (;;) {
        int count = 0;
        MPI_Status *wanted = set->statuses ? found : ignored;

        if (wait)
            MUST(MPI_Waitsome(set->count, set->requests, &count, indices, wanted));
        else
            MUST(MPI_Testsome(set->count, set->requests, &count, indices, wanted));
        if (count == MPI_UNDEFINED)
            break;
        if (wait && count == 0)
            test_mismatch("%s: none is complete", set->text);
        for (int i = 0; i < count; i++)
            completed(set, indices[i], &found[i]);
        sched_yield();
    }
    free(indices);
    free(found);
}

static void complete(const struct set *set, enum way way)
{
    memset(set->complete, 0, (size_t)set->count * sizeof *set->complete);
    switch (way) {
    case WAIT:
    case WAIT_BACKWARDS:
        wait_each(set, way == WAIT_BACKWARDS);
        break;
    case TEST:
    case GET_STATUS:
        test_each(set, way == GET_STATUS);
        break;
    case WAITALL:
    case TESTALL:
        all_at_once(set, way == WAITALL);
        break;
    case WAITANY:
    case TESTANY:
        one_by_one(set, way == WAITANY);
        break;
    default:
        some_by_some(set, way == WAITSOME);
    }
    for (int i = 0; i < set->count; i++)
        if (set->complete[i])
            set->requests[i] = set->kept[i];
}

/* ---- cases ---- */

static bool is_persistent(enum form form)
{
    return form == FORM_PERSISTENT || form == FORM_PERSISTENT_C;
}

/*
 * In MPICH 4.0.2, MPI_Testall has an error for each persistent collective; those of Gather, Scatter
 * and Allgather send what was there when they were made, or die in their second start.
 */
static bool broken(enum collective which, enum form form, enum way way)
{
    if (test_preloaded() || !is_persistent(form))
        return false;
    return way == TESTALL || which == ALLGATHER || which == GATHER || which == SCATTER;
}

static unsigned varied(unsigned number, unsigned count)
{
    return (unsigned)(test_random(number, 2000, count) % count);
}

static struct shape shape_of(enum collective which, unsigned number, MPI_Comm comm)
{
    static const char *const kinds[] = {"MPI_INT", "MPI_DOUBLE", "MPI_FLOAT", "MPI_UNSIGNED_CHAR"};
    static const char *const operations[] = {"MPI_SUM", "MPI_MAX", "MPI_PROD"};
    static const int counts[] = {1, 5, 40, 3000};

    return (struct shape){
        .which = which,
        .kind = kinds_named(kinds[varied(number, 4)]),
        .operation = call_reduces(which) ? operations_named(operations[varied(number, 3)]) : NULL,
        .count = counts[varied(number + 1, 4)],
        .root = (int)varied(number, (unsigned)test_size),
        .in_place = varied(number, 5) == 0 && which != BCAST && which != BARRIER,
        .absent = varied(number, 2),
        .comm = comm,
        .seed = number,
    };
}

/* One alone. */
static void single(enum collective which, enum form form, enum way way, unsigned number)
{
    struct shape shape = shape_of(which, number, MPI_COMM_WORLD);
    struct trial trial;
    MPI_Request request = MPI_REQUEST_NULL, kept;
    MPI_Status status;
    bool done;
    struct set set = {&request, number % 3 ? &status : NULL, &done, &kept, 1, ways[way]};
    int starts = is_persistent(form) ? 3 : 1;

    if (shape_broken(&shape) || broken(which, form, way))
        return;
    trial_make(&trial, &shape, form);
    trial_expect(&trial);
    trial_start(&trial, &request);
    for (int start = 0; start < starts; start++) {
        if (start) {
            trial_refill(&trial, number + 1000 * (unsigned)start);
            trial_expect(&trial);
        }
        if (is_persistent(form))
            MUST(MPI_Start(&request));
        complete(&set, way);
        trial_check(&trial);
    }
    EXPECT(is_persistent(form) == (request != MPI_REQUEST_NULL));
    MUST(MPI_Wait(&request, &status)); /* is not active, or none */
    if (is_persistent(form))
        MUST(MPI_Request_free(&request));
    EXPECT(request == MPI_REQUEST_NULL);
    trial_free(&trial);
}

static void every_form(void)
{
    for (int form = FORM_NONBLOCKING; form < FORMS_HERE; form++)
        for (int which = 0; which < COLLECTIVES && form != FORM_BLOCKING_C; which++)
            for (int way = 0; way < WAYS; way++) {
                unsigned number = test_next();

                if (number)
                    single((enum collective)which, (enum form)form, (enum way)way, number);
            }
}

/* ---- many at once ---- */

struct batch {
    unsigned number;
    bool persistent;
    struct trial trials[TRIALS];
    unsigned char *message[MESSAGES]; /* to the next rank, from the previous one */
    MPI_Request requests[REQUESTS];
    MPI_Status statuses[REQUESTS];
    bool complete[REQUESTS];
    MPI_Request kept[REQUESTS];
    int place[REQUESTS]; /* trials, messages and those that are none, by rank in another order */
};

static void fill_messages(struct batch *b, int start)
{
    for (int i = 0; i < MESSAGE_BYTES; i++) {
        b->message[0][i] = (unsigned char)(i + test_rank * 31 + start + (int)b->number);
        b->message[1][i] = 0;
    }
}

static void check_messages(const struct batch *b, int start)
{
    int previous = (test_rank + test_size - 1) % test_size;

    for (int i = 0; i < MESSAGE_BYTES; i++) {
        unsigned char expected = (unsigned char)(i + previous * 31 + start + (int)b->number);

        if (b->message[1][i] == expected)
            continue;
        test_mismatch("batch %u: the message from rank %d: byte %d: expected 0x%02x, found 0x%02x",
                      b->number, previous, i, expected, b->message[1][i]);
        return;
    }
}

static enum form batch_form(const struct batch *b, int index)
{
    bool wide = FORMS_HERE == (int)FORMS && varied(b->number + (unsigned)index, 3) == 0;

    if (b->persistent)
        return wide ? FORM_PERSISTENT_C : FORM_PERSISTENT;
    return wide ? FORM_NONBLOCKING_C : FORM_NONBLOCKING;
}

static void batch_make(struct batch *b, enum way way, const MPI_Comm comms[2])
{
    for (int i = 0; i < REQUESTS; i++) {
        b->requests[i] = MPI_REQUEST_NULL;
        b->place[i] = (i * 4 + test_rank + (int)b->number) % REQUESTS; /* 4 and 9 share no factor */
    }
    for (int i = 0; i < MESSAGES; i++)
        b->message[i] = test_alloc(MESSAGE_BYTES);
    for (int i = 0; i < TRIALS; i++) {
        unsigned number = 100 * b->number + (unsigned)i;
        enum collective which = (enum collective)varied(number, COLLECTIVES);
        enum form form = batch_form(b, i);
        struct shape shape;

        if (broken(which, form, way))
            which = ALLREDUCE;
        shape = shape_of(which, number, comms[number % 2]);
        trial_make(&b->trials[i], &shape, form);
    }
}

static void batch_init_messages(struct batch *b)
{
    int next = (test_rank + 1) % test_size, previous = (test_rank + test_size - 1) % test_size;
    MPI_Request *send = &b->requests[b->place[TRIALS]], *recv = &b->requests[b->place[TRIALS + 1]];

    if (b->persistent) {
        MUST(
            MPI_Send_init(b->message[0], MESSAGE_BYTES, MPI_BYTE, next, TAG, MPI_COMM_WORLD, send));
        MUST(MPI_Recv_init(b->message[1], MESSAGE_BYTES, MPI_BYTE, previous, TAG, MPI_COMM_WORLD,
                           recv));
    } else {
        MUST(MPI_Isend(b->message[0], MESSAGE_BYTES, MPI_BYTE, next, TAG, MPI_COMM_WORLD, send));
        MUST(
            MPI_Irecv(b->message[1], MESSAGE_BYTES, MPI_BYTE, previous, TAG, MPI_COMM_WORLD, recv));
    }
}

static void batch_init(struct batch *b)
{
    for (int i = 0; i < TRIALS; i++) {
        if (i == TRIALS / 2)
            batch_init_messages(b);
        trial_start(&b->trials[i], &b->requests[b->place[i]]);
    }
}

/* Collectives in the order of all ranks; MPI_Startall takes some of them and the messages. */
static void batch_start(struct batch *b)
{
    MPI_Request some[REQUESTS];
    int count = 0;

    MUST(MPI_Start(&b->requests[b->place[0]]));
    for (int i = 1; i < TRIALS + MESSAGES; i++)
        some[count++] = b->requests[b->place[i]];
    MUST(MPI_Startall(count, some));
}

static void check_statuses(const struct batch *b, const char *text)
{
    const MPI_Status *received = &b->statuses[b->place[TRIALS + 1]];
    int bytes = 0;

    MUST(MPI_Get_count(received, MPI_BYTE, &bytes));
    if (received->MPI_SOURCE != (test_rank + test_size - 1) % test_size ||
        received->MPI_TAG != TAG || bytes != MESSAGE_BYTES)
        test_mismatch("%s: the status of the message has source %d, tag %d and %d bytes", text,
                      received->MPI_SOURCE, received->MPI_TAG, bytes);
}

static void batch_complete(struct batch *b, enum way way, int start)
{
    char text[120];
    bool ignored = b->number % 3 == 0;
    struct set set = {b->requests, ignored ? NULL : b->statuses, b->complete, b->kept, REQUESTS,
                      text};

    snprintf(text, sizeof text, "%s of batch %u%s, start %d", ways[way], b->number,
             b->persistent ? ", persistent" : "", start);
    test_doing("%s", text);
    complete(&set, way);
    for (int i = 0; i < REQUESTS; i++)
        if ((b->requests[b->place[i]] != MPI_REQUEST_NULL) !=
            (b->persistent && i < TRIALS + MESSAGES))
            test_mismatch("%s: request %d is %snull", text, i, b->persistent ? "" : "not ");
    if (!ignored)
        check_statuses(b, text);
    check_messages(b, start);
    for (int i = 0; i < TRIALS; i++)
        trial_check(&b->trials[i]);
}

static void batch_free(struct batch *b)
{
    for (int i = 0; i < REQUESTS; i++)
        if (b->requests[i] != MPI_REQUEST_NULL)
            MUST(MPI_Request_free(&b->requests[i]));
    for (int i = 0; i < TRIALS; i++)
        trial_free(&b->trials[i]);
    for (int i = 0; i < MESSAGES; i++)
        free(b->message[i]);
}

static void batch_run(unsigned number, enum way way, bool persistent, const MPI_Comm comms[2])
{
    struct batch *b = test_alloc(sizeof *b);

    memset(b, 0, sizeof *b);
    b->number = number;
    b->persistent = persistent;
    batch_make(b, way, comms);
    for (int start = 0; start < (persistent ? 3 : 1); start++) {
        fill_messages(b, start);
        for (int i = 0; i < TRIALS; i++) {
            if (start)
                trial_refill(&b->trials[i], number + 77 * (unsigned)(start + i));
            trial_expect(&b->trials[i]);
        }
        if (!start)
            batch_init(b);
        if (persistent)
            batch_start(b);
        batch_complete(b, way, start);
    }
    batch_free(b);
    free(b);
}

static void batches(void)
{
    MPI_Comm comms[2];

    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]));
    MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, -test_rank, &comms[1]));
    for (int round = 0; round < 8; round++)
        for (int way = 0; way < WAYS; way++) {
            unsigned number = test_next();

            bool persistent = FORMS_HERE == (int)FORMS && round % 2;

            if (number && !broken(ALLREDUCE, persistent ? FORM_PERSISTENT : FORM_NONBLOCKING, way))
                batch_run(number, (enum way)way, persistent, comms);
        }
    MUST(MPI_Comm_free(&comms[0]));
    MUST(MPI_Comm_free(&comms[1]));
}

/* ---- no barrier is complete before the last rank has begun it ---- */

static void barrier(int late, enum form form)
{
    const struct call call = {.which = BARRIER, .comm = MPI_COMM_WORLD};
    double came, left, last = 0, first = 0;
    MPI_Request request, both[2];
    int flag = 0;

    test_doing("%s, rank %d is late", call_name(BARRIER, form), late);
    if (is_persistent(form))
        MUST(call_mpi(&call, form, &request));
    if (test_rank == late)
        usleep(10000);
    came = test_seconds();
    if (is_persistent(form))
        MUST(MPI_Start(&request));
    else
        MUST(call_mpi(&call, form, &request));
    while (!flag) {
        MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        sched_yield();
    }
    left = test_seconds();
    if (is_persistent(form))
        MUST(MPI_Request_free(&request));
    MUST(PMPI_Iallreduce(&came, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &both[0]));
    MUST(PMPI_Iallreduce(&left, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD, &both[1]));
    test_waitall(2, both);
    if (test_rank == 0 && first < last)
        test_mismatch("%s: a rank has left %g s before the last came", call_name(BARRIER, form),
                      last - first);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv, -1);
    test_part(2, 4);
    kinds_find();
    every_form();
    batches();
    for (int late = 0; late < test_size; late++)
        for (int form = FORM_NONBLOCKING; form <= FORM_PERSISTENT && form < FORMS_HERE; form++)
            barrier(late, (enum form)form);
    return test_end();
}
