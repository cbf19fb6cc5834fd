/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the objects of trainers end between processes: a rank that fails one, gives up, ends its
 * context or cannot create it is named on all ranks; one that leaves is stood in for, or named
 * where it is needed; several are left in any order. Nobody waits for ever.
 */
#include <stdio.h>
#include <string.h>
#ifdef __SANITIZE_ADDRESS__
#    include <sanitizer/lsan_interface.h>
#endif

#include "support/trainers.h"
#include "world.h"

enum { COUNT = 1000, BEFORE = 3, AFTER = 9 };

static struct weft_context *context;
static int rank, size, culprit;
static float data[2][COUNT];

/* ---- what is expected ---- */

static void open_context(void)
{
    struct weft_context_config config;

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    context = world_context(&config);
}

/* Steps until one fails, at most `most`. */
static int take_steps(const struct trainer *kind, void *object, int most)
{
    int status = WEFT_OK;

    for (int step = 0; status == WEFT_OK && step < most; step++) {
        OK(weft_context_sleep(context, 100000));
        status = kind->step(object);
    }
    return status;
}

static void expect(int status, int expected, const char *word)
{
    char who[32];

    snprintf(who, sizeof who, "rank %d", culprit);
    if (status != expected || !strstr(weft_error_text(), word) ||
        (rank != culprit && !strstr(weft_error_text(), who)))
        printf("rank %d: %s: %s\n", rank, weft_status_name(status), weft_error_text());
    CHECK(status == expected);
    CHECK(strstr(weft_error_text(), word));
    CHECK(rank == culprit || strstr(weft_error_text(), who));
}

/* ---- cases ---- */

enum { FOR_EVER = 1 << 20 };

/* The culprit may fail it before others have returned from creating it: they hear of it there. */
static void one_fails(const struct trainer *kind, int gives_up)
{
    const char *word = gives_up ? "aborted: no disk" : "no disk";
    int own = rank == culprit ? WEFT_ERR_IO : WEFT_ERR_PEER;
    void *object = NULL;

    open_context();
    int status = kind->create(&object, context, data[0], COUNT, WEFT_F32);
    if (rank == culprit) {
        OK(status);
        OK(take_steps(kind, object, BEFORE));
        if (gives_up)
            OK(weft_context_abort(context, WEFT_ERR_IO, "no disk"));
        else
            OK(kind->fail(object, WEFT_ERR_IO, "no disk"));
    }
    if (status == WEFT_OK) {
        expect(take_steps(kind, object, FOR_EVER), own, word);
        expect(kind->destroy(object), own, word);
    } else {
        expect(status, own, word);
    }
    OK(weft_context_destroy(context));
    world_ok("%s: a rank that %s is named", kind->name, gives_up ? "gives up" : "fails it");
}

/* It is not destroyed, on purpose, and after its context cannot be any more. */
static void forget(void *object)
{
#ifdef __SANITIZE_ADDRESS__
    __lsan_ignore_object(object);
#else
    (void)object;
#endif
}

/* As above: it may do so before others have returned from creating the object. */
static void one_ends_its_context(const struct trainer *kind)
{
    const char *word = "has destroyed its context";
    void *object = NULL;

    open_context();
    int status = kind->create(&object, context, data[0], COUNT, WEFT_F32);
    if (rank == culprit) {
        OK(status);
        OK(take_steps(kind, object, BEFORE));
        forget(object);
    } else if (status == WEFT_OK) {
        expect(take_steps(kind, object, FOR_EVER), WEFT_ERR_PEER, word);
        expect(kind->destroy(object), WEFT_ERR_PEER, word);
    } else {
        expect(status, WEFT_ERR_PEER, word);
    }
    OK(weft_context_destroy(context));
    world_ok("%s: a rank that ends its context is named", kind->name);
}

static void one_leaves(const struct trainer *kind)
{
    void *object;
    int status;

    open_context();
    OK(kind->create(&object, context, data[0], COUNT, WEFT_F32));
    status = take_steps(kind, object, rank == culprit ? BEFORE : AFTER);
    if (kind->stands_in || rank == culprit) {
        OK(status);
        OK(kind->destroy(object));
    } else {
        /* Who sends to it may find its context gone, too. */
        const char *word =
            strstr(weft_error_text(), "has left") ? "has left" : "has destroyed its context";
        expect(status, WEFT_ERR_PEER, word);
        expect(kind->destroy(object), WEFT_ERR_PEER, word);
    }
    OK(weft_context_destroy(context));
    world_ok("%s: a rank that leaves is %s", kind->name,
             kind->stands_in ? "stood in for" : "named by who needs it");
}

/* A creation that fails on one rank fails on all, and the next one succeeds. */
static void one_cannot_create(const struct trainer *kind)
{
    void *object;

    open_context();
    int status =
        kind->create(&object, context, data[0], COUNT, rank == culprit ? WEFT_I32 : WEFT_F32);
    CHECK(!object);
    expect(status, rank == culprit ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_PEER, "dtype is i32");
    OK(kind->create(&object, context, data[0], COUNT, WEFT_F32));
    OK(take_steps(kind, object, BEFORE));
    OK(kind->destroy(object));
    OK(weft_context_destroy(context));
    world_ok("%s: a rank that cannot create it is named", kind->name);
}

static void several_in_any_order(const struct trainer *first, const struct trainer *second)
{
    void *objects[2];

    open_context();
    OK(first->create(&objects[0], context, data[0], COUNT, WEFT_F32));
    OK(second->create(&objects[1], context, data[1], COUNT, WEFT_F32));
    for (int step = 0; step < AFTER; step++) {
        OK(first->step(objects[0]));
        OK(second->step(objects[1]));
    }
    for (int i = 0; i < 2; i++) {
        int which = (i + rank) % 2;

        OK((which ? second : first)->destroy(objects[which]));
    }
    OK(weft_context_destroy(context));
    world_ok("%s and %s are left in different orders", first->name, second->name);
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_THREADS);
    rank = world_rank;
    size = world_size;
    for (int i = 0; i < TRAINERS; i++) {
        culprit = (i + 1) % size;
        one_fails(&trainers[i], 0);
        one_fails(&trainers[i], 1);
        one_ends_its_context(&trainers[i]);
        one_leaves(&trainers[i]);
        one_cannot_create(&trainers[i]);
        several_in_any_order(&trainers[i], &trainers[(i + 1) % TRAINERS]);
    }
    return world_end();
}
