/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts that are destroyed while MPI_Finalize deletes the attributes of MPI_COMM_SELF, as
 * libraries do that clean up there: set after the contexts, their attribute is deleted first.
 */
#include <stdio.h>
#include <weft/mpi.h>

#include "tests/processes/world.h"

enum { CONTEXTS = 3 };

static struct weft_context *contexts[CONTEXTS];
static int destroyed;

static void meet(struct weft_context *context)
{
    struct weft_run *run = NULL;

    OK(weft_template_create_run(&run, context, "barrier", NULL));
    OK(weft_run_execute(run));
    weft_run_destroy(run);
}

static int destroy(MPI_Comm comm, int keyval, void *value, void *extra)
{
    struct weft_context **context = value;

    (void)comm;
    (void)keyval;
    (void)extra;
    meet(*context);
    weft_context_destroy(*context);
    destroyed++;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int keyval = MPI_KEYVAL_INVALID;

    world_init(&argc, &argv, WORLD_ONE_THREAD);
    for (int i = 0; i < CONTEXTS; i++) {
        contexts[i] = world_context(NULL);
        meet(contexts[i]);
    }
    /* One goes at once, one in its attribute's callback, and one is still there at the end. */
    CHECK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, destroy, &keyval, NULL) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &contexts[2]) == MPI_SUCCESS);
    MPI_Comm_free_keyval(&keyval);
    weft_context_destroy(contexts[0]);
    world_ok("a context is destroyed when an attribute is deleted");
    world_end();
    if (destroyed != 1) {
        fprintf(stderr, "rank %d: the callback ran %d times\n", world_rank, destroyed);
        return 1;
    }
    weft_context_destroy(contexts[1]); /* MPI is gone: frees memory alone */
    return 0;
}
