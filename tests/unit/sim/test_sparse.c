/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse collectives in the simulator, beside the closed formulas of Shi et al., ICDCS 2019, Table
 * I. An element is 4 bytes, a pair two of them; without payloads every list is as long as it can
 * be, as if no index were in two lists. */
#include <criterion/criterion.h>
#include <math.h>

#include <weft/weft.h>

#include "support/sweep.h"

struct job {
    const char *name;
    const char *algo;
    int size;
    size_t count; /* elements of the dense vector */
    size_t k;
    double alpha; /* any unit of time */
    double beta;  /* an element */
};

static int build(void *user, int rank, struct weft_schedule **schedule)
{
    const struct job *job = user;
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.algo = job->algo;
    params.count = job->count;
    params.k = job->k;
    params.segment = WEFT_SEGMENT_NONE;
    return weft_template_build(job->name, rank, job->size, &params, schedule);
}

static double time_of(struct job job)
{
    struct weft_sim_config config;
    struct weft_net net;
    struct weft_sim_result *result = NULL;

    weft_sim_config_init(&config);
    weft_net_init(&net);
    config.net = &net;
    config.ranks = job.size;
    config.build = build;
    config.user = &job;
    net.L = job.alpha;
    net.G = job.beta / sizeof(float);
    cr_assert_eq(weft_simulate(&config, &result), WEFT_OK, "%s", weft_error_text());
    cr_assert(result->complete, "%s %s on %d", job.name, job.algo, job.size);
    double time = result->time_us;
    weft_sim_result_destroy(result);
    return time;
}

static void expect_time(const struct job *job, double expected)
{
    double time = time_of(*job);

    cr_expect(fabs(time - expected) <= 1e-6 * fmax(expected, 1),
              "%s %s, P = %d, k = %zu, alpha = %g, beta = %g: %.9g, not %.9g", job->name, job->algo,
              job->size, job->k, job->alpha, job->beta, time, expected);
}

static int log2_below(int size)
{
    int log = 0;

    while (2 << log <= size)
        log++;
    return log;
}

Test(sim_sparse, closed_formulas_up_to_1024_ranks)
{
    static const double alphas[] = {0, 2.5, 436}, betas[] = {0, 0.0004, 0.036};

    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++)
            for (int size = 2; size <= SWEPT(1024, 256); size *= 2)
                for (size_t k = 1; k <= 1000; k *= 1000) {
                    double a = alphas[i], kb = betas[j] * (double)k, log = log2(size);
                    struct job job = {"gtopk", "tree", size, 100000, k, a, betas[j]};

                    expect_time(&job, 2 * log * a + 4 * log * kb); /* equation 7 */
                    job.algo = "butterfly";
                    expect_time(&job, log * a + 2 * log * kb);
                    job.name = "topk-allgather";
                    job.algo = "recursive-doubling";
                    expect_time(&job, log * a + 2 * (size - 1) * kb); /* equation 6 */
                }
}

/* Li and Hoefler, PPoPP 2022, Table 1: at most 6 k (P - 1) / P elements, here for data that are as
 * bad as they can be. Messages to the owners follow on each other, so that they cost one alpha
 * while they are shorter than that. */
Test(sim_sparse, regions_send_less_than_six_k)
{
    for (int size = 2; size <= 64; size += size < 17 ? 1 : 16) {
        size_t k = 2 * (size_t)size * (1 + (size_t)size % 3);
        double P = size, steps = ceil(log2(size)), elements = 6 * (double)k * (P - 1) / P;
        struct job job = {"oktopk", "regions", size, 100000, k, 2.5, 0.0004};

        expect_time(&job, (1 + steps) * job.alpha + elements * job.beta);
        job.beta = 1;
        for (job.k = (size_t)size; job.k < k; job.k += 1 + k / 4) {
            double time = time_of(job);
            double most = (P - 1 + steps) * job.alpha + 6 * (double)job.k * (P - 1) / P;

            cr_assert(time <= most * (1 + 1e-6), "P = %d, k = %zu: %g, at most %g", size, job.k,
                      time, most);
        }
    }
}

/* A tree has no more rounds than one of the next power of two. A butterfly has two more messages in
 * a row, before and after it, and where the first of them comes in the partner's list may come too.
 */
Test(sim_sparse, other_numbers_of_ranks)
{
    for (int size = 3; size <= 33; size++) {
        int log = log2_below(size);
        struct job job = {"gtopk", "tree", size, 100000, 100, 3, 0.01};
        double list = 2 * (double)job.k * job.beta, message = job.alpha + list, time = time_of(job);

        if (size == 1 << log)
            continue;
        cr_expect(time <= 2 * (log + 1) * message * (1 + 1e-9), "tree, P = %d: %g", size, time);
        cr_expect(time >= 2 * log * message * (1 - 1e-9), "tree, P = %d: %g", size, time);
        job.algo = "butterfly";
        time = time_of(job);
        cr_expect(time <= ((log + 2) * message + list) * (1 + 1e-9), "butterfly, P = %d: %g", size,
                  time);
        cr_expect(time >= (log + 1) * message * (1 - 1e-9), "butterfly, P = %d: %g", size, time);
    }
}

/* Shi et al., section IV-C, Fig. 9, left: milliseconds. Top-k by allgather is faster on 4 ranks,
 * level on 8 and slower from 16 on. */
Test(sim_sparse, crossover_of_the_paper)
{
    static const double expected[] = {0.70, 1.04, 1.61, 2.59, 4.32, 7.40}; /* P = 4, 8 .. 128 */

    for (int i = 0; i < 6; i++) {
        int size = 4 << i;
        struct job job = {"gtopk", "tree", size, 25000000, 25000, 0.436, 3.6e-5};
        double tree = time_of(job);

        job.name = "topk-allgather";
        job.algo = NULL;
        double allgather = time_of(job);
        cr_expect_float_eq(allgather / tree, expected[i], 0.006, "P = %d: %g", size,
                           allgather / tree);
        job.name = "allreduce";
        job.algo = "ring";
        double ring = 2 * (size - 1) * (job.alpha + (double)job.count / size * job.beta);
        cr_expect_float_eq(time_of(job) / ring, 1, 1e-5, "P = %d", size); /* blocks are rounded */
    }
}
