/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which calls are MPI's although weft could serve them: those that MPI does faster, by a table.
 *
 * A communicator has one of several tables, by where its ranks are; its rank 0 says which, when its
 * context is made. A table says for each call from how many bytes to how many it is MPI's: bytes of
 * a block or vector that all ranks know, or, of calls whose sizes ranks know only for themselves,
 * none, so the call is decided whatever its size.
 *
 * The tables that are built in come from tools/scripts/pmpi_table.py, on the machine of
 * docs/performance.md. WEFT_PMPI_TABLE names a file of that script, which takes their place.
 */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/pmpi/pmpi.h"

#define ANY SIZE_MAX

/* Of communicators of so many ranks a call of this kind and form is MPI's, of these sizes. */
struct rule {
    int ranks;
    enum pmpi_kind kind;
    enum pmpi_form form;
    struct pmpi_range range;
};

/* Where ranks are: one alone; two, or more, on a host that has a hardware thread for each rank
 * there; on one that has not; on several hosts. */
enum where { ALONE, PAIR, FEW, CROWD, APART };

/* clang-format off */
static const struct rule built_in[] = {
    {2, PMPI_ALLGATHER, PMPI_BLOCKING, {0, 4096}},
    {2, PMPI_ALLGATHERV, PMPI_BLOCKING, {512, 1024}},
    {2, PMPI_ALLTOALL, PMPI_BLOCKING, {16384, ANY}},
    {2, PMPI_BCAST, PMPI_BLOCKING, {0, ANY}},
    {2, PMPI_GATHER, PMPI_BLOCKING, {512, 1024}},
    {2, PMPI_GATHER, PMPI_BLOCKING, {4096, ANY}},
    {2, PMPI_GATHERV, PMPI_BLOCKING, {0, ANY}},
    {2, PMPI_REDUCE, PMPI_BLOCKING, {512, 1024}},
    {2, PMPI_SCATTER, PMPI_BLOCKING, {0, ANY}},
    {2, PMPI_SCATTERV, PMPI_BLOCKING, {0, ANY}},
    {2, PMPI_ALLGATHER, PMPI_NONBLOCKING, {0, 512}},
    {2, PMPI_ALLGATHERV, PMPI_NONBLOCKING, {0, 512}},
    {2, PMPI_ALLREDUCE, PMPI_NONBLOCKING, {256, 512}},
    {2, PMPI_ALLREDUCE, PMPI_NONBLOCKING, {16384, 32768}},
    {2, PMPI_ALLTOALL, PMPI_NONBLOCKING, {256, 512}},
    {2, PMPI_ALLTOALL, PMPI_NONBLOCKING, {32768, 131072}},
    {2, PMPI_BARRIER, PMPI_NONBLOCKING, {0, ANY}},
    {2, PMPI_BCAST, PMPI_NONBLOCKING, {0, ANY}},
    {2, PMPI_GATHER, PMPI_NONBLOCKING, {0, ANY}},
    {2, PMPI_GATHERV, PMPI_NONBLOCKING, {0, ANY}},
    {2, PMPI_SCATTER, PMPI_NONBLOCKING, {0, ANY}},
    {2, PMPI_SCATTERV, PMPI_NONBLOCKING, {0, ANY}},
};
/* clang-format on */

enum { SLOTS = PMPI_FORM_COUNT * PMPI_KIND_COUNT, BUILT_IN = sizeof built_in / sizeof *built_in };

static int always;
/* MPI does nothing; everything; what the rules above say. */
static struct pmpi_table nothing, everything, of_pair;

/* What a file says, on all ranks: rules, and tables of them, for numbers of ranks in rising order.
 * file_rule_count -1: there is none. */
static struct rule *file_rules;
static int file_rule_count;
static struct pmpi_range *file_ranges;
static struct pmpi_table *file_tables;
static int file_table_count;

/* ---- tables ---- */

/* Those of the rules that are for its number of ranks. @return behind the ranges that it takes. */
static struct pmpi_range *fill(struct pmpi_table *table, const struct rule *rules, int count,
                               struct pmpi_range *ranges)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        table->ranges[slot] = ranges;
        for (int i = 0; i < count; i++)
            if (rules[i].ranks == table->ranks &&
                pmpi_table_slot(rules[i].kind, rules[i].form) == slot)
                *ranges++ = rules[i].range;
    }
    table->ranges[SLOTS] = ranges;
    return ranges;
}

static void make_built_in(void)
{
    static struct pmpi_range pair[BUILT_IN], all[SLOTS];
    of_pair.ranks = 2;
    fill(&of_pair, built_in, BUILT_IN, pair);
    fill(&nothing, NULL, 0, pair);
    for (int slot = 0; slot < SLOTS; slot++) {
        all[slot] = (struct pmpi_range){0, ANY};
        everything.ranges[slot] = &all[slot];
    }
    everything.ranges[SLOTS] = &all[SLOTS];
}

/* A table for each number of ranks. */
static void make_tables(void)
{
    struct pmpi_range *ranges = file_ranges;
    for (int last = INT_MIN, next;; last = next) {
        next = INT_MAX;
        for (int i = 0; i < file_rule_count; i++)
            if (file_rules[i].ranks > last && file_rules[i].ranks < next)
                next = file_rules[i].ranks;
        if (next == INT_MAX)
            return;
        struct pmpi_table *table = &file_tables[file_table_count++];
        table->ranks = next;
        ranges = fill(table, file_rules, file_rule_count, ranges);
    }
}

/* That of the file for the largest number of ranks up to that of a communicator. */
static const struct pmpi_table *of_file(int size)
{
    const struct pmpi_table *nearest = &nothing;
    for (int i = 0; i < file_table_count && file_tables[i].ranks <= size; i++)
        nearest = &file_tables[i];
    return nearest;
}

/* ---- the file ---- */

static int find_name(const char *name, int count, const char *(*name_of)(int))
{
    for (int i = 0; name && i < count; i++)
        if (strcmp(name, name_of(i)) == 0)
            return i;
    return -1;
}

static const char *kind_at(int kind)
{
    return pmpi_kind_name((enum pmpi_kind)kind);
}

static const char *form_at(int form)
{
    return pmpi_form_name((enum pmpi_form)form);
}

static int read_rule(const json_t *line, struct rule *rule)
{
    const char *call = NULL, *form = NULL;
    json_int_t from = 0, below = 0;
    int ranks = 0;
    if (json_unpack((json_t *)(uintptr_t)line, "{s:s, s:s, s:i, s:I, s:I}", "call", &call, "form",
                    &form, "ranks", &ranks, "from", &from, "below", &below) != 0)
        return 0;
    int kind = find_name(call, PMPI_KIND_COUNT, kind_at);
    int shape = find_name(form, PMPI_FORM_COUNT, form_at);
    if (kind < 0 || shape < 0 || from < 0 || below < -1)
        return 0;
    *rule = (struct rule){ranks,
                          (enum pmpi_kind)kind,
                          (enum pmpi_form)shape,
                          {(size_t)from, below == -1 ? ANY : (size_t)below}};
    return 1;
}

/* The rules of a file; their number, or -1 with a line on standard error. */
static int read_file(const char *path, struct rule **rules)
{
    json_error_t error;
    json_t *file = json_load_file(path, 0, &error);
    const json_t *list = json_object_get(file, "mpi");
    size_t count = json_array_size(list);
    int bad = !file || !json_is_array(list);
    if (bad)
        fprintf(stderr, "weft: environment: WEFT_PMPI_TABLE: %s: %s; ignored\n", path,
                file ? "expected an object with a list `mpi`" : error.text);
    *rules = bad ? NULL : calloc(count + 1, sizeof **rules);
    for (size_t i = 0; i < count && *rules && !bad; i++)
        if (!read_rule(json_array_get(list, i), &(*rules)[i])) {
            fprintf(stderr,
                    "weft: environment: WEFT_PMPI_TABLE: %s: number %zu of `mpi` is no rule: "
                    "expected call, form, ranks, from and below; ignored\n",
                    path, i);
            bad = 1;
        }
    json_decref(file);
    return bad || !*rules ? -1 : (int)count;
}

/* Rank 0's file, on all ranks, or on none. */
static void share_file(int rank)
{
    const char *path = rank == 0 ? getenv("WEFT_PMPI_TABLE") : NULL;
    int count = path && path[0] != '\0' ? read_file(path, &file_rules) : -1;
    PMPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    file_rule_count = count;
    if (count < 0)
        return;
    if (rank != 0)
        file_rules = calloc((size_t)count + 1, sizeof *file_rules);
    file_ranges = calloc((size_t)count + 1, sizeof *file_ranges);
    file_tables = calloc((size_t)count + 1, sizeof *file_tables);
    int has = file_rules && file_ranges && file_tables, all = 0;
    PMPI_Allreduce(&has, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all) {
        file_rule_count = -1;
        return;
    }
    PMPI_Bcast(file_rules, count * (int)sizeof *file_rules, MPI_BYTE, 0, MPI_COMM_WORLD);
    make_tables();
}

/* ---- communicators ---- */

int pmpi_choice_world;

int pmpi_choice_place(const int *ranks, int count)
{
    int size = weft_context_size(pmpi_world), beside = 0, apart = 0;
    if (count == 1)
        return ALONE;
    int *hosts = weft_memory_alloc((size_t)size, sizeof *hosts);
    if (!hosts || weft_context_hosts(pmpi_world, hosts) != WEFT_OK) {
        weft_memory_free(hosts);
        return APART;
    }
    int first = hosts[ranks ? ranks[0] : 0];
    for (int r = 0; r < size; r++)
        beside += hosts[r] == first;
    for (int i = 1; i < count; i++)
        apart |= hosts[ranks ? ranks[i] : i] != first;
    weft_memory_free(hosts);
    if (apart)
        return APART;
    return beside > sysconf(_SC_NPROCESSORS_ONLN) ? CROWD : count == 2 ? PAIR : FEW;
}

const struct pmpi_table *pmpi_choice_table(int where, int size)
{
    if (always)
        return &nothing;
    if (where == ALONE) /* there is nobody to reach */
        return &everything;
    if (file_rule_count >= 0)
        return of_file(size);
    switch ((enum where)where) {
    case PAIR:
    case FEW: /* not measured; as two */
        return &of_pair;
    case CROWD: /* MPI's ranks poll without rest, for what takes turns of the scheduler */
        return &nothing;
    default: /* not measured: MPI's */
        return &everything;
    }
}

/* ---- from MPI_Init on ---- */

void pmpi_choice_open(int rank)
{
    const char *value = rank == 0 ? getenv("WEFT_PMPI") : NULL;
    always = value && strcmp(value, "always") == 0;
    PMPI_Bcast(&always, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0 && pmpi_world)
        pmpi_choice_world = pmpi_choice_place(NULL, weft_context_size(pmpi_world));
    PMPI_Bcast(&pmpi_choice_world, 1, MPI_INT, 0, MPI_COMM_WORLD);
    make_built_in();
    share_file(rank);
}

void pmpi_choice_close(void)
{
    free(file_rules);
    free(file_ranges);
    free(file_tables);
    file_rules = NULL;
    file_ranges = NULL;
    file_tables = NULL;
    file_table_count = 0;
}
