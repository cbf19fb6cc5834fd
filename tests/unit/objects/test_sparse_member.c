/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averages as parts of another object: the same bits as by themselves, also where others
 * take their place between two steps, and one failure for all. */
#include <criterion/criterion.h>

#include "schedules/objects/sparse_average/member.h"
#include "support/virtual_ranks.h"

enum { PARTS = 3, ELEMENTS = 60, STEPS = 6, RANKS = 5 };

static const size_t first[PARTS + 1] = {0, 7, 40, ELEMENTS};

struct trial {
    weft_sparse_method_t method;
    double momentum;
    int renewed; /* before this step all parts are made anew; 0: never */
    int members;
    float sums[RANKS][STEPS][ELEMENTS];
};

static float value_of(int rank, int step, int i)
{
    return (float)((rank * 31 + step * 17 + i * 13) % 29 - 14) / (float)(1 + i % 7);
}

static void make(struct weft_context *context, struct weft_object *object,
                 const struct trial *trial, float *data, int part,
                 const struct weft_sparse_average_state *state, struct weft_sparse_average **out)
{
    struct weft_piece tensor = {data + first[part], first[part + 1] - first[part]};
    struct weft_sparse_average_config config;
    weft_sparse_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.method = trial->method;
    config.momentum = trial->momentum;
    config.k = 4;
    config.state = state;
    if (trial->members)
        OK(weft__sparse_average_create_member(out, __func__, context, object, &config));
    else
        OK(weft_sparse_average_create(out, context, &config));
}

/* Others take the place of parts that have had some steps. */
static void renew(struct weft_context *context, struct weft_object *object,
                  const struct trial *trial, float *data, struct weft_sparse_average *parts[])
{
    for (int p = 0; p < PARTS; p++) {
        struct weft_sparse_average *before = parts[p];
        struct weft_sparse_average_state state = {.struct_size = sizeof state};
        OK(weft_sparse_average_get_state(before, &state));
        make(context, object, trial, data, p, &state, &parts[p]);
        OK(weft_sparse_average_destroy(before));
    }
}

static void take_step(struct weft_context *context, struct trial *trial, float *data,
                      struct weft_sparse_average *parts[], int step)
{
    int rank = weft_context_rank(context);
    float *sum = trial->sums[rank][step];
    for (int i = 0; i < ELEMENTS; i++)
        data[i] = value_of(rank, step, i);
    for (int p = 0; p < PARTS; p++) /* in an order of the rank's own */
        OK(weft_sparse_average_post(parts[(p + rank) % PARTS]));
    for (int p = 0; p < PARTS; p++) {
        struct weft_piece tensor = {sum + first[p], first[p + 1] - first[p]};
        OK(weft_sparse_average_wait(parts[p], NULL));
        OK(weft_sparse_average_apply(parts[p], 1, WEFT_F32, &tensor, 1));
    }
}

static int train(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    struct weft_sparse_average *parts[PARTS];
    struct weft_object *object = NULL;
    float data[ELEMENTS];
    if (trial->members)
        OK(weft_object_create(&object, context, NULL));
    for (int p = 0; p < PARTS; p++)
        make(context, object, trial, data, p, NULL, &parts[p]);
    for (int step = 0; step < STEPS; step++) {
        if (step && step == trial->renewed)
            renew(context, object, trial, data, parts);
        take_step(context, trial, data, parts, step);
    }
    for (int p = 0; p < PARTS; p++)
        OK(weft_sparse_average_destroy(parts[p]));
    weft_object_destroy(object);
    return WEFT_OK;
}

static void expect_same(weft_sparse_method_t method, double momentum, int size, uint64_t seed)
{
    static struct trial plain, members;
    struct weft_virtual_config config = with_seed(seed);
    plain = (struct trial){.method = method, .momentum = momentum};
    members = (struct trial){
        .method = method, .momentum = momentum, .members = 1, .renewed = (int)(seed % STEPS)};
    OK(weft_virtual_run(size, &config, train, &plain));
    OK(weft_virtual_run(size, &config, train, &members));
    cr_assert_arr_eq(members.sums, plain.sums, sizeof plain.sums, "method %d, P = %d, seed %d",
                     (int)method, size, (int)seed);
}

Test(sparse_member, has_the_bits_of_one_by_itself)
{
    for (int method = WEFT_SPARSE_GTOPK; method <= WEFT_SPARSE_ALLGATHER; method++)
        for (int size = 1; size <= RANKS; size++)
            for (uint64_t seed = 1; seed <= 12; seed++)
                expect_same((weft_sparse_method_t)method, seed % 2 ? 0 : 0.5, size, seed);
}

Test(sparse_member, takes_regions_over)
{
    for (int size = 1; size <= RANKS; size++)
        for (uint64_t seed = 1; seed <= 12; seed++)
            expect_same(WEFT_SPARSE_OKTOPK, seed % 2 ? 0 : 0.5, size, seed);
}

static int fail_one(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    struct weft_sparse_average *parts[PARTS];
    struct weft_object *object = NULL;
    float data[ELEMENTS] = {0};
    OK(weft_object_create(&object, context, NULL));
    for (int p = 0; p < PARTS; p++)
        make(context, object, trial, data, p, NULL, &parts[p]);
    OK(weft_sparse_average_post(parts[0]));
    if (weft_context_rank(context) == 1)
        OK(weft_sparse_average_fail(parts[2], WEFT_ERR_COMPUTE, "by design"));
    else
        OK(weft_sparse_average_post(parts[1]));
    for (int p = 0; p < 2; p++) {
        int status = weft_sparse_average_wait(parts[p], NULL);
        CHECK(status < 0);
        CHECK_TEXT(weft_error_text(), "by design");
    }
    CHECK(weft_object_check(object, __func__) < 0);
    for (int p = 0; p < PARTS; p++)
        CHECK(weft_sparse_average_destroy(parts[p]) < 0);
    weft_object_destroy(object);
    return WEFT_OK;
}

Test(sparse_member, fails_with_all_of_its_object)
{
    struct trial trial = {.method = WEFT_SPARSE_GTOPK, .members = 1};
    struct weft_virtual_config config = with_seed(3);
    OK(weft_virtual_run(3, &config, fail_one, &trial));
}
