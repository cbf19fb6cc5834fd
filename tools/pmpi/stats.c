/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What was done: WEFT_PMPI_STATS=FILE has a file for each rank, FILE.RANK, written by MPI_Finalize
 * and, as it is then, whenever SIGUSR2 has come and the rank next calls a collective.
 *
 * A line of JSON for each communicator, call, form and size: calls that weft has served and those
 * that were MPI's, by reason, with the seconds spent in each. Sizes are classes: from a power of
 * two bytes, of a block or a vector, to below the next. Communicators that have been freed are one
 * with others of their name and number of ranks, so a program that makes many takes no more memory.
 */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/pmpi/pmpi.h"

/* Calls of one kind, form and size class. */
struct pmpi_row {
    enum pmpi_kind kind;
    enum pmpi_form form;
    int class; /* 0: no bytes; else one more than the power of two */
    uint64_t calls[PMPI_REASON_COUNT];
    uint64_t ns[PMPI_REASON_COUNT];
    struct pmpi_row *next;
};

/* Communicators that have been freed. */
struct pmpi_kept {
    char name[MPI_MAX_OBJECT_NAME];
    int size;
    struct pmpi_row *rows;
    struct pmpi_kept *next;
};

int pmpi_counts;

static char path[4096];
static struct pmpi_kept *kept;
static struct pmpi_row *nowhere; /* calls without a communicator */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t asked;
static struct sigaction before;

uint64_t pmpi_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- counting ---- */

static int class_of(size_t bytes)
{
    int class = 0;
    for (; bytes > 0; bytes >>= 1)
        class ++;
    return class;
}

static struct pmpi_row *find_row(struct pmpi_row **rows, enum pmpi_kind kind, enum pmpi_form form,
                                 int class)
{
    struct pmpi_row *row = *rows;
    while (row && (row->kind != kind || row->form != form || row->class != class))
        row = row->next;
    if (row)
        return row;
    row = weft_memory_alloc(1, sizeof *row);
    if (!row)
        return NULL;
    row->kind = kind;
    row->form = form;
    row->class = class;
    row->next = *rows;
    *rows = row;
    return row;
}

/* ---- keeping ---- */

static void name_of(MPI_Comm comm, char *name)
{
    int length = 0;
    name[0] = '\0';
    PMPI_Comm_get_name(comm, name, &length);
    if (name[0] == '\0')
        snprintf(name, MPI_MAX_OBJECT_NAME, "(no name)");
}

static struct pmpi_kept *find_kept(const char *name, int size)
{
    struct pmpi_kept *one = kept;
    while (one && (one->size != size || strcmp(one->name, name) != 0))
        one = one->next;
    if (one)
        return one;
    one = weft_memory_alloc(1, sizeof *one);
    if (!one)
        return NULL;
    snprintf(one->name, sizeof one->name, "%s", name);
    one->size = size;
    one->next = kept;
    kept = one;
    return one;
}

static void add_rows(struct pmpi_row **to, const struct pmpi_row *from)
{
    for (; from; from = from->next) {
        struct pmpi_row *row = find_row(to, from->kind, from->form, from->class);
        for (int i = 0; row && i < PMPI_REASON_COUNT; i++) {
            row->calls[i] += from->calls[i];
            row->ns[i] += from->ns[i];
        }
    }
}

static void free_rows(struct pmpi_row **rows)
{
    while (*rows) {
        struct pmpi_row *row = *rows;
        *rows = row->next;
        weft_memory_free(row);
    }
}

void pmpi_stats_keep(struct pmpi_comm *state)
{
    char name[MPI_MAX_OBJECT_NAME];
    if (!pmpi_counts)
        return;
    name_of(state->comm, name);
    pthread_mutex_lock(&lock);
    struct pmpi_kept *one = find_kept(name, state->size);
    if (one)
        add_rows(&one->rows, state->rows);
    free_rows(&state->rows);
    state->kept = one;
    pthread_mutex_unlock(&lock);
}

/* ---- writing ---- */

static json_t *numbers(const struct pmpi_row *row)
{
    uint64_t others = 0;
    json_t *back = json_object();
    for (int i = PMPI_SERVED + 1; i < PMPI_REASON_COUNT; i++) {
        others += row->ns[i];
        if (row->calls[i] > 0)
            json_object_set_new(back, pmpi_reason_text((enum pmpi_reason)i),
                                json_integer((json_int_t)row->calls[i]));
    }
    return json_pack("{s:I, s:o, s:f, s:f}", "served", (json_int_t)row->calls[PMPI_SERVED],
                     "fallen_back", back, "served_seconds", (double)row->ns[PMPI_SERVED] * 1e-9,
                     "fallen_back_seconds", (double)others * 1e-9);
}

static void write_rows(FILE *file, const char *name, int size, const struct pmpi_row *row)
{
    for (; row; row = row->next) {
        json_t *line = json_pack(
            "{s:s, s:i, s:s, s:s, s:I}", "communicator", name, "ranks", size, "call",
            pmpi_kind_name(row->kind), "form", pmpi_form_name(row->form), "bytes",
            row->class == 0 ? (json_int_t)0 : (json_int_t)((uint64_t)1 << (row->class - 1)));
        json_t *more = numbers(row);
        char *text = NULL;
        if (line && more && json_object_update(line, more) == 0)
            text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(6));
        if (text)
            fprintf(file, "%s\n", text);
        free(text);
        json_decref(line);
        json_decref(more);
    }
}

static void write_state(struct pmpi_comm *state, void *user)
{
    char name[MPI_MAX_OBJECT_NAME];
    name_of(state->comm, name);
    pthread_mutex_lock(&lock);
    write_rows(user, name, state->size, state->rows);
    pthread_mutex_unlock(&lock);
}

static void write_file(void)
{
    FILE *file = fopen(path, "w");
    if (file) {
        pmpi_comm_each(write_state, file);
        pthread_mutex_lock(&lock);
        for (const struct pmpi_kept *one = kept; one; one = one->next)
            write_rows(file, one->name, one->size, one->rows);
        write_rows(file, "(none)", 0, nowhere);
        pthread_mutex_unlock(&lock);
    }
    if (!file || fclose(file) != 0)
        fprintf(stderr, "weft: WEFT_PMPI_STATS: %s: %s\n", path, strerror(errno));
}

/* Calls go on when their communicator has been freed; one of no ranks stands for any for which
 * there was no memory. */
static struct pmpi_row **rows_of(struct pmpi_comm *state)
{
    return !state || state->size == 0 ? &nowhere : state->kept ? &state->kept->rows : &state->rows;
}

void pmpi_stats_count(const struct pmpi_call *call)
{
    uint64_t ns = pmpi_now() - call->began_ns;
    pthread_mutex_lock(&lock);
    struct pmpi_row *row =
        find_row(rows_of(call->state), call->kind, call->form, class_of(call->bytes));
    if (row) {
        row->calls[call->reason]++;
        row->ns[call->reason] += ns;
    }
    pthread_mutex_unlock(&lock);
    if (asked) {
        asked = 0;
        write_file();
    }
}

/* ---- the signal ---- */

static void on_signal(int number)
{
    (void)number;
    asked = 1;
}

void pmpi_stats_open(int rank)
{
    const char *value = getenv("WEFT_PMPI_STATS");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    if (!value || value[0] == '\0')
        return;
    snprintf(path, sizeof path, "%s.%d", value, rank);
    pmpi_counts = 1;
    /* A program that has a use for the signal keeps it. */
    if (sigaction(SIGUSR2, NULL, &before) == 0 && before.sa_handler == SIG_DFL &&
        !(before.sa_flags & SA_SIGINFO))
        sigaction(SIGUSR2, &action, NULL);
}

void pmpi_stats_close(void)
{
    if (!pmpi_counts)
        return;
    write_file();
    pmpi_counts = 0;
    pthread_mutex_lock(&lock);
    while (kept) {
        struct pmpi_kept *one = kept;
        kept = one->next;
        free_rows(&one->rows);
        weft_memory_free(one);
    }
    free_rows(&nowhere);
    pthread_mutex_unlock(&lock);
}
