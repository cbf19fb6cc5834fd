/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that processes share: a memfd, which has no name in any file system and is gone with the
 * last process that has it; sealed, so that nobody can take pages away that others read.
 *
 * Where members are threads of one process they share one mapping, so what is made here stands in a
 * list: a number tells others where it is, as long as it is there.
 */
#include "runtime/transport/shared/map.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_UNIT  ((size_t)1 << 20)
#define ARENA_LEAST ((size_t)1 << 20)

struct weft__map {
    struct weft__map *next; /* in the list of what was made here */
    uint64_t number;        /* 0: made elsewhere */
    void *memory;
    size_t bytes;
    int file;
    int users;
};

static struct {
    pthread_mutex_t lock;
    struct weft__map *first;
    uint64_t last;
} made = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether this process can have so many addresses more. */
static int fits(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return 0;
    munmap(memory, bytes);
    return 1;
}

size_t weft__map_arena(size_t wanted, size_t other_bytes, int size)
{
    struct rlimit files;
    size_t arena = wanted;

    /* Beyond this limit nothing can be made: weft__map_make(). */
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
        if (files.rlim_cur < other_bytes + ARENA_LEAST)
            return 0;
        if (arena > files.rlim_cur - other_bytes)
            arena = (size_t)(files.rlim_cur - other_bytes) / ARENA_UNIT * ARENA_UNIT;
    }
    /* The program wants some, too. */
    while (arena > ARENA_LEAST && ((arena + other_bytes) > SIZE_MAX / 4 / (size_t)size ||
                                   !fits((arena + other_bytes) * (size_t)size * 2)))
        arena = arena / 2 > ARENA_LEAST ? arena / 2 / ARENA_UNIT * ARENA_UNIT : ARENA_LEAST;
    return arena;
}

static int open_file(void)
{
    int file = -1;

#ifdef MFD_NOEXEC_SEAL
    file = memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
#endif
    return file >= 0 ? file : memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static int system_error(const char *who, const char *call, size_t bytes)
{
    return weft__error(WEFT_ERR_SYSTEM, "%s: %s of %zu bytes of shared memory: %s", who, call,
                       bytes, strerror(errno));
}

static struct weft__map *map_of(int file, void *memory, size_t bytes)
{
    struct weft__map *map = weft__calloc(1, sizeof *map);

    if (!map)
        return NULL;
    map->memory = memory;
    map->bytes = bytes;
    map->file = file;
    map->users = 1;
    return map;
}

static void enlist(struct weft__map *map)
{
    pthread_mutex_lock(&made.lock);
    map->number = ++made.last;
    map->next = made.first;
    made.first = map;
    pthread_mutex_unlock(&made.lock);
}

int weft__map_make(struct weft__map **out, size_t bytes, const char *who)
{
    int status;
    struct rlimit files;
    void *memory = MAP_FAILED;

    /* Beyond this limit the signal comes that ends programs. */
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < bytes)
        return weft__error(WEFT_ERR_SYSTEM,
                           "%s: %zu bytes of shared memory are more than a file of this process "
                           "may have (%llu; ulimit -f)",
                           who, bytes, (unsigned long long)files.rlim_cur);
    int file = open_file();
    if (file < 0)
        return system_error(who, "memfd_create", bytes);
    if (ftruncate(file, (off_t)bytes) != 0) {
        status = system_error(who, "ftruncate", bytes);
        goto close_file;
    }
    if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        status = system_error(who, "sealing", bytes);
        goto close_file;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) {
        status = system_error(who, "mmap", bytes);
        goto close_file;
    }
    struct weft__map *map = map_of(file, memory, bytes);
    if (!map) {
        status = weft__error_memory(who);
        goto unmap;
    }
    enlist(map);
    *out = map;
    return WEFT_OK;
unmap:
    munmap(memory, bytes);
close_file:
    close(file);
    return status;
}

static int check_file(int file, size_t bytes, const char *who)
{
    struct stat about;
    int seals = fcntl(file, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return weft__error(WEFT_ERR_STATE, "%s: another process gave memory that can shrink", who);
    if (fstat(file, &about) != 0 || about.st_size < 0 || (size_t)about.st_size != bytes)
        return weft__error(WEFT_ERR_STATE,
                           "%s: another process gave %lld bytes of memory, expected %zu", who,
                           (long long)about.st_size, bytes);
    return WEFT_OK;
}

int weft__map_other(struct weft__map **out, int file, size_t bytes, size_t read_only_at,
                    const char *who)
{
    int status = check_file(file, bytes, who);

    if (status != WEFT_OK)
        return status;
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED)
        return system_error(who, "mmap", bytes);
    if (mprotect(memory, read_only_at, PROT_READ | PROT_WRITE) != 0) {
        status = system_error(who, "mprotect", read_only_at);
        munmap(memory, bytes);
        return status;
    }
    /* If this process dumps core, it need not dump theirs. */
    (void)madvise(memory, bytes, MADV_DONTDUMP);
    *out = map_of(-1, memory, bytes);
    if (*out)
        return WEFT_OK;
    munmap(memory, bytes);
    return weft__error_memory(who);
}

struct weft__map *weft__map_find(uint64_t number)
{
    pthread_mutex_lock(&made.lock);
    struct weft__map *map = made.first;
    while (map && map->number != number)
        map = map->next;
    if (map)
        map->users++;
    pthread_mutex_unlock(&made.lock);
    return map;
}

void *weft__map_memory(const struct weft__map *map)
{
    return map->memory;
}

int weft__map_file(const struct weft__map *map)
{
    return map->file;
}

uint64_t weft__map_number(const struct weft__map *map)
{
    /* What has been written to it comes before its number: pairs with weft__map_find(). */
    pthread_mutex_lock(&made.lock);
    uint64_t number = map->number;
    pthread_mutex_unlock(&made.lock);
    return number;
}

void weft__map_shut(struct weft__map *map)
{
    if (map->file >= 0)
        close(map->file);
    map->file = -1;
}

void weft__map_void(struct weft__map *map)
{
    (void)mmap(map->memory, map->bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* 1: nobody has it any more. */
static int leave_list(struct weft__map *map)
{
    pthread_mutex_lock(&made.lock);
    int last = --map->users == 0;
    if (last && map->number) {
        struct weft__map **at = &made.first;
        while (*at != map)
            at = &(*at)->next;
        *at = map->next;
    }
    pthread_mutex_unlock(&made.lock);
    return last;
}

void weft__map_drop(struct weft__map *map)
{
    if (!map || !leave_list(map))
        return;
    weft__map_shut(map);
    munmap(map->memory, map->bytes);
    weft__free(map);
}
