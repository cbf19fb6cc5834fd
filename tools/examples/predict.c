/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Predicts how fast training goes on many ranks whose steps take unequal times: with wait-avoiding
 * group averaging, and with an allreduce in every step. The objects are the real ones, on virtual
 * ranks; what a step computes is a sleep in virtual time. docs/virtual.md explains it.
 *
 *   predict [RANKS [GROUP [STEPS [MEGABYTES [SEED]]]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

/* Elements of the model that is really there; it stands for one of so many megabytes. */
enum { ELEMENTS = 2048 };
/* What a step computes takes STEP_NS, give or take a twentieth; one step in SLOW_STEPS is hit by
 * something that takes as long again: a long sentence, a busy file system, another job. */
#define STEP_NS    UINT64_C(300000000)
#define SLOW_STEPS 50

struct training {
    int wait_avoiding;
    int group_size;
    int steps;
    uint64_t seed;
    uint64_t stale;
};

/* [step] */
static uint64_t random_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static uint64_t step_ns(uint64_t *state)
{
    uint64_t ns = STEP_NS - STEP_NS / 20 + random_number(state) % (STEP_NS / 10);
    return random_number(state) % SLOW_STEPS == 0 ? ns + STEP_NS : ns;
}

static int train(struct weft_context *context, void *user)
{
    struct training *training = user;
    uint64_t random = training->seed * 1000003 + (uint64_t)weft_context_rank(context);
    float model[ELEMENTS] = {0};
    struct weft_piece tensor = {model, ELEMENTS};
    struct weft_group_average_config config;
    struct weft_group_average_stats stats = {.struct_size = sizeof stats};
    struct weft_group_average *average = NULL;
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.algo = "reduce-scatter-allgather"; /* what the cost model chooses for a large model */
    config.group_size = training->group_size;
    config.sync_period = training->wait_avoiding ? 10 : 1; /* 1: an allreduce in every step */
    int status = weft_group_average_create(&average, context, &config);
    for (int step = 0; status == WEFT_OK && step < training->steps; step++) {
        status = weft_context_sleep(context, step_ns(&random));
        if (status == WEFT_OK)
            status = weft_group_average_step(average, NULL);
    }
    if (status == WEFT_OK && weft_group_average_get_stats(average, &stats) == WEFT_OK)
        training->stale += stats.stale_steps;
    int ended = weft_group_average_destroy(average);
    return status != WEFT_OK ? status : ended;
}
/* [step] */

/* [predict] */
static int predict(int ranks, double megabytes, struct training *training,
                   struct weft_virtual_result *result)
{
    struct weft_virtual_config config;
    struct weft_net net;
    weft_virtual_config_init(&config);
    weft_net_init(&net);
    config.net = &net;
    config.seed = training->seed;
    config.byte_scale = megabytes * 1e6 / (ELEMENTS * sizeof(float));
    config.reduce_ns_per_byte = 0.1;
    *result = (struct weft_virtual_result){.struct_size = sizeof *result};
    config.result = result;
    int status = weft_net_parse("L=1.5,o=0.5,g=0.2,G=0.0001", &net); /* 10 GB/s */
    return status != WEFT_OK ? status : weft_virtual_run(ranks, &config, train, training);
}
/* [predict] */

static double argument(int count, char **values, int n, double standard)
{
    return n < count ? strtod(values[n], NULL) : standard;
}

int main(int count, char **values)
{
    int ranks = (int)argument(count, values, 1, 1024);
    double megabytes = argument(count, values, 4, 100);
    struct weft_virtual_result results[2];
    double per_second[2];
    for (int i = 0; i < 2; i++) {
        struct training training = {.wait_avoiding = i,
                                    .group_size = (int)argument(count, values, 2, 0),
                                    .steps = (int)argument(count, values, 3, 20),
                                    .seed = (uint64_t)argument(count, values, 5, 1)};
        if (predict(ranks, megabytes, &training, &results[i]) != WEFT_OK) {
            fprintf(stderr, "%s\n", weft_error_text());
            return EXIT_FAILURE;
        }
        double all = (double)ranks * training.steps;
        per_second[i] = training.steps / ((double)results[i].end_ns * 1e-9);
        printf("%-24s %8.3f steps/s   %5.1f%% of steps stale   %llu messages\n",
               i == 0 ? "allreduce" : "wait-avoiding averaging", per_second[i],
               100 * (double)training.stale / all, (unsigned long long)results[i].messages);
    }
    printf("%-24s %8.3f steps/s\n", "no communication",
           1e9 / ((double)STEP_NS * (1 + 1.0 / SLOW_STEPS)));
    printf("wait-avoiding averaging makes %.2f times the steps of allreduce on %d ranks\n",
           per_second[1] / per_second[0], ranks);
    return EXIT_SUCCESS;
}
