/* SPDX-License-Identifier: BSD-3-Clause */
/* What libraries on top attach to a context, and its end. */
#include <criterion/criterion.h>

#include "parts.h"
#include "runtime/base/alloc.h"

static const char first_key, second_key, third_key;

struct note {
    char *log;
    char letter;
};

static void end_note(void *value)
{
    struct note *note = value;
    strncat(note->log, &note->letter, 1);
}

Test(attach, found_by_its_key_and_ended_last_first)
{
    char log[8] = "";
    struct note notes[3] = {{log, 'a'}, {log, 'b'}, {log, 'c'}};
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    cr_expect_null(weft_context_attached(alone.context, &first_key));
    OK(weft_context_attach(alone.context, &first_key, &notes[0], end_note));
    OK(weft_context_attach(alone.context, &second_key, &notes[1], NULL));
    OK(weft_context_attach(alone.context, &third_key, &notes[2], end_note));
    cr_expect_eq(weft_context_attached(alone.context, &first_key), &notes[0]);
    cr_expect_eq(weft_context_attached(alone.context, &second_key), &notes[1]);
    cr_expect_eq(weft_context_attached(alone.context, &third_key), &notes[2]);
    cr_expect_eq(weft_context_attach(alone.context, &first_key, &notes[1], end_note),
                 WEFT_ERR_STATE);
    cr_expect_not_null(strstr(weft_error_text(), "weft_context_attach: something is attached"));
    cr_expect_eq(weft_context_attached(alone.context, &first_key), &notes[0]);
    alone_destroy(&alone);
    cr_expect_str_eq(log, "ca");
}

static void end_run(void *value)
{
    weft_run_destroy(value);
}

/* A run that is under way may be destroyed by what ends with the context. */
static void attach_run(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const char keys[3];
    int64_t x = 0, in = 1, out = 0;
    struct weft_run *run = chain_run(context, NULL, 0, "held", NULL, &x);
    OK(weft_context_attach(context, &keys[rank], run, end_run));
    OK(weft_run_start(run));
    struct weft_run *sum = allreduce(context, 1);
    OK(bind_name(sum, "send", &in));
    OK(bind_name(sum, "recv", &out));
    OK(weft_run_execute(sum));
    CHECK(out == ranks->size);
    weft_run_destroy(sum);
    CHECK(weft_context_attached(context, &keys[rank]) == run);
}

Test(attach, its_end_comes_before_that_of_the_context)
{
    ranks_run_each_progress(attach_run, 3, NULL);
}

struct race {
    struct weft_context *context;
    pthread_barrier_t barrier;
    atomic_int won;
};

static void *attach_at_once(void *argument)
{
    struct race *race = argument;
    pthread_barrier_wait(&race->barrier);
    int status = weft_context_attach(race->context, &first_key, &race, NULL);
    CHECK(status == WEFT_OK || status == WEFT_ERR_STATE);
    atomic_fetch_add(&race->won, status == WEFT_OK);
    CHECK(weft_context_attached(race->context, &first_key));
    return NULL;
}

Test(attach, of_threads_one_succeeds)
{
    for (int i = 0; i < 50; i++) {
        struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
        struct race race = {.context = alone.context};
        pthread_t threads[4];
        pthread_barrier_init(&race.barrier, NULL, 4);
        for (int t = 0; t < 4; t++)
            cr_assert_eq(pthread_create(&threads[t], NULL, attach_at_once, &race), 0);
        for (int t = 0; t < 4; t++)
            pthread_join(threads[t], NULL);
        cr_expect_eq(race.won, 1);
        pthread_barrier_destroy(&race.barrier);
        alone_destroy(&alone);
    }
}

Test(attach, without_memory)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    int value = 1;
    atomic_store(&weft__alloc_countdown, 1);
    cr_expect_eq(weft_context_attach(alone.context, &first_key, &value, NULL), WEFT_ERR_MEMORY);
    atomic_store(&weft__alloc_countdown, -1);
    cr_expect_null(weft_context_attached(alone.context, &first_key));
    OK(weft_context_attach(alone.context, &first_key, &value, NULL));
    alone_destroy(&alone);
}
