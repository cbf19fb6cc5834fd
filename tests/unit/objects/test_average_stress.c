/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Group averaging under hostile users (support/averaging.h): each seed is a case. A few hundred of
 * them here; more with WEFT_STRESS_SEEDS=FIRST:COUNT.
 */
#include <criterion/criterion.h>

#include "support/averaging.h"
#include "support/ranks.h"

/* On devices, whose stand-in has a stack for every thread of a kernel, there are fewer. */
#ifdef WEFT_TEST_DEVICE
enum { MOST_LOCAL = 8 };
#else
enum { MOST_LOCAL = 17 };
#endif

struct cast {
    struct averaging_case drawn;
    struct averaging_log *logs[AVERAGING_RANKS];
};

static int enter(struct weft_context *context, void *user)
{
    struct cast *cast = user;
    averaging_rank(&cast->drawn, context, cast->logs[weft_context_rank(context)]);
    return WEFT_OK;
}

static void seeds(unsigned long long *first, unsigned long long *count)
{
    const char *asked = getenv("WEFT_STRESS_SEEDS");
    if (asked)
        sscanf(asked, "%llu:%llu", first, count);
}

static struct cast *new_cast(void)
{
    struct cast *cast = calloc(1, sizeof *cast);
    CHECK(cast);
    for (int r = 0; r < AVERAGING_RANKS; r++) {
        cast->logs[r] = malloc(sizeof *cast->logs[r]);
        CHECK(cast->logs[r]);
    }
    return cast;
}

static void free_cast(struct cast *cast)
{
    for (int r = 0; r < AVERAGING_RANKS; r++)
        free(cast->logs[r]);
    free(cast);
}

/* Says how it went; the first wrong case ends the process, unless all were asked for. */
static void judge(const struct cast *cast, int status, const char *ranks)
{
    char text[AVERAGING_TEXT], settings[AVERAGING_TEXT];
    if (status == WEFT_OK && averaging_judge(&cast->drawn, cast->logs, text))
        return;
    averaging_describe(&cast->drawn, settings);
    fprintf(stderr, "%s ranks, %s: %s\n", ranks, settings,
            status == WEFT_OK ? text : weft_error_text());
    for (int r = 0; r < cast->drawn.ranks && status != WEFT_OK; r++)
        if (cast->logs[r]->wrong[0])
            fprintf(stderr, "    %s\n", cast->logs[r]->wrong);
    if (!getenv("WEFT_STRESS_GO_ON"))
        abort();
}

Test(average_stress, local_ranks, .timeout = 0)
{
    unsigned long long first = 0, count = SWEPT(150, 30) / swept_again();
    struct weft_context_config config;
    struct cast *cast = new_cast();
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    seeds(&first, &count);
    for (unsigned long long seed = first; seed < first + count; seed++) {
        averaging_draw(&cast->drawn, seed, MOST_LOCAL);
        judge(cast, weft_local_run(cast->drawn.ranks, &config, enter, cast), "local");
    }
    free_cast(cast);
}

static void draw_network(struct weft_virtual_config *config, uint64_t seed)
{
    uint64_t random = seed ^ UINT64_C(0x123456789);
    weft_virtual_config_init(config);
    config->seed = seed;
    config->shuffle = 1;
    config->limit_ns = UINT64_C(3600000000000);
    switch (averaging_random(&random) % 4) {
    case 0:
        break;
    case 1:
        config->delay_ns = 20000;
        break;
    case 2:
        config->delay_ns = 3000;
        config->heavy_share = 0.05;
        config->heavy_ns = 1000000;
        break;
    default:
        config->delay_ns = 500;
        config->pauses_per_second = 3000;
        config->pause_ns = 300000;
    }
    if (averaging_random(&random) % 2)
        config->duplicate_share = 0.2;
    if (averaging_random(&random) % 2)
        config->node_ns = (double)(averaging_random(&random) % 2000);
}

Test(average_stress, virtual_ranks, .timeout = 0)
{
    unsigned long long first = 0, count = SWEPT(400, 60) / swept_again();
    struct weft_virtual_config config;
    struct cast *cast = new_cast();
    seeds(&first, &count);
    for (unsigned long long seed = first; seed < first + count; seed++) {
        averaging_draw(&cast->drawn, seed, seed % 20 == 0 ? 40 : 17);
        draw_network(&config, seed);
        for (int r = 0; r < cast->drawn.ranks; r++)
            cast->logs[r]->wrong[0] = '\0';
        judge(cast, weft_virtual_run(cast->drawn.ranks, &config, enter, cast), "virtual");
    }
    free_cast(cast);
}

/* Ranks sleep for milliseconds between steps, a message takes microseconds: with nobody to wait
 * for, a step is a matter of messages. */
Test(average_stress, nobody_waits_for_a_sleeper, .timeout = 0)
{
    unsigned long long first = 0, count = SWEPT(60, 12);
    struct weft_virtual_config config;
    struct cast *cast = new_cast();
    weft_virtual_config_init(&config);
    config.shuffle = 1;
    config.delay_ns = 5000;
    seeds(&first, &count);
    for (unsigned long long seed = first; seed < first + count; seed++) {
        struct averaging_case *drawn = &cast->drawn;
        averaging_draw(drawn, seed, 17);
        drawn->config.mode = WEFT_AVERAGE_WAIT_AVOIDING;
        drawn->config.activation = WEFT_AVERAGE_ANYONE;
        drawn->config.sync_period = WEFT_NEVER;
        drawn->config.patience_ns = WEFT_NS_NONE;
        drawn->config.deadline_ns = 0;
        drawn->pauses = 90;
        drawn->pause_ns = 20000000;
        drawn->bound_ns = 1000000;
        config.seed = seed;
        judge(cast, weft_virtual_run(drawn->ranks, &config, enter, cast), "virtual");
    }
    free_cast(cast);
}
