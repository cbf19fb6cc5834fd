/* SPDX-License-Identifier: BSD-3-Clause */
/* Computes that note their number when they start, and events in one call: what events do is seen
 * by what follows them. */
#ifndef WEFT_TESTS_NOTES_H
#define WEFT_TESTS_NOTES_H

#include "support/ranks.h"
#include "tests/support/compute.h"

enum { MOST_NOTES = 64 };

struct notes {
    struct weft_op *ops[MOST_NOTES];
    struct note {
        struct notes *notes;
        int number;
    } note[MOST_NOTES];
    int order[MOST_NOTES];
    int count;
};

static inline int take_note(struct weft_call *call)
{
    struct note *note = call->user;
    note->notes->order[note->notes->count++] = note->number;
    return WEFT_OK;
}

/* A node that notes `number` when it starts. */
static inline weft_node_t noting(struct weft_schedule *s, struct notes *notes, int number)
{
    if (!notes->ops[number]) {
        struct weft_op_config config;
        weft_op_config_init(&config);
        notes->note[number].notes = notes;
        notes->note[number].number = number;
        config.name = "note";
        config.compute = take_note;
        config.user = &notes->note[number];
        OK(weft_op_create(&notes->ops[number], &config));
    }
    return add_compute(s, notes->ops[number], NULL, 0, 0, 0);
}

static inline void free_notes(struct notes *notes)
{
    for (int i = 0; i < MOST_NOTES; i++)
        weft_op_destroy(notes->ops[i]);
}

static inline int noted(const struct notes *notes, int number)
{
    int count = 0;
    for (int i = 0; i < notes->count; i++)
        count += notes->order[i] == number;
    return count;
}

static inline weft_node_t event(struct weft_schedule *s)
{
    return weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
}

static inline void choice(struct weft_schedule *s, weft_node_t a, weft_node_t b)
{
    const weft_node_t members[] = {a, b};
    OK(weft_schedule_add_choice(s, members, 2));
}

/* A context alone and its notes, for each test. */
static struct alone alone;
static struct notes notes;

static inline void setup(void)
{
    alone = alone_create(WEFT_PROGRESS_CALLER);
    memset(&notes, 0, sizeof notes);
}

static inline void teardown(void)
{
    alone_destroy(&alone);
    free_notes(&notes);
}

static inline struct weft_run *run_of(struct weft_schedule *s)
{
    return make_run(alone.context, commit(s), NULL);
}

#endif
