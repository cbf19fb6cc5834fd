/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Group averaging that goes on from an object that has failed, perhaps with fewer ranks.
 *
 * The version with which it failed may have ended on some ranks and not on others. All that its
 * group had published is then in a sum that one of them has, and counts; where no rank has it that
 * goes on, nothing of it counts, and each has to give its own again:
 *
 *     version 7, ranks 0 1 2     rank 0   ended: the sum is there
 *                                rank 1   failed: its gradient is in that sum, and gone here
 *                                rank 2   dead
 *
 * Ranks tell what they know of the latest two objects they were in, so none may go on, and forget,
 * before all have heard and decided; and who has decided has its object, even if that has failed
 * meanwhile. A rank that was cut off here goes on from its old state, and decides in the next
 * object, for which nobody has begun a version in this one.
 *
 *     rank 0   tell - decide - barrier ...... created, it has failed
 *     rank 1   tell - decide - barrier - created - version 8 begins
 */
#include "schedules/objects/agreement.h"
#include "schedules/objects/group_average/group_average.h"

/* What ranks tell each other of where they were: twice. */
enum { RANK, RANKS, GROUP_SIZE, ENDED, PAST, WORDS = 2 * PAST };

/* Whether two ranks, of so many then, were in one group. */
static int were_together(const struct weft_group_average *average, uint64_t version,
                         const int *members, int count, uint64_t rank)
{
    if (weft__average_syncs(average, version))
        return 1;
    for (int i = 0; i < count; i++)
        if ((uint64_t)members[i] == rank)
            return 1;
    return 0;
}

/* Whether the version that failed here has ended on one of the ranks that told. Objects are known
 * apart by their ranks, which become fewer. */
static int has_ended(const struct weft_group_average *average,
                     const struct weft_group_average_state *state, const int *members, int count,
                     const uint64_t *told)
{
    const struct weft_group_average_past *past = &state->past[0];
    for (int i = 0; i < 2 * average->ranks; i++, told += PAST)
        if (told[ENDED] > state->failed_version && told[RANKS] == (uint64_t)past->ranks &&
            told[GROUP_SIZE] == (uint64_t)past->group_size &&
            were_together(average, state->failed_version, members, count, told[RANK]))
            return 1;
    return 0;
}

static int decide(struct weft_group_average *average, const struct weft_group_average_state *state,
                  const uint64_t *told)
{
    const struct weft_group_average_past *past = &state->past[0];
    struct weft_groups *groups;
    int count = 0, place, status = weft_groups_create(&groups, past->ranks, past->group_size);
    if (status)
        return status;
    int *members = weft_memory_alloc((size_t)weft_groups_largest(groups), sizeof *members);
    if (!members)
        status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for a group of %d ranks",
                                weft_groups_largest(groups));
    else
        weft_groups_at(groups, state->failed_version, past->rank, members, &count, &place);
    if (!status && !has_ended(average, state, members, count, told))
        status = weft__average_add_failed(average, state->failed);
    weft_memory_free(members);
    weft_groups_destroy(groups);
    return status;
}

/* Executes a run of the object in which all ranks take part, with words of each for all, or none.
 */
static int execute(struct weft_group_average *average, const char *template, uint64_t *mine,
                   uint64_t *told)
{
    struct weft_template_params params;
    struct weft_run *run;
    weft_template_params_init(&params);
    params.count = WORDS;
    params.dtype = WEFT_U64;
    int status =
        weft__object_run(&run, average->context, average->object, template, mine ? &params : NULL);
    if (status)
        return status;
    if (mine)
        status = weft_run_bind_input_name(run, "send", mine, WORDS, WEFT_U64);
    if (!status && mine)
        status = weft_run_bind_name(run, "recv", told, WORDS * (size_t)average->ranks, WEFT_U64);
    if (!status)
        status = weft_run_set_deadline(run, average->config.meet_ns);
    if (!status)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    return status;
}

static int tell(struct weft_group_average *average, const struct weft_group_average_state *state,
                uint64_t *told)
{
    uint64_t mine[WORDS];
    for (int i = 0; i < 2; i++) {
        mine[i * PAST + RANK] = (uint64_t)state->past[i].rank;
        mine[i * PAST + RANKS] = (uint64_t)state->past[i].ranks;
        mine[i * PAST + GROUP_SIZE] = (uint64_t)state->past[i].group_size;
        mine[i * PAST + ENDED] = state->past[i].ended;
    }
    return execute(average, "allgather", mine, told);
}

int weft__average_count_failed(struct weft_group_average *average, const char *who,
                               const struct weft_group_average_state *state)
{
    size_t words = WORDS * (size_t)average->ranks;
    uint64_t *told = weft_memory_alloc(words, sizeof *told);
    int status =
        told ? tell(average, state, told)
             : weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu words", who, words);
    if (!status && state->failed)
        status = decide(average, state, told);
    weft_memory_free(told);
    average->decided = !status;
    if (!status)
        status = execute(average, "barrier", NULL, NULL);
    if (status)
        weft_object_fail(average->object, status, weft_error_text());
    int failed = status ? weft_object_check(average->object, who) : WEFT_OK;
    return average->decided ? WEFT_OK : failed ? failed : status;
}
