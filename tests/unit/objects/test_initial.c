/* SPDX-License-Identifier: BSD-3-Clause */
/* What models are when an object is created: the same, those of rank 0, or any. */
#include <criterion/criterion.h>

#include "support/ranks.h"

enum { MOST = 7, ELEMENTS = 1031 };

enum object { GROUP, GOSSIP, PAIR, OBJECTS };

static const char *const names[] = {"group_average", "gossip", "pair_average"};

struct start {
    enum object object;
    weft_dtype_t dtype;
    weft_initial_t initial[MOST];
    weft_average_contribution_t contribution;
    int odd;            /* the rank whose model is another one; -1: none */
    int restored[MOST]; /* from a checkpoint, group averaging alone */
    int status;         /* that all ranks get */
    char words[3][64];  /* in the error's text */
    uint64_t next[MOST];
    unsigned char model[MOST][ELEMENTS * sizeof(double)];
};

static int create_group(struct weft_context *context, const struct start *start, int rank,
                        const struct weft_piece tensors[3])
{
    struct weft_group_average_config config;
    struct weft_group_average_state state = {.struct_size = sizeof state};
    struct weft_group_average *average = NULL;
    state.next = start->next[rank];
    weft_group_average_config_init(&config);
    config.dtype = start->dtype;
    config.tensors = tensors;
    config.tensor_count = 3;
    config.initial = start->initial[rank];
    config.contribution = start->contribution;
    config.state = start->restored[rank] ? &state : NULL;
    int status = weft_group_average_create(&average, context, &config);
    if (!status)
        OK(weft_group_average_destroy(average));
    return status;
}

static int create_gossip(struct weft_context *context, const struct start *start, int rank,
                         const struct weft_piece tensors[3])
{
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    weft_gossip_config_init(&config);
    config.dtype = start->dtype;
    config.tensors = tensors;
    config.tensor_count = 3;
    config.initial = start->initial[rank];
    int status = weft_gossip_create(&gossip, context, &config);
    /* The models are exchanged as they are now. */
    if (!status && start->initial[rank] != WEFT_INITIAL_ANY)
        OK(weft_gossip_step(gossip));
    if (!status)
        OK(weft_gossip_destroy(gossip));
    return status;
}

static int create_pair(struct weft_context *context, const struct start *start, int rank,
                       const struct weft_piece tensors[3])
{
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    weft_pair_average_config_init(&config);
    config.dtype = start->dtype;
    config.tensors = tensors;
    config.tensor_count = 3;
    config.initial = start->initial[rank];
    int status = weft_pair_average_create(&average, context, &config);
    if (!status && start->initial[rank] != WEFT_INITIAL_ANY)
        OK(weft_pair_average_step(average));
    if (!status)
        OK(weft_pair_average_destroy(average));
    return status;
}

static int begin(struct weft_context *context, void *user)
{
    struct start *start = user;
    int rank = weft_context_rank(context);
    size_t size = weft_dtype_size(start->dtype);
    unsigned char *model = start->model[rank];
    const struct weft_piece tensors[] = {
        {model, 30}, {NULL, 0}, {model + 30 * size, ELEMENTS - 30}};
    int status = (start->object == GROUP    ? create_group
                  : start->object == GOSSIP ? create_gossip
                                            : create_pair)(context, start, rank, tensors);
    CHECK_STATUS(status, start->status);
    for (int i = 0; status && i < 3; i++)
        CHECK_TEXT(weft_error_text(), start->words[i]);
    return WEFT_OK;
}

static struct start new_start(enum object object, weft_initial_t initial, int odd)
{
    struct start start = {.object = object, .odd = odd};
    for (int r = 0; r < MOST; r++)
        start.initial[r] = initial;
    return start;
}

static void run(struct start *start, int ranks)
{
    struct weft_virtual_config config;
    double *wide = calloc(ELEMENTS, sizeof *wide);
    CHECK(wide);
    weft_virtual_config_init(&config);
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < ELEMENTS; i++)
            wide[i] = i % 100 + (i == 40 && r == start->odd);
        OK(weft_convert(start->dtype, start->model[r], WEFT_F64, wide, ELEMENTS));
    }
    free(wide);
    OK(weft_virtual_run(ranks, &config, begin, start));
}

/* Whether all ranks have the model that rank 0 had. */
static void expect_alike(const struct start *start, int ranks)
{
    size_t bytes = ELEMENTS * weft_dtype_size(start->dtype);
    double at = 0;
    OK(weft_convert(WEFT_F64, &at, start->dtype,
                    start->model[0] + 40 * weft_dtype_size(start->dtype), 1));
    cr_assert_eq(at, 40 + (start->odd == 0), "%s of %d ranks, %s: %g", names[start->object], ranks,
                 weft_dtype_name(start->dtype), at);
    for (int r = 1; r < ranks; r++)
        cr_assert(memcmp(start->model[0], start->model[r], bytes) == 0, "rank %d of %d", r, ranks);
}

static void expect_error(struct start *start, int status, const char *a, const char *b,
                         const char *c)
{
    start->status = status;
    snprintf(start->words[0], sizeof start->words[0], "%s", a);
    snprintf(start->words[1], sizeof start->words[1], "%s", b);
    snprintf(start->words[2], sizeof start->words[2], "%s", c);
}

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};

/* ---- compared ---- */

Test(initial, a_model_that_differs_is_refused, .timeout = 140)
{
    char who[64], first[64], second[64];
    for (int object = 0; object < OBJECTS; object++)
        for (int d = 0; d < (object == GROUP ? 4 : 2); d++)
            for (int ranks = 2; ranks <= MOST; ranks++)
                for (int odd = 0; odd < ranks; odd++) {
                    struct start start = new_start(object, WEFT_INITIAL_SAME, odd);
                    start.dtype = dtypes[d];
                    snprintf(who, sizeof who, "weft_%s_create: ", names[object]);
                    snprintf(first, sizeof first, "rank 0 has bits with the hash ");
                    snprintf(second, sizeof second, "rank %d has bits", odd ? odd : 1);
                    expect_error(&start, WEFT_ERR_INVALID, who, first, second);
                    run(&start, ranks);
                }
}

Test(initial, models_that_are_the_same_are_taken, .timeout = 140)
{
    for (int object = 0; object < OBJECTS; object++)
        for (int d = 0; d < (object == GROUP ? 4 : 2); d++)
            for (int ranks = 1; ranks <= MOST; ranks++) {
                struct start start = new_start(object, WEFT_INITIAL_SAME, -1);
                start.dtype = dtypes[d];
                run(&start, ranks);
                expect_alike(&start, ranks);
            }
}

/* Models of a checkpoint differ between synchronisations; those that begin anew must be alike. */
Test(initial, who_goes_on_from_a_checkpoint_is_not_compared, .timeout = 140)
{
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (int all = 0; all <= 1; all++) {
            struct start start = new_start(GROUP, WEFT_INITIAL_SAME, 1);
            for (int r = 0; r < ranks; r++)
                start.restored[r] = all || r == 1;
            run(&start, ranks);
        }
    struct start start = new_start(GROUP, WEFT_INITIAL_SAME, 1);
    start.restored[0] = 1;
    expect_error(&start, WEFT_ERR_INVALID, "contents of the tensors", "rank 1 has", "rank 2 has");
    run(&start, 3);
}

/* ---- not compared ---- */

Test(initial, any_model_is_taken_if_asked_for, .timeout = 140)
{
    for (int object = 0; object < OBJECTS; object++) {
        struct start start = new_start(object, WEFT_INITIAL_ANY, 1);
        run(&start, 3);
        cr_assert(memcmp(start.model[0], start.model[1], ELEMENTS * sizeof(float)) != 0);
    }
}

Test(initial, gradients_are_not_looked_at)
{
    struct start start = new_start(GROUP, WEFT_INITIAL_SAME, 1);
    start.contribution = WEFT_AVERAGE_ACCUMULATE;
    run(&start, 3);
    start = new_start(GROUP, WEFT_INITIAL_BROADCAST, 1);
    start.contribution = WEFT_AVERAGE_ACCUMULATE;
    expect_error(&start, WEFT_ERR_INVALID, "config->initial is WEFT_INITIAL_BROADCAST",
                 "WEFT_AVERAGE_ACCUMULATE", "");
    run(&start, 1);
}

/* ---- broadcast ---- */

Test(initial, the_model_of_rank_0_is_broadcast, .timeout = 140)
{
    for (int object = 0; object < OBJECTS; object++)
        for (int d = 0; d < (object == GROUP ? 4 : 2); d++)
            for (int ranks = 1; ranks <= MOST; ranks++)
                for (int odd = 0; odd < ranks; odd += 2) {
                    struct start start = new_start(object, WEFT_INITIAL_BROADCAST, odd);
                    start.dtype = dtypes[d];
                    start.restored[0] = ranks == 4;
                    run(&start, ranks);
                    expect_alike(&start, ranks);
                }
}

/* What is broadcast is also the first contribution: of the late rank 1, with which others average
 * before it comes. */
static int average_first(struct weft_context *context, void *user)
{
    float model[4] = {0};
    struct weft_piece tensor = {model, 4};
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;
    int rank = weft_context_rank(context);
    (void)user;
    for (int i = 0; i < 4; i++)
        model[i] = (float)(rank == 0 ? 6 : 1000);
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.group_size = 2;
    config.sync_period = WEFT_NEVER;
    config.patience_ns = WEFT_NS_NONE;
    config.initial = WEFT_INITIAL_BROADCAST;
    OK(weft_group_average_create(&average, context, &config));
    CHECK(model[0] == 6 && model[3] == 6);
    if (rank == 0) {
        for (int i = 0; i < 4; i++)
            model[i] = 8;
        OK(weft_group_average_step(average, NULL));
        CHECK(model[0] == 7 && model[3] == 7);
    } else {
        OK(weft_context_sleep(context, 1000000000));
    }
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(initial, what_is_broadcast_is_the_first_contribution)
{
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    OK(weft_virtual_run(2, &config, average_first, NULL));
}

/* ---- wishes ---- */

Test(initial, ranks_must_wish_the_same)
{
    for (int object = 0; object < OBJECTS; object++) {
        struct start start = new_start(object, WEFT_INITIAL_SAME, -1);
        start.initial[1] = WEFT_INITIAL_BROADCAST;
        expect_error(&start, WEFT_ERR_INVALID, "config->initial", "rank 0 has same",
                     "rank 1 has broadcast");
        run(&start, 3);
        start = new_start(object, (weft_initial_t)3, -1);
        expect_error(&start, WEFT_ERR_INVALID, "config->initial is 3", "weft_initial_t", "");
        run(&start, 1);
    }
}
