/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging between processes under hostile users (support/averaging.h): test_average [FIRST
 * COUNT] */
#include "support/averaging.h"
#include "tests/support/bind.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gathers what all ranks have seen, on every rank. */
static void gather(struct weft_context *context, struct averaging_log *mine,
                   struct averaging_log *all)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    weft_template_params_init(&params);
    params.count = sizeof *mine;
    params.dtype = WEFT_U8;
    OK(weft_template_create_run(&run, context, "allgather", &params));
    OK(bind_name(run, "send", mine));
    OK(bind_name(run, "recv", all));
    OK(weft_run_execute(run));
    weft_run_destroy(run);
}

/* The case of a seed, with as many ranks as there are here. */
static void draw(struct averaging_case *drawn, uint64_t seed)
{
    do {
        averaging_draw(drawn, seed, world_size < 2 ? 2 : world_size);
        seed += 1000003;
    } while (drawn->ranks != world_size);
    drawn->pause_ns *= 10; /* a helper that sleeps polls that rarely */
}

int main(int argc, char **argv)
{
    unsigned long long first = 0, count = 12;
    struct weft_context_config config;
    struct averaging_case drawn;
    struct averaging_log *logs[AVERAGING_RANKS];
    char text[AVERAGING_TEXT] = "", settings[AVERAGING_TEXT];
    world_init(&argc, &argv, WORLD_THREADS);
    if (argc > 2) {
        first = strtoull(argv[1], NULL, 10);
        count = strtoull(argv[2], NULL, 10);
    }
    struct averaging_log *mine = calloc(1, sizeof *mine);
    struct averaging_log *all = calloc((size_t)world_size, sizeof *all);
    CHECK(mine && all && world_size <= AVERAGING_RANKS);
    for (int r = 0; r < world_size; r++)
        logs[r] = &all[r];
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    struct weft_context *context = world_context(&config);
    for (unsigned long long seed = first; seed < first + count; seed++) {
        draw(&drawn, seed);
        averaging_rank(&drawn, context, mine);
        gather(context, mine, all);
        if (!averaging_judge(&drawn, logs, text)) {
            averaging_describe(&drawn, settings);
            printf("seed %llu (%s): %s\n", seed, settings, text);
            CHECK(!"what the ranks got is right");
        }
    }
    weft_context_destroy(context);
    world_ok("group averaging, seeds %llu to %llu", first, first + count - 1);
    free(mine);
    free(all);
    return world_end();
}
