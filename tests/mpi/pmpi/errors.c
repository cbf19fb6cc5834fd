/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments that are wrong, on all ranks alike: MPI_X returns the class that PMPI_X does and calls
 * the communicator's handler as often. Messages that are too long, which PMPI is not asked about.
 * The communicator is then as good as it was.
 *
 * With --fatal one argument is wrong where errors are fatal: the program has to fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

/* What is wrong; each only where all ranks see it. */
enum wrong {
    COUNT_NEGATIVE,
    ROOT_TOO_LARGE,
    ROOT_NEGATIVE,
    COMM_NONE,
    TYPE_NONE,
    TYPE_UNCOMMITTED,
    OP_NONE,
    OP_OF_BITS,
    OP_OF_PAIRS,
    BUFFERS_SAME,
    BUFFER_NULL,
    RECV_IN_PLACE,
    WRONGS
};
static const char *const names[WRONGS] = {
    [COUNT_NEGATIVE] = "a negative count",
    [ROOT_TOO_LARGE] = "a root that is too large",
    [ROOT_NEGATIVE] = "a negative root",
    [COMM_NONE] = "MPI_COMM_NULL",
    [TYPE_NONE] = "MPI_DATATYPE_NULL",
    [TYPE_UNCOMMITTED] = "a datatype that is not committed",
    [OP_NONE] = "MPI_OP_NULL",
    [OP_OF_BITS] = "MPI_BAND of MPI_DOUBLE",
    [OP_OF_PAIRS] = "MPI_MAXLOC of MPI_DOUBLE",
    [BUFFERS_SAME] = "the same buffer twice",
    [BUFFER_NULL] = "NULL",
    [RECV_IN_PLACE] = "MPI_IN_PLACE to receive",
};

static MPI_Datatype uncommitted;

/* The side whose arguments all ranks give. */
static struct part *common(struct call *call)
{
    enum collective which = call->which;

    if (which == GATHER || which == GATHERV || which == ALLREDUCE || which == REDUCE ||
        which == SCAN || which == EXSCAN)
        return &call->out;
    return &call->in;
}

static void negate(struct call *call)
{
    struct part *part = common(call);

    part->count = -3;
    if (part == &call->in && call_irregular(call->which))
        part->counts[0] = -3;
}

static void set_type(struct call *call, MPI_Datatype type)
{
    struct part *part = common(call);

    part->type = type;
    for (int i = 0; i < test_size; i++)
        part->types[i] = type;
}

static bool both_sides(enum collective which)
{
    return !call_has_root(which) && which != BARRIER;
}

/* Of some ranks, which may then give NULL. */
static bool may_be_empty(enum collective which)
{
    return call_irregular(which) && which != REDUCE_SCATTER;
}

/* Of a call that is right. False: it cannot be wrong in this way. */
static bool spoil(struct call *call, enum wrong wrong)
{
    enum collective which = call->which;

    switch (wrong) {
    case COUNT_NEGATIVE:
        negate(call);
        return which != BARRIER;
    case ROOT_TOO_LARGE:
    case ROOT_NEGATIVE:
        call->root = wrong == ROOT_NEGATIVE ? -77 : test_size;
        return call_has_root(which);
    case COMM_NONE:
        call->comm = MPI_COMM_NULL;
        return true;
    case TYPE_NONE:
    case TYPE_UNCOMMITTED:
        set_type(call, wrong == TYPE_NONE ? MPI_DATATYPE_NULL : uncommitted);
        return which != BARRIER;
    case OP_NONE:
    case OP_OF_BITS:
    case OP_OF_PAIRS:
        call->op = wrong == OP_NONE ? MPI_OP_NULL : wrong == OP_OF_BITS ? MPI_BAND : MPI_MAXLOC;
        return call_reduces(which);
    case BUFFERS_SAME:
        call->send = call->recv;
        return both_sides(which);
    case BUFFER_NULL:
        if (common(call) == &call->out || which == REDUCE_SCATTER)
            call->send = NULL;
        else
            call->recv = NULL;
        return which != BARRIER && !may_be_empty(which);
    default:
        call->recv = MPI_IN_PLACE;
        return both_sides(which) && !call_irregular(which);
    }
}

/* What MPI does not look at would be undefined. */
static bool is_checked(enum collective which, enum wrong wrong)
{
#ifdef MPICH /* 4.0.2: not the counts of reductions, nor everywhere whether buffers are one */
    if (wrong == COUNT_NEGATIVE)
        return !call_reduces(which) || which == REDUCE_SCATTER;
    return wrong != BUFFERS_SAME || call_reduces(which) || which == ALLTOALL;
#else
    (void)which;
    return wrong < BUFFERS_SAME;
#endif
}

/* ---- handlers ---- */

static int handled, handled_class;
static MPI_Comm handled_comm;

static void handle(MPI_Comm *comm, int *code, ...)
{
    handled++;
    handled_comm = *comm;
    MUST(PMPI_Error_class(*code, &handled_class));
}

static int class_of(int code)
{
    int class = -1;

    MUST(PMPI_Error_class(code, &class));
    return class;
}

static const char *text_of(int class)
{
    static char texts[2][MPI_MAX_ERROR_STRING];
    static int turn;
    int length;

    turn = 1 - turn;
    PMPI_Error_string(class, texts[turn], &length);
    return texts[turn];
}

/* ---- cases ---- */

static void still_good(MPI_Comm comm, const char *text)
{
    int in = test_rank + 1, out = -1, expected = test_size * (test_size + 1) / 2;
    char doing[400];

    if (!test_next())
        return;
    snprintf(doing, sizeof doing, "MPI_Allreduce after %s", text);
    test_doing("%s", doing);
    test_must(__FILE__, __LINE__, doing, MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm));
    if (out != expected)
        test_mismatch("%s: expected %d, found %d", doing, expected, out);
}

/* Both are refused; a request that there is nevertheless is completed. Of what is persistent PMPI's
 * form that is not says what is wrong. */
static void compare_classes(const struct trial *trial, MPI_Comm comm, bool has_handler,
                            const char *text)
{
    MPI_Request request = MPI_REQUEST_NULL;
    enum form form = trial->form == FORM_PERSISTENT ? FORM_NONBLOCKING : trial->form;
    int found, expected, calls, calls_expected;

    handled = 0;
    expected = call_pmpi(&trial->call, form, &request);
    test_wait(&request);
    calls_expected = handled;
    handled = handled_class = 0;
    handled_comm = MPI_COMM_NULL;
    found = call_mpi(&trial->call, trial->form, &request);
    calls = handled;
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (request != MPI_REQUEST_NULL)
        MUST(MPI_Request_free(&request));
    if (class_of(found) != class_of(expected))
        test_mismatch("%s: expected class %d (%s), found %d (%s)", text, class_of(expected),
                      text_of(class_of(expected)), class_of(found), text_of(class_of(found)));
    if (calls != calls_expected)
        test_mismatch("%s: the handler was called %d times, expected %d", text, calls,
                      calls_expected);
    if (!has_handler || !calls || trial->call.comm == MPI_COMM_NULL)
        return;
    if (handled_comm != comm)
        test_mismatch("%s: the handler was called for another communicator", text);
    if (handled_class != class_of(found))
        test_mismatch("%s: the handler was called with class %d, %d was returned", text,
                      handled_class, class_of(found));
}

static void compare(MPI_Comm comm, enum collective which, enum wrong wrong, enum form form,
                    bool has_handler)
{
    const struct shape shape = {
        .which = which,
        .kind = kinds_named("MPI_DOUBLE"),
        .operation = call_reduces(which) ? operations_named("MPI_SUM") : NULL,
        .count = 6,
        .comm = comm,
        .seed = 3,
    };
    struct trial trial;
    char text[200];

    trial_make(&trial, &shape, form);
    if (spoil(&trial.call, wrong) && is_checked(which, wrong)) {
        snprintf(text, sizeof text, "%s with %s%s", call_name(which, form), names[wrong],
                 has_handler ? ", with a handler" : "");
        test_doing("%s", text);
        compare_classes(&trial, comm, has_handler, text);
        still_good(comm, text);
    }
    trial_free(&trial);
}

static void every_error(MPI_Comm comm, bool has_handler)
{
    for (int which = 0; which < COLLECTIVES; which++)
        for (int wrong = 0; wrong < WRONGS; wrong++)
            for (int form = FORM_BLOCKING; form <= FORM_PERSISTENT && form < FORMS_HERE; form++)
                compare(comm, (enum collective)which, (enum wrong)wrong, (enum form)form,
                        has_handler);
}

/* ---- messages that are too long ---- */

enum { LONG = 5000, SHORT = 10 };

/* Calls it to its end. The codes of what is made, started and completed: the first that fails. */
static int call_whole(const struct call *call, enum form form)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = call_mpi(call, form, &request);

    if (form == FORM_BLOCKING || code != MPI_SUCCESS)
        return code;
    if (form == FORM_PERSISTENT)
        code = MPI_Start(&request);
    if (code == MPI_SUCCESS)
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (form == FORM_PERSISTENT)
        MUST(MPI_Request_free(&request));
    EXPECT(request == MPI_REQUEST_NULL);
    return code;
}

/* Rank 0 sends more than others receive: one of them says so, and whoever fails calls the handler
 * once, with what is returned. */
static void too_long(MPI_Comm comm, enum form form)
{
    struct call call = {.which = BCAST, .comm = comm};
    int class;

    call.in.type = MPI_INT;
    call.in.count = test_rank == 0 ? LONG : SHORT;
    call.recv = memset(test_alloc(LONG * sizeof(int)), 0, LONG * sizeof(int));
    test_doing("%s of %d elements, %d are expected", call_name(BCAST, form), LONG, SHORT);
    handled = 0;
    handled_class = MPI_SUCCESS;
    class = class_of(call_whole(&call, form));
    EXPECT(class == MPI_ERR_TRUNCATE || class == MPI_ERR_OTHER ||
           (class == MPI_SUCCESS && test_rank == 0));
    EXPECT(handled_class == class);
    EXPECT(handled == (class != MPI_SUCCESS));
    EXPECT(handled == 0 || handled_comm == comm);
    EXPECT(test_any(MPI_COMM_WORLD, class == MPI_ERR_TRUNCATE));
    still_good(comm, "a message that was too long");
    free(call.recv);
}

static void every_too_long(MPI_Comm comm)
{
    if (!test_preloaded() || test_size == 1)
        return;
    for (int form = FORM_BLOCKING; form <= FORM_PERSISTENT && form < FORMS_HERE; form++)
        too_long(comm, (enum form)form);
}

/* ---- handlers of communicators ---- */

/* A bad count: returns the class. */
static int fail(MPI_Comm comm)
{
    int value = 1;

    return class_of(MPI_Bcast(&value, -1, MPI_INT, 0, comm));
}

/* A handler is inherited, outlives its handle, and is replaced. */
static void handlers(MPI_Comm comm)
{
    MPI_Errhandler handler, kept;
    MPI_Comm copy;

    MUST(MPI_Comm_create_errhandler(handle, &handler));
    MUST(MPI_Comm_set_errhandler(comm, handler));
    every_error(comm, true);
    every_too_long(comm);
    MUST(MPI_Comm_get_errhandler(comm, &kept));
    EXPECT(kept == handler);
    MUST(MPI_Errhandler_free(&kept));
    MUST(MPI_Comm_dup(comm, &copy));
    MUST(MPI_Errhandler_free(&handler));
    handled = 0;
    EXPECT(fail(copy) == MPI_ERR_COUNT && handled == 1 && handled_comm == copy);
    MUST(MPI_Comm_call_errhandler(copy, MPI_ERR_OTHER));
    EXPECT(handled == 2 && handled_class == MPI_ERR_OTHER);
    MUST(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    EXPECT(fail(copy) == MPI_ERR_COUNT && handled == 2);
    still_good(copy, "the handler was replaced");
    EXPECT(fail(comm) == MPI_ERR_COUNT && handled == 3 && handled_comm == comm);
    MUST(MPI_Comm_free(&copy));
}

/* Two of one group, only one of which has a handler. */
static void whose_handler(MPI_Comm other)
{
    MPI_Errhandler handler;
    MPI_Comm comm;

    MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, -test_rank, &comm));
    MUST(MPI_Comm_create_errhandler(handle, &handler));
    MUST(MPI_Comm_set_errhandler(comm, handler));
    handled = 0;
    EXPECT(fail(other) == MPI_ERR_COUNT && handled == 0);
    EXPECT(fail(comm) == MPI_ERR_COUNT && handled == 1 && handled_comm == comm);
    still_good(comm, "the other one has failed");
    MUST(MPI_Comm_free(&comm));
    MUST(MPI_Errhandler_free(&handler));
}

int main(int argc, char **argv)
{
    MPI_Comm comm;

    test_begin(&argc, &argv, -1);
    test_part(1, 11);
    if (test_option(argc, argv, "--fatal")) {
        MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
        return fail(MPI_COMM_WORLD) == MPI_SUCCESS ? 0 : test_end();
    }
    kinds_find();
    MUST(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    MUST(MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &uncommitted));
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MUST(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    every_error(comm, false);
    whose_handler(comm);
    handlers(comm);
    MUST(MPI_Comm_free(&comm));
    MUST(MPI_Type_free(&uncommitted));
    return test_end();
}
