/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/context/accord.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"

/* ---- long lines ---- */

/* Lists of all ranks on rank 0, and answers to all; elsewhere those of this rank. */
struct talk {
    struct weft__bytes *up, *down;
    uint64_t at; /* bytes that earlier calls have told */
    uint64_t longest;
    int status; /* rank 0: what its judging has failed with */
};

static size_t part_of(uint64_t at, uint64_t size)
{
    uint64_t left = at < size ? size - at : 0;

    return left < WEFT__LINE_DATA ? (size_t)left : WEFT__LINE_DATA;
}

/* Whatever has gone wrong here is told to all. */
static void tell_failure(struct weft__roll *roll, int status)
{
    for (int r = 0; r < roll->size && status < 0; r++)
        weft__line_fail(&roll->answers[r], status);
}

/* All have said how much they have to tell: room for it. */
static void judge_sizes(struct weft__roll *roll, void *user)
{
    struct talk *talk = user;

    weft__roll_judge(roll, NULL);
    if (roll->answers[0].status < 0)
        return;
    for (int r = 0; r < roll->size; r++) {
        talk->up[r].size = (size_t)roll->lines[r].bytes;
        if (r > 0)
            talk->up[r].data = weft__malloc(talk->up[r].size, 1);
        if (!talk->up[r].data)
            tell_failure(roll, weft__error_memory("the messages of all ranks"));
        if (roll->lines[r].bytes > talk->longest)
            talk->longest = roll->lines[r].bytes;
    }
    for (int r = 0; r < roll->size; r++)
        roll->answers[r].bytes = talk->longest;
}

static void judge_part(struct weft__roll *roll, void *user)
{
    struct talk *talk = user;

    weft__roll_judge(roll, NULL);
    for (int r = 1; r < roll->size && roll->answers[0].status == WEFT_OK; r++) {
        size_t bytes = part_of(talk->at, talk->up[r].size);

        if (bytes > 0)
            memcpy(talk->up[r].data + talk->at, roll->lines[r].data, bytes);
    }
}

/* All lists are here: the answers. */
static void judge_lists(struct weft__roll *roll, void *user)
{
    struct talk *talk = user;
    int status;

    weft__roll_judge(roll, NULL);
    if (roll->answers[0].status < 0)
        return;
    status = weft__accord_compute(talk->up, roll->size, talk->down);
    tell_failure(roll, status);
    for (int r = 0; r < roll->size && status == WEFT_OK; r++)
        if (talk->down[r].size > talk->longest)
            talk->longest = talk->down[r].size;
    for (int r = 0; r < roll->size && status == WEFT_OK; r++) {
        roll->answers[r].bytes = talk->down[r].size;
        memcpy(roll->answers[r].data, &talk->longest, sizeof talk->longest);
    }
}

static void judge_answers(struct weft__roll *roll, void *user)
{
    const struct talk *talk = user;

    weft__roll_judge(roll, NULL);
    for (int r = 0; r < roll->size && roll->answers[r].status == WEFT_OK; r++) {
        size_t bytes = part_of(talk->at, talk->down[r].size);

        if (bytes > 0)
            memcpy(roll->answers[r].data, talk->down[r].data + talk->at, bytes);
    }
}

/* What this rank tells goes to rank 0. */
static int send_up(struct weft__roll *roll, struct talk *talk)
{
    const struct weft__bytes *mine = &talk->up[0];
    int status;

    roll->mine->bytes = mine->size;
    status = weft__roll_call(roll, judge_sizes, talk);
    talk->longest = roll->answer->bytes;
    for (talk->at = 0; status == WEFT_OK && talk->at < talk->longest; talk->at += WEFT__LINE_DATA) {
        size_t bytes = part_of(talk->at, mine->size);

        if (bytes > 0)
            memcpy(roll->mine->data, mine->data + talk->at, bytes);
        status = weft__roll_call(roll, judge_part, talk);
    }
    return status;
}

static int send_down(struct weft__roll *roll, struct talk *talk)
{
    struct weft__bytes *mine = &talk->down[0];
    int status;

    talk->longest = 0;
    status = weft__roll_call(roll, judge_lists, talk);
    if (status < 0)
        return status;
    memcpy(&talk->longest, roll->answer->data, sizeof talk->longest);
    if (roll->rank != 0) {
        mine->size = (size_t)roll->answer->bytes;
        mine->data = weft__malloc(mine->size, 1);
        if (!mine->data)
            weft__line_fail(roll->mine, weft__error_memory("an order of messages"));
    }
    for (talk->at = 0; status == WEFT_OK && talk->at < talk->longest; talk->at += WEFT__LINE_DATA) {
        status = weft__roll_call(roll, judge_answers, talk);
        size_t bytes = part_of(talk->at, mine->size);
        if (status == WEFT_OK && roll->rank != 0 && bytes > 0)
            memcpy(mine->data + talk->at, roll->answer->data, bytes);
    }
    return status;
}

static void free_talk(const struct weft__roll *roll, struct talk *talk)
{
    int ranks = roll->rank == 0 ? roll->size : 1;

    for (int r = 0; r < ranks; r++) {
        if (talk->up)
            weft__free(talk->up[r].data);
        if (talk->down)
            weft__free(talk->down[r].data);
    }
    weft__free(talk->up);
    weft__free(talk->down);
}

/* *answer: what rank 0 has told this rank; the caller frees it. */
static int ask(struct weft__roll *roll, const struct weft__candidate *candidate, int failed,
               struct weft__bytes *answer)
{
    size_t ranks = roll->rank == 0 ? (size_t)roll->size : 1;
    struct talk talk = {.up = weft__calloc(ranks, sizeof *talk.up),
                        .down = weft__calloc(ranks, sizeof *talk.down)};
    int status = failed;

    if (status == WEFT_OK && (!talk.up || !talk.down))
        status = weft__error_memory("the messages of a run");
    if (status == WEFT_OK)
        status = weft__accord_write(candidate, &talk.up[0]);
    *roll->mine = (struct weft__line_of_roll){.status = WEFT_OK};
    if (status < 0) {
        weft__line_fail(roll->mine, status);
        weft__roll_call(roll, weft__roll_judge, NULL);
        weft__error(status, "%s", roll->mine->data);
    } else {
        status = send_up(roll, &talk);
        if (status == WEFT_OK)
            status = send_down(roll, &talk);
    }
    if (status == WEFT_OK) {
        *answer = talk.down[0];
        talk.down[0].data = NULL;
    }
    free_talk(roll, &talk);
    return status;
}

/* ---- the communicator ---- */

/* The root's. While driving. */
static int find_issuer(struct weft_context *context, struct weft__issuer **issuer)
{
    struct weft_context *root = context->root;
    struct weft__device *device;
    int status = weft__context_device(context, &device);

    if (status == WEFT_OK && !device->ops->comm_open)
        status =
            weft__error(WEFT_ERR_UNSUPPORTED, "%s: this build of weft has no NCCL", device->name);
    if (status == WEFT_OK && !root->issuer)
        status = weft__issuer_open(&root->issuer, device);
    *issuer = root->issuer;
    return status;
}

/* All are ready to join: what each circle is called, by its first rank. */
static void judge_ready(struct weft__roll *roll, void *user)
{
    const struct weft__team *team = *(struct weft__team *const *)user;
    int status = WEFT_OK;

    weft__roll_judge(roll, NULL);
    if (roll->answers[0].status < 0)
        return;
    for (int r = 0; r < roll->size && status == WEFT_OK; r++)
        if (roll->lines[r].bytes == (uint64_t)r + 1)
            status = team->issuer->device->ops->comm_id(team->issuer->device,
                                                        (unsigned char *)roll->answers[r].data);
    tell_failure(roll, status);
    for (int r = 0; r < roll->size && status == WEFT_OK; r++)
        if (roll->lines[r].bytes > 0 && roll->lines[r].bytes != (uint64_t)r + 1)
            memcpy(roll->answers[r].data, roll->answers[roll->lines[r].bytes - 1].data,
                   WEFT__COMM_ID_BYTES);
}

/* Joins a circle, with the others; as long as none of them fails. */
static int join(struct weft__roll *roll, struct weft__team *team, struct weft__circle *circle,
                const unsigned char *id)
{
    struct weft__device *device = team->issuer->device;
    int status, place = roll->rank;

    for (uint32_t i = 0; circle->ranks && i < circle->count; i++)
        if (circle->ranks[i] == roll->rank)
            place = (int)i;
    weft__drive_lock(roll->context);
    status = device->ops->comm_open(device, id, place, (int)circle->count, &circle->comm);
    weft__drive_unlock(roll->context);
    while (status == WEFT_IN_PROGRESS) {
        int failed = weft__roll_failed(roll);

        if (failed < 0)
            return failed;
        weft__drive_lock(roll->context);
        status = device->ops->comm_poll(circle->comm);
        weft__drive_unlock(roll->context);
        if (status == WEFT_IN_PROGRESS && weft__yield(roll->context) < 0)
            return WEFT_ERR_STATE;
    }
    return status;
}

/* ---- what becomes of the runs ---- */

/* The next part of an answer: `count` of so many bytes each, copied. */
static int take(const struct weft__bytes *answer, size_t *at, size_t count, size_t size, void **out)
{
    *out = NULL;
    if (count == 0)
        return WEFT_OK;
    *out = weft__malloc(count, size);
    if (!*out)
        return weft__error_memory("an order of messages");
    memcpy(*out, answer->data + *at, count * size);
    *at += count * size;
    return WEFT_OK;
}

static int open_runs(const struct weft__candidate *candidate, struct weft__team *team,
                     const struct weft__bytes *answer)
{
    struct weft__accord_answer head;
    size_t at = sizeof head, later;
    int status = WEFT_OK;

    memcpy(&head, answer->data, sizeof head);
    later = at + head.over;
    for (size_t p = 0; p < candidate->count && status == WEFT_OK; p++) {
        struct weft_run *run = candidate->runs[p];
        struct weft__order_known known = {.rounds = head.rounds};

        status = take(answer, &at, run->plan->node_count, 1, (void **)&known.over);
        if (status == WEFT_OK && head.known)
            status =
                take(answer, &later, head.sequence, sizeof(uint32_t), (void **)&known.sequence);
        if (status == WEFT_OK && head.known)
            status = take(answer, &later, head.rounds + (size_t)1, sizeof(uint32_t),
                          (void **)&known.first);
        if (status == WEFT_OK && !run->flights)
            status = weft__device_needed(run->context, run);
        if (status == WEFT_OK) {
            status = weft__ordered_open(run, team, &known);
        } else {
            weft__free(known.over);
            weft__free(known.sequence);
            weft__free(known.first);
        }
    }
    if (status == WEFT_OK && head.members > 0) {
        status = take(answer, &later, head.members, sizeof *team->members, (void **)&team->members);
        team->member_count = head.members;
    }
    return status;
}

/* The circles that this rank is in, from the end of an answer. */
static int make_circles(struct weft__team *team, uint32_t ranks, const struct weft__bytes *answer)
{
    struct weft__accord_answer head;
    size_t at;

    memcpy(&head, answer->data, sizeof head);
    at = sizeof head + head.over;
    if (head.known)
        at += ((size_t)head.sequence + head.rounds + 1 + head.members) * sizeof(uint32_t);
    team->circles = weft__calloc(head.layers + (size_t)1, sizeof *team->circles);
    if (!team->circles)
        return weft__error_memory("communicators");
    team->circle_count = 1;
    team->circles[0].count = ranks;
    for (uint32_t layer = 0; layer < head.layers; layer++) {
        struct weft__circle *circle = &team->circles[team->circle_count];
        int status;

        memcpy(&circle->count, answer->data + at, sizeof circle->count);
        at += sizeof circle->count;
        circle->layer = layer + 1;
        status = take(answer, &at, circle->count, sizeof *circle->ranks, (void **)&circle->ranks);
        if (status != WEFT_OK)
            return status;
        team->circle_count += circle->count > 0;
    }
    return WEFT_OK;
}

/* The team of a candidate; the runs have their parts. Driving. */
static int make_team(struct weft_context *context, const struct weft__candidate *candidate,
                     const struct weft__bytes *answer, struct weft__team **out)
{
    struct weft__team *team = weft__calloc(1, sizeof *team);
    int status;

    if (!team)
        return weft__error_memory("a communicator");
    team->references = 1;
    team->in_order = candidate->nccl == WEFT_NCCL_IN_ORDER;
    team->fixed = candidate->nccl != WEFT_NCCL_AGREED && !candidate->dynamic;
    *out = team;
    status = find_issuer(context, &team->issuer);
    if (status == WEFT_OK)
        status = make_circles(team, (uint32_t)context->engine.transport->size, answer);
    return status == WEFT_OK ? open_runs(candidate, team, answer) : status;
}

/* Gives up what has been made. Driving. */
static void undo(const struct weft__candidate *candidate, struct weft__team *team)
{
    for (size_t p = 0; p < candidate->count; p++)
        if (candidate->runs[p] && candidate->runs[p]->flights)
            weft__ordered_close(candidate->runs[p]);
    if (team && team->issuer)
        weft__team_abort(team);
    weft__team_release(team);
}

/* Everything of this rank's but the others. */
static int prepare(struct weft__roll *roll, const struct weft__candidate *candidate,
                   const struct weft__bytes *answer, struct weft__team **team)
{
    struct weft__accord_answer head;
    int status;

    memcpy(&head, answer->data, sizeof head);
    weft__drive_lock(roll->context);
    status = make_team(roll->context, candidate, answer, team);
    weft__drive_unlock(roll->context);
    return status;
}

/* This rank's circle of a layer, or NULL. */
static struct weft__circle *circle_of(const struct weft__team *team, uint32_t layer)
{
    for (uint32_t c = 0; team && c < team->circle_count; c++)
        if (team->circles[c].layer == layer)
            return &team->circles[c];
    return NULL;
}

/* All join the circles of a layer. status: what this rank has failed with before. */
static int meet(struct weft__roll *roll, struct weft__team *team, uint32_t layer, int status)
{
    struct weft__circle *circle = status == WEFT_OK ? circle_of(team, layer) : NULL;
    unsigned char id[WEFT__COMM_ID_BYTES];
    int heard;

    *roll->mine = (struct weft__line_of_roll){.status = WEFT_OK};
    if (status < 0)
        weft__line_fail(roll->mine, status);
    else if (circle)
        roll->mine->bytes = (circle->ranks ? (uint64_t)circle->ranks[0] : 0) + 1;
    heard = weft__roll_call(roll, judge_ready, &team);
    if (status == WEFT_OK)
        status = heard;
    if (status == WEFT_OK) {
        memcpy(id, roll->answer->data, sizeof id);
        status = weft__roll_begin(roll);
    }
    if (status != WEFT_OK)
        return status;
    if (circle)
        status = join(roll, team, circle, id);
    if (status == WEFT_OK)
        return weft__roll_end(roll, weft__roll_judge, NULL);
    weft__roll_fail(roll, status); /* the others hear why, and join no more */
    return status;
}

int weft__accord(struct weft__roll *roll, const struct weft__candidate *candidate, int failed)
{
    struct weft__bytes answer = {NULL, 0};
    struct weft__accord_answer head;
    struct weft__team *team = NULL;
    int status = ask(roll, candidate, failed, &answer);

    if (status < 0)
        return status;
    memcpy(&head, answer.data, sizeof head);
    if (!head.joins) {
        weft__free(answer.data);
        return WEFT_OK;
    }
    /* All are ready to join before one does. */
    status = prepare(roll, candidate, &answer, &team);
    weft__free(answer.data);
    status = meet(roll, team, 0, status);
    for (uint32_t layer = 1; layer <= head.layers && status == WEFT_OK; layer++)
        status = meet(roll, team, layer, status);
    weft__drive_lock(roll->context);
    if (status == WEFT_OK) {
        candidate->object->team = team;
        weft__team_release(team);
    } else {
        undo(candidate, team);
    }
    weft__drive_unlock(roll->context);
    return status;
}
