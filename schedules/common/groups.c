/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dynamic grouping by a perfect shuffle (weft/groups.h says what it is).
 *
 * A position i of the next order takes what is at position shuffle(i) of this one; the order of
 * version 0 is 0 .. P-1. So position i of version t holds rank shuffle^t(i), and rank r is at
 * position shuffle^-t(r).
 *
 * Where all rows have the same length L, P = G L, position i = q G + m moves to m L + q, which is
 * i L modulo P - 1 (the last position stays), and G undoes L. So t steps are one multiplication by
 * a power.
 *
 * Elsewhere there is no such formula, and a table of all positions would be what a rank of many
 * cannot keep. Both are t steps along the cycle of the permutation on which i or r lies, and every
 * `spacing` steps of a cycle one position is a mark, of which it is known where in the cycle it is:
 *
 *     first mark   mark        mark        mark          first mark
 *     |            |           |           |             |
 *     o . . . . . .o. . i . . .o. . . . . .o. . . . . . .o         length of the cycle: 28
 *     0            7       11  14          21                      i: 3 steps before 14, so 11
 *
 * From i one walks to the next mark, from there t is added modulo the length, and from the mark at
 * or before that one walks again: fewer than 4 spacing steps. A cycle shorter than the spacing has
 * no marks and is walked whole.
 */
#include <string.h>

#include <weft/groups.h>
#include <weft/memory.h>
#include <weft/schedule.h>

enum { LEAST_SPACING = 16 };

struct cycle {
    int first; /* mark */
    int marks;
    int length;
};

/* Steps along the shuffle: what its power is to the positions of a query. */
struct power {
    uint64_t version;
    int back;
    uint64_t factor; /* where all rows are alike */
};

struct weft_groups {
    int ranks;
    int count;
    /* Members of a short group; the first `longer` groups have one more. */
    int base;
    int longer;
    /* Where longer > 0; owned, one block. */
    int spacing;
    int mark_count;
    struct cycle *cycles;
    int *position; /* of each mark, cycle by cycle, in the order of the shuffle */
    int *cycle;    /* of each mark */
    int *table;    /* marks by the hash of their positions; -1: none */
    unsigned table_mask;
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

/* ---- marks ---- */

static unsigned hash(const struct weft_groups *groups, int position)
{
    return (unsigned)(((uint64_t)position * UINT64_C(0x9e3779b97f4a7c15)) >> 32) &
           groups->table_mask;
}

/* The mark at a position; -1: none. */
static int mark_at(const struct weft_groups *groups, int position)
{
    unsigned at = hash(groups, position);
    while (groups->table[at] >= 0 && groups->position[groups->table[at]] != position)
        at = (at + 1) & groups->table_mask;
    return groups->table[at];
}

static int isqrt(int number)
{
    int root = 0;
    while ((int64_t)(root + 1) * (root + 1) <= number)
        root++;
    return root;
}

/* Marks a cycle and says that its positions have been seen. The last gap is the one that is longer,
 * so there are no more marks than positions / spacing. */
static void mark_cycle(struct weft_groups *groups, int start, unsigned char *seen, int number)
{
    struct cycle *cycle = &groups->cycles[number];
    int length = 0, at = start;
    cycle->first = groups->mark_count;
    do {
        seen[at / 8] |= (unsigned char)(1 << at % 8);
        if (length % groups->spacing == 0)
            groups->position[groups->mark_count++] = at;
        at = shuffle(groups, at);
        length++;
    } while (at != start);
    groups->mark_count = cycle->first + length / groups->spacing;
    cycle->marks = length / groups->spacing;
    cycle->length = length;
    for (int m = cycle->first; m < groups->mark_count; m++)
        groups->cycle[m] = number;
}

static int mark_cycles(struct weft_groups *groups)
{
    int most, entries = 2, cycles = 0;
    groups->spacing = isqrt(groups->ranks) / 4;
    if (groups->spacing < LEAST_SPACING)
        groups->spacing = LEAST_SPACING;
    most = groups->ranks / groups->spacing + 1;
    while (entries < 2 * most)
        entries *= 2;
    unsigned char *seen = weft_memory_alloc((size_t)groups->ranks / 8 + 1, 1);
    groups->cycles = weft_memory_alloc((size_t)most * (sizeof *groups->cycles + 2 * sizeof(int)) +
                                           (size_t)entries * sizeof(int),
                                       1);
    if (!seen || !groups->cycles) {
        weft_memory_free(seen);
        return -1;
    }
    groups->position = (int *)(groups->cycles + most);
    groups->cycle = groups->position + most;
    groups->table = groups->cycle + most;
    groups->table_mask = (unsigned)entries - 1;
    for (int start = 0; start < groups->ranks; start++) {
        if (seen[start / 8] >> start % 8 & 1)
            continue;
        mark_cycle(groups, start, seen, cycles);
        cycles += groups->cycles[cycles].marks > 0;
    }
    weft_memory_free(seen);
    for (int i = 0; i < entries; i++)
        groups->table[i] = -1;
    for (int m = 0; m < groups->mark_count; m++) {
        unsigned at = hash(groups, groups->position[m]);
        while (groups->table[at] >= 0)
            at = (at + 1) & groups->table_mask;
        groups->table[at] = m;
    }
    return 0;
}

/* ---- powers ---- */

static int walk(const struct weft_groups *groups, int position, int steps)
{
    while (steps-- > 0)
        position = shuffle(groups, position);
    return position;
}

static int steps_of(const struct power *power, int length)
{
    int steps = (int)(power->version % (uint64_t)length);
    return power->back && steps ? length - steps : steps;
}

/* By the marks. */
static int move_along(const struct weft_groups *groups, const struct power *power, int position)
{
    int at = position, walked = 0, mark = mark_at(groups, at);
    while (mark < 0) {
        at = shuffle(groups, at);
        walked++;
        if (at == position)
            return walk(groups, position, steps_of(power, walked));
        mark = mark_at(groups, at);
    }
    const struct cycle *cycle = &groups->cycles[groups->cycle[mark]];
    int64_t to = (int64_t)(mark - cycle->first) * groups->spacing - walked;
    to = (to + cycle->length + steps_of(power, cycle->length)) % cycle->length;
    int before = (int)(to / groups->spacing);
    if (before >= cycle->marks)
        before = cycle->marks - 1;
    return walk(groups, groups->position[cycle->first + before],
                (int)(to - (int64_t)before * groups->spacing));
}

/* shuffle^version; @back: shuffle^-version. */
static struct power power_of(const struct weft_groups *groups, uint64_t version, int back)
{
    struct power power = {.version = version, .back = back, .factor = 1};
    uint64_t modulus = (uint64_t)groups->ranks - 1;
    if (groups->longer || groups->ranks < 3)
        return power;
    uint64_t factor = (uint64_t)(back ? groups->count : groups->base) % modulus;
    for (; version; version >>= 1, factor = factor * factor % modulus)
        if (version & 1)
            power.factor = power.factor * factor % modulus;
    return power;
}

static int move(const struct weft_groups *groups, const struct power *power, int position)
{
    if (groups->longer)
        return move_along(groups, power, position);
    if (position == groups->ranks - 1)
        return position;
    return (int)((uint64_t)position * power->factor % ((uint64_t)groups->ranks - 1));
}

/* ---- the object ---- */

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
    int size = group_size ? group_size : weft_groups_default_size(ranks);
    made->ranks = ranks;
    made->count = ranks / size + (ranks % size != 0);
    made->base = ranks / made->count;
    made->longer = ranks % made->count;
    if (made->longer && mark_cycles(made))
        goto no_memory;
    *groups = made;
    return WEFT_OK;

no_memory:
    weft_groups_destroy(made);
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

static int wrong_rank(const struct weft_groups *groups, const char *who, int rank)
{
    return weft_error_set(WEFT_ERR_INVALID, "%s: `rank` is %d, expected 0 .. %d", who, rank,
                          groups->ranks - 1);
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
        return wrong_rank(groups, who, rank);
    struct power power = power_of(groups, version, 1);
    row_of(groups, move(groups, &power, rank), group, place);
    return WEFT_OK;
}

static void fill(const struct weft_groups *groups, uint64_t version, int group, int *members,
                 int *count)
{
    int start = row_start(groups, group), size = groups->base + (group < groups->longer);
    struct power power = power_of(groups, version, 0);
    for (int i = 0; i < size; i++)
        members[i] = move(groups, &power, start + i);
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

int weft_groups_places(const struct weft_groups *groups, int rank, unsigned char *places)
{
    if (!groups)
        return no_groups(__func__);
    if (rank < 0 || rank >= groups->ranks)
        return wrong_rank(groups, __func__, rank);
    if (!places)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: `places` is NULL, expected room for 2 weft_groups_largest()",
                              __func__);
    int largest = groups->base + (groups->longer > 0), found = 0, position = rank;
    int most = largest + (groups->longer ? groups->base : 0);
    memset(places, 0, 2 * (size_t)largest);
    do {
        int row = 0, column = 0;
        row_of(groups, position, &row, &column);
        unsigned char *place =
            &places[column + (row < groups->longer || !groups->longer ? 0 : largest)];
        found += !*place;
        *place = 1;
        position = shuffle(groups, position);
    } while (position != rank && found < most);
    return found;
}

void weft_groups_destroy(struct weft_groups *groups)
{
    if (!groups)
        return;
    weft_memory_free(groups->cycles);
    weft_memory_free(groups);
}
