/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How contexts of processes begin: all have one, or none has, with an error that says on which rank
 * it began; whoever dies meanwhile, nobody waits for it; and nothing is left behind.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "runtime/transport/shared/launched.h"
#include "runtime/transport/shared/meet.h"
#include "runtime/transport/shared/socket.h"
#include "tests/support/forked.h"

#define MS UINT64_C(1000000)

/* What a rank does that differs from what it should. */
struct wish {
    int rank; /* who; -1: nobody */
    int as_rank, as_size;
    size_t eager_bytes;
    int large;
    uint64_t meet_ns;
    int limit; /* a resource, or 0 */
    rlim_t limit_to;
    int expected;     /* status on all */
    const char *text; /* that the error text of all has */
};

static int count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static struct weft_shared_config by_name(const struct forked_rank *self)
{
    struct weft_shared_config shared;

    weft_shared_config_init(&shared);
    shared.name = self->forked->name;
    shared.arena_bytes = 1 << 20;
    return shared;
}

/* A sum over all ranks that is right. */
static void check_sum(const struct forked_rank *self, struct weft_context *context)
{
    int size = weft_context_size(context);
    int32_t mine = weft_context_rank(context) + 1;
    int32_t sum = 0;

    if (weft_allreduce(context, &mine, &sum, 1, WEFT_I32, weft_op_builtin(WEFT_SUM)) != WEFT_OK)
        forked_fail(self, "allreduce: %s", weft_error_text());
    if (sum != size * (size + 1) / 2)
        forked_fail(self, "the sum is %d", sum);
}

static void check_nothing_left(const struct forked_rank *self, int files, int maps)
{
    if (count_files() != files)
        forked_fail(self, "%d files were open, now %d are", files, count_files());
    if (forked_count_maps("memfd:weft") != maps)
        forked_fail(self, "%d regions are mapped", forked_count_maps("memfd:weft"));
}

static int open_and_close(struct forked_rank *self, void *user)
{
    struct weft_shared_config shared = by_name(self);
    const int *times = user;
    int files = count_files();

    for (int i = 0; i < *times; i++) {
        struct weft_context *context = NULL;
        if (weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared) !=
            WEFT_OK)
            forked_fail(self, "%s", weft_error_text());
        check_sum(self, context);
        weft_context_destroy(context);
    }
    check_nothing_left(self, files, 0);
    return 0;
}

static void expect_good(int size, forked_fn fn, void *user)
{
    char text[FORKED_TEXT + 100];

    cr_expect_eq(forked_run(size, fn, user, text, sizeof text), 0, "%d ranks: %s", size, text);
}

Test(meet, ranks_that_meet_by_name_have_a_context)
{
    for (int size = 1; size <= 8; size++)
        expect_good(size, open_and_close, &(int){2});
}

Test(meet, many_contexts_one_after_the_other_leave_nothing)
{
    expect_good(3, open_and_close, &(int){100});
}

Test(meet, many_ranks)
{
    expect_good(40, open_and_close, &(int){1});
}

static int by_callback(struct forked_rank *self, void *user)
{
    struct weft_shared_config shared;
    struct weft_context *context = NULL;
    int files = count_files();

    (void)user;
    weft_shared_config_init(&shared);
    shared.gather = forked_gather;
    shared.user = self;
    if (weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared) !=
        WEFT_OK)
        forked_fail(self, "%s", weft_error_text());
    check_sum(self, context);
    forked_meet(self);
    weft_context_destroy(context);
    check_nothing_left(self, files, 0);
    return 0;
}

Test(meet, ranks_that_meet_by_a_callback_have_a_context)
{
    for (int size = 1; size <= 5; size++)
        expect_good(size, by_callback, NULL);
}

/* ---- what does not fit together ---- */

static int with_a_wish(struct forked_rank *self, void *user)
{
    const struct wish *wish = user;
    struct weft_shared_config shared = by_name(self);
    struct weft_context *context = NULL;
    int rank = self->rank;
    int size = self->forked->size;
    int files = count_files();

    shared.meet_ns = wish->meet_ns;
    if (wish->rank == rank) {
        rank = wish->as_rank >= 0 ? wish->as_rank : rank;
        size = wish->as_size ? wish->as_size : size;
        shared.eager_bytes = wish->eager_bytes;
        shared.large = (weft_shared_large_t)wish->large;
        if (wish->limit) {
            const struct rlimit limit = {wish->limit_to, wish->limit_to};
            setrlimit((__rlimit_resource_t)wish->limit, &limit);
        }
    }
    int status = weft_context_create_shared(&context, rank, size, NULL, &shared);
    if (status != wish->expected)
        forked_fail(self, "%s: %s, expected %s", weft_status_name(status), weft_error_text(),
                    weft_status_name(wish->expected));
    if (wish->text && !strstr(weft_error_text(), wish->text))
        forked_fail(self, "the text is `%s`, expected `%s` in it", weft_error_text(), wish->text);
    if (status == WEFT_OK)
        weft_context_destroy(context);
    check_nothing_left(self, files, 0);
    return 0;
}

Test(meet, different_sizes_are_an_error_on_all)
{
    for (int who = 0; who < 4; who++) {
        struct wish wish = {.rank = who,
                            .as_rank = -1,
                            .as_size = who == 0 ? 4 : 5,
                            .expected = WEFT_ERR_INVALID,
                            .text = who == 0 ? NULL : "rank 0 says 4"};
        wish.expected = who == 0 ? WEFT_OK : wish.expected;
        expect_good(4, with_a_wish, &wish);
    }
}

Test(meet, a_rank_that_comes_twice_is_an_error_on_all)
{
    for (int who = 0; who < 4; who++) {
        struct wish wish = {.rank = who,
                            .as_rank = (who + 1) % 4,
                            .expected = WEFT_ERR_INVALID,
                            .text = "has come twice"};
        if (who == 0) { /* then there is no rank 0 at all */
            wish.meet_ns = 300 * MS;
            wish.expected = WEFT_ERR_TIMEOUT;
            wish.text = "rank 0 has not come";
        }
        expect_good(4, with_a_wish, &wish);
    }
}

Test(meet, settings_that_differ_are_an_error_on_all)
{
    expect_good(3, with_a_wish,
                &(struct wish){.rank = 2,
                               .as_rank = -1,
                               .eager_bytes = 4096,
                               .expected = WEFT_ERR_INVALID,
                               .text = "eager_bytes is 4096 on rank 2, but 8192 on rank 0"});
}

Test(meet, a_setting_out_of_range_is_an_error_on_all)
{
    expect_good(3, with_a_wish,
                &(struct wish){.rank = 1,
                               .as_rank = -1,
                               .large = 77,
                               .expected = WEFT_ERR_INVALID,
                               .text = "shared->large is 77"});
}

/* Others are late as well where the machine is busy, and are named then: all get more time. */
/* Rank 2 is of another job: it has come before rank 1, but not said who it is. */
static int come_to_another_job(struct forked_rank *self, void *user)
{
    struct weft__meeting *meeting = NULL;
    atomic_ulong *come = &self->forked->words[0];

    (void)user;
    if (self->rank < 2) {
        while (self->rank == 1 && !atomic_load(come))
            sched_yield();
        if (weft__meet(&meeting, "test", self->forked->name, self->rank, 2, WEFT_NEVER, NULL) !=
            WEFT_OK)
            forked_fail(self, "%s", weft_error_text());
        weft__meeting_end(meeting);
        return 0;
    }
    char name[WEFT__SOCKET_NAME], heard[512] = "", byte;
    int socket;
    size_t length = 0;
    weft__meeting_socket(self->forked->name, name);
    while ((socket = weft__socket_connect(name, SOCK_STREAM)) < 0)
        sched_yield();
    atomic_store(come, 1);
    while (weft__socket_receive(socket, &byte, 1, WEFT_NEVER) == 0)
        if (length < sizeof heard - 1 && byte)
            heard[length++] = byte;
    weft__socket_close(socket);
    if (!strstr(heard, "2 ranks are there already: another job has this name"))
        forked_fail(self, "heard `%s`", heard);
    return 0;
}

Test(meet, who_comes_to_another_job_is_told_so)
{
    expect_good(3, come_to_another_job, NULL);
}

static int come_but_one(struct forked_rank *self, void *user)
{
    struct weft_shared_config shared = by_name(self);
    struct weft_context *context = NULL;
    char text[64], name[128];
    int files = count_files();
    unsigned long heard;

    (void)user;
    shared.name = name;
    for (shared.meet_ns = 100 * MS;; shared.meet_ns *= 2) {
        double seconds = (double)shared.meet_ns * 1e-9;
        snprintf(name, sizeof name, "%s %g", self->forked->name, seconds);
        snprintf(text, sizeof text, "1 of 4 ranks have not come within %g s: 2", seconds);
        forked_meet(self);
        int status = self->rank == 2
                         ? WEFT_ERR_TIMEOUT
                         : weft_context_create_shared(&context, self->rank, 4, NULL, &shared);
        /* Who is late by more than the patience of others finds that they have gone. */
        if (status != WEFT_ERR_TIMEOUT && status != WEFT_ERR_PEER)
            forked_fail(self, "%s: %s", weft_status_name(status), weft_error_text());
        atomic_store(&self->forked->words[self->rank],
                     self->rank == 2 || strstr(weft_error_text(), text) != NULL);
        forked_meet(self);
        heard = 0;
        for (int r = 0; r < 4; r++)
            heard += atomic_load(&self->forked->words[r]);
        forked_meet(self);
        if (heard == 4)
            break;
        if (shared.meet_ns > 20000 * MS)
            forked_fail(self, "the text is `%s`, expected `%s` in it", weft_error_text(), text);
        const char *missing = strstr(weft_error_text(), " s: ");
        if (self->rank == 0 && status == WEFT_ERR_TIMEOUT && !(missing && strchr(missing, '2')))
            forked_fail(self, "rank 2 is not named: %s", weft_error_text());
    }
    check_nothing_left(self, files, 0);
    return 0;
}

Test(meet, who_does_not_come_is_named)
{
    expect_good(4, come_but_one, NULL);
}

/* ---- limits ---- */

static int with_few_files(struct forked_rank *self, void *user)
{
    const struct rlimit limit = {8, 8};
    struct weft_shared_config shared = by_name(self);
    struct weft_context *context = NULL;

    (void)user;
    if (self->rank == 1) {
        for (int file = 0; file < 5; file++) /* of the runner; of which it may have any */
            if (file > STDERR_FILENO)
                close(file);
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    shared.meet_ns = 3000 * MS;
    int status =
        weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared);
    if (status == WEFT_OK)
        forked_fail(self, "there was room for all");
    if (self->rank != 1 && status != WEFT_ERR_SYSTEM && status != WEFT_ERR_PEER &&
        status != WEFT_ERR_TIMEOUT)
        forked_fail(self, "%s", weft_error_text());
    return 0;
}

Test(meet, few_file_descriptors_are_an_error_on_all)
{
    expect_good(12, with_few_files, NULL);
}

/* Rank 0 has room for some of the others only. */
static int with_few_files_on_rank_0(struct forked_rank *self, void *user)
{
    const struct rlimit limit = {8, 8};
    struct weft_shared_config shared = by_name(self);
    struct weft_context *context = NULL;

    (void)user;
    if (self->rank == 0) {
        for (int file = STDERR_FILENO + 1; file < 5; file++)
            close(file);
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    int status =
        weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared);
    const char *text = weft_error_text();
    const char *begin = strstr(text, "the rendezvous");
    if (status != WEFT_ERR_SYSTEM || !strstr(text, ": rank 0: accept: Too many open files"))
        forked_fail(self, "%s: %s", weft_status_name(status), text);
    if (!begin || strstr(begin + 1, "the rendezvous"))
        forked_fail(self, "the text begins twice: `%s`", text);
    return 0;
}

Test(meet, few_file_descriptors_of_rank_0_are_told_once)
{
    expect_good(16, with_few_files_on_rank_0, NULL);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
Test(meet, little_room_for_addresses_makes_arenas_small)
{
    expect_good(3, with_a_wish,
                &(struct wish){.rank = 1,
                               .as_rank = -1,
                               .limit = RLIMIT_AS,
                               .limit_to = (rlim_t)1 << 29,
                               .expected = WEFT_OK});
}
#endif

static int with_a_short_file(struct forked_rank *self, void *user)
{
    const struct rlimit limit = {1 << 16, 1 << 16};
    struct weft_shared_config shared = by_name(self);
    struct weft_context *context = NULL;

    (void)user;
    if (self->rank == 1)
        setrlimit(RLIMIT_FSIZE, &limit);
    int status =
        weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared);
    if (status != WEFT_ERR_SYSTEM)
        forked_fail(self, "%s: %s", weft_status_name(status), weft_error_text());
    if ((self->rank != 1 && !strstr(weft_error_text(), "rank 1: ")) ||
        !strstr(weft_error_text(), "ulimit -f"))
        forked_fail(self, "the text is `%s`", weft_error_text());
    return 0;
}

Test(meet, a_limit_of_files_is_told_and_ends_nobody)
{
    expect_good(3, with_a_short_file, NULL);
}

/* ---- death ---- */

/* Dies in the first or second gather. */
static int gather_and_die(void *user, const void *mine, size_t bytes, void *all)
{
    struct forked_rank *self = user;
    unsigned long call = atomic_fetch_add(&self->forked->words[1 + self->rank], 1);

    if (self->rank == 1 && call == atomic_load(&self->forked->words[0]))
        raise(SIGKILL);
    /* The others do not wait for it here: the opening is what is tested. */
    int status =
        weft__meeting_gather(*(void **)self->forked->ranks[self->rank].text, mine, bytes, all);
    return status;
}

static int die_in_a_gather(struct forked_rank *self, void *user)
{
    struct weft_shared_config shared;
    struct weft_context *context = NULL;
    struct weft__meeting *meeting = NULL;
    int files = count_files();

    (void)user;
    if (weft__meet(&meeting, "test", self->forked->name, self->rank, self->forked->size, WEFT_NEVER,
                   NULL) != WEFT_OK)
        forked_fail(self, "%s", weft_error_text());
    memcpy(self->forked->ranks[self->rank].text, &meeting, sizeof meeting);
    weft_shared_config_init(&shared);
    shared.gather = gather_and_die;
    shared.user = self;
    int status =
        weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared);
    weft__meeting_end(meeting);
    if (status != WEFT_ERR_PEER || !strstr(weft_error_text(), "rank 1 has gone"))
        forked_fail(self, "%s: %s", weft_status_name(status), weft_error_text());
    check_nothing_left(self, files, 0);
    return 0;
}

Test(meet, nobody_waits_for_who_dies_in_a_gather)
{
    for (unsigned long call = 0; call < 2; call++) {
        char text[FORKED_TEXT + 100];
        struct forked *forked = NULL;
        struct forked_rank self;
        if (forked_fork(4, &forked, &self)) {
            atomic_store(&forked->words[0], call);
            _exit(die_in_a_gather(&self, NULL));
        }
        forked->killed[1] = 1;
        cr_expect_eq(forked_end(forked, text, sizeof text), 0, "%s", text);
    }
}

/* The last word reaches rank 1 as an error, the others well. */
static int gather_badly(void *user, const void *mine, size_t bytes, void *all)
{
    struct forked_rank *self = user;
    unsigned long call = atomic_fetch_add(&self->forked->words[1 + self->rank], 1);
    int status = forked_gather(self, mine, bytes, all);

    return call == 1 && self->rank == 1 ? weft_error_set(WEFT_ERR_IO, "the last word") : status;
}

static int miss_the_last_word(struct forked_rank *self, void *user)
{
    struct weft_shared_config shared;
    struct weft_context *context = NULL;
    int files = count_files();

    (void)user;
    weft_shared_config_init(&shared);
    shared.gather = gather_badly;
    shared.user = self;
    int status =
        weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared);
    if (status != (self->rank == 1 ? WEFT_ERR_IO : WEFT_OK))
        forked_fail(self, "%s: %s", weft_status_name(status), weft_error_text());
    if (self->rank == 1 && strcmp(weft_error_text(), "the last word") != 0)
        forked_fail(self, "the text is `%s`", weft_error_text());
    int32_t mine = 1, sum = 0;
    if (context && weft_allreduce(context, &mine, &sum, 1, WEFT_I32, weft_op_builtin(WEFT_SUM)) !=
                       WEFT_ERR_PEER)
        forked_fail(self, "allreduce: %s", weft_error_text());
    weft_context_destroy(context);
    check_nothing_left(self, files, 0);
    return 0;
}

Test(meet, who_has_no_context_while_others_have_one_has_left_it)
{
    expect_good(3, miss_the_last_word, NULL);
}

/* Killed at any moment: the others have a context, which may lack a rank, or an error. */
static int open_while_one_dies(struct forked_rank *self, void *user)
{
    struct weft_shared_config shared = by_name(self);
    struct weft_context *context = NULL;
    int files = count_files();

    (void)user;
    shared.meet_ns = 200 * MS; /* who dies before it has come is waited for */
    int status =
        weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared);
    if (status != WEFT_OK && status != WEFT_ERR_PEER && status != WEFT_ERR_TIMEOUT)
        forked_fail(self, "%s: %s", weft_status_name(status), weft_error_text());
    atomic_fetch_add(&self->forked->progress, 1);
    if (status == WEFT_OK)
        weft_context_destroy(context);
    check_nothing_left(self, files, 0);
    return 0;
}

Test(meet, nobody_hangs_for_who_is_killed_at_any_moment)
{
    for (int i = 0; i < 60; i++) {
        char text[FORKED_TEXT + 100];
        struct forked *forked = forked_start(4, open_while_one_dies, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 40000L * i}, NULL);
        forked_kill(forked, i % 4, SIGKILL);
        cr_expect_eq(forked_end(forked, text, sizeof text), 0, "after %d us: %s", 40 * i, text);
    }
}

/* ---- memory ---- */

/* Of rank 1 one allocation after the other fails. */
static int without_memory(struct forked_rank *self, void *user)
{
    struct weft_shared_config shared = by_name(self);
    char name[128];
    int files = count_files();

    (void)user;
    shared.meet_ns = 50 * MS; /* who fails before it has come is waited for */
    shared.name = name;
    for (long n = 1; !atomic_load(&self->forked->words[0]); n++) {
        struct weft_context *context = NULL;
        snprintf(name, sizeof name, "%s %ld", self->forked->name, n);
        if (self->rank == 1)
            atomic_store(&weft__alloc_countdown, n);
        int status =
            weft_context_create_shared(&context, self->rank, self->forked->size, NULL, &shared);
        if (self->rank == 1 && atomic_load(&weft__alloc_countdown) > 0)
            atomic_store(&self->forked->words[0], 1);
        atomic_store(&weft__alloc_countdown, -1);
        if (status != WEFT_OK && status != WEFT_ERR_MEMORY && status != WEFT_ERR_PEER &&
            status != WEFT_ERR_TIMEOUT)
            forked_fail(self, "allocation %ld: %s", n, weft_error_text());
        weft_context_destroy(context);
        forked_meet(self);
        check_nothing_left(self, files, 0);
        forked_meet(self);
    }
    return 0;
}

Test(meet, allocations_that_fail_leave_nothing_and_nobody)
{
    expect_good(3, without_memory, NULL);
}

/* ---- strangers ---- */

/* Whoever else knows the name is turned away, or waits for ever and is in nobody's way. */
static int come_with_strangers(struct forked_rank *self, void *user)
{
    if (self->rank != 3)
        return with_a_wish(self, user);
    char name[WEFT__SOCKET_NAME];
    static const char junk[200] = "what is this?";
    weft__meeting_socket(self->forked->name, name);
    int sockets[8];
    for (int i = 0; i < 8; i++) {
        while ((sockets[i] = weft__socket_connect(name, SOCK_STREAM)) == -ECONNREFUSED)
            sched_yield();
        if (i % 2 == 0)
            (void)weft__socket_send(sockets[i], junk, sizeof junk, 0);
    }
    for (int i = 0; i < 8; i++)
        weft__socket_close(sockets[i]);
    atomic_store(&self->forked->words[0], 1);
    return 0;
}

static int strangers(struct forked_rank *self, void *user)
{
    struct forked three = *self->forked;
    struct forked_rank other = {.forked = &three, .rank = self->rank};

    /* The last rank is there only when the strangers have been. */
    while (self->rank == 2 && !atomic_load(&self->forked->words[0]))
        sched_yield();
    if (self->rank == 3)
        return come_with_strangers(self, user);
    three.size = 3;
    return with_a_wish(&other, user);
}

Test(meet, strangers_are_turned_away)
{
    struct wish wish = {.rank = -1, .expected = WEFT_OK};
    char text[FORKED_TEXT + 100];

    cr_expect_eq(forked_run(4, strangers, &wish, text, sizeof text), 0, "%s", text);
}

/* Rank 1 is another user, who has taken the name. */
static int impostor(struct forked_rank *self, void *user)
{
    char name[WEFT__SOCKET_NAME];
    struct wish wish = {.rank = -1,
                        .expected = WEFT_ERR_STATE,
                        .text = "of user 65534 listens there, expected one of user 0"};

    (void)user;
    if (self->rank == 1) {
        weft__meeting_socket(self->forked->name, name);
        if (setuid(65534) != 0)
            forked_fail(self, "setuid: %m");
        int listener = weft__socket_listen(name, SOCK_STREAM, 4);
        if (listener < 0)
            forked_fail(self, "listen");
        atomic_store(&self->forked->words[0], 1);
        while (!atomic_load(&self->forked->words[1]))
            sched_yield();
        weft__socket_close(listener);
        return 0;
    }
    while (!atomic_load(&self->forked->words[0]))
        sched_yield();
    int status = with_a_wish(self, &wish);
    atomic_store(&self->forked->words[1], 1);
    return status;
}

/* Rank 1 is another user, who comes and is turned away; then the right one, who is let in. */
static int intruder(struct forked_rank *self, void *user)
{
    char name[WEFT__SOCKET_NAME];
    struct wish wish = {.rank = -1, .expected = WEFT_OK};
    struct hello {
        uint32_t magic;
        int32_t rank, size;
        uint32_t zero;
        char version[32];
    } hello = {0x77656674, 1, 2, 0, ""};

    (void)user;
    if (self->rank == 0)
        return with_a_wish(self, &wish);
    weft__meeting_socket(self->forked->name, name);
    snprintf(hello.version, sizeof hello.version, "%s", weft_version());
    if (seteuid(65534) != 0)
        forked_fail(self, "seteuid: %m");
    int socket;
    while ((socket = weft__socket_connect(name, SOCK_STREAM)) == -ECONNREFUSED)
        sched_yield();
    (void)weft__socket_send(socket, &hello, sizeof hello, 0);
    if (weft__socket_receive(socket, &hello, 1, WEFT_NEVER) == 0)
        forked_fail(self, "rank 0 has answered");
    weft__socket_close(socket);
    if (seteuid(0) != 0)
        forked_fail(self, "seteuid: %m");
    return with_a_wish(self, &wish);
}

Test(meet, processes_of_other_users_are_refused)
{
    if (geteuid() != 0) {
        cr_skip("only root can be another user");
        return;
    }
    expect_good(2, impostor, NULL);
    expect_good(2, intruder, NULL);
}

/* ---- in one process ---- */

struct thread_rank {
    const char *name;
    int rank, size;
    int status;
    struct weft_context *context;
};

static void *open_thread(void *user)
{
    struct thread_rank *rank = user;
    struct weft_shared_config shared;

    weft_shared_config_init(&shared);
    shared.name = rank->name;
    rank->status =
        weft_context_create_shared(&rank->context, rank->rank, rank->size, NULL, &shared);
    int32_t mine = 1, sum = 0;
    if (rank->status == WEFT_OK)
        rank->status =
            weft_allreduce(rank->context, &mine, &sum, 1, WEFT_I32, weft_op_builtin(WEFT_SUM));
    if (rank->status == WEFT_OK && sum != rank->size)
        rank->status = WEFT_ERR_COMPUTE;
    weft_context_destroy(rank->context);
    return NULL;
}

Test(meet, threads_of_a_process_share_one_mapping)
{
    enum { SIZE = 5, WORLDS = 2 };
    struct thread_rank ranks[WORLDS * SIZE];
    pthread_t threads[WORLDS * SIZE];
    char names[WORLDS][64];
    int files = count_files();

    for (int i = 0; i < WORLDS; i++)
        snprintf(names[i], sizeof names[0], "threads %ld %d", (long)getpid(), i);
    for (int i = 0; i < WORLDS * SIZE; i++) {
        ranks[i] = (struct thread_rank){.name = names[i / SIZE], .rank = i % SIZE, .size = SIZE};
        cr_assert_eq(pthread_create(&threads[i], NULL, open_thread, &ranks[i]), 0);
    }
    for (int i = 0; i < WORLDS * SIZE; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(ranks[i].status, WEFT_OK, "world %d, rank %d", i / SIZE, i % SIZE);
    }
    cr_expect_eq(count_files(), files);
    cr_expect_eq(forked_count_maps("memfd:weft"), 0);
}

/* ---- misuse ---- */

Test(meet, misuse_is_named)
{
    struct weft_context *context = NULL;
    struct weft_shared_config shared;
    const struct {
        int rank, size;
        const char *name, *text;
    } cases[] = {{0, 0, "x", "argument `size` is 0, expected 1 to 1024"},
                 {0, 1025, "x", "argument `size` is 1025"},
                 {-1, 2, "x", "argument `rank` is -1, expected 0 to 1"},
                 {2, 2, "x", "argument `rank` is 2"},
                 {0, 1, NULL, "shared->name and shared->gather are both NULL"}};

    weft_shared_config_init(&shared);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shared.name = cases[i].name;
        cr_expect_eq(
            weft_context_create_shared(&context, cases[i].rank, cases[i].size, NULL, &shared),
            WEFT_ERR_INVALID);
        cr_expect(strstr(weft_error_text(), cases[i].text), "%s", weft_error_text());
    }
    shared.name = "x";
    shared.gather = forked_gather;
    cr_expect_eq(weft_context_create_shared(&context, 0, 1, NULL, &shared), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "both set"), "%s", weft_error_text());
}

/* ---- worlds ---- */

struct variable {
    const char *name, *value;
};

static void world_is(const struct variable *variables, int expected, const char *text)
{
    static const char *const all[] = {
        "WEFT_RANK",   "WEFT_SIZE",           "WEFT_LAUNCH",      "RANK",
        "WORLD_SIZE",  "LOCAL_RANK",          "LOCAL_WORLD_SIZE", "MASTER_ADDR",
        "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PMI_SIZE",         "OMPI_COMM_WORLD_SIZE"};
    struct weft_context *context = NULL;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        unsetenv(all[i]);
    for (; variables->name; variables++)
        setenv(variables->name, variables->value, 1);
    int status = weft_context_create_world(&context, "shared", NULL);
    cr_expect_eq(status, expected, "%s: %s", text, weft_error_text());
    if (status < 0)
        cr_expect(strstr(weft_error_text(), text), "%s\n%s", weft_error_text(), text);
    if (status == WEFT_OK)
        cr_expect_eq(weft_context_size(context), 1);
    weft_context_destroy(context);
}

#define WORLD(...) ((const struct variable[]){__VA_ARGS__, {NULL, NULL}})

Test(meet, a_world_is_what_the_environment_says)
{
    world_is(WORLD({NULL, NULL}), WEFT_OK, "");
    world_is(WORLD({"WEFT_RANK", "0"}), WEFT_ERR_INVALID, "WEFT_RANK is set, but WEFT_SIZE is not");
    world_is(WORLD({"WEFT_RANK", "0"}, {"WEFT_SIZE", "1"}), WEFT_ERR_INVALID, "WEFT_LAUNCH is not");
    world_is(WORLD({"WEFT_RANK", "1"}, {"WEFT_SIZE", "1"}, {"WEFT_LAUNCH", "a:1:2"}),
             WEFT_ERR_INVALID, "WEFT_RANK is `1`, expected 0 to 0");
    world_is(WORLD({"WEFT_RANK", "0"}, {"WEFT_SIZE", "2x"}, {"WEFT_LAUNCH", "a:1:2"}),
             WEFT_ERR_INVALID, "WEFT_SIZE is `2x`, expected 1 to 1024");
    world_is(WORLD({"WEFT_RANK", "0"}, {"WEFT_SIZE", "1"}, {"WEFT_LAUNCH", "a:b:c"}),
             WEFT_ERR_INVALID, "WEFT_LAUNCH is `a:b:c`");
    world_is(WORLD({"WEFT_RANK", "0"}, {"WEFT_SIZE", "1"}, {"WEFT_LAUNCH", "a:1:2"}), WEFT_OK, "");
    world_is(WORLD({"RANK", "0"}), WEFT_ERR_INVALID, "RANK is set, but WORLD_SIZE is not");
    world_is(WORLD({"WORLD_SIZE", "2"}), WEFT_ERR_INVALID, "WORLD_SIZE is set, but RANK is not");
    world_is(WORLD({"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}),
             WEFT_ERR_INVALID, "LOCAL_RANK is set, but RANK and WORLD_SIZE are not");
    world_is(WORLD({"TORCHELASTIC_RUN_ID", "a"}), WEFT_ERR_INVALID,
             "TORCHELASTIC_RUN_ID is set, but RANK and WORLD_SIZE are not");
    world_is(WORLD({"RANK", "0"}, {"WORLD_SIZE", "2"}), WEFT_ERR_INVALID, "MASTER_PORT");
    world_is(WORLD({"RANK", "-1"}, {"WORLD_SIZE", "2"}), WEFT_ERR_INVALID, "RANK is `-1`");
    world_is(WORLD({"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"},
                   {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}),
             WEFT_ERR_UNSUPPORTED, "LOCAL_WORLD_SIZE is 2, WORLD_SIZE 4");
    world_is(WORLD({"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"},
                   {"LOCAL_WORLD_SIZE", "1"}, {"MASTER_PORT", "1"}),
             WEFT_OK, "");
    world_is(WORLD({"PMI_SIZE", "2"}), WEFT_ERR_UNSUPPORTED, "mpiexec has started 2 processes");
}

/* As a launcher does it. */
static int launched(struct forked_rank *self, void *user)
{
    struct weft_launch *launch = user;
    const char *variable;
    int files = count_files();

    for (int i = 0; (variable = weft_launch_variable(launch, self->rank, i)); i++)
        putenv((char *)variable);
    for (int i = 0; i < 3; i++) { /* the k-th meets the k-th */
        struct weft_context *context = NULL;
        if (weft_context_create_world(&context, "shared", NULL) != WEFT_OK)
            forked_fail(self, "%s", weft_error_text());
        if (weft_context_rank(context) != self->rank)
            forked_fail(self, "rank %d", weft_context_rank(context));
        check_sum(self, context);
        weft_context_destroy(context);
    }
    forked_meet(self); /* nobody meets who has ended */
    if (self->rank == 0)
        weft_launch_ended(launch, 1, SIGKILL);
    forked_meet(self);
    /* One end was written down before this began, the other is while it waits. */
    struct weft__launch_page *page = weft__launch_page_open();
    int how = 0;
    if (!page || weft__launch_page_ended(page, 0, 0, &how))
        forked_fail(self, "the launcher's page");
    if (!weft__launch_page_ended(page, 1, 0, &how) || how != 9)
        forked_fail(self, "an end that was written down");
    atomic_fetch_add(&self->forked->progress, 1);
    if (!weft__launch_page_ended(page, 2, 20000 * MS, &how) || how != 0x300)
        forked_fail(self, "an end that is written down meanwhile");
    weft__launch_page_close(page);
    check_nothing_left(self, files, 1); /* the launcher's own page is inherited here */
    return 0;
}

Test(meet, processes_of_a_launch_find_each_other_and_hear_how_they_end)
{
    struct weft_launch *launch = NULL;
    char text[FORKED_TEXT + 100];

    cr_assert_eq(weft_launch_create(&launch, 3), WEFT_OK);
    cr_expect(!weft_launch_variable(launch, 3, 0));
    cr_expect(!weft_launch_variable(launch, 0, -1));
    cr_expect_str_eq(weft_launch_variable(launch, 2, 0), "WEFT_RANK=2");
    struct forked *forked = forked_start(3, launched, launch);
    while (atomic_load(&forked->progress) < 3 && !forked_ended(forked))
        sched_yield();
    cr_expect_eq(weft_launch_ended(launch, 2, 0x300), WEFT_OK);
    cr_expect_eq(forked_end(forked, text, sizeof text), 0, "%s", text);
    weft_launch_destroy(launch);
}

struct early {
    const struct weft_launch *launch;
    int dead;
};

/* One has ended before it came, the others come. */
static int miss_the_dead(struct forked_rank *self, void *user)
{
    const struct early *early = user;
    const char *variable;
    char text[64];
    struct weft_context *context = NULL;

    for (int i = 0; (variable = weft_launch_variable(early->launch, self->rank, i)); i++)
        putenv((char *)variable);
    if (self->rank == early->dead)
        return 0;
    int status = weft_context_create_world(&context, "shared", NULL);
    snprintf(text, sizeof text, "rank %d has ended: exited with status 7", early->dead);
    if (status != WEFT_ERR_PEER || !strstr(weft_error_text(), text))
        forked_fail(self, "%s: %s", weft_status_name(status), weft_error_text());
    return 0;
}

Test(meet, nobody_waits_for_who_has_ended_before_it_came)
{
    for (int dead = 0; dead < 3; dead++) {
        struct early early = {.dead = dead};
        struct weft_launch *launch = NULL;
        cr_assert_eq(weft_launch_create(&launch, 3), WEFT_OK);
        early.launch = launch;
        cr_expect_eq(weft_launch_ended(launch, dead, 0x700), WEFT_OK);
        expect_good(3, miss_the_dead, &early);
        weft_launch_destroy(launch);
    }
}
