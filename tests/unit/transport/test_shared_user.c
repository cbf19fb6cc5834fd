/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Only processes of one user have a context together, and nobody else gets at its memory. Another
 * user is played by a child that gives up being root; without root there is none, and the tests say
 * so.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/shared.h>
#include <weft/weft.h>

#include "support/forked.h"

enum { SIZE = 3, STRANGER = 1, NOBODY = 65534 };

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            forked_fail(self, "line %d: %s: %s", __LINE__, #condition, weft_error_text());         \
    } while (0)

static void become_nobody(struct forked_rank *self)
{
    NEED(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static int create(struct forked_rank *self, struct weft_context **context, int by_name)
{
    struct weft_shared_config shared;
    weft_shared_config_init(&shared);
    shared.arena_bytes = 1 << 20;
    if (by_name) {
        shared.name = self->forked->name;
        shared.meet_ns = 300000000;
    } else {
        shared.gather = forked_gather;
        shared.user = self;
    }
    return weft_context_create_shared(context, self->rank, SIZE, NULL, &shared);
}

static int meets_a_stranger(struct forked_rank *self, void *by_name)
{
    struct weft_context *context = NULL;
    if (self->rank == STRANGER)
        become_nobody(self);
    int status = create(self, &context, *(const int *)by_name);
    if (status == WEFT_OK || context)
        forked_fail(self, "it has a context with another user's process");
    NEED(weft_error_text()[0] != '\0');
    NEED(forked_count_maps("memfd:") == 0);
    return 0;
}

static void run(forked_fn fn, int how)
{
    char text[FORKED_TEXT + 100];
    if (getuid() != 0)
        cr_skip("only root can play another user");
    cr_expect(!forked_run(SIZE, fn, &how, text, sizeof text), "%s", text);
}

Test(shared_user, nobody_meets_a_process_of_another_user_by_name)
{
    run(meets_a_stranger, 1);
}

Test(shared_user, nobody_meets_a_process_of_another_user_by_a_callback)
{
    run(meets_a_stranger, 0);
}

/* Files under a folder of another process' that can be opened. */
static int can_open(pid_t pid, const char *folder)
{
    char path[300];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, folder);
    DIR *entries = opendir(path);
    if (!entries)
        return 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        snprintf(path, sizeof path, "/proc/%d/%s/%s", (int)pid, folder, entry->d_name);
        int file = entry->d_name[0] == '.' ? -1 : open(path, O_RDWR | O_CLOEXEC);
        if (file < 0)
            continue;
        count++;
        close(file);
    }
    closedir(entries);
    return count;
}

/* Where the stranger looks once the others have their context. */
static int looks_for_memory(struct forked_rank *self, void *user)
{
    struct weft_context *context = NULL;
    struct weft_shared_config shared;
    (void)user;
    if (self->rank == SIZE - 1)
        become_nobody(self);
    else {
        weft_shared_config_init(&shared);
        shared.name = self->forked->name;
        NEED(weft_context_create_shared(&context, self->rank, SIZE - 1, NULL, &shared) == WEFT_OK);
        /* Children of a test are all dumpable; pages are those of the kernel's own rules. */
        atomic_store(&self->forked->words[self->rank], (unsigned long)getpid());
    }
    forked_meet(self);
    for (int r = 0; !context && r < SIZE - 1; r++) {
        pid_t pid = (pid_t)atomic_load(&self->forked->words[r]);
        char path[64];
        NEED(can_open(pid, "fd") == 0);
        NEED(can_open(pid, "map_files") == 0);
        snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
        NEED(open(path, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
    }
    forked_meet(self);
    NEED(weft_context_destroy(context) == WEFT_OK);
    return 0;
}

Test(shared_user, nobody_else_gets_at_the_memory)
{
    run(looks_for_memory, 0);
}
