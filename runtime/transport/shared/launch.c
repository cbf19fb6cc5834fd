/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches: what processes that are started together know of each other.
 *
 * WEFT_RANK and WEFT_SIZE are numbers; WEFT_LAUNCH is TOKEN:PID:FILE. The token is random and the
 * same for all: under it they meet. File FILE of process PID, the launcher, is a page of memory, in
 * which it writes who has ended, and how; the processes find it in /proc, so nothing is inherited
 * and nothing has a name.
 */
#include "runtime/transport/shared/launched.h"

#include "runtime/base/alloc.h"
#include "runtime/base/bell.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/context/context.h"
#include "runtime/transport/shared/map.h"
#include "runtime/transport/shared/socket.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/shared.h>

#define MAGIC UINT64_C(0x68636e75616c2077) /* "w launch" */

enum { MOST = WEFT__LAUNCH_MOST, VARIABLES = 4, VARIABLE_BYTES = 96 };
/* Of a word: the process has ended; the lowest bits are what waitpid() gave, between them stands
 * how many had ended before. */
#define ENDED ((uint32_t)1 << 31)
enum { STATUS_BITS = 16, STATUS_MASK = (1 << STATUS_BITS) - 1 };
_Static_assert(MOST < 1 << (31 - STATUS_BITS), "the number of ends has room");

struct page {
    uint64_t magic;
    uint32_t size;
    uint32_t zero;
    char token[WEFT__LAUNCH_TOKEN];
    struct weft__bell bell;   /* rung when somebody has ended */
    _Atomic uint32_t ended[]; /* by rank */
};

struct weft_launch {
    int size;
    _Atomic uint32_t ends;
    struct weft__map *map;
    char (*variables)[VARIABLES][VARIABLE_BYTES]; /* [size] */
};

struct weft__launch_page {
    struct page *page;
    size_t bytes;
    int size;
};

static size_t page_bytes(int size)
{
    return sizeof(struct page) + (size_t)size * sizeof(_Atomic uint32_t);
}

/* ---- the launcher ---- */

static void write_variables(struct weft_launch *launch, const char *token)
{
    for (int r = 0; r < launch->size; r++) {
        char(*of)[VARIABLE_BYTES] = launch->variables[r];
        snprintf(of[0], VARIABLE_BYTES, "WEFT_RANK=%d", r);
        snprintf(of[1], VARIABLE_BYTES, "WEFT_SIZE=%d", launch->size);
        snprintf(of[2], VARIABLE_BYTES, "WEFT_LOCAL_RANK=%d", r);
        snprintf(of[3], VARIABLE_BYTES, "WEFT_LAUNCH=%s:%ld:%d", token, (long)getpid(),
                 weft__map_file(launch->map));
    }
}

int weft_launch_create(struct weft_launch **out, int size)
{
    char token[WEFT__SOCKET_NAME];

    if (!out)
        return WEFT__INVALID("%s: argument `launch` is NULL", __func__);
    if (size < 1 || size > MOST)
        return WEFT__INVALID("%s: argument `size` is %d, expected 1 to %d", __func__, size, MOST);
    int error = weft__socket_name(token);
    if (error)
        return weft__error(WEFT_ERR_SYSTEM, "%s: getrandom: %s", __func__, strerror(error));
    struct weft_launch *launch = weft__calloc(1, sizeof *launch);
    if (!launch)
        return weft__error_memory(__func__);
    launch->size = size;
    launch->variables = weft__calloc((size_t)size, sizeof *launch->variables);
    int status = launch->variables ? weft__map_make(&launch->map, page_bytes(size), __func__)
                                   : weft__error_memory(__func__);
    if (status != WEFT_OK) {
        weft_launch_destroy(launch);
        return status;
    }
    struct page *page = weft__map_memory(launch->map);
    page->magic = MAGIC;
    page->size = (uint32_t)size;
    page->bell.shared = 1;
    snprintf(page->token, sizeof page->token, "%.*s", WEFT__LAUNCH_TOKEN - 1, token);
    write_variables(launch, page->token);
    *out = launch;
    return WEFT_OK;
}

const char *weft_launch_variable(const struct weft_launch *launch, int rank, int index)
{
    if (!launch || rank < 0 || rank >= launch->size || index < 0 || index >= VARIABLES)
        return NULL;
    return launch->variables[rank][index];
}

int weft_launch_ended(struct weft_launch *launch, int rank, int wait_status)
{
    if (!launch)
        return WEFT__INVALID("%s: argument `launch` is NULL", __func__);
    if (rank < 0 || rank >= launch->size)
        return WEFT__INVALID("%s: argument `rank` is %d, expected 0 to %d", __func__, rank,
                             launch->size - 1);
    struct page *page = weft__map_memory(launch->map);
    /* Release: pairs with who reads it. */
    uint32_t before = atomic_fetch_add_explicit(&launch->ends, 1, memory_order_relaxed) % MOST;
    atomic_store_explicit(&page->ended[rank],
                          ENDED | before << STATUS_BITS | ((uint32_t)wait_status & STATUS_MASK),
                          memory_order_release);
    weft__bell_wake(&page->bell, WEFT__BELL_ANY);
    return WEFT_OK;
}

void weft_launch_destroy(struct weft_launch *launch)
{
    if (!launch)
        return;
    weft__map_drop(launch->map);
    weft__free(launch->variables);
    weft__free(launch);
}

/* ---- its processes ---- */

/* What WEFT_LAUNCH says. 0: nothing that makes sense. */
static int parse_launch(const char *text, char token[WEFT__LAUNCH_TOKEN], long *pid, int *file)
{
    size_t length = strcspn(text, ":");
    int used = 0;

    if (length == 0 || length >= WEFT__LAUNCH_TOKEN)
        return 0;
    memcpy(token, text, length);
    token[length] = '\0';
    return sscanf(text + length, ":%ld:%d%n", pid, file, &used) == 2 && used > 0 &&
           text[length + (size_t)used] == '\0' && *pid > 0 && *file >= 0;
}

int weft__launched(const char *who, struct weft__launched *launched, char token[WEFT__LAUNCH_TOKEN])
{
    char own[WEFT__LAUNCH_TOKEN];
    const char *launch = weft__env_text("WEFT_LAUNCH");
    const char *rank = weft__env_text("WEFT_RANK");
    const char *size = weft__env_text("WEFT_SIZE");
    long pid = 0;
    int file = 0;

    memset(launched, 0, sizeof *launched);
    if (!launch && !rank && !size)
        return WEFT_OK;
    if (!launch || !rank || !size)
        return WEFT__INVALID("%s: environment: %s is set, but %s is not: expected WEFT_RANK, "
                             "WEFT_SIZE and WEFT_LAUNCH, as `weft launch` sets them, or none",
                             who,
                             rank   ? "WEFT_RANK"
                             : size ? "WEFT_SIZE"
                                    : "WEFT_LAUNCH",
                             !rank   ? "WEFT_RANK"
                             : !size ? "WEFT_SIZE"
                                     : "WEFT_LAUNCH");
    int status =
        weft__env_rank(who, "WEFT_RANK", "WEFT_SIZE", MOST, &launched->rank, &launched->size);
    if (status != WEFT_OK)
        return status;
    if (!parse_launch(launch, own, &pid, &file))
        return WEFT__INVALID("%s: environment: WEFT_LAUNCH is `%.100s`, expected what `weft "
                             "launch` has set",
                             who, launch);
    launched->launch = weft__hash_bytes(WEFT__HASH_EMPTY, launch, strlen(launch)) | 1;
    if (token)
        memcpy(token, own, sizeof own);
    return WEFT_OK;
}

void weft__launched_quietly(struct weft__launched *launched)
{
    struct weft__error_saved saved;

    weft__error_save(&saved);
    if (weft__launched(__func__, launched, NULL) != WEFT_OK)
        memset(launched, 0, sizeof *launched);
    weft__error_restore(&saved);
}

/* A file is the launcher's page. */
static struct weft__launch_page *map_page(int file, const struct weft__launched *launched,
                                          const char *token)
{
    size_t bytes = page_bytes(launched->size);
    struct stat about;
    int seals = fcntl(file, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &about) != 0 ||
        about.st_size != (off_t)bytes)
        return NULL;
    struct page *page = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        return NULL;
    struct weft__launch_page *found = NULL;
    if (page->magic == MAGIC && strncmp(page->token, token, sizeof page->token) == 0)
        found = weft__calloc(1, sizeof *found);
    if (!found) {
        munmap(page, bytes);
        return NULL;
    }
    *found = (struct weft__launch_page){page, bytes, launched->size};
    return found;
}

struct weft__launch_page *weft__launch_page_open(void)
{
    const char *text = weft__env_text("WEFT_LAUNCH");
    struct weft__launched launched;
    char token[WEFT__LAUNCH_TOKEN];
    char path[64];
    long pid;
    int file;

    weft__launched_quietly(&launched);
    if (!launched.launch || !parse_launch(text, token, &pid, &file))
        return NULL;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, file);
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return NULL;
    struct weft__launch_page *page = map_page(opened, &launched, token);
    close(opened);
    return page;
}

int weft__launch_page_ended(const struct weft__launch_page *page, int rank, uint64_t wait_ns,
                            int *wait_status)
{
    uint64_t until = weft__now() + wait_ns;

    if (!page || rank < 0 || rank >= page->size)
        return 0;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&page->page->bell.count, memory_order_acquire);
        /* Acquire: pairs with weft_launch_ended(). */
        uint32_t word = atomic_load_explicit(&page->page->ended[rank], memory_order_acquire);
        uint64_t now = weft__now();
        if (word & ENDED) {
            *wait_status = (int)(word & STATUS_MASK);
            return 1;
        }
        if (now >= until)
            return 0;
        weft__bell_wait(&page->page->bell, seen, WEFT__BELL_ANY, until - now);
    }
}

int weft__launch_page_first(const struct weft__launch_page *page, int *rank, int *wait_status)
{
    uint32_t first = UINT32_MAX;

    for (int r = 0; page && r < page->size; r++) {
        /* Acquire: pairs with weft_launch_ended(). */
        uint32_t word = atomic_load_explicit(&page->page->ended[r], memory_order_acquire);
        if (!(word & ENDED) || word >> STATUS_BITS >= first)
            continue;
        first = word >> STATUS_BITS;
        *rank = r;
        *wait_status = (int)(word & STATUS_MASK);
    }
    return first != UINT32_MAX;
}

void weft__launch_page_close(struct weft__launch_page *page)
{
    if (!page)
        return;
    munmap(page->page, page->bytes);
    weft__free(page);
}
