/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What MPI allows and few programs do: arguments that are looked at on some ranks only, and differ
 * there; communicators that are freed while they are in use; functions of the program that MPI
 * calls when something ends. By weft, and where a table (legal.json) leaves some calls to MPI by
 * size.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"

enum { MOST = 64, TAG = 5, PIECE = 512 };

static int sum_of_ranks(void)
{
    return test_size * (test_size - 1) / 2;
}

/* ---- arguments ---- */

/* MPI_IN_PLACE where nobody looks. */
static void in_place_elsewhere(int root)
{
    int all[MOST], one[1], mine = test_rank;
    bool is_root = test_rank == root;

    test_doing("MPI_IN_PLACE where it is not significant, root %d", root);
    one[0] = test_rank;
    if (is_root)
        MUST(MPI_Reduce(MPI_IN_PLACE, one, 1, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD));
    else
        MUST(MPI_Reduce(one, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD));
    EXPECT(!is_root || one[0] == sum_of_ranks());
    if (is_root)
        MUST(MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, root, MPI_COMM_WORLD));
    else
        MUST(MPI_Gather(&mine, 1, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root,
                        MPI_COMM_WORLD));
    for (int r = 0; is_root && r < test_size; r++)
        EXPECT(all[r] == r);
    if (is_root)
        MUST(MPI_Scatter(all, 1, MPI_INT, one, 1, MPI_INT, root, MPI_COMM_WORLD));
    else
        MUST(
            MPI_Scatter(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, one, 1, MPI_INT, root, MPI_COMM_WORLD));
    EXPECT(one[0] == test_rank);
}

/* Both sides in one array; even ranks receive nothing. */
static void one_array(void)
{
    int data[2 * MOST], send_counts[MOST], recv_counts[MOST], from[MOST], to[MOST];
    int receives = test_rank % 2;

    test_doing("MPI_Alltoallv in one array");
    for (int r = 0; r < test_size; r++) {
        send_counts[r] = r % 2;
        recv_counts[r] = receives;
        from[r] = r;
        to[r] = MOST + r;
        data[r] = 100 * test_rank + r;
        data[MOST + r] = -1;
    }
    MUST(MPI_Alltoallv(data, send_counts, from, MPI_INT, data, recv_counts, to, MPI_INT,
                       MPI_COMM_WORLD));
    for (int r = 0; r < test_size; r++)
        EXPECT(data[MOST + r] == (receives ? 100 * r + test_rank : -1));
}

/* To the next rank alone: no datatype stands where nothing goes, but on rank 0. */
static void no_types(bool blocks)
{
    int next = (test_rank + 1) % test_size, previous = (test_rank + test_size - 1) % test_size;
    int send = test_rank, recv = -1, send_counts[MOST], recv_counts[MOST], places[MOST] = {0};
    MPI_Datatype send_types[MOST], recv_types[MOST];
    MPI_Request request;

    test_doing("MPI_Alltoallw without datatypes where counts are 0");
    for (int r = 0; r < test_size; r++) {
        send_counts[r] = r == next;
        recv_counts[r] = r == previous;
        send_types[r] = r == next || test_rank == 0 ? MPI_INT : MPI_DATATYPE_NULL;
        recv_types[r] = r == previous || test_rank == 0 ? MPI_INT : MPI_DATATYPE_NULL;
    }
    if (blocks) {
        MUST(MPI_Alltoallw(&send, send_counts, places, send_types, &recv, recv_counts, places,
                           recv_types, MPI_COMM_WORLD));
    } else {
        MUST(MPI_Ialltoallw(&send, send_counts, places, send_types, &recv, recv_counts, places,
                            recv_types, MPI_COMM_WORLD, &request));
        test_wait_mpi(&request);
    }
    EXPECT(recv == previous);
}

/* The last rank has one element where the others have bytes. */
static void other_elements(void)
{
    MPI_Datatype large;
    int counts[MOST] = {0}, places[MOST] = {0}, last = test_size - 1, bytes = PIECE * test_size;
    char *send = test_alloc((size_t)bytes), *recv = test_alloc((size_t)bytes);

    test_doing("MPI_Allgatherv of other elements on each rank");
    MUST(MPI_Type_contiguous(bytes, MPI_BYTE, &large));
    MUST(MPI_Type_commit(&large));
    memset(send, 'a', (size_t)bytes);
    counts[last] = test_rank == 0 ? 1 : bytes;
    MUST(MPI_Allgatherv(send, test_rank == last ? bytes : 0, MPI_BYTE, recv, counts, places,
                        test_rank == 0 ? large : MPI_BYTE, MPI_COMM_WORLD));
    EXPECT(memcmp(recv, send, (size_t)bytes) == 0);
    MUST(MPI_Type_free(&large));
    free(send);
    free(recv);
}

/* Rank 0 has nothing to receive. */
static void no_prefix(void)
{
    int recv = -1;

    test_doing("MPI_Exscan into nothing");
    MUST(MPI_Exscan(&test_rank, test_rank ? &recv : NULL, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(!test_rank || recv == test_rank * (test_rank - 1) / 2);
}

/* ---- what ends in the middle ---- */

/* A communicator is gone when MPI has ended what was begun on it: while a rank waits for weft. */
static void freed_in_use(int round)
{
    MPI_Comm copy;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int sum = -1;

    test_doing("a communicator that is freed in use, round %d", round);
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    if (test_rank == round % test_size)
        usleep(50);
    MUST(MPI_Ibarrier(copy, &requests[0]));
    MUST(MPI_Comm_free(&copy));
    MUST(MPI_Iallreduce(&test_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]));
    MUST(MPI_Waitall(2, requests, statuses));
    EXPECT(sum == sum_of_ranks());
}

/* The same by a message that nobody waits for: while a rank is in a collective of weft's. */
static void freed_with_message(int round)
{
    static char send[1 << 20], recv[1 << 20];
    int next = (test_rank + 1) % test_size, previous = (test_rank + test_size - 1) % test_size;
    MPI_Comm copy;
    MPI_Request requests[2];
    int sum = -1;

    test_doing("a communicator that is freed with a message under way, round %d", round);
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    MUST(MPI_Isend(send, sizeof send, MPI_BYTE, next, TAG, copy, &requests[0]));
    MUST(MPI_Request_free(&requests[0]));
    MUST(MPI_Irecv(recv, sizeof recv, MPI_BYTE, previous, TAG, copy, &requests[1]));
    MUST(MPI_Comm_free(&copy));
    if (test_rank == round % test_size)
        usleep(300);
    MUST(MPI_Allreduce(&test_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(sum == sum_of_ranks());
    MUST(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    MUST(MPI_Barrier(MPI_COMM_WORLD)); /* the buffer is written again */
}

static int copied(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *is_copied)
{
    (void)comm;
    (void)key;
    (void)extra;
    *(void **)copy = value;
    *is_copied = 1;
    return MPI_SUCCESS;
}

static int sum_at_end(MPI_Comm comm, int key, void *value, void *extra)
{
    int sum = -1;

    (void)key;
    (void)extra;
    MUST(MPI_Allreduce(&test_rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    ++*(int *)value;
    EXPECT(sum == sum_of_ranks());
    return MPI_SUCCESS;
}

/* A collective on a communicator that is being freed, by a function that MPI calls. */
static void collective_at_end(void)
{
    MPI_Comm first, second;
    int key, ends = 0;

    test_doing("a collective on a communicator that is being freed");
    MUST(MPI_Comm_create_keyval(copied, sum_at_end, &key, NULL));
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &first));
    MUST(MPI_Comm_set_attr(first, key, &ends));
    MUST(MPI_Comm_dup(first, &second));
    MUST(MPI_Comm_free(&second));
    EXPECT(ends == 1);
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &second));
    MUST(MPI_Barrier(second));
    MUST(MPI_Comm_free(&second));
    MUST(MPI_Comm_free(&first));
    EXPECT(ends == 2);
    MUST(MPI_Comm_free_keyval(&key));
}

/* ---- messages ---- */

/* An exchange whose send is wrong leaves no receive behind. */
static void wrong_exchange(void)
{
    MPI_Comm comm;
    MPI_Request request;
    int lost = -1, found = -1, one = 1, sum = -1, bytes = 7;

    if (test_size < 2)
        return;
    test_doing("MPI_Sendrecv with a wrong send");
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MUST(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    if (test_rank == 0) {
        MUST(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request));
        EXPECT(MPI_Sendrecv(&one, 1, MPI_INT, test_size, TAG, &lost, 1, MPI_INT, 1, TAG, comm,
                            MPI_STATUS_IGNORE) != MPI_SUCCESS);
        MUST(MPI_Send(&one, 0, MPI_INT, 1, TAG, comm));
        MUST(MPI_Recv(&found, 1, MPI_INT, 1, TAG, comm, MPI_STATUS_IGNORE));
        EXPECT(found == bytes && lost == -1);
    } else if (test_rank == 1) {
        MUST(MPI_Recv(&one, 0, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE));
        MUST(MPI_Send(&bytes, 1, MPI_INT, 0, TAG, comm));
    }
    if (test_rank != 0)
        MUST(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request));
    test_wait_mpi(&request);
    EXPECT(sum == test_size);
    MUST(MPI_Comm_free(&comm));
}

/* ---- the end ---- */

static MPI_Request persistent = MPI_REQUEST_NULL;
static int persistent_sum;

/* MPI_Finalize calls it first: messages, and what has not been freed. */
static int clean_up(MPI_Comm comm, int key, void *value, void *extra)
{
    int next = (test_rank + 1) % test_size, previous = (test_rank + test_size - 1) % test_size;
    int found = -1;
    MPI_Request requests[2];
    MPI_Status statuses[2];

    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    PMPI_Irecv(&found, 1, MPI_INT, previous, TAG, MPI_COMM_WORLD, &requests[0]);
    PMPI_Isend(&test_rank, 1, MPI_INT, next, TAG, MPI_COMM_WORLD, &requests[1]);
    if (MPI_Waitall(2, requests, statuses) != MPI_SUCCESS || found != previous)
        _exit(3);
    if (persistent != MPI_REQUEST_NULL && MPI_Request_free(&persistent) != MPI_SUCCESS)
        _exit(3);
    return MPI_SUCCESS;
}

static void leave_some(void)
{
    int key;

#if MPI_VERSION >= 4
    MUST(MPI_Allreduce_init(&test_rank, &persistent_sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                            MPI_INFO_NULL, &persistent));
    MUST(MPI_Start(&persistent));
    MUST(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
    EXPECT(persistent_sum == sum_of_ranks());
#endif
    MUST(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, clean_up, &key, NULL));
    MUST(MPI_Comm_set_attr(MPI_COMM_SELF, key, &persistent_sum));
    test_doing("MPI_Finalize with what is left");
}

int main(int argc, char **argv)
{
    int rounds;

    test_begin(&argc, &argv, -1);
    rounds = test_crowded() ? 20 : 1000;
    for (int root = 0; root < test_size; root++)
        in_place_elsewhere(root);
    one_array();
    no_types(true);
    no_types(false);
    other_elements();
    no_prefix();
    collective_at_end();
    wrong_exchange();
    for (int round = 0; round < rounds; round++)
        freed_in_use(round);
    for (int round = 0; round < rounds / 10; round++)
        freed_with_message(round);
    leave_some();
    return test_end();
}
