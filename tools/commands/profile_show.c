/* SPDX-License-Identifier: BSD-3-Clause */
/* A profile as a table, or as one JSON object. Reasons are long: cells have their numbers, and they
 * stand below. */
#include "tools/cli/table.h"
#include "tools/commands/profile.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

enum { TEXT = 32 };

/* "1 KiB": where a class begins, so a power of two. */
static const char *size_text(uint64_t bytes, char text[TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;

    for (; unit < 4 && bytes >= 1024 && bytes % 1024 == 0; unit++)
        bytes /= 1024;
    snprintf(text, TEXT, "%llu %s", (unsigned long long)bytes, units[unit]);
    return text;
}

/* "1.23 ms", with three figures. */
static const char *time_text(double seconds, char text[TEXT])
{
    const char *unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
    double value = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
    int digits = value == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;

    snprintf(text, TEXT, "%.*f %s", digits, value, unit);
    return text;
}

static const char *calls_text(uint64_t least, uint64_t most, char text[2 * TEXT])
{
    if (least == most)
        snprintf(text, (size_t)2 * TEXT, "%llu", (unsigned long long)most);
    else
        snprintf(text, (size_t)2 * TEXT, "%llu..%llu", (unsigned long long)least,
                 (unsigned long long)most);
    return text;
}

/* The function that a program calls: MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init. */
static const char *function_text(const struct profile_line *line, char text[2 * TEXT])
{
    const char *name = line->call->name + strlen("MPI_");

    if (line->form == PROFILE_NONBLOCKING)
        snprintf(text, (size_t)2 * TEXT, "MPI_I%c%s", tolower((unsigned char)name[0]), name + 1);
    else
        snprintf(text, (size_t)2 * TEXT, "MPI_%s%s", name,
                 line->form == PROFILE_PERSISTENT ? "_init" : "");
    return text;
}

static double share_of(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double seconds_of(const struct profile_row *row)
{
    return row->served_s + row->others_s;
}

/* ---- JSON ---- */

static json_t *row_json(const struct profile_view *view, const struct profile_row *row)
{
    const struct profile_line *line = row->line;
    double seconds = seconds_of(row);
    json_t *object =
        json_pack("{s:s, s:s, s:o, s:i, s:I, s:i, s:I, s:I, s:I, s:I, s:O}", "call",
                  line->call->name, "form", profile_form_name(line->form), "communicator",
                  view->sum->by_communicator ? json_string(line->communicator) : json_null(),
                  "ranks", line->ranks, "bytes", (json_int_t)line->bytes, "reported", row->reported,
                  "calls", (json_int_t)row->calls, "least_calls", (json_int_t)row->least_calls,
                  "most_calls", (json_int_t)row->most_calls, "served", (json_int_t)row->served,
                  "fallen_back", row->reasons);
    json_t *times = json_pack(
        "{s:f, s:f, s:f, s:f, s:i, s:f, s:s?, s:o}", "served_seconds", row->served_s,
        "fallen_back_seconds", row->others_s, "mean_seconds", share_of(seconds, row->reported),
        "most_seconds", row->most_s, "most_rank", row->most_rank, "share",
        share_of(seconds, view->sum->seconds), "chosen", row->chosen, "predicted_us",
        row->chosen ? json_real(row->predicted_us) : json_null());

    if (json_object_update(object, times) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(times);
    return object;
}

int profile_print_json(const struct profile_view *view, FILE *file)
{
    const struct profile_sum *sum = view->sum;
    json_t *rows = json_array();
    int failed = 0;

    for (size_t i = 0; i < sum->count; i++)
        failed |= json_array_append_new(rows, row_json(view, &sum->rows[i]));
    json_t *whole =
        json_pack("{s:i, s:i, s:o, s:o, s:I, s:I, s:f, s:f, s:i, s:s, s:o}", "ranks",
                  view->profile->size, "reported", view->profile->reported, "status",
                  view->run ? json_integer(view->run->status) : json_null(), "program_seconds",
                  view->run ? json_real(view->run->seconds) : json_null(), "calls",
                  (json_int_t)sum->calls, "served", (json_int_t)sum->served, "mean_seconds",
                  share_of(sum->seconds, view->profile->reported), "most_seconds", sum->most_s,
                  "most_rank", sum->most_rank, "transport", view->transport, "rows", rows);
    failed |= !whole;
    if (!failed) {
        /* What cannot be written is an error of the file. */
        (void)json_dumpf(whole, file, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
        fputc('\n', file);
    }
    json_decref(whole);
    return failed ? -1 : 0;
}

/* ---- the table ---- */

/* Reasons in the order in which they are met. */
struct reasons {
    const char **at;
    size_t count;
};

/* The number of a reason, from 1; 0: no memory. */
static size_t number_of(struct reasons *reasons, const char *reason)
{
    for (size_t i = 0; i < reasons->count; i++)
        if (strcmp(reasons->at[i], reason) == 0)
            return i + 1;
    const char **at = realloc(reasons->at, (reasons->count + 1) * sizeof *at);
    if (!at)
        return 0;
    reasons->at = at;
    at[reasons->count++] = reason;
    return reasons->count;
}

/* "weft", "MPI [1]", "97 % weft, MPI [1 2]": who did the calls. Freed with free(); NULL: no
 * memory. */
static char *who_text(const struct profile_row *row, struct reasons *reasons)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    const char *reason, *before = "[";
    json_t *value;
    int failed = !file;

    if (file && row->served == row->calls) {
        fputs(row->calls ? "weft" : "-", file);
    } else if (file) {
        if (row->served > 0)
            fprintf(file, "%.3g %% weft, ",
                    100 * share_of((double)row->served, (double)row->calls));
        fputs("MPI", file);
        json_object_foreach(row->reasons, reason, value)
        {
            if (json_integer_value(value) == 0)
                continue;
            size_t number = number_of(reasons, reason);
            failed |= number == 0;
            fprintf(file, "%s%s%zu", *before == '[' ? " " : "", before, number);
            before = " ";
        }
        fputs(*before == '[' ? "" : "]", file);
    }
    failed |= !file || fclose(file) != 0;
    if (!failed)
        return text;
    free(text);
    return NULL;
}

/* Names are the program's: what a terminal would obey is none of them. */
static char *name_text(const char *name)
{
    char *text = strdup(name);

    for (char *c = text; c && *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    return text;
}

/* What says which row it is, in columns of their own width, as one cell: a table that is too wide
 * has it before each of its parts. */
static void key_cell(struct table *table, const struct profile_line *line, int width)
{
    char function[2 * TEXT], size[TEXT];

    table_cell(table, "%-*s %8s %5d", width, function_text(line, function),
               line->bytes ? size_text(line->bytes, size) : "-", line->ranks);
}

static int width_of_calls(const struct profile_sum *sum)
{
    char text[2 * TEXT];
    size_t widest = strlen("call");

    for (size_t i = 0; i < sum->count; i++) {
        size_t width = strlen(function_text(sum->rows[i].line, text));
        widest = width > widest ? width : widest;
    }
    return (int)widest;
}

static int add_row(struct table *table, const struct profile_view *view,
                   const struct profile_row *row, int width, struct reasons *reasons)
{
    char text[2 * TEXT];
    double seconds = seconds_of(row);
    char *who = who_text(row, reasons);
    char *name = view->sum->by_communicator ? name_text(row->line->communicator) : strdup("");

    key_cell(table, row->line, width);
    if (view->sum->by_communicator)
        table_cell(table, "%s", name ? name : "");
    table_cell(table, "%s", calls_text(row->least_calls, row->most_calls, text));
    table_cell(table, "%s", time_text(share_of(seconds, row->reported), text));
    table_cell(table, "%s", time_text(row->most_s, text));
    table_cell(table, "%d", row->most_rank);
    table_cell(table, "%.1f %%", 100 * share_of(seconds, view->sum->seconds));
    table_cell(table, "%s", who ? who : "");
    table_cell(table, "%s", time_text(share_of(seconds, (double)row->calls), text));
    table_cell(table, "%s", row->chosen ? time_text(row->predicted_us * 1e-6, text) : "-");
    table_cell(table, "%s", row->chosen ? row->chosen : "-");
    int failed = !who || !name;
    free(name);
    free(who);
    return failed ? -1 : 0;
}

enum { COLUMNS = 11 };

static int print_table(const struct profile_view *view, FILE *file, int width,
                       struct reasons *reasons)
{
    static const char *const rest[] = {"communicator", ">calls", ">mean", ">most",
                                       ">of rank",     ">share", ">by",   ">a call",
                                       ">predicted",   "chosen"};
    const char *headings[COLUMNS];
    char key[2 * TEXT];
    int call_width = width_of_calls(view->sum);
    size_t columns = 0;
    int failed = 0;

    snprintf(key, sizeof key, "%-*s %8s %5s", call_width, "call", "bytes", "ranks");
    headings[columns++] = key;
    for (size_t i = view->sum->by_communicator ? 0 : 1; i < sizeof rest / sizeof rest[0]; i++)
        headings[columns++] = rest[i];
    struct table *table = table_create(headings, columns);
    if (!table)
        return -1;
    for (size_t i = 0; i < view->sum->count; i++)
        failed |= add_row(table, view, &view->sum->rows[i], call_width, reasons);
    failed |= table_print_within(table, file, width);
    table_destroy(table);
    return failed;
}

/* A paragraph of the width of the table. 0, or -1 without memory. */
static int say(FILE *file, int width, int hanging, const char *format, ...) WEFT_PRINTF(4, 5);
static int say(FILE *file, int width, int hanging, const char *format, ...)
{
    char *text;
    va_list list;

    va_start(list, format);
    int length = vasprintf(&text, format, list);
    va_end(list);
    if (length < 0)
        return -1;
    table_paragraph(file, text, width, 0, hanging);
    free(text);
    return 0;
}

/* Who reported, and how much it is altogether. */
static int print_head(const struct profile_view *view, FILE *file, int width)
{
    const struct profile *profile = view->profile;
    const struct profile_sum *sum = view->sum;
    char mean[TEXT], most[TEXT], ran[TEXT], missing[2 * TEXT] = "", program[2 * TEXT] = "";

    if (profile->reported < profile->size)
        snprintf(missing, sizeof missing, "%d of ", profile->reported);
    if (view->run)
        snprintf(program, sizeof program, ", of %s that the program ran",
                 time_text(view->run->seconds, ran));
    if (!sum->count)
        return say(file, width, 2, "%s%d rank%s reported: no collective was called%s", missing,
                   profile->size, profile->size == 1 ? "" : "s", program);
    return say(file, width, 2,
               "%s%d rank%s reported: %s in collectives on average, %s on rank %d%s; weft served "
               "%.3g %% of %llu calls",
               missing, profile->size, profile->size == 1 ? "" : "s",
               time_text(share_of(sum->seconds, profile->reported), mean),
               time_text(sum->most_s, most), sum->most_rank, program,
               100 * share_of((double)sum->served, (double)sum->calls),
               (unsigned long long)sum->calls);
}

static int print_foot(const struct profile_view *view, FILE *file, int width,
                      const struct reasons *reasons)
{
    int failed = 0;

    for (size_t i = 0; i < reasons->count; i++) {
        char *reason = name_text(reasons->at[i]);
        failed |= !reason || say(file, width, 4, "[%zu] %s", i + 1, reason);
        free(reason);
    }
    if (reasons->count)
        fputc('\n', file);
    failed |= say(file, width, 0,
                  "bytes: from so many to below twice as many, of a vector or a block. mean, most: "
                  "time of a rank in all these calls. a call: in one. by: who served them. "
                  "predicted, chosen: weft's "
                  "algorithm where all come at once, %s, by the costs of %s.",
                  view->costs->apart ? "each rank on a host of its own" : "all ranks on this host",
                  view->transport);
    return failed ? -1 : 0;
}

int profile_print(const struct profile_view *view, FILE *file, int width)
{
    struct reasons reasons = {0};
    int failed = print_head(view, file, width);

    if (view->sum->count && !failed) {
        fputc('\n', file);
        failed = print_table(view, file, width, &reasons);
    }
    if (view->sum->count && !failed) {
        fputc('\n', file);
        failed = print_foot(view, file, width, &reasons);
    }
    free(reasons.at);
    return failed ? -1 : 0;
}
