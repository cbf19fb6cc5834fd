/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared memory by the name in a unique id: the same for threads of a process and for processes.
 * The name goes away when all ranks have it. */
#include "nccl_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_NS = 2000000 };

static void make(struct nccl_world *world, int size)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&world->lock, &mutex);
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
    pthread_cond_init(&world->moved, &cond);
    world->size = size;
    atomic_store_explicit(&world->ready, 1, memory_order_release); /* the loop in open */
}

struct nccl_world *nccl__world_open(const char *name, int size)
{
    bool first = true;
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) {
        first = false;
        file = shm_open(name, O_RDWR, 0600);
    }
    if (file < 0 || (first && ftruncate(file, sizeof(struct nccl_world)))) {
        if (file >= 0)
            close(file);
        return NULL;
    }
    while (!first && lseek(file, 0, SEEK_END) < (off_t)sizeof(struct nccl_world))
        sched_yield();
    struct nccl_world *world =
        mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (world == MAP_FAILED)
        return NULL;
    if (first)
        make(world, size);
    while (!atomic_load_explicit(&world->ready, memory_order_acquire)) /* make() */
        sched_yield();
    return world;
}

void nccl__world_close(struct nccl_world *world)
{
    if (world)
        munmap(world, sizeof *world);
}

void nccl__world_unlink(const char *name)
{
    shm_unlink(name);
}

void nccl__world_lock(struct nccl_world *world)
{
    if (pthread_mutex_lock(&world->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&world->lock);
}

void nccl__world_unlock(struct nccl_world *world)
{
    pthread_mutex_unlock(&world->lock);
}

void nccl__world_changed(struct nccl_world *world)
{
    world->version++;
    pthread_cond_broadcast(&world->moved);
}

void nccl__world_wait(struct nccl_world *world)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += WAIT_NS;
    if (time.tv_nsec >= 1000000000) {
        time.tv_nsec -= 1000000000;
        time.tv_sec++;
    }
    if (pthread_cond_timedwait(&world->moved, &world->lock, &time) == EOWNERDEAD)
        pthread_mutex_consistent(&world->lock);
}
