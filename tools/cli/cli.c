/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers, words and lines of output, the same in every subcommand. */
#include "tools/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void line_out(const char *command, const char *format, va_list list)
{
    char text[2048];

    if (cli_is_follower())
        return;
    fflush(stdout);
    vsnprintf(text, sizeof text, format, list);
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    fprintf(stderr, "weft%s%s: %s\n", command ? " " : "", command ? command : "", text);
}

int cli_usage(const char *command, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    line_out(command, format, list);
    va_end(list);
    return CLI_WRONG;
}

int cli_fail(const char *command, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    line_out(command, format, list);
    va_end(list);
    return CLI_NO;
}

/* ---- numbers and words ---- */

int cli_size(const char *command, const char *option, const char *text, size_t *value)
{
    char *end = NULL;

    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || (*end && !strchr("kKMG", *end)) || (*end && end[1])) {
        return cli_usage(command,
                         "%s: '%s' is not a size; expected a number from 0, with k, M or G after "
                         "it for powers of 1024",
                         option, text);
    }
    int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end ? 10 : 0;
    if (errno == ERANGE || number > (SIZE_MAX >> shift)) {
        return cli_usage(command, "%s: '%s' is too large; expected at most %zu", option, text,
                         SIZE_MAX);
    }
    *value = (size_t)number << shift;
    return 0;
}

int cli_integer(const char *command, const char *option, const char *text, long long least,
                long long most, long long *value)
{
    char *end;

    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)text[0]) || errno == ERANGE ||
        number < least || number > most) {
        return cli_usage(command, "%s: '%s'; expected an integer from %lld to %lld", option, text,
                         least, most);
    }
    *value = number;
    return 0;
}

int cli_real(const char *command, const char *option, const char *text, double least, double most,
             double *value)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || *end || isspace((unsigned char)text[0]) ||
        !(number >= least && number <= most)) {
        return cli_usage(command, "%s: '%s'; expected a number from %g to %g", option, text, least,
                         most);
    }
    *value = number;
    return 0;
}

/* Edits (insert, delete, replace) between two words; words over 63 characters count as far. */
static int distance(const char *a, const char *b)
{
    int row[64];
    size_t columns = strlen(b);

    if (columns > 63 || strlen(a) > 63)
        return INT_MAX;
    for (size_t j = 0; j <= columns; j++)
        row[j] = (int)j;
    for (size_t i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= columns; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = best < row[j] + 1 ? best : row[j] + 1;
            row[j] = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
        }
    }
    return row[columns];
}

const char *cli_nearest(const char *word, const char *const *words)
{
    const char *best = NULL;
    int least = (int)(strlen(word) < 64 ? strlen(word) : 64) / 3 + 2;

    for (; *words; words++) {
        int d = distance(word, *words);
        /* of two that are as near, letters were rather exchanged than left out */
        if (d < least || (d == least && best && strlen(best) != strlen(word) &&
                          strlen(*words) == strlen(word))) {
            least = d;
            best = *words;
        }
    }
    return best;
}

int cli_choice(const char *command, const char *option, const char *word, const char *const *words)
{
    char list[1024] = "";
    size_t used = 0;

    for (int i = 0; words[i]; i++) {
        if (strcmp(word, words[i]) == 0)
            return i;
        if (used < sizeof list) {
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
        }
    }
    const char *near = cli_nearest(word, words);
    cli_usage(command, "%s: '%s' is unknown%s%s%s; expected one of %s", option, word,
              near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", list);
    return -1;
}

/* ---- output ---- */

int cli_print_json_exactly(const char *command, json_t *object, int digits)
{
    size_t flags = JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(digits);
    int failed = !object || json_dumpf(object, stdout, flags);

    json_decref(object);
    if (failed || putchar('\n') == EOF || fflush(stdout))
        return cli_usage(command, "standard output: a line of JSON could not be written");
    return 0;
}

int cli_print_json(const char *command, json_t *object)
{
    return cli_print_json_exactly(command, object, 9);
}

int cli_finish(const char *command)
{
    if (fflush(stdout) || ferror(stdout)) {
        return cli_usage(command, "standard output: %s",
                         errno ? strerror(errno) : "could not be written");
    }
    return 0;
}
