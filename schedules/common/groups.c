/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic grouping by a perfect shuffle (weft/groups.h says what it is).
 *
 * A position i of the next order takes what is at position shuffle(i) of this one; the order of
 * version 0 is 0 .. P-1. So position i of version t holds rank shuffle^t(i), and rank r is at
 * position shuffle^-t(r). Both are t steps along the cycle of the permutation on which i or r lies:
 *
 *     walk    the positions, one cycle after the other, each in the order of the shuffle
 *     index   index[i]: where position i is in walk
 *     start   start[i]: where the cycle of position i begins in walk
 *     length  length[i]: of the cycle that begins at walk[i]; defined for such i only
 */
#include <weft/groups.h>
#include <weft/memory.h>
#include <weft/schedule.h>

struct weft_groups {
    int ranks;
    int count;
    /* Members of a short group; the first `longer` groups have one more. */
    int base;
    int longer;
    /* Owned, one block; see above. */
    int *walk;
    int *index;
    int *start;
    int *length;
};

static int row_start(const struct weft_groups *groups, int row)
{
    return row * groups->base + (row < groups->longer ? row : groups->longer);
}

/* The row and the column of a position. */
static void row_of(const struct weft_groups *groups, int position, int *row, int *column)
{
    int head = groups->longer * (groups->base + 1);
    int length = groups->base + (position < head);
    int from = position < head ? 0 : head;
    *row = (position - from) / length + (position < head ? 0 : groups->longer);
    *column = (position - from) % length;
}

/* The longer rows come first, so every column is read from row 0 on without a gap. */
static int shuffle(const struct weft_groups *groups, int position)
{
    return row_start(groups, position % groups->count) + position / groups->count;
}

static void find_cycles(struct weft_groups *groups)
{
    int walked = 0;
    for (int i = 0; i < groups->ranks; i++)
        groups->start[i] = -1;
    for (int first = 0; first < groups->ranks; first++) {
        if (groups->start[first] >= 0)
            continue;
        int start = walked;
        for (int i = first; groups->start[i] < 0; i = shuffle(groups, i)) {
            groups->start[i] = start;
            groups->index[i] = walked;
            groups->walk[walked++] = i;
        }
        groups->length[start] = walked - start;
    }
}

/* shuffle^version(position); @back: shuffle^-version(position). */
static int power(const struct weft_groups *groups, uint64_t version, int position, int back)
{
    int start = groups->start[position];
    uint32_t length = (uint32_t)groups->length[start];
    uint32_t steps = (uint32_t)(version % length);
    uint32_t at = (uint32_t)(groups->index[position] - start);
    uint32_t to = at + (back ? length - steps : steps);
    return groups->walk[start + (int)(to >= length ? to - length : to)];
}

int weft_groups_default_size(int ranks)
{
    if (ranks < 1)
        return 0;
    /* size and 2 size are equally near to the root where 3 size = 2 root. */
    uint64_t size = 1;
    while (9 * size * size <= 4 * (uint64_t)ranks)
        size *= 2;
    return ranks == 2 ? 2 : (int)size;
}

int weft_groups_create(struct weft_groups **groups, int ranks, int group_size)
{
    if (!groups)
        return weft_error_set(WEFT_ERR_INVALID, "%s: `groups` is NULL, expected where to put them",
                              __func__);
    if (ranks < 1)
        return weft_error_set(WEFT_ERR_INVALID, "%s: `ranks` is %d, expected at least 1", __func__,
                              ranks);
    if (group_size < 0 || group_size > ranks)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: `group_size` is %d, expected 1 .. %d, or 0 for "
                              "the default",
                              __func__, group_size, ranks);
    struct weft_groups *made = weft_memory_alloc(1, sizeof *made);
    if (!made)
        goto no_memory;
    int *block = weft_memory_alloc((size_t)ranks, 4 * sizeof *block);
    if (!block)
        goto free_made;
    int size = group_size ? group_size : weft_groups_default_size(ranks);
    made->ranks = ranks;
    made->count = ranks / size + (ranks % size != 0);
    made->base = ranks / made->count;
    made->longer = ranks % made->count;
    made->walk = block;
    made->index = block + ranks;
    made->start = made->index + ranks;
    made->length = made->start + ranks;
    find_cycles(made);
    *groups = made;
    return WEFT_OK;

free_made:
    weft_memory_free(made);
no_memory:
    return weft_error_set(WEFT_ERR_MEMORY, "%s: no memory for %d ranks", __func__, ranks);
}

static int no_groups(const char *who)
{
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: `groups` is NULL, expected what weft_groups_create() made", who);
}

static int wrong_group(const struct weft_groups *groups, const char *who, int group)
{
    return weft_error_set(WEFT_ERR_INVALID, "%s: `group` is %d, expected 0 .. %d", who, group,
                          groups->count - 1);
}

int weft_groups_count(const struct weft_groups *groups)
{
    return groups ? groups->count : no_groups(__func__);
}

int weft_groups_largest(const struct weft_groups *groups)
{
    return groups ? groups->base + (groups->longer > 0) : no_groups(__func__);
}

int weft_groups_size(const struct weft_groups *groups, int group)
{
    if (!groups)
        return no_groups(__func__);
    if (group < 0 || group >= groups->count)
        return wrong_group(groups, __func__, group);
    return groups->base + (group < groups->longer);
}

static int find(const struct weft_groups *groups, const char *who, uint64_t version, int rank,
                int *group, int *place)
{
    if (!groups)
        return no_groups(who);
    if (rank < 0 || rank >= groups->ranks)
        return weft_error_set(WEFT_ERR_INVALID, "%s: `rank` is %d, expected 0 .. %d", who, rank,
                              groups->ranks - 1);
    row_of(groups, power(groups, version, rank, 1), group, place);
    return WEFT_OK;
}

static void fill(const struct weft_groups *groups, uint64_t version, int group, int *members,
                 int *count)
{
    int start = row_start(groups, group), size = groups->base + (group < groups->longer);
    for (int i = 0; i < size; i++)
        members[i] = power(groups, version, start + i, 0);
    if (count)
        *count = size;
}

int weft_groups_find(const struct weft_groups *groups, uint64_t version, int rank, int *group,
                     int *place)
{
    int row = 0, column = 0;
    int status = find(groups, __func__, version, rank, &row, &column);
    if (status)
        return status;
    if (group)
        *group = row;
    if (place)
        *place = column;
    return WEFT_OK;
}

static int no_members(const char *who)
{
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: `members` is NULL, expected room for weft_groups_largest() ranks",
                          who);
}

int weft_groups_members(const struct weft_groups *groups, uint64_t version, int group, int *members,
                        int *count)
{
    if (!groups)
        return no_groups(__func__);
    if (group < 0 || group >= groups->count)
        return wrong_group(groups, __func__, group);
    if (!members)
        return no_members(__func__);
    fill(groups, version, group, members, count);
    return WEFT_OK;
}

int weft_groups_at(const struct weft_groups *groups, uint64_t version, int rank, int *members,
                   int *count, int *place)
{
    int row = 0, column = 0;
    int status = find(groups, __func__, version, rank, &row, &column);
    if (status)
        return status;
    if (!members)
        return no_members(__func__);
    fill(groups, version, row, members, count);
    if (place)
        *place = column;
    return WEFT_OK;
}

void weft_groups_destroy(struct weft_groups *groups)
{
    if (!groups)
        return;
    weft_memory_free(groups->walk);
    weft_memory_free(groups);
}
