/* SPDX-License-Identifier: BSD-3-Clause */
/* OSP: which layers are late, by their importance, and how many bytes, by Algorithm 1; what is
 * measured for it, in virtual time. */
#include <criterion/criterion.h>

#include "server_job.h"

enum { STEPS = 8 };

struct osp {
    uint64_t seed;
    int workers, ranks;
    struct weft_server_config config;
    struct shape shape;
    struct weft_net *net;
    uint64_t sleep_ns;
    double losses[STEPS]; /* below 0: none is told */
    int quiet;            /* this worker tells none */
    unsigned char late[JOB_WORKERS][STEPS][JOB_LAYERS];
    struct weft_osp_tuning tuning[JOB_WORKERS][STEPS]; /* after the step */
    struct weft_server_result results[JOB_WORKERS][STEPS];
};

static double gradient(const struct osp *osp, size_t worker, int step, size_t at)
{
    return (double)(scramble(osp->seed, worker, (uint64_t)step, at) % 2001) / 1000 - 1;
}

static void train(struct osp *osp, struct weft_server *server, struct weft_context *context,
                  const struct tensors *tensors)
{
    size_t worker = (size_t)weft_context_rank(context);
    for (int t = 0; t < STEPS; t++) {
        OK(weft_context_sleep(context, osp->sleep_ns));
        for (size_t i = 0; i < osp->shape.elements; i++)
            piece_put(tensors->g, WEFT_F64, i, gradient(osp, worker, t, i));
        if (osp->losses[t] >= 0 && (int)worker != osp->quiet)
            OK(weft_server_tell_loss(server, osp->losses[t]));
        for (size_t l = osp->shape.layers; l-- > 0;)
            OK(weft_server_ready(server, l));
        for (size_t l = 0; l < osp->shape.layers; l++)
            osp->late[worker][t][l] = (unsigned char)weft_server_layer_late(server, l);
        osp->results[worker][t].struct_size = sizeof osp->results[worker][t];
        OK(weft_server_step(server, &osp->results[worker][t]));
        if (!osp->net)
            OK(weft_server_correct(server));
        osp->tuning[worker][t].struct_size = sizeof osp->tuning[worker][t];
        OK(weft_server_get_tuning(server, &osp->tuning[worker][t]));
    }
}

static int live(struct weft_context *context, void *user)
{
    struct osp *osp = user;
    struct weft_server_config config = osp->config;
    struct weft_server *server = NULL;
    struct tensors tensors;
    tensors_make(&tensors, &osp->shape, WEFT_F64);
    for (size_t i = 0; i < osp->shape.elements; i++)
        piece_put(tensors.x, WEFT_F64, i, initial_value(i));
    tensors_bind(&tensors, &config);
    OK(weft_server_create(&server, context, &config));
    if (weft_server_is_worker(server))
        train(osp, server, context, &tensors);
    else
        OK(weft_server_serve(server, WEFT_NEVER));
    OK(weft_server_destroy(server));
    tensors_free(&tensors);
    return WEFT_OK;
}

static struct osp osp_of(uint64_t seed)
{
    static const size_t counts[] = {400, 30, 0, 111, 70, 9, 250};
    struct osp osp = {.seed = seed, .quiet = -1};
    weft_server_config_init(&osp.config);
    osp.shape = shape_of(counts, 7);
    osp.workers = 1 + (int)(seed % 5);
    osp.config.sync = WEFT_SERVER_OSP;
    osp.config.servers = 1 + (int)(seed / 5 % 3);
    osp.config.split_bytes = seed % 2 ? 500 : 0;
    osp.config.rate = 0.125;
    osp.ranks = osp.workers + osp.config.servers;
    for (int t = 0; t < STEPS; t++)
        osp.losses[t] = -1;
    return osp;
}

static void run(struct osp *osp)
{
    struct weft_virtual_config config = with_seed(osp->seed);
    config.net = osp->net;
    tell_seed(osp->seed);
    cr_assert_eq(weft_virtual_run(osp->ranks, &config, live, osp), WEFT_OK, "seed %d: %s",
                 (int)osp->seed, weft_error_text());
    for (int w = 1; w < osp->workers; w++)
        cr_assert_eq(memcmp(osp->late[w], osp->late[0], sizeof osp->late[w]), 0,
                     "all have the same bitmap");
}

/* ---- which ---- */

/* The least important layers that fit, whole. */
static void choose(const struct osp *osp, const double *importance, size_t bytes,
                   unsigned char *late)
{
    unsigned char seen[JOB_LAYERS] = {0};
    memset(late, 0, JOB_LAYERS);
    for (size_t n = 0; n < osp->shape.layers; n++) {
        size_t least = SIZE_MAX;
        for (size_t l = 0; l < osp->shape.layers; l++)
            if (!seen[l] && (least == SIZE_MAX || importance[l] < importance[least]))
                least = l;
        size_t size = (osp->shape.first[least + 1] - osp->shape.first[least]) * sizeof(double);
        seen[least] = 1;
        late[least] = size && size <= bytes;
        bytes -= late[least] ? size : 0;
    }
}

Test(server_osp, the_least_important_layers_are_late)
{
    int some = 0;
    for (uint64_t seed = 1; seed <= SWEPT(120, 24); seed++) {
        struct osp osp = osp_of(seed);
        double *x = calloc(osp.shape.elements, sizeof *x);
        unsigned char late[JOB_LAYERS] = {0};
        osp.config.osp_share = (double)(1 + seed % 9) / 10;
        run(&osp);
        for (size_t i = 0; i < osp.shape.elements; i++)
            x[i] = initial_value(i);
        for (int t = 0; t < STEPS; t++) {
            double importance[JOB_LAYERS] = {0};
            cr_assert_eq(memcmp(osp.late[0][t], late, sizeof late), 0, "seed %d, step %d",
                         (int)seed, t);
            for (size_t l = 0; l < osp.shape.layers; l++)
                for (size_t i = osp.shape.first[l]; i < osp.shape.first[l + 1]; i++) {
                    double mean = 0;
                    for (int w = 0; w < osp.workers; w++)
                        mean += gradient(&osp, (size_t)w, t, i) / osp.workers;
                    x[i] -= 0.125 * mean;
                    importance[l] += fabs(mean * x[i]);
                }
            choose(&osp, importance,
                   (size_t)(osp.config.osp_share * (double)osp.shape.elements * 8 + 0.5), late);
            for (size_t l = 0; l < osp.shape.layers; l++)
                some += late[l];
        }
        free(x);
    }
    cr_assert_gt(some, SWEPT(1000, 200));
}

/* ---- how many bytes: Algorithm 1 ---- */

static void check_tuning(const struct osp *osp, int t, double first, double loss, double most)
{
    double share = first > 0 ? 1 - loss / first : 0;
    double bytes = (share > 0 ? share : 0) * most;
    for (int w = 0; w < osp->workers; w++) {
        const struct weft_osp_tuning *tuning = &osp->tuning[w][t];
        cr_assert(fabs((double)tuning->most_bytes - most) <= 1, "seed %d: U_max is %zu, not %g",
                  (int)osp->seed, (size_t)tuning->most_bytes, most);
        cr_assert(fabs((double)tuning->late_bytes - bytes) <= 1, "seed %d: S is %zu, not %g",
                  (int)osp->seed, (size_t)tuning->late_bytes, bytes);
        cr_assert_eq(tuning->first_loss, first);
        cr_assert_eq(tuning->loss, loss);
        if (t + 1 < STEPS)
            cr_assert(osp->results[w][t + 1].late_bytes <= tuning->late_bytes);
    }
}

Test(server_osp, more_is_late_as_the_loss_falls)
{
    static const double losses[STEPS] = {8, 8, 6, 4, 9, 1, 0.5, 0};
    size_t late = 0;
    for (uint64_t seed = 1; seed <= SWEPT(60, 12); seed++) {
        struct osp osp = osp_of(seed);
        double model = (double)osp.shape.elements * 8;
        osp.config.osp_goodput = seed % 3 ? 1e6 : 1e9;
        osp.config.osp_compute_ns = 2000000;
        osp.config.osp_most = seed % 4 ? 0 : 0.5;
        memcpy(osp.losses, losses, sizeof losses);
        run(&osp);
        double most = (seed % 4 ? 0.8 : 0.5) * model;
        /* Each server's link takes b, and late layers are on all that hold something. */
        double hidden = osp.config.servers * osp.config.osp_goodput * 2e-3 / osp.workers;
        for (int t = 0; t < STEPS; t++) {
            check_tuning(&osp, t, losses[0], losses[t], hidden < most ? hidden : most);
            late += osp.results[0][t].late_layers;
        }
    }
    cr_assert_gt(late, SWEPT(100, 20));
}

Test(server_osp, nothing_is_late_until_all_have_told_a_loss)
{
    for (uint64_t seed = 1; seed <= SWEPT(20, 6); seed++) {
        struct osp osp = osp_of(seed);
        osp.config.osp_goodput = 1e9;
        osp.config.osp_compute_ns = 2000000;
        osp.quiet = osp.workers - 1;
        for (int t = 0; t < STEPS; t++)
            osp.losses[t] = t ? 0.01 : 1;
        run(&osp);
        for (int t = 0; t < STEPS; t++)
            cr_assert_eq(osp.results[0][t].late_layers, 0);
    }
}

/* ---- what is measured ---- */

/* A link of 1 GB/s: a megabyte takes a millisecond, and nothing but that takes time. */
Test(server_osp, goodput_and_computing_are_measured)
{
    static const size_t counts[] = {60000, 30000, 50000, 10};
    for (int workers = 1; workers <= 4; workers++) {
        struct osp osp = osp_of((uint64_t)workers);
        struct weft_net net;
        weft_net_init(&net);
        net.L = 5;
        net.G = 0.001;
        net.flags = WEFT_NET_OFFLOAD;
        osp.net = &net;
        osp.shape = shape_of(counts, 4);
        osp.workers = workers;
        osp.config.servers = 1;
        osp.config.flow = workers == 2 ? WEFT_SERVER_PACED : WEFT_SERVER_AT_ONCE;
        osp.config.window = 4;
        osp.ranks = workers + 1;
        osp.sleep_ns = 7000000;
        for (int t = 0; t < STEPS; t++)
            osp.losses[t] = t ? 0.5 : 1;
        run(&osp);
        const struct weft_osp_tuning *last = &osp.tuning[0][STEPS - 1];
        cr_assert(last->goodput > 0.7e9 && last->goodput < 1.3e9, "%d workers: %g", workers,
                  last->goodput);
        cr_assert(last->compute_ns > 6000000 && last->compute_ns < 8000000, "%d workers: %g ms",
                  workers, (double)last->compute_ns / 1e6);
        cr_assert_gt(osp.results[0][STEPS - 1].late_layers, 0);
    }
}
