/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { WEIGHTS = 4, STEPS = 400 };

/* [train] */
/* A step of a worker that learns y = x . (1, 2, 3, 4) from samples of its own. */
static int learn(struct weft_server *server, const double *weights, double *gradient,
                 uint64_t *random)
{
    double x[WEIGHTS], error = 0;
    for (int i = 0; i < WEIGHTS; i++) {
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (double)(*random >> 40) * 0x1p-23 - 1;
        error += x[i] * (weights[i] - (i + 1));
    }
    for (int i = 0; i < WEIGHTS; i++)
        gradient[i] = error * x[i];
    return weft_server_step(server, NULL); /* push, wait, pull: the weights are new */
}

/* The last rank is a server; the others are workers, who may be two steps ahead of the slowest. */
static int train(struct weft_context *context, void *user)
{
    double weights[WEIGHTS] = {0}, gradient[WEIGHTS];
    struct weft_piece parameters[] = {{weights, WEIGHTS}}, gradients[] = {{gradient, WEIGHTS}};
    struct weft_server *server = NULL;
    struct weft_server_config config;
    uint64_t random = (uint64_t)weft_context_rank(context) + 1;
    (void)user;
    weft_server_config_init(&config);
    config.dtype = WEFT_F64;
    config.tensors = parameters;
    config.gradients = gradients;
    config.tensor_count = 1;
    config.sync = WEFT_SERVER_SSP;
    config.staleness = 2;
    config.rate = 0.3;
    int status = weft_server_create(&server, context, &config);
    if (status)
        return status;
    if (weft_server_is_worker(server))
        for (int step = 0; step < STEPS && !status; step++)
            status = learn(server, weights, gradient, &random);
    else
        status = weft_server_serve(server, WEFT_NEVER); /* until all workers have left */
    if (!status && weft_server_is_worker(server))
        printf("worker %d: %.3f %.3f %.3f %.3f\n", weft_context_rank(context), weights[0],
               weights[1], weights[2], weights[3]);
    int ended = weft_server_destroy(server);
    return status ? status : ended;
}
/* [train] */

/* Local ranks, as many as the first argument says. */
int main(int argc, char **argv)
{
    int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 5;
    if (ranks < 1) {
        fputs("usage: parameter_server [RANKS], RANKS from 1\n", stderr);
        return 2;
    }
    int status = weft_local_run(ranks, NULL, train, NULL);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    return status != WEFT_OK;
}
