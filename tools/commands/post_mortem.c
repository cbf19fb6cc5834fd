/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft post-mortem: from the states that the ranks of a hung program have left, which ranks are
 * behind and which messages are missing.
 */
#include "tools/commands/post_mortem.h"

#include "tools/cli/files.h"

#include <stdlib.h>
#include <string.h>

static int compare_dumps(const void *left, const void *right)
{
    const struct pm_rank *a = left;
    const struct pm_rank *b = right;
    int groups = strcmp(a->group ? a->group : "", b->group ? b->group : "");

    if (groups)
        return groups;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

/* What may be an accident of the moment at which a state was taken comes last. */
static int is_vague(const struct pm_cause *cause)
{
    return strcmp(cause->kind, "lost") == 0 || strcmp(cause->kind, "not-driven") == 0;
}

static int is_failure(const struct pm_cause *cause)
{
    return strcmp(cause->kind, "failed") == 0;
}

static int compare_causes(const void *left, const void *right)
{
    const struct pm_cause *a = left;
    const struct pm_cause *b = right;

    if (is_vague(a) != is_vague(b))
        return is_vague(a) - is_vague(b);
    if (is_failure(a) != is_failure(b))
        return is_failure(b) - is_failure(a);
    if (a->waits != b->waits)
        return a->waits > b->waits ? -1 : 1;
    return strcmp(a->text, b->text);
}

/* ---- which ranks are behind ---- */

/* The highest version of an object that a rank waits in; PM_NO_VERSION: nobody does. */
static long long front(const struct pm_program *program, long long number, const char **plan)
{
    long long version = PM_NO_VERSION;

    for (size_t r = 0; r < program->count; r++) {
        const struct pm_object *object = pm_object_of(&program->ranks[r], number);
        if (object && object->stage == PM_ACTIVE && object->version > version) {
            version = object->version;
            *plan = object->plan ? object->plan : "?";
        }
    }
    return version;
}

/* The lowest number above `after` of an object that any rank has; -1: there is none. */
static long long next_object(const struct pm_program *program, long long after)
{
    long long next = -1;

    for (size_t r = 0; r < program->count; r++) {
        const struct pm_rank *rank = &program->ranks[r];
        size_t low = 0;
        size_t high = rank->count;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (rank->objects[middle].number <= after)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < rank->count && (next < 0 || rank->objects[low].number < next))
            next = rank->objects[low].number;
    }
    return next;
}

/* Calls @p tell for each rank that is behind in an object which others wait in. */
static void find_behind(const struct pm_program *program,
                        void (*tell)(void *user, const struct pm_rank *rank, long long number,
                                     const char *plan, long long version, long long front),
                        void *user)
{
    for (long long number = next_object(program, -1); number >= 0;
         number = next_object(program, number)) {
        const char *plan = NULL;
        long long version = front(program, number, &plan);
        for (size_t r = 0; version != PM_NO_VERSION && r < program->count; r++) {
            const struct pm_object *object = pm_object_of(&program->ranks[r], number);
            long long own = object ? object->version : PM_NO_VERSION;
            if (own < version && !pm_destroyed(&program->ranks[r], number))
                tell(user, &program->ranks[r], number, plan, own, version);
        }
    }
}

static void print_behind(void *user, const struct pm_rank *rank, long long number, const char *plan,
                         long long version, long long front)
{
    (void)user;
    printf("  rank %d is behind in object %s `%s`: ", rank->rank, PM_NAME(number), plan);
    if (!pm_object_of(rank, number))
        printf("not created, others are at version %lld\n", front);
    else if (version == PM_NO_VERSION)
        printf("not started, others are at version %lld\n", front);
    else
        printf("at version %lld, others at %lld\n", version, front);
}

static void pack_behind(void *user, const struct pm_rank *rank, long long number, const char *plan,
                        long long version, long long front)
{
    json_array_append_new(
        user, json_pack("{s:i, s:I, s:s, s:o, s:I}", "rank", rank->rank, "object",
                        (json_int_t)number, "plan", plan, "version",
                        version == PM_NO_VERSION ? json_null() : json_integer((json_int_t)version),
                        "others", (json_int_t)front));
}

/* ---- output ---- */

static json_t *or_null(long long value)
{
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

static json_t *pack_lines(const char *text)
{
    json_t *lines = json_array();

    for (const char *end; *text; text = end + 1) {
        end = strchr(text, '\n');
        if (!end)
            break;
        json_array_append_new(lines, json_stringn_nocheck(text, (size_t)(end - text)));
    }
    return lines;
}

static int print_json(const struct pm_program *program, json_t *missing)
{
    json_t *causes = json_array();
    json_t *behind = json_array();

    for (size_t c = 0; c < program->cause_count; c++) {
        const struct pm_cause *cause = &program->causes[c];
        json_array_append_new(
            causes,
            json_pack("{s:s, s:i, s:o, s:I, s:o, s:o, s:o, s:s, s:I, s:o}", "kind", cause->kind,
                      "rank", cause->rank, "peer", or_null(cause->peer), "object",
                      (json_int_t)cause->object, "version", or_null(cause->version), "node",
                      or_null(cause->node), "tag", or_null(cause->tag), "text", cause->text,
                      "waits", (json_int_t)cause->waits, "chain", pack_lines(cause->chain)));
    }
    find_behind(program, pack_behind, behind);
    return cli_print_json(
        "post-mortem", json_pack("{s:b, s:i, s:i, s:o, s:o, s:o}", "ok", program->cause_count == 0,
                                 "ranks", program->size, "dumps", (int)program->count, "no_dump",
                                 missing, "behind", behind, "causes", causes));
}

static void print_chain(const char *chain)
{
    for (const char *end; (end = strchr(chain, '\n')); chain = end + 1)
        printf("    %.*s\n", (int)(end - chain), chain);
}

static int print_text(const struct pm_program *program, const json_t *missing)
{
    size_t absent = json_array_size(missing);

    printf("%d rank%s, %zu of them left a dump", program->size, program->size == 1 ? "" : "s",
           program->count);
    for (size_t i = 0; i < absent && i < 16; i++) {
        printf("%s%d", i ? ", " : "; none of ",
               (int)json_integer_value(json_array_get(missing, i)));
    }
    printf("%s\n", absent > 16 ? ", ..." : "");
    find_behind(program, print_behind, NULL);
    if (program->cause_count == 0)
        printf("nothing waits\n");
    for (size_t c = 0; c < program->cause_count; c++) {
        const struct pm_cause *cause = &program->causes[c];
        printf("cause: %s\n", cause->text);
        if (cause->waits)
            printf("  %zu wait%s here:\n", cause->waits, cause->waits == 1 ? " ends" : "s end");
        print_chain(cause->chain);
    }
    return cli_finish("post-mortem");
}

/* One group of ranks. Adds to *found how many causes there are. */
static int examine(const struct cli *cli, struct pm_rank *ranks, size_t count, size_t *found)
{
    struct pm_program program = {.ranks = ranks, .count = count};
    json_t *missing = json_array();
    int next = 0;

    for (size_t r = 0; r < count; r++)
        program.size = ranks[r].size > program.size ? ranks[r].size : program.size;
    for (size_t r = 0; r <= count; r++) {
        int until = r < count ? ranks[r].rank : program.size;
        for (; next < until; next++)
            json_array_append_new(missing, json_integer(next));
        next = until + 1;
    }
    if (pm_find_causes(&program)) {
        json_decref(missing);
        weft_memory_free(program.causes);
        return cli_fail("post-mortem", "out of memory for %zu dumps", count);
    }
    if (program.cause_count)
        qsort(program.causes, program.cause_count, sizeof *program.causes, compare_causes);
    *found += program.cause_count;
    int status;
    if (cli->json) {
        status = print_json(&program, missing);
    } else {
        status = print_text(&program, missing);
        json_decref(missing);
    }
    weft_memory_free(program.causes);
    return status;
}

static int same_group(const struct pm_rank *a, const struct pm_rank *b)
{
    return strcmp(a->group ? a->group : "", b->group ? b->group : "") == 0;
}

static int examine_all(const struct cli *cli, struct pm_rank *dumps, size_t count)
{
    size_t found = 0;
    size_t ranks = 0;
    int status = 0;

    qsort(dumps, count, sizeof *dumps, compare_dumps);
    if (pm_merge(dumps, count, &ranks))
        return cli_fail("post-mortem", "out of memory for %zu dumps", count);
    for (size_t first = 0, end; first < ranks && !status; first = end) {
        for (end = first + 1; end < ranks && same_group(&dumps[first], &dumps[end]);)
            end++;
        if (first && !cli->json)
            printf("\n");
        status = examine(cli, dumps + first, end - first, &found);
    }
    return status ? status : found ? CLI_NO : CLI_OK;
}

static int post_mortem(struct cli *cli)
{
    size_t count = 0;
    int status = 0;

    if (!cli_parse(cli, NULL))
        return cli->status;
    size_t files = (size_t)cli->operand_count;
    struct pm_rank *dumps = weft_memory_alloc(files, sizeof *dumps);
    if (!dumps)
        return cli_fail(cli->spec->name, "out of memory for %zu dumps", files);
    for (size_t i = 0; i < files && !status; i++) {
        count++;
        status = cli_check_file(cli->spec->name, NULL, cli->operands[i]);
        status = status ? status : pm_load(&dumps[i], cli->operands[i]);
    }
    if (!status)
        status = examine_all(cli, dumps, count);
    for (size_t i = 0; i < count; i++)
        pm_free(&dumps[i]);
    weft_memory_free(dumps);
    return status;
}

const struct cli_spec weft_command_post_mortem = {
    .name = "post-mortem",
    .summary = "why a program hangs, from what its ranks left",
    .operands = "FILE...",
    .operands_min = 1,
    .operands_max = INT32_MAX,
    .about = "Why a program hangs: reads what its ranks left (WEFT_STATE=DIR, when a run fails or "
             "a stall is reported) and says which ranks are behind, which message is missing, and "
             "what that is waiting for. Exit status 1 if it found a cause, 0 if nothing waits.",
    .run = post_mortem,
};
