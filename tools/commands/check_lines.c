/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fault names several nodes, and any of them may be the one that is wrong. So of all causes that
 * faults of a kind could have, the one that most of them share is taken, then the one that most of
 * the rest share, until none are left.
 */
#include "tools/commands/check_lines.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nodes of a fault that are looked at: cycles have many. */
enum { MOST_CAUSES = 8 };

/* What faults may have in common. */
struct cause {
    weft_fault_kind_t kind;
    size_t line;
    char what[96];
    size_t faults; /* that are in no group yet and could have it */
};

/* A fault, and its causes by number. */
struct entry {
    struct weft_fault fault;
    size_t causes[MOST_CAUSES];
    size_t cause_count;
    int grouped;
};

struct fold {
    const struct weft_schedule *const *schedules;
    size_t schedule_count;
    struct cause *causes;
    size_t cause_count;
    struct entry *entries;
    size_t entry_count;
};

static const struct weft_schedule *schedule_of(const struct fold *fold, int rank)
{
    size_t at = (size_t)rank;

    if (at < fold->schedule_count && weft_schedule_rank(fold->schedules[at]) == rank)
        return fold->schedules[at];
    for (size_t i = 0; i < fold->schedule_count; i++)
        if (weft_schedule_rank(fold->schedules[i]) == rank)
            return fold->schedules[i];
    return NULL;
}

/* "send `out`" of label out[3], or "send of slot x". */
static void describe_node(const struct fold *fold, const struct weft_check_node *node,
                          struct cause *cause)
{
    const struct weft_schedule *schedule = schedule_of(fold, node->rank);
    struct weft_node_info info = {.struct_size = sizeof info};
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    const char *kind;

    cause->line = node->line;
    if (!schedule || weft_schedule_get_node(schedule, node->node, &info) != WEFT_OK)
        return;
    kind = weft_node_kind_name(info.kind);
    if (info.label)
        snprintf(cause->what, sizeof cause->what, "%s `%.*s`", kind,
                 (int)(strcspn(info.label, "[") < 64 ? strcspn(info.label, "[") : 64), info.label);
    else if (info.region_count &&
             weft_schedule_get_slot(schedule, info.regions[0].slot, &slot) == WEFT_OK)
        snprintf(cause->what, sizeof cause->what, "%s of slot %.60s", kind, slot.name);
    else
        snprintf(cause->what, sizeof cause->what, "%s", kind);
}

/* Of a fault without nodes: its text without numbers. */
static void describe_text(const struct weft_fault *fault, struct cause *cause)
{
    size_t used = 0;

    for (const char *at = fault->text; *at && used + 1 < sizeof cause->what; at++)
        if (*at < '0' || *at > '9')
            cause->what[used++] = *at;
}

static void add_cause(struct fold *fold, struct entry *entry, const struct cause *cause)
{
    size_t number = 0;

    while (number < fold->cause_count &&
           (fold->causes[number].kind != cause->kind || fold->causes[number].line != cause->line ||
            (!cause->line && strcmp(fold->causes[number].what, cause->what) != 0)))
        number++;
    if (number == fold->cause_count)
        fold->causes[fold->cause_count++] = *cause;
    for (size_t i = 0; i < entry->cause_count; i++)
        if (entry->causes[i] == number)
            return;
    entry->causes[entry->cause_count++] = number;
    fold->causes[number].faults++;
}

static void find_causes(struct fold *fold, struct entry *entry)
{
    const struct weft_fault *fault = &entry->fault;
    struct cause cause = {.kind = fault->kind};

    if (!fault->node_count) {
        describe_text(fault, &cause);
        add_cause(fold, entry, &cause);
    }
    for (size_t i = 0; i < fault->node_count && i < MOST_CAUSES; i++) {
        cause = (struct cause){.kind = fault->kind};
        describe_node(fold, &fault->nodes[i], &cause);
        add_cause(fold, entry, &cause);
    }
}

static int has_cause(const struct entry *entry, size_t cause)
{
    for (size_t i = 0; i < entry->cause_count; i++)
        if (entry->causes[i] == cause)
            return 1;
    return 0;
}

static int compare_ranks(const void *left, const void *right)
{
    int a = *(const int *)left, b = *(const int *)right;

    return (a > b) - (a < b);
}

/* The ranks of a fault's nodes that are of the cause, behind those that the group has. */
static int add_ranks(struct fold *fold, struct check_group *group, const struct weft_fault *fault)
{
    size_t most = fault->node_count ? fault->node_count : fault->rank_count;
    int *ranks = realloc(group->ranks, (group->rank_count + most) * sizeof *ranks);

    if (!ranks)
        return -1;
    group->ranks = ranks;
    for (size_t i = 0; !fault->node_count && i < fault->rank_count; i++)
        ranks[group->rank_count++] = fault->ranks[i];
    for (size_t i = 0; i < fault->node_count; i++) {
        struct cause cause = {.kind = fault->kind};

        describe_node(fold, &fault->nodes[i], &cause);
        if (cause.line == group->line && (cause.line || !strcmp(cause.what, group->what)))
            ranks[group->rank_count++] = fault->nodes[i].rank;
    }
    return 0;
}

static void sort_ranks(struct check_group *group)
{
    size_t kept = 0;

    qsort(group->ranks, group->rank_count, sizeof *group->ranks, compare_ranks);
    for (size_t i = 0; i < group->rank_count; i++)
        if (!kept || group->ranks[kept - 1] != group->ranks[i])
            group->ranks[kept++] = group->ranks[i];
    group->rank_count = kept;
}

/* All faults that could have a cause and are in no group yet. */
static int make_group(struct fold *fold, size_t cause, struct check_group *group)
{
    const struct cause *common = &fold->causes[cause];
    int named = 0;

    *group = (struct check_group){.kind = common->kind, .line = common->line};
    snprintf(group->what, sizeof group->what, "%s", common->what);
    for (size_t i = 0; i < fold->entry_count; i++) {
        struct entry *entry = &fold->entries[i];

        if (entry->grouped || !has_cause(entry, cause))
            continue;
        if (!group->count++)
            group->first = i;
        entry->grouped = 1;
        named = entry->fault.node_count > 0;
        for (size_t c = 0; c < entry->cause_count; c++)
            fold->causes[entry->causes[c]].faults--;
        if (add_ranks(fold, group, &entry->fault))
            return -1;
    }
    if (!named)
        group->what[0] = '\0';
    sort_ranks(group);
    return 0;
}

static int compare_groups(const void *left, const void *right)
{
    const struct check_group *a = left, *b = right;

    return (a->first > b->first) - (a->first < b->first); /* faults are in the order of kinds */
}

/* All groups: their number, or -1 without memory; what has been made then counts in *made. */
static int make_groups(struct fold *fold, struct check_group *groups, size_t *made)
{
    for (;;) {
        size_t best = fold->cause_count;

        for (size_t c = 0; c < fold->cause_count; c++)
            if (fold->causes[c].faults &&
                (best == fold->cause_count || fold->causes[c].faults > fold->causes[best].faults))
                best = c;
        if (best == fold->cause_count)
            return 0;
        if (make_group(fold, best, &groups[(*made)++]))
            return -1;
    }
}

struct check_group *check_groups(const struct weft_check_report *report,
                                 const struct weft_schedule *const *schedules,
                                 size_t schedule_count, size_t *count)
{
    size_t faults = weft_check_report_fault_count(report);
    struct fold fold = {.schedules = schedules, .schedule_count = schedule_count};
    struct check_group *groups = calloc(faults + 1, sizeof *groups);
    int status = -1;

    *count = 0;
    fold.causes = calloc(faults * MOST_CAUSES + 1, sizeof *fold.causes);
    fold.entries = calloc(faults + 1, sizeof *fold.entries);
    if (groups && fold.causes && fold.entries) {
        for (; fold.entry_count < faults; fold.entry_count++) {
            struct entry *entry = &fold.entries[fold.entry_count];

            entry->fault.struct_size = sizeof entry->fault;
            weft_check_report_get_fault(report, fold.entry_count, &entry->fault);
            find_causes(&fold, entry);
        }
        status = make_groups(&fold, groups, count);
        qsort(groups, *count, sizeof *groups, compare_groups);
    }
    free(fold.entries);
    free(fold.causes);
    if (!status)
        return groups;
    check_groups_free(groups, *count);
    return NULL;
}

void check_groups_free(struct check_group *groups, size_t count)
{
    for (size_t i = 0; groups && i < count; i++)
        free(groups[i].ranks);
    free(groups);
}

void check_rank_text(const int *ranks, size_t count, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0, last; i < count; i = last + 1) {
        for (last = i; last + 1 < count && ranks[last + 1] == ranks[last] + 1;)
            last++;
        if (used + 32 > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, last > i ? "%s%d-%d" : "%s%d",
                                 used ? ", " : "", ranks[i], ranks[last]);
    }
}
