/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int world_rank;
int world_size;
static int cases;

void world_init(int *argc, char ***argv, int threads)
{
    world_begin(argc, argv, threads);
}

int world_end(void)
{
    world_meet();
    if (world_rank == 0)
        printf("1..%d\n", cases);
    fflush(stdout);
    world_finish();
    return 0;
}

void world_meet(void)
{
    world_come();
    while (!world_all_came())
        sched_yield();
}

void world_meet_driving(struct weft_context *context)
{
    world_come();
    while (!world_all_came()) {
        CHECK(weft_context_progress(context) >= 0);
        sched_yield();
    }
}

void world_share(void *data, size_t bytes)
{
    char *all = malloc(bytes * (size_t)world_size);

    CHECK(all);
    world_gather(data, bytes, all);
    memcpy(data, all, bytes);
    free(all);
}

void world_ok(const char *format, ...)
{
    va_list arguments;

    world_meet();
    cases++;
    if (world_rank != 0)
        return;
    printf("ok %d - P=%d ", cases, world_size);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

void world_skip(const char *name, const char *why)
{
    world_meet();
    cases++;
    if (world_rank == 0)
        printf("ok %d - P=%d %s # SKIP %s\n", cases, world_size, name, why);
    fflush(stdout);
}

void world_fail(const char *file, int line, const char *text)
{
    printf("not ok %d - P=%d rank %d, %s:%d: %s: %s\n", cases + 1, world_size, world_rank, file,
           line, text, weft_error_text());
    fflush(stdout);
    world_abort();
    abort();
}

void world_status(const char *file, int line, const char *call, int expected, int status)
{
    printf("%s is %s, expected %s\n", call, weft_status_name(status), weft_status_name(expected));
    world_fail(file, line, call);
}

struct weft_context *world_context(const struct weft_context_config *config)
{
    struct weft_context *context = NULL;

    OK(world_create(&context, config));
    return context;
}

struct weft_run *world_run(struct weft_context *context, struct weft_schedule *schedule,
                           const struct weft_run_config *config)
{
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;

    OK(weft_schedule_commit(schedule, &plan));
    OK(weft_run_create(&run, context, plan, config));
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return run;
}

static unsigned char byte_at(size_t i, int from, int to, uint64_t version)
{
    uint64_t word = (i >> 3) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)from * 131 +
                    (uint64_t)to * 17 + version * 7 + 1;

    return (unsigned char)(word >> (8 * (i & 7)));
}

void world_fill(void *data, size_t bytes, int from, int to, uint64_t version)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)data)[i] = byte_at(i, from, to, version);
}

void world_same(const void *data, size_t bytes, int from, int to, uint64_t version)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)data)[i] != byte_at(i, from, to, version)) {
            printf("byte %zu of %zu from rank %d to rank %d in version %llu differs\n", i, bytes,
                   from, to, (unsigned long long)version);
            CHECK(!"the payload that was sent");
        }
}
