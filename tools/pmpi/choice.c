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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/pmpi/pmpi.h"

#define ANY SIZE_MAX

/* MPI's is a call of this kind and form, from so many bytes on and below so many. */
struct rule {
    enum pmpi_kind kind;
    enum pmpi_form form;
    size_t from, below;
};

/* Where ranks are: one alone; two, or more, on a host that has a hardware thread for each rank
 * there; on one that has not; on several hosts. */
enum where { ALONE, PAIR, FEW, CROWD, APART };

/* clang-format off */
static const struct rule of_pair[] = {
    {PMPI_ALLGATHER, PMPI_BLOCKING, 0, 4096},
    {PMPI_ALLGATHERV, PMPI_BLOCKING, 512, 1024},
    {PMPI_ALLTOALL, PMPI_BLOCKING, 16384, ANY},
    {PMPI_BCAST, PMPI_BLOCKING, 0, ANY},
    {PMPI_GATHER, PMPI_BLOCKING, 512, 1024},
    {PMPI_GATHER, PMPI_BLOCKING, 4096, ANY},
    {PMPI_GATHERV, PMPI_BLOCKING, 0, ANY},
    {PMPI_REDUCE, PMPI_BLOCKING, 512, 1024},
    {PMPI_SCATTER, PMPI_BLOCKING, 0, ANY},
    {PMPI_SCATTERV, PMPI_BLOCKING, 0, ANY},
    {PMPI_ALLGATHER, PMPI_NONBLOCKING, 0, 512},
    {PMPI_ALLGATHERV, PMPI_NONBLOCKING, 0, 512},
    {PMPI_ALLREDUCE, PMPI_NONBLOCKING, 256, 512},
    {PMPI_ALLREDUCE, PMPI_NONBLOCKING, 16384, 32768},
    {PMPI_ALLTOALL, PMPI_NONBLOCKING, 256, 512},
    {PMPI_ALLTOALL, PMPI_NONBLOCKING, 32768, 131072},
    {PMPI_BARRIER, PMPI_NONBLOCKING, 0, ANY},
    {PMPI_BCAST, PMPI_NONBLOCKING, 0, ANY},
    {PMPI_GATHER, PMPI_NONBLOCKING, 0, ANY},
    {PMPI_GATHERV, PMPI_NONBLOCKING, 0, ANY},
    {PMPI_SCATTER, PMPI_NONBLOCKING, 0, ANY},
    {PMPI_SCATTERV, PMPI_NONBLOCKING, 0, ANY},
};
/* clang-format on */

/* What a file says, on all ranks; rules for numbers of ranks. */
struct file_rule {
    int ranks;
    struct rule rule;
};

static int always;
static struct file_rule *file_rules;
static int file_rule_count;

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

static int read_rule(const json_t *line, struct file_rule *rule)
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
    *rule = (struct file_rule){.ranks = ranks,
                               .rule = {(enum pmpi_kind)kind, (enum pmpi_form)shape, (size_t)from,
                                        below == -1 ? ANY : (size_t)below}};
    return 1;
}

/* The rules of a file; their number, or -1 with a line on standard error. */
static int read_file(const char *path, struct file_rule **rules)
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

/* Rank 0's file, on all ranks. */
static void share_file(int rank)
{
    const char *path = rank == 0 ? getenv("WEFT_PMPI_TABLE") : NULL;
    int count = path && path[0] != '\0' ? read_file(path, &file_rules) : -1;
    PMPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    file_rule_count = count;
    if (count <= 0)
        return;
    if (rank != 0)
        file_rules = calloc((size_t)count, sizeof *file_rules);
    int has = file_rules != NULL, all = 0;
    PMPI_Allreduce(&has, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all)
        PMPI_Bcast(file_rules, count * (int)sizeof *file_rules, MPI_BYTE, 0, MPI_COMM_WORLD);
    else
        file_rule_count = -1;
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

/* ---- from MPI_Init on ---- */

void pmpi_choice_open(int rank)
{
    const char *value = rank == 0 ? getenv("WEFT_PMPI") : NULL;
    always = value && strcmp(value, "always") == 0;
    PMPI_Bcast(&always, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0 && pmpi_world)
        pmpi_choice_world = pmpi_choice_place(NULL, weft_context_size(pmpi_world));
    PMPI_Bcast(&pmpi_choice_world, 1, MPI_INT, 0, MPI_COMM_WORLD);
    share_file(rank);
}

void pmpi_choice_close(void)
{
    free(file_rules);
    file_rules = NULL;
}

/* ---- calls ---- */

static int says(const struct rule *rules, size_t count, const struct pmpi_call *call, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        if (rules[i].kind == call->kind && rules[i].form == call->form && rules[i].from <= bytes &&
            bytes < rules[i].below)
            return 1;
    return 0;
}

/* The rules of the file for the largest number of ranks up to that of the communicator. */
static int file_says(const struct pmpi_call *call, size_t bytes)
{
    int nearest = 0;
    for (int i = 0; i < file_rule_count; i++)
        if (file_rules[i].ranks <= call->state->size && file_rules[i].ranks > nearest)
            nearest = file_rules[i].ranks;
    for (int i = 0; i < file_rule_count; i++)
        if (file_rules[i].ranks == nearest && says(&file_rules[i].rule, 1, call, bytes))
            return 1;
    return 0;
}

int pmpi_choice_is_mpi(const struct pmpi_call *call, size_t bytes)
{
    if (always)
        return 0;
    if (call->state->where == ALONE) /* there is nobody to reach */
        return 1;
    if (file_rule_count >= 0)
        return file_says(call, bytes);
    switch ((enum where)call->state->where) {
    case PAIR:
    case FEW: /* not measured; as two */
        return says(of_pair, sizeof of_pair / sizeof *of_pair, call, bytes);
    case CROWD: /* MPI's ranks poll without rest, for what takes turns of the scheduler */
        return 0;
    default: /* not measured: MPI's */
        return 1;
    }
}
