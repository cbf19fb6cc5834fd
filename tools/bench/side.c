/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank of an allreduce of f32 sums, as contests and overlap measure it. */
#include "tools/bench/bench.h"

#include <string.h>

static float *memory_of(struct bench_side *side, size_t count)
{
    return side->arena ? weft_context_memory_alloc(side->arena, count, sizeof(float))
                       : weft_memory_alloc(count, sizeof(float));
}

int bench_side_open(struct bench_side *side, struct weft_context *context, size_t count,
                    int in_arena)
{
    struct weft_template_params params;

    side->arena = in_arena ? context : NULL;
    side->send = memory_of(side, count);
    side->recv = memory_of(side, count);
    if (!side->send || !side->recv)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu elements", count);
    for (size_t i = 0; i < count; i++) {
        side->send[i] = 1;
        side->recv[i] = 0; /* touched before it is timed */
    }
    if (!context)
        return WEFT_OK;
    weft_template_params_init(&params);
    params.count = count;
    int status = weft_template_create_run(&side->run, context, "allreduce", &params);
    if (status == WEFT_OK)
        status = weft_run_bind_input_name(side->run, "send", side->send, count, WEFT_F32);
    return status == WEFT_OK ? weft_run_bind_name(side->run, "recv", side->recv, count, WEFT_F32)
                             : status;
}

void bench_side_close(struct bench_side *side)
{
    weft_run_destroy(side->run);
    if (side->arena) {
        weft_context_memory_free(side->arena, side->send);
        weft_context_memory_free(side->arena, side->recv);
    } else {
        weft_memory_free(side->send);
        weft_memory_free(side->recv);
    }
    memset(side, 0, sizeof *side);
}
