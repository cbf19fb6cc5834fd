/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults that have one cause as far as can be told, put together: those of one kind that name a
 * node of the same line of the text, or, where schedules were not read from a text, of the same
 * label or the same shape. A line that is wrong is wrong on every rank and in every round.
 */
#ifndef WEFT_TOOLS_COMMANDS_CHECK_LINES_H
#define WEFT_TOOLS_COMMANDS_CHECK_LINES_H

#include <weft/weft.h>

/** Faults of one kind and cause. */
struct check_group {
    weft_fault_kind_t kind;
    /** The first of them, by its number in the report, and how many there are. */
    size_t first;
    size_t count;
    /** 0: unknown. */
    size_t line;
    /** What it is of, as "send `out`"; empty if no node is named. */
    char what[96];
    /** Where the nodes of that line are; ascending, each once. */
    int *ranks;
    size_t rank_count;
};

/**
 * All faults that a report keeps, as groups in the order of their kinds and then of their first
 * faults. Free them with check_groups_free(). NULL without memory.
 */
struct check_group *check_groups(const struct weft_check_report *report,
                                 const struct weft_schedule *const *schedules,
                                 size_t schedule_count, size_t *count);
void check_groups_free(struct check_group *groups, size_t count);

/** "0-7, 9"; cut with "..." if it does not fit. */
void check_rank_text(const int *ranks, size_t count, char *text, size_t size);

#endif
