/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection from dense vectors as a node of a schedule: what the functions give, and errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <weft/weft.h>

#include "tests/support/draw.h"

enum { SELECTED = 500, WANTED = 40 };

struct selecting {
    weft_sparse_op_kind_t kind;
    weft_nan_policy_t nan;
    size_t residual_count, value_count, number_count;
    float residual[SELECTED], values[SELECTED], number; /* a hint, or a threshold */
    uint64_t list[SELECTED];
    uint64_t pairs;
    char text[400];
};

/* The node alone. */
static int select_by_node(struct weft_context *context, void *user)
{
    struct selecting *self = user;
    const struct weft_sparse_op_config config = {
        .struct_size = sizeof config, .kind = self->kind, .nan = self->nan};
    const int top = self->kind == WEFT_SPARSE_SELECT;
    static uint64_t work[1 << 15];
    struct {
        void *data;
        size_t count;
        weft_dtype_t dtype;
        weft_access_t access;
    } regions[] = {{self->list, WANTED, WEFT_U64, WEFT_WRITE},
                   {self->residual, self->residual_count, WEFT_F32, WEFT_UPDATE},
                   {self->values, self->value_count, WEFT_F32, WEFT_READ},
                   {work, 1 << 15, WEFT_U64, WEFT_WRITE},
                   {work, WANTED, WEFT_U64, WEFT_WRITE},
                   {&self->number, self->number_count, WEFT_F32, WEFT_UPDATE}};
    struct weft_compute_argument arguments[6];
    struct weft_schedule *s;
    struct weft_plan *plan;
    struct weft_run *run;
    struct weft_op *op;
    size_t count = 0;
    int status;

    if (weft_schedule_create(&s, 0, 1) || weft_sparse_op_create(&op, &config))
        return WEFT_ERR_MEMORY;
    for (size_t i = 0; i < 6; i++)
        if (top || i != 4) {
            weft_slot_t slot =
                weft_schedule_add_slot(s, (char[]){(char)('a' + i), '\0'}, regions[i].dtype,
                                       regions[i].count, WEFT_SLOT_INOUT);
            arguments[count++] = (struct weft_compute_argument){
                weft_region_at(slot, 0, regions[i].count), regions[i].access};
        }
    weft_value_t pairs = weft_schedule_add_value(s, "pairs", WANTED);
    weft_schedule_add_compute(s, op, arguments, count, pairs);
    weft_op_destroy(op);
    status = weft_schedule_commit(s, &plan);
    weft_schedule_destroy(s);
    if (!status)
        status = weft_run_create(&run, context, plan, NULL);
    weft_plan_destroy(plan);
    for (size_t i = 0, slot = 0; i < 6 && !status; i++)
        if (top || i != 4)
            status = weft_run_bind(run, (weft_slot_t)slot++, regions[i].data, regions[i].count,
                                   regions[i].dtype);
    if (status)
        return status;
    status = weft_run_execute(run);
    snprintf(self->text, sizeof self->text, "%s", weft_error_text());
    self->pairs = weft_run_get_value(run, pairs);
    weft_run_destroy(run);
    return status == WEFT_ERR_COMPUTE ? WEFT_OK : status;
}

/* By the functions, on copies. */
static int select_by_function(const struct selecting *self, float *residual,
                              struct weft_sparse *out)
{
    struct weft_sparse_options options;
    const float *values = self->values;
    const size_t count =
        self->residual_count > self->value_count ? self->residual_count : self->value_count;
    float zeros[SELECTED] = {0};

    weft_sparse_options_init(&options);
    options.nan = self->nan;
    if (self->residual_count == 0)
        return self->kind == WEFT_SPARSE_ABOVE
                   ? weft_sparse_above(&options, values, count, (double)self->number, out, NULL)
                   : weft_sparse_top(&options, values, count, WANTED, out, NULL);
    values = self->value_count == 0 ? zeros : values;
    return self->kind == WEFT_SPARSE_ABOVE
               ? weft_sparse_accumulate_above(&options, residual, values, count,
                                              (double)self->number, out, NULL)
               : weft_sparse_accumulate_top(&options, residual, values, count, WANTED, out, NULL);
}

static void fill_selecting(struct selecting *self, uint64_t seed, int nans)
{
    struct draw draw = {seed};

    for (size_t i = 0; i < SELECTED; i++) {
        self->residual[i] = (float)(4 * draw_real(&draw) - 2);
        self->values[i] = i % 7 ? (float)(4 * draw_real(&draw) - 2) : 0;
    }
    if (nans)
        self->values[nans] = self->residual[nans + 2] = NAN;
}

static void expect_selected(const struct selecting *given)
{
    struct selecting self = *given;
    float residual[SELECTED], values[WANTED];
    uint32_t indices[WANTED];
    struct weft_sparse out = {.indices = indices,
                              .values = values,
                              .capacity = WANTED,
                              .index_dtype = WEFT_U32,
                              .dtype = WEFT_F32};

    memcpy(residual, self.residual, sizeof residual);
    const int status = select_by_function(&self, residual, &out);

    cr_assert_eq(weft_local_run(1, NULL, select_by_node, &self), WEFT_OK, "%s", weft_error_text());
    cr_expect_eq(self.text[0] != '\0', status != WEFT_OK, "%s", self.text);
    if (status == WEFT_OK) {
        cr_expect_eq(self.pairs, out.count);
        cr_expect_arr_eq(self.list, out.indices, out.count * sizeof(uint32_t));
        cr_expect_arr_eq((uint32_t *)self.list + out.count, out.values, out.count * sizeof(float));
        cr_expect_arr_eq(self.residual, residual, sizeof residual);
    }
}

Test(selection_nodes, give_what_the_functions_give)
{
    for (int kind = WEFT_SPARSE_SELECT; kind <= WEFT_SPARSE_ABOVE; kind++)
        for (int which = 0; which < 3; which++)
            for (int nan = 0; nan < 4; nan++) {
                static struct selecting self;

                self = (struct selecting){.kind = (weft_sparse_op_kind_t)kind,
                                          .nan = nan % 2 ? WEFT_NAN_ZERO : WEFT_NAN_ERROR,
                                          .residual_count = which == 0 ? 0 : SELECTED,
                                          .value_count = which == 1 ? 0 : SELECTED,
                                          .number_count = 1,
                                          .number = kind == WEFT_SPARSE_ABOVE ? 1.5F : 0};
                fill_selecting(&self, (uint64_t)(which * 4 + nan), nan / 2 * 5);
                expect_selected(&self);
            }
}

Test(selection_nodes, refuse_what_does_not_fit)
{
    static struct selecting self;

    self = (struct selecting){.kind = WEFT_SPARSE_SELECT,
                              .residual_count = SELECTED,
                              .value_count = SELECTED - 1,
                              .number_count = 1};
    cr_assert_eq(weft_local_run(1, NULL, select_by_node, &self), WEFT_OK);
    cr_expect(strstr(self.text, "topk-select: 499 values and a residual of 500 elements, expected "
                                "as many"));
    self.value_count = SELECTED;
    self.number_count = 0;
    cr_assert_eq(weft_local_run(1, NULL, select_by_node, &self), WEFT_OK);
    cr_expect(strstr(self.text, "topk-select: the hint is 0 elements, expected 1"));
    self.kind = WEFT_SPARSE_ABOVE;
    cr_assert_eq(weft_local_run(1, NULL, select_by_node, &self), WEFT_OK);
    cr_expect(strstr(self.text, "sparse-above: the threshold is 0 elements, expected 1"));
    self.number_count = 1;
    self.number = -1;
    cr_assert_eq(weft_local_run(1, NULL, select_by_node, &self), WEFT_OK);
    cr_expect(strstr(self.text, "`threshold` is -1"));
}
