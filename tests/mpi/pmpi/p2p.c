/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages beside collectives. A rank that waits in either goes on with the other: of a large
 * message the sender has to take part, and ranks stand in a collective while others still need
 * them, or in MPI_Recv while others wait for their part of a collective. What does not go on hangs,
 * and is named.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"

enum { LARGE = 4 << 20, SMALL = 64, TAG = 7, LATE_US = 3000 };

static unsigned char *out, *in;
static unsigned round_number;

static int next(void)
{
    return (test_rank + 1) % test_size;
}

static int previous(void)
{
    return (test_rank + test_size - 1) % test_size;
}

/* ---- what is sent ---- */

static unsigned char byte_of(int rank, int at)
{
    return (unsigned char)(rank * 37 + at + (at >> 12) + (int)round_number);
}

static void write_message(void)
{
    for (int i = 0; i < LARGE; i++)
        out[i] = byte_of(test_rank, i);
    memset(in, 0, LARGE);
}

static void read_message(const char *what, int source, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        if (in[i] == byte_of(source, i))
            continue;
        test_mismatch("%s: byte %d of %d from rank %d: expected 0x%02x, found 0x%02x", what, i,
                      bytes, source, byte_of(source, i), in[i]);
        return;
    }
}

/* ---- collectives whose results are known ---- */

static const char *const names[] = {"MPI_Barrier", "MPI_Allreduce", "MPI_Bcast", "MPI_Alltoall",
                                    "MPI_Reduce_scatter_block"};
enum { CALLS = sizeof names / sizeof names[0] };

struct values {
    int which;
    int *send, *recv;
};

static void values_make(struct values *values, int which)
{
    values->which = which;
    values->send = test_alloc(sizeof(int) * (size_t)test_size);
    values->recv = test_alloc(sizeof(int) * (size_t)test_size);
    for (int i = 0; i < test_size; i++) {
        values->send[i] = (int)round_number + test_rank * 100 + i;
        values->recv[i] = which == 2 && test_rank == 0 ? (int)round_number + i : -1;
    }
}

static void values_check(struct values *values, const char *what)
{
    int p = test_size, round = (int)round_number;

    for (int i = 0; i < p; i++) {
        int expected = -1;

        if (values->which == 1)
            expected = p * round + 100 * (p * (p - 1) / 2) + p * i;
        else if (values->which == 2)
            expected = round + i;
        else if (values->which == 3)
            expected = round + 100 * i + test_rank;
        else if (values->which == 4 && i == 0)
            expected = p * round + 100 * (p * (p - 1) / 2) + p * test_rank;
        if (values->recv[i] != expected)
            test_mismatch("%s: %s: element %d: expected %d, found %d", what, names[values->which],
                          i, expected, values->recv[i]);
    }
    free(values->send);
    free(values->recv);
}

static void collective(int which, const char *what)
{
    struct values v;

    values_make(&v, which);
    switch (which) {
    case 0:
        MUST(MPI_Barrier(MPI_COMM_WORLD));
        break;
    case 1:
        MUST(MPI_Allreduce(v.send, v.recv, test_size, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        break;
    case 2:
        MUST(MPI_Bcast(v.recv, test_size, MPI_INT, 0, MPI_COMM_WORLD));
        break;
    case 3:
        MUST(MPI_Alltoall(v.send, 1, MPI_INT, v.recv, 1, MPI_INT, MPI_COMM_WORLD));
        break;
    default:
        MUST(MPI_Reduce_scatter_block(v.send, v.recv, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    }
    values_check(&v, what);
}

static void begin(struct values *v, int which, MPI_Request *request)
{
    values_make(v, which);
    switch (which) {
    case 0:
        MUST(MPI_Ibarrier(MPI_COMM_WORLD, request));
        break;
    case 1:
        MUST(
            MPI_Iallreduce(v->send, v->recv, test_size, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request));
        break;
    case 2:
        MUST(MPI_Ibcast(v->recv, test_size, MPI_INT, 0, MPI_COMM_WORLD, request));
        break;
    case 3:
        MUST(MPI_Ialltoall(v->send, 1, MPI_INT, v->recv, 1, MPI_INT, MPI_COMM_WORLD, request));
        break;
    default:
        MUST(MPI_Ireduce_scatter_block(v->send, v->recv, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                                       request));
    }
}

/* ---- messages around blocking collectives ---- */

/* All send, meet, and only then receive. */
static void receive_after(int which, const char *what)
{
    MPI_Request request;

    MUST(MPI_Isend(out, LARGE, MPI_BYTE, next(), TAG, MPI_COMM_WORLD, &request));
    collective(which, what);
    MUST(MPI_Recv(in, LARGE, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    read_message(what, previous(), LARGE);
}

/* Rank 0, 2, ... sends and stands in the collective, while 1, 3, ... needs its part to receive. */
static void receive_before(int which, const char *what)
{
    MPI_Request request = MPI_REQUEST_NULL;
    bool receives = test_rank % 2;

    if (!receives && test_rank + 1 < test_size)
        MUST(MPI_Isend(out, LARGE, MPI_BYTE, next(), TAG, MPI_COMM_WORLD, &request));
    if (receives) {
        MUST(MPI_Recv(in, LARGE, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        read_message(what, previous(), LARGE);
    }
    collective(which, what);
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* The last rank comes late and only then receives from all others, which stand in the collective.
 * */
static void late_receiver(int which, const char *what)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int last = test_size - 1;

    if (test_rank != last)
        MUST(MPI_Issend(out, LARGE, MPI_BYTE, last, TAG, MPI_COMM_WORLD, &request));
    else
        usleep(LATE_US);
    for (int from = 0; test_rank == last && from < last; from++) {
        MUST(MPI_Recv(in, LARGE, MPI_BYTE, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        read_message(what, from, LARGE);
    }
    collective(which, what);
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* Receives stand open all the while. */
static void receive_open(int which, const char *what)
{
    MPI_Request requests[2];

    MUST(MPI_Irecv(in, LARGE, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, &requests[0]));
    usleep((useconds_t)(LATE_US * test_rank / test_size));
    MUST(MPI_Isend(out, LARGE, MPI_BYTE, next(), TAG, MPI_COMM_WORLD, &requests[1]));
    collective(which, what);
    MUST(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    MUST(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    read_message(what, previous(), LARGE);
}

/* A receive of anything from anybody takes no message but the program's. */
static void receive_anything(int which, const char *what)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 0;

    MUST(MPI_Irecv(in, SMALL, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
    collective(which, what);
    collective((which + 1) % CALLS, what);
    MUST(MPI_Test(&request, &flag, &status));
    collective(which, what);
    EXPECT(!flag || which == 2); /* of Bcast, others may be through */
    MUST(MPI_Send(out, SMALL, MPI_BYTE, next(), TAG, MPI_COMM_WORLD));
    if (!flag)
        MUST(MPI_Wait(&request, &status));
    EXPECT(status.MPI_SOURCE == previous() && status.MPI_TAG == TAG);
    read_message(what, previous(), SMALL);
}

static void persistent(int which, const char *what)
{
    MPI_Request requests[2];

    MUST(MPI_Recv_init(in, LARGE, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, &requests[0]));
    MUST(MPI_Send_init(out, LARGE, MPI_BYTE, next(), TAG, MPI_COMM_WORLD, &requests[1]));
    for (int start = 0; start < 3; start++) {
        memset(in, 0, LARGE);
        if (start % 2)
            MUST(MPI_Start(&requests[0]));
        MUST(MPI_Start(&requests[1]));
        collective(which, what);
        if (start % 2 == 0)
            MUST(MPI_Start(&requests[0]));
        MUST(MPI_Waitall(2, requests, (MPI_Status[2]){{0}}));
        read_message(what, previous(), LARGE);
    }
    MUST(MPI_Request_free(&requests[0]));
    MUST(MPI_Request_free(&requests[1]));
}

/* ---- messages while a collective is under way ---- */

enum receive { BY_RECV, BY_WAIT, BY_TEST, BY_PROBE, BY_IPROBE, BY_WAITANY, BY_SENDRECV, RECEIVES };

static void receive(enum receive how, int source, int bytes)
{
    MPI_Request request;
    int flag = 0, index;

    if (how == BY_PROBE)
        MUST(MPI_Probe(source, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    while (how == BY_IPROBE && !flag)
        MUST(MPI_Iprobe(source, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    if (how == BY_RECV || how == BY_PROBE || how == BY_IPROBE) {
        MUST(MPI_Recv(in, bytes, MPI_BYTE, source, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        return;
    }
    if (how == BY_SENDRECV) {
        MUST(MPI_Sendrecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, TAG, in, bytes, MPI_BYTE, source, TAG,
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        return;
    }
    MUST(MPI_Irecv(in, bytes, MPI_BYTE, source, TAG, MPI_COMM_WORLD, &request));
    while (how == BY_TEST && !flag)
        MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    if (how == BY_WAITANY)
        MUST(MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE));
    else if (how == BY_WAIT)
        MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* The last rank waits for a message that is sent after the sender's collective is complete, to
 * which its own part is missing as long as nothing drives it: all others wait for that. */
static void send_after_wait(int which, enum receive how, const char *what)
{
    MPI_Request request;
    struct values values;
    int last = test_size - 1, bytes = how % 2 ? SMALL : LARGE;

    if (test_rank == last)
        usleep(LATE_US);
    begin(&values, which, &request);
    for (int from = 0; test_rank == last && from < last; from++) {
        receive(how, from, bytes);
        read_message(what, from, bytes);
    }
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    values_check(&values, what);
    if (test_rank != last)
        MUST(MPI_Send(out, bytes, MPI_BYTE, last, TAG, MPI_COMM_WORLD));
}

/* Requests of both sorts in one array. */
static void wait_for_all(int which, const char *what)
{
    MPI_Request requests[3];
    struct values values;

    MUST(MPI_Isend(out, LARGE, MPI_BYTE, next(), TAG, MPI_COMM_WORLD, &requests[0]));
    begin(&values, which, &requests[1]);
    MUST(MPI_Irecv(in, LARGE, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, &requests[2]));
    MUST(MPI_Waitall(3, requests, (MPI_Status[3]){{0}}));
    values_check(&values, what);
    read_message(what, previous(), LARGE);
}

/* Completed in the other order on every second rank. */
static void wait_across(int which, const char *what)
{
    MPI_Request requests[2];
    struct values values;
    int first = test_rank % 2;

    MUST(MPI_Isend(out, LARGE, MPI_BYTE, next(), TAG, MPI_COMM_WORLD, &requests[0]));
    begin(&values, which, &requests[1]);
    if (first)
        MUST(MPI_Recv(in, LARGE, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    if (!first)
        MUST(MPI_Recv(in, LARGE, MPI_BYTE, previous(), TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    values_check(&values, what);
    read_message(what, previous(), LARGE);
}

typedef void case_function(int which, const char *what);

static void run(case_function *function, const char *name)
{
    for (int which = 0; which < CALLS; which++) {
        char what[100];

        round_number++;
        write_message();
        snprintf(what, sizeof what, "%s, %s", name, names[which]);
        test_doing("%s", what);
        function(which, what);
    }
}

static void run_send_after_wait(int which, const char *what)
{
    for (int how = 0; how < RECEIVES; how++) {
        char text[150];

        snprintf(text, sizeof text, "%s, the message is taken in way %d", what, how);
        test_doing("%s", text);
        send_after_wait(which, (enum receive)how, text);
    }
}

/* Ranks of one host could read each other's memory, and the sender would not have to take part. */
static void no_reading_across(void)
{
    setenv("UCX_RNDV_SCHEME", "put_zcopy", 0);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

int main(int argc, char **argv)
{
    no_reading_across();
    test_begin(&argc, &argv, -1);
    out = test_alloc(LARGE);
    in = test_alloc(LARGE);
    run(receive_after, "received after the collective");
    run(receive_before, "received before the collective");
    run(late_receiver, "received late, before the collective");
    run(receive_open, "received meanwhile");
    if (test_size > 1) /* MPICH 4.0.2's MPI_Alltoall of one rank hangs there */
        run(receive_anything, "whatever comes is received");
    run(persistent, "persistent messages");
    run(run_send_after_wait, "sent after the collective");
    run(wait_for_all, "one MPI_Waitall");
    run(wait_across, "waited for in another order");
    free(out);
    free(in);
    return test_end();
}
