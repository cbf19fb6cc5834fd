/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators of every origin, of some ranks and in another order; those that come and go, in any
 * order and while others are in use; what the program keeps in them; those that are between two
 * groups; and what still happens in MPI_Finalize.
 */
#include <stdio.h>
#include <string.h>

#include "compare.h"

enum { COME_AND_GO = 300, OPEN = 12 };

/* ---- use ---- */

static void use_one(MPI_Comm comm, enum collective which, int number, enum form form)
{
    int ranks;

    if (comm == MPI_COMM_NULL)
        return;
    MUST(PMPI_Comm_size(comm, &ranks));
    trial_run(
        &(struct shape){
            .which = which,
            .kind = kinds_named("MPI_INT"),
            .operation = call_reduces(which) ? operations_named("MPI_SUM") : NULL,
            .count = 5 + number % 7,
            .root = number % ranks,
            .comm = comm,
            .seed = (uint64_t)number,
        },
        form);
}

/* Another collective for each number. */
static void use(MPI_Comm comm, int number)
{
    static const enum collective some[] = {ALLREDUCE, BCAST,    ALLGATHER, REDUCE_SCATTER_BLOCK,
                                           SCAN,      ALLTOALL, GATHERV};

    use_one(comm, some[number % 7], number, FORM_BLOCKING);
}

static void use_all(MPI_Comm comm)
{
    for (int which = 0; which < COLLECTIVES; which++)
        use_one(comm, (enum collective)which, which, FORM_BLOCKING);
}

static void drop(MPI_Comm *comm)
{
    if (*comm == MPI_COMM_NULL)
        return;
    MUST(MPI_Comm_free(comm));
    EXPECT(*comm == MPI_COMM_NULL);
}

/* ---- origins ---- */

static MPI_Comm by_dup(void)
{
    MPI_Comm comm;

    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    return comm;
}

static MPI_Comm by_dup_with_info(void)
{
    MPI_Comm comm;

    MUST(MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &comm));
    return comm;
}

static MPI_Comm by_split(void)
{
    MPI_Comm comm;

    MUST(MPI_Comm_split(MPI_COMM_WORLD, test_rank % 2, 0, &comm));
    return comm;
}

static MPI_Comm backwards(void)
{
    MPI_Comm comm;

    MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, -test_rank, &comm));
    return comm;
}

static MPI_Comm alone(void)
{
    MPI_Comm comm;

    MUST(MPI_Comm_split(MPI_COMM_WORLD, test_rank, 0, &comm));
    return comm;
}

static MPI_Comm all_but_one(void)
{
    int left_out = test_size > 1 && test_rank == test_size / 2;
    MPI_Comm comm;

    MUST(MPI_Comm_split(MPI_COMM_WORLD, left_out ? MPI_UNDEFINED : 3, test_rank * 7 % 5, &comm));
    return comm;
}

static MPI_Comm by_split_type(void)
{
    MPI_Comm comm;

    MUST(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -test_rank, MPI_INFO_NULL,
                             &comm));
    return comm;
}

static MPI_Comm dup_of_split(void)
{
    MPI_Comm half = by_split(), comm;

    MUST(MPI_Comm_dup(half, &comm));
    drop(&half);
    return comm;
}

/* Rank 0, 2, 4, ..., the last one first. */
static MPI_Group every_second(void)
{
    MPI_Group world, group;
    int range[3] = {(test_size - 1) / 2 * 2, 0, -2};

    MUST(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MUST(MPI_Group_range_incl(world, 1, &range, &group));
    MUST(MPI_Group_free(&world));
    return group;
}

static MPI_Comm by_create(void)
{
    MPI_Group group = every_second();
    MPI_Comm comm;

    MUST(MPI_Comm_create(MPI_COMM_WORLD, group, &comm));
    MUST(MPI_Group_free(&group));
    return comm;
}

static MPI_Comm by_create_group(void)
{
    MPI_Group group = every_second();
    MPI_Comm comm = MPI_COMM_NULL;

    if (test_rank % 2 == 0)
        MUST(MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, &comm));
    MUST(MPI_Group_free(&group));
    return comm;
}

static MPI_Comm by_cart(void)
{
    MPI_Comm comm;

    MUST(MPI_Cart_create(MPI_COMM_WORLD, 1, &test_size, (const int[]){1}, 0, &comm));
    return comm;
}

static MPI_Comm by_cart_sub(void)
{
    const int dims[] = {test_size % 2 ? 1 : 2, test_size % 2 ? test_size : test_size / 2};
    MPI_Comm grid, comm;

    MUST(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, (const int[]){0, 0}, 1, &grid));
    MUST(MPI_Cart_sub(grid, (const int[]){0, 1}, &comm));
    drop(&grid);
    return comm;
}

typedef MPI_Comm origin_function(void);

static const struct {
    const char *name;
    origin_function *function;
} origins[] = {
    {"dup", by_dup},
    {"idup", test_idup},
    {"dup_with_info", by_dup_with_info},
    {"split", by_split},
    {"backwards", backwards},
    {"alone", alone},
    {"all but one", all_but_one},
    {"split_type", by_split_type},
    {"dup of split", dup_of_split},
    {"create", by_create},
    {"create_group", by_create_group},
    {"cart", by_cart},
    {"cart_sub", by_cart_sub},
};
enum { ORIGINS = sizeof origins / sizeof origins[0] };

static void every_origin(void)
{
    use_all(MPI_COMM_WORLD);
    use_all(MPI_COMM_SELF);
    for (int i = 0; i < ORIGINS; i++) {
        bool all = test_next();
        MPI_Comm comm;

        test_doing("%s", origins[i].name);
        comm = origins[i].function();
        if (all)
            use_all(comm);
        for (int j = 0; j < 3; j++)
            use(comm, i + j);
        drop(&comm); /* right after a collective */
    }
}

/* ---- many of them ---- */

static void come_and_go(void)
{
    for (int i = 0; i < COME_AND_GO; i++) {
        MPI_Comm comm = i % 60 == 0 ? backwards() : i % 60 == 20 ? by_split() : test_idup();

        use_one(comm, i % 3 ? ALLREDUCE : BCAST, i, i % 10 ? FORM_NONBLOCKING : FORM_BLOCKING);
        drop(&comm);
    }
}

/* All are open at once; the first half is freed from the front, one after each round. */
static void any_order(void)
{
    MPI_Comm comms[OPEN];

    for (int i = 0; i < OPEN; i++)
        comms[i] = i % 4 ? test_idup() : backwards();
    for (int i = 0; i < OPEN; i++) {
        for (int j = OPEN - 1; j >= 0; j -= 3)
            use(comms[j], i + j);
        drop(&comms[i < OPEN / 2 ? i : OPEN + OPEN / 2 - 1 - i]);
    }
}

/* One group, several communicators: their collectives do not mix. */
static void alternately(void)
{
    enum { TWO = 2, ROUNDS = 20 };
    MPI_Comm comms[TWO] = {by_dup(), test_idup()};

    for (int round = 0; round < ROUNDS; round++) {
        use(comms[round % TWO], round);
        if (round % 5 == 0)
            use(MPI_COMM_WORLD, round);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int in[TWO] = {test_rank + round, 2 * test_rank}, out[TWO] = {-1, -1};
        int first = (test_rank + round) % TWO, sum = test_size * (test_size - 1) / 2;
        MPI_Request requests[TWO];

        /* Not in the same order on all ranks. */
        for (int i = 0; i < TWO; i++) {
            int which = (first + i) % TWO;
            MUST(MPI_Iallreduce(&in[which], &out[which], 1, MPI_INT, MPI_SUM, comms[which],
                                &requests[which]));
        }
        test_wait_mpi(&requests[1 - first]);
        test_wait_mpi(&requests[first]);
        EXPECT(out[0] == sum + test_size * round && out[1] == 2 * sum);
    }
    drop(&comms[0]);
    use(comms[1], 0);
    drop(&comms[1]);
}

/* What was begun still completes. */
static void free_meanwhile(void)
{
    for (int i = 0; i < 10; i++) {
        int in = test_rank + i, out = -1;
        MPI_Comm comm = test_idup();
        MPI_Request requests[2];

#ifdef OPEN_MPI /* 4.1 crashes where it is its own, as on a communicator that is not known yet */
        MUST(MPI_Barrier(comm));
#endif
        test_doing("MPI_Comm_free while MPI_Iallreduce is under way");
        MUST(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm, &requests[0]));
        MUST(MPI_Ibarrier(comm, &requests[1]));
        drop(&comm);
        test_wait_mpi(&requests[i % 2]);
        test_wait_mpi(&requests[1 - i % 2]);
        EXPECT(out == test_size * (test_size - 1) / 2 + i * test_size);
    }
}

/* ---- what is kept in a communicator ---- */

static int copies, deletions;

static int copy_number(MPI_Comm comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
    (void)comm;
    (void)keyval;
    EXPECT(extra == &copies);
    copies++;
    *(void **)copy = (char *)value + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_number(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)keyval;
    (void)value;
    EXPECT(extra == &copies);
    EXPECT(comm != MPI_COMM_NULL);
    deletions++;
    return MPI_SUCCESS;
}

static void expect_number(MPI_Comm comm, int keyval, const char *expected)
{
    char *value = NULL;
    int flag = 0;

    MUST(MPI_Comm_get_attr(comm, keyval, &value, &flag));
    EXPECT(flag && value == expected);
}

static void attributes(void)
{
    static char numbers[8];
    MPI_Comm first = by_dup(), second, third;
    int keyval, *most = NULL, flag = 0;

    test_doing("attributes");
    MUST(MPI_Comm_create_keyval(copy_number, delete_number, &keyval, &copies));
    use(first, 0);
    MUST(MPI_Comm_set_attr(first, keyval, &numbers[0]));
    use(first, 1);
    MUST(MPI_Comm_dup(first, &second));
    use(second, 2);
    MUST(MPI_Comm_split(second, 0, 0, &third)); /* has no attributes */
    EXPECT(copies == 1 && deletions == 0);
    expect_number(first, keyval, &numbers[0]);
    expect_number(second, keyval, &numbers[1]);
    MUST(MPI_Comm_set_attr(second, keyval, &numbers[5]));
    EXPECT(deletions == 1);
    MUST(MPI_Comm_get_attr(third, keyval, &most, &flag));
    EXPECT(!flag);
    drop(&first);
    EXPECT(deletions == 2);
    use(second, 3);
    expect_number(second, keyval, &numbers[5]);
    MUST(MPI_Comm_delete_attr(second, keyval));
    EXPECT(deletions == 3);
    drop(&second);
    EXPECT(deletions == 3 && copies == 1);
    MUST(MPI_Comm_free_keyval(&keyval));
    use(third, 4);
    drop(&third);
    MUST(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &flag));
    EXPECT(flag && *most >= 32767);
}

static void expect_name(MPI_Comm comm, const char *expected)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length = 0;

    MUST(MPI_Comm_get_name(comm, name, &length));
    if (strcmp(name, expected) != 0)
        test_mismatch("MPI_Comm_get_name: expected \"%s\", found \"%s\"", expected, name);
}

static void names(void)
{
    MPI_Comm comm = by_dup();
    int result = MPI_UNEQUAL;

    expect_name(MPI_COMM_WORLD, "MPI_COMM_WORLD");
    expect_name(MPI_COMM_SELF, "MPI_COMM_SELF");
    use(comm, 0);
    MUST(MPI_Comm_set_name(comm, "the program's"));
    use(comm, 1);
    expect_name(comm, "the program's");
    MUST(MPI_Comm_compare(MPI_COMM_WORLD, comm, &result));
    EXPECT(result == MPI_CONGRUENT);
    drop(&comm);
}

/* ---- between two groups ---- */

/* Each group hears the other's. */
static void between_reduce(MPI_Comm inter, int ranks, int side)
{
    int in = 10 + test_rank, out = -1, expected = 0, root = side ? 0 : MPI_PROC_NULL;
    MPI_Request request;

    for (int rank = 1 - side; rank < test_size; rank += 2)
        expected += 10 + rank;
    MUST(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, inter));
    EXPECT(out == expected);
    out = -1;
    MUST(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, inter, &request));
    test_wait_mpi(&request);
    EXPECT(out == expected);
    if (!side && test_rank == 0)
        root = MPI_ROOT;
    out = -1;
    MUST(MPI_Reduce(&in, &out, 1, MPI_INT, MPI_SUM, root, inter));
    EXPECT(out == (root == MPI_ROOT ? expected : -1));
    EXPECT(ranks > 0);
}

static void between_move(MPI_Comm inter, int ranks, int side)
{
    int root = side ? test_rank == 1 ? MPI_ROOT : MPI_PROC_NULL : 0;
    int in = 100 + test_rank, all[64], value = root == MPI_ROOT ? 42 : -1;

    memset(all, 0, sizeof all);
    MUST(MPI_Barrier(inter));
    MUST(MPI_Bcast(&value, 1, MPI_INT, root, inter));
    EXPECT(value == (root == MPI_PROC_NULL ? -1 : 42));
    MUST(MPI_Allgather(&in, 1, MPI_INT, all, 1, MPI_INT, inter));
    for (int i = 0; i < ranks; i++)
        EXPECT(all[i] == 100 + 2 * i + 1 - side);
    memset(all, 0, sizeof all);
    MUST(MPI_Gather(&in, 1, MPI_INT, all, 1, MPI_INT, root, inter));
    for (int i = 0; i < ranks; i++)
        EXPECT(all[i] == (root == MPI_ROOT ? 100 + 2 * i + 1 - side : 0));
}

static void between(void)
{
    MPI_Comm half, inter, merged, copy;
    int side = test_rank % 2, ranks;

    if (test_size < 2 || test_size > 64)
        return;
    half = by_split();
    test_doing("between two groups");
    MUST(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 77, &inter));
    MUST(MPI_Comm_remote_size(inter, &ranks));
    between_reduce(inter, ranks, side);
    between_move(inter, ranks, side);
    MUST(MPI_Comm_dup(inter, &copy));
    between_move(copy, ranks, side);
    drop(&copy);
    MUST(MPI_Intercomm_merge(inter, side, &merged));
    use(merged, 0);
    drop(&inter);
    use(merged, 1);
    use(half, 2);
    drop(&half);
    use(merged, 3);
    drop(&merged);
}

/* ---- the end ---- */

static MPI_Comm never_freed;
static int ended;

/* MPI_Finalize begins with this: all else is still there. */
static int at_the_end(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)keyval;
    (void)value;
    (void)extra;
    EXPECT(comm == MPI_COMM_SELF);
    ended++;
    for (int i = 0; i < 4; i++) {
        use(MPI_COMM_WORLD, i);
        use(never_freed, i);
        use(MPI_COMM_SELF, i);
        use_one(MPI_COMM_WORLD, BCAST, i, FORM_NONBLOCKING);
    }
    return MPI_SUCCESS;
}

static void prepare_end(void)
{
    MPI_Comm another = by_split();
    int keyval;

    use(another, 0); /* this one is not freed either */
    never_freed = by_dup();
    use(never_freed, 1);
    MUST(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &keyval, NULL));
    MUST(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL));
    MUST(MPI_Comm_free_keyval(&keyval));
}

int main(int argc, char **argv)
{
    int status;

    test_begin(&argc, &argv, -1);
    test_part(1, 4);
    kinds_find();
    every_origin();
    come_and_go();
    any_order();
    alternately();
    free_meanwhile();
    attributes();
    names();
    between();
    prepare_end();
    status = test_end();
    if (ended != 1)
        fprintf(stderr, "comms: rank %d: MPI_Finalize called back %d times\n", test_rank, ended);
    return status || ended != 1;
}
