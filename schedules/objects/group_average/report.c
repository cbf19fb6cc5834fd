/* SPDX-License-Identifier: BSD-3-Clause */
/* Where everybody is: ranks are asked by signals, which their helpers answer whatever they do. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/group_average/group_average.h"

#define LOOK_NS UINT64_C(1000000) /* between two looks at whether all have answered */

static int all_answered(const struct weft_group_average *average)
{
    for (int r = 0; r < average->ranks; r++)
        if (!atomic_load_explicit(&average->answers[r], memory_order_acquire))
            return 0;
    return 1;
}

/* Made when somebody first asks: most ranks never do. */
static int make_answers(struct weft_group_average *average)
{
    size_t ranks = (size_t)average->ranks;
    if (average->answers)
        return WEFT_OK;
    if (!average->owes)
        average->owes = weft_memory_alloc(ranks, 1);
    if (average->owes)
        average->answers = weft_memory_alloc(ranks, sizeof *average->answers);
    return average->answers ? WEFT_OK : WEFT_ERR_MEMORY;
}

int weft__average_ask(struct weft_group_average *average, uint64_t version, uint64_t timeout_ns)
{
    int status = make_answers(average);
    if (status)
        return WEFT_IN_PROGRESS;
    uint64_t now = weft_context_now(average->context);
    uint64_t until = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    for (int r = 0; r < average->ranks; r++)
        atomic_store_explicit(&average->answers[r], 0, memory_order_relaxed);
    atomic_store_explicit(&average->answers[average->rank],
                          1 + atomic_load_explicit(&average->arrived, memory_order_acquire),
                          memory_order_release);
    atomic_store(&average->asked, 1);
    weft_series_poke(average->versions);
    status = WEFT_IN_PROGRESS;
    while (status == WEFT_IN_PROGRESS && !all_answered(average) &&
           (now = weft_context_now(average->context)) < until)
        status = weft_series_wait(average->versions, version,
                                  until - now < LOOK_NS ? until - now : LOOK_NS);
    return status;
}

int weft__average_chase(struct weft_group_average *average, uint64_t step, uint64_t timeout_ns)
{
    uint64_t now = weft_context_now(average->context);
    uint64_t until = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    int status = WEFT_IN_PROGRESS;
    atomic_store(&average->chase_step, step);
    atomic_store(&average->chasing, WEFT__CHASE_WANTED);
    weft_series_poke(average->versions);
    while (status == WEFT_IN_PROGRESS && atomic_load(&average->chasing) != WEFT__CHASE_OVER &&
           (now = weft_context_now(average->context)) < until)
        status = weft_series_wait(average->versions, step,
                                  until - now < LOOK_NS ? until - now : LOOK_NS);
    return status;
}

void weft__average_chased(const struct weft_group_average *average, char *text, size_t size)
{
    int rank = atomic_load(&average->chased);
    uint64_t at = atomic_load(&average->chased_at);
    if (rank < 0)
        snprintf(text, size, "who is missing is not known");
    else if (atomic_load(&average->chasing) != WEFT__CHASE_OVER)
        snprintf(text, size, "rank %d is waited for (no answer)", rank);
    else if (at != WEFT__AVERAGE_LEFT)
        snprintf(text, size, "rank %d has not arrived (at step %llu)", rank,
                 (unsigned long long)at);
    else
        snprintf(text, size, "rank %d is waited for, which waits for nobody", rank);
}

/* Appends to a text of a fixed size; 0 once it is full. */
static int append(char *text, size_t size, size_t *used, const char *format, ...) WEFT_PRINTF(4, 5);
static int append(char *text, size_t size, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text + *used, size - *used, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= size - *used) {
        text[*used] = '\0';
        return 0;
    }
    *used += (size_t)length;
    return 1;
}

void weft__average_missing(struct weft_group_average *average, uint64_t step, char *text,
                           size_t size)
{
    enum { MORE = 24 }; /* room kept for "and so many more" */
    int missing = 0, named = 0;
    size_t used = 0;
    if (!average->answers) {
        snprintf(text, size, "there is no memory to ask who is missing");
        return;
    }
    for (int r = 0; r < average->ranks; r++) {
        uint64_t answer = atomic_load_explicit(&average->answers[r], memory_order_acquire);
        missing += answer <= step + 1 && answer != WEFT__AVERAGE_LEFT + 1;
    }
    text[0] = '\0';
    if (!append(text, size, &used, "%d of %d ranks have not arrived%s", missing, average->ranks,
                missing ? ": " : ""))
        return;
    for (int r = 0, full = 0; r < average->ranks && !full; r++) {
        uint64_t answer = atomic_load_explicit(&average->answers[r], memory_order_acquire);
        const char *comma = named ? ", " : "";
        if (answer > step + 1 || answer == WEFT__AVERAGE_LEFT + 1)
            continue;
        if (size - used <= MORE)
            full = 1;
        else if (answer)
            full = !append(text, size - MORE, &used, "%s%d (at step %llu)", comma, r,
                           (unsigned long long)(answer - 1));
        else
            full = !append(text, size - MORE, &used, "%s%d (no answer)", comma, r);
        named += !full;
    }
    if (named < missing)
        append(text, size, &used, " and %d more", missing - named);
}

static size_t line(struct weft_group_average *average, int r, char *text, size_t size)
{
    uint64_t answer = atomic_load_explicit(&average->answers[r], memory_order_acquire);
    size_t used = 0;
    if (!answer)
        append(text, size, &used, "  rank %d has not answered\n", r);
    else if (answer == WEFT__AVERAGE_LEFT + 1)
        append(text, size, &used, "  rank %d has ended its steps\n", r);
    else
        append(text, size, &used, "  rank %d: step %llu\n", r, (unsigned long long)(answer - 1));
    return used;
}

int weft_group_average_report(struct weft_group_average *average, uint64_t timeout_ns, char **text)
{
    enum { LINE = 64, HEAD = 512 };
    if (!average || !text)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `%s` is NULL", __func__,
                              average ? "text" : "average");
    int status = weft_sized_time(__func__, "timeout_ns", timeout_ns, WEFT_NEVER);
    if (status)
        return status;
    size_t size = HEAD + (size_t)average->ranks * LINE, used = 0;
    char *lines = weft_memory_alloc(size, 1);
    if (!lines)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for a report on %d ranks",
                              average->ranks);
    pthread_mutex_lock(&average->asking);
    weft__average_ask(average, UINT64_MAX, timeout_ns); /* no version has this number */
    if (!average->answers) {
        pthread_mutex_unlock(&average->asking);
        weft_memory_free(lines);
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for a report on %d ranks",
                              average->ranks);
    }
    uint64_t version = weft_series_version(average->versions);
    uint64_t step = atomic_load_explicit(&average->arrived, memory_order_acquire);
    append(lines, size, &used, "group average, rank %d of %d: step %llu, version %llu\n",
           average->rank, average->ranks, (unsigned long long)step, (unsigned long long)version);
    if (weft__average_syncs(average, version) && step > version) {
        char missing[HEAD / 2];
        weft__average_missing(average, version, missing, sizeof missing);
        append(lines, size, &used, "version %llu is a synchronisation: %s\n",
               (unsigned long long)version, missing);
    }
    for (int r = 0; r < average->ranks; r++)
        used += line(average, r, lines + used, size - used);
    pthread_mutex_unlock(&average->asking);
    *text = lines;
    return WEFT_OK;
}
