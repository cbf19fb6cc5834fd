/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a server's object puts layers. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/memory.h>

#include "runtime/base/alloc.h"
#include "tests/support/draw.h"
#include "weft/server.h"

enum { MOST_LAYERS = 90, MOST_SERVERS = 20, CASES = 4000 };

struct job {
    size_t counts[MOST_LAYERS];
    size_t layers;
    int servers;
    size_t split;
    struct weft_server_part parts[MOST_LAYERS * MOST_SERVERS];
    size_t part_count;
};

static void place(struct job *job)
{
    job->part_count = SIZE_MAX;
    cr_assert_eq(weft_server_place_layers(job->counts, job->layers, job->servers, job->split,
                                          job->parts, &job->part_count),
                 WEFT_OK, "%s", weft_error_text());
}

static void draw_job(uint64_t seed, struct job *job)
{
    static const unsigned sizes[] = {2, 10, 1000, 1000000};
    struct draw draw = {seed};
    unsigned most = sizes[draw_below(&draw, 4)];
    job->layers = draw_below(&draw, MOST_LAYERS + 1);
    job->servers = 1 + (int)draw_below(&draw, MOST_SERVERS);
    job->split = draw_below(&draw, 4) ? draw_below(&draw, most + 2) : SIZE_MAX;
    for (size_t i = 0; i < job->layers; i++)
        job->counts[i] = draw_below(&draw, 5) ? draw_below(&draw, most) : 0;
}

/* Every element once, in order; a layer is whole or cut evenly. */
static void look_at_layers(const struct job *job, uint64_t seed)
{
    size_t next = 0;
    for (size_t layer = 0; layer < job->layers; layer++) {
        size_t count = job->counts[layer], covered = 0, first = next;
        size_t each = count / (size_t)job->servers;
        int split = count && count >= job->split, before = -1;
        for (; next < job->part_count && job->parts[next].layer == layer; next++) {
            const struct weft_server_part *part = &job->parts[next];
            cr_assert_eq(part->offset, covered, "seed %lu", seed);
            cr_assert(part->server > before && part->server < job->servers, "seed %lu", seed);
            cr_assert(part->count > 0, "seed %lu", seed);
            if (split)
                cr_assert(part->count == each || part->count == each + 1, "seed %lu", seed);
            covered += part->count;
            before = part->server;
        }
        cr_assert_eq(covered, count, "seed %lu: layer %zu", seed, layer);
        size_t parts = next - first, servers = (size_t)job->servers;
        cr_assert_eq(parts, split ? (count < servers ? count : servers) : count > 0, "seed %lu",
                     seed);
    }
    cr_assert_eq(next, job->part_count, "seed %lu", seed);
}

static void look_at_servers(const struct job *job, uint64_t seed)
{
    size_t loads[MOST_SERVERS] = {0}, cuts[MOST_SERVERS] = {0}, sum = 0, largest = 0;
    for (size_t i = 0; i < job->part_count; i++) {
        const struct weft_server_part *part = &job->parts[i];
        size_t count = job->counts[part->layer];
        loads[part->server] += part->count;
        if (count >= job->split)
            cuts[part->server] += part->count;
        else if (count > largest)
            largest = count;
        sum += part->count;
    }
    size_t servers = (size_t)job->servers;
    for (size_t i = 0; i < servers; i++) {
        cr_assert(loads[i] <= (sum + servers - 1) / servers + largest,
                  "seed %lu: server %zu has %zu of %zu on %zu, the largest is %zu", seed, i,
                  loads[i], sum, servers, largest);
        cr_assert(cuts[i] <= cuts[0] && cuts[i] + 1 >= cuts[0], "seed %lu: %zu and %zu", seed,
                  cuts[0], cuts[i]);
    }
}

Test(server_place, every_element_once_and_balanced)
{
    static struct job job;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        draw_job(seed, &job);
        place(&job);
        look_at_layers(&job, seed);
        look_at_servers(&job, seed);
    }
}

/* The plain rule: the largest that is left, the first of equal ones, to the first server that has
 * least. */
static void place_plainly(const struct job *job, int owners[MOST_LAYERS])
{
    size_t loads[MOST_SERVERS] = {0};
    for (size_t i = 0; i < job->part_count; i++)
        if (job->counts[job->parts[i].layer] >= job->split)
            loads[job->parts[i].server] += job->parts[i].count;
    for (size_t i = 0; i < job->layers; i++)
        owners[i] = -1;
    for (;;) {
        size_t largest = job->layers;
        int least = 0;
        for (size_t i = job->layers; i-- > 0;)
            if (owners[i] < 0 && job->counts[i] && job->counts[i] < job->split &&
                (largest == job->layers || job->counts[i] >= job->counts[largest]))
                largest = i;
        if (largest == job->layers)
            return;
        for (int i = 1; i < job->servers; i++)
            if (loads[i] < loads[least])
                least = i;
        owners[largest] = least;
        loads[least] += job->counts[largest];
    }
}

Test(server_place, whole_layers_go_to_who_has_least)
{
    static struct job job;
    int owners[MOST_LAYERS];
    for (uint64_t seed = 0; seed < CASES; seed++) {
        draw_job(seed, &job);
        place(&job);
        place_plainly(&job, owners);
        for (size_t i = 0; i < job.part_count; i++)
            if (owners[job.parts[i].layer] >= 0)
                cr_assert_eq(job.parts[i].server, owners[job.parts[i].layer], "seed %lu: layer %zu",
                             seed, job.parts[i].layer);
    }
}

static void expect(const struct job *job, size_t count, const struct weft_server_part *parts)
{
    cr_assert_eq(job->part_count, count, "%zu parts", job->part_count);
    for (size_t i = 0; i < count; i++)
        cr_expect(
            job->parts[i].layer == parts[i].layer && job->parts[i].offset == parts[i].offset &&
                job->parts[i].count == parts[i].count && job->parts[i].server == parts[i].server,
            "part %zu: layer %zu, %zu elements from %zu on server %d", i, job->parts[i].layer,
            job->parts[i].count, job->parts[i].offset, job->parts[i].server);
}

/* Elements left over go round. */
Test(server_place, cuts_in_turn)
{
    static struct job job = {.counts = {5, 4, 0, 2}, .layers = 4, .servers = 3, .split = 0};
    static const struct weft_server_part parts[] = {{0, 0, 2, 0}, {0, 2, 2, 1}, {0, 4, 1, 2},
                                                    {1, 0, 1, 0}, {1, 1, 1, 1}, {1, 2, 2, 2},
                                                    {3, 0, 1, 0}, {3, 1, 1, 1}};
    place(&job);
    expect(&job, 8, parts);
}

Test(server_place, a_layer_of_just_so_many_is_cut)
{
    static struct job job = {.counts = {7, 8, 1}, .layers = 3, .servers = 2, .split = 8};
    static const struct weft_server_part parts[] = {
        {0, 0, 7, 0}, {1, 0, 4, 0}, {1, 4, 4, 1}, {2, 0, 1, 1}};
    place(&job);
    expect(&job, 4, parts);
}

/* Of layers that are not there, and of more servers than layers. */
Test(server_place, little)
{
    static struct job job = {.servers = 13};
    place(&job);
    expect(&job, 0, NULL);
    cr_expect_eq(weft_server_place_layers(NULL, 0, 2, 0, NULL, &job.part_count), WEFT_OK);
    job.layers = 2;
    job.split = SIZE_MAX;
    place(&job);
    expect(&job, 0, NULL);
    job.counts[1] = SIZE_MAX; /* as many as there may be: cut, then whole */
    place(&job);
    cr_assert_eq(job.part_count, 13);
    look_at_layers(&job, 0);
    job.counts[1] = SIZE_MAX - 1;
    place(&job);
    expect(&job, 1, (struct weft_server_part[]){{1, 0, SIZE_MAX - 1, 0}});
}

static void refused(const size_t *counts, size_t layers, int servers,
                    struct weft_server_part *parts, size_t *part_count, const char *text)
{
    cr_expect_eq(weft_server_place_layers(counts, layers, servers, 1, parts, part_count),
                 WEFT_ERR_INVALID, "expected: %s", text);
    cr_expect(strstr(weft_error_text(), text), "\"%s\", expected \"%s\"", weft_error_text(), text);
}

Test(server_place, misuse)
{
    const size_t counts[2] = {SIZE_MAX, 1};
    struct weft_server_part parts[4];
    size_t part_count = 77;
    refused(counts, 1, 0, parts, &part_count, "servers is 0");
    refused(counts, 1, -3, parts, &part_count, "servers is -3");
    refused(NULL, 1, 1, parts, &part_count, "counts is NULL");
    refused(counts, 1, 1, NULL, &part_count, "parts is NULL");
    refused(counts, 1, 1, parts, NULL, "part_count is NULL");
    refused(counts, 2, 2, parts, &part_count, "counts[1] is 1");
    cr_expect_eq(part_count, 77);
}

Test(server_place, without_memory)
{
    const size_t counts[2] = {3, 4};
    struct weft_server_part parts[6];
    int failures = 0;
    for (int n = 1;; n++) {
        size_t part_count = 77;
        atomic_store(&weft__alloc_countdown, n);
        int status = weft_server_place_layers(counts, 2, 3, 4, parts, &part_count);
        int failed = atomic_exchange(&weft__alloc_countdown, 0) <= 0;
        if (status == WEFT_OK) {
            cr_expect_eq(part_count, 4);
            break;
        }
        cr_assert_eq(status, WEFT_ERR_MEMORY);
        cr_expect(failed && part_count == 77);
        failures++;
    }
    cr_expect_eq(failures, 3);
}
