/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as processes: what goes wrong in one is told with its number. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/forked.h"

enum { SIZE = 5, CULPRIT = 3, BYTES = 3 * FORKED_AREA + 7 };

static int gathers(struct forked_rank *self, void *user)
{
    size_t bytes = *(const size_t *)user;
    unsigned char *mine = malloc(bytes), *all = malloc(bytes * SIZE);
    if (!mine || !all)
        forked_fail(self, "no memory");
    for (int turn = 0; turn < 3; turn++) {
        memset(mine, 16 * turn + self->rank, bytes);
        forked_gather(self, mine, bytes, all);
        for (size_t i = 0; i < bytes * SIZE; i++)
            if (all[i] != 16 * turn + (int)(i / bytes))
                forked_fail(self, "byte %zu is %d", i, all[i]);
    }
    free(mine);
    free(all);
    return 0;
}

Test(forked, gathers_of_any_size)
{
    static const size_t bytes[] = {1, FORKED_AREA, BYTES};
    char text[FORKED_TEXT];
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
        cr_expect(!forked_run(SIZE, gathers, (void *)&bytes[i], text, sizeof text), "%s", text);
}

/* All but one wait for it, and are ended. */
static void wait_in_vain(struct forked_rank *self)
{
    forked_meet(self);
    if (self->rank != CULPRIT)
        forked_meet(self);
}

static int says_why(struct forked_rank *self, void *user)
{
    (void)user;
    wait_in_vain(self);
    forked_fail(self, "%d is too much", 7);
    return 0;
}

static int returns(struct forked_rank *self, void *user)
{
    (void)user;
    wait_in_vain(self);
    return 42;
}

static int is_ended(struct forked_rank *self, void *user)
{
    (void)user;
    wait_in_vain(self);
    raise(SIGTERM);
    return 0;
}

Test(forked, who_fails_is_named)
{
    static const struct {
        forked_fn fn;
        const char *text;
    } cases[] = {{says_why, "rank 3 exited with 1: 7 is too much"},
                 {returns, "rank 3 exited with 42: "},
                 {is_ended, "rank 3 was ended by signal 15 (Terminated)"}};
    char text[FORKED_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect(forked_run(SIZE, cases[i].fn, NULL, text, sizeof text), "case %zu", i);
        cr_expect_str_eq(text, cases[i].text);
    }
}

static int goes_on(struct forked_rank *self, void *user)
{
    (void)user;
    atomic_fetch_add(&self->forked->progress, 1);
    while (self->rank == CULPRIT)
        pause();
    return 0;
}

Test(forked, a_rank_that_is_killed_on_purpose_has_not_failed)
{
    struct forked *forked = forked_start(SIZE, goes_on, NULL);
    char text[FORKED_TEXT];
    while (atomic_load(&forked->progress) < SIZE)
        usleep(100);
    forked_kill(forked, CULPRIT, SIGKILL);
    cr_expect(!forked_end(forked, text, sizeof text), "%s", text);
    cr_expect_str_eq(text, "");
}
