/* SPDX-License-Identifier: BSD-3-Clause */
/* What a plan says that a run of it takes is what its creation allocates. */
#include <criterion/criterion.h>

#include "runtime/base/alloc.h"
#include "support/ranks.h"
#include "tests/support/compute.h"

static struct alone alone;

static void setup(void)
{
    alone = alone_create(WEFT_PROGRESS_CALLER);
}

static void teardown(void)
{
    alone_destroy(&alone);
}

TestSuite(bytes, .init = setup, .fini = teardown);

static void check_plan(struct weft_plan *plan, const char *what)
{
    struct weft_run *run = NULL;
    /* First so that the tables of the context are large enough, then to measure. */
    OK(weft_run_create(&run, alone.context, plan, NULL));
    weft_run_destroy(run);
    size_t before = atomic_load(&weft__alloc_bytes);
    OK(weft_run_create(&run, alone.context, plan, NULL));
    size_t taken = atomic_load(&weft__alloc_bytes) - before;
    weft_run_destroy(run);
    cr_expect_eq(weft_plan_run_bytes(plan), taken, "%s: it says %zu bytes and takes %zu", what,
                 weft_plan_run_bytes(plan), taken);
    weft_plan_destroy(plan);
}

Test(bytes, of_templates)
{
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);
        for (size_t a = 0; a < template->algorithm_count; a++)
            for (int size = 1; size <= 8; size++) {
                struct weft_template_params params;
                struct weft_schedule *s = NULL;
                weft_template_params_init(&params);
                params.algo = template->algorithms[a].name;
                params.count = 1000;
                params.k = 20;
                if (weft_template_build(template->name, size - 1, size, &params, &s) == WEFT_OK)
                    check_plan(commit(s), params.algo);
            }
    }
}

static struct weft_plan *build(int computes, int regions, int events, int values, size_t scratch)
{
    struct weft_op *op = idle_op("nothing");
    struct weft_region list[8];
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_F32, 100, WEFT_SLOT_INOUT);
    if (scratch > 0)
        weft_schedule_add_slot(s, "scratch", WEFT_F32, scratch, WEFT_SLOT_SCRATCH);
    for (int i = 0; i < regions; i++)
        list[i] = weft_region_at(slot, (size_t)i, 1);
    for (int i = 0; i < values; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        weft_schedule_add_value(s, name, 7);
    }
    for (int i = 0; i < computes; i++)
        add_compute(s, op, list, (size_t)regions, 0, 0);
    for (int i = 0; i < events; i++)
        weft_schedule_add_event(s, i % 2 ? (uint32_t)i : WEFT_CHANNEL_NONE);
    for (int i = 0; i < values; i++) {
        weft_schedule_add_send(s, weft_region_at(slot, 0, 1), 0, (uint32_t)i);
        weft_schedule_add_recv(s, weft_region_at(slot, 1, 1), 0, (uint32_t)i);
    }
    weft_op_destroy(op);
    return commit(s);
}

Test(bytes, of_every_kind_of_node)
{
    for (int computes = 0; computes < 4; computes++)
        for (int regions = 0; regions < 8; regions += 3)
            for (int events = 0; events < 4; events++)
                for (int values = 0; values < 4; values++)
                    check_plan(build(computes, regions, events, values, (size_t)(17 * events)),
                               "a plan of every kind of node");
}

Test(bytes, of_a_plan_grow_with_its_texts)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_join(s);
    struct weft_plan *bare = NULL;
    struct weft_plan *labelled = NULL;
    OK(weft_schedule_commit(s, &bare));
    OK(weft_schedule_set_label(s, 0, "a label of some length"));
    OK(weft_schedule_commit(s, &labelled));
    cr_expect_geq(weft_plan_bytes(labelled),
                  weft_plan_bytes(bare) + sizeof "a label of some length");
    weft_plan_destroy(bare);
    weft_plan_destroy(labelled);
    weft_schedule_destroy(s);
}
