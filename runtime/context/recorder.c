/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a context records: because the program asks for it, or because WEFT_TRACE says so; and the
 * file that is then written at the end.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include "runtime/engine/record.h"
#include <string.h>
#include <unistd.h>
#include <weft/trace.h>

#define RECORDS      ((size_t)1 << 18)
#define RECORDS_MOST ((size_t)1 << 40)

void weft_trace_config_init_sized(struct weft_trace_config *config, size_t size)
{
    weft_sized_init(config, size);
}

/* Replaces the recorder of a context. While driving. */
static int start(struct weft_context *context, size_t records, const char *directory)
{
    struct weft__engine *engine = &context->engine;
    struct weft__recorder *before = engine->recorder;
    struct weft__recorder *recorder = weft__recorder_create(records);
    int status = recorder ? WEFT_OK : WEFT_ERR_MEMORY;
    if (recorder && directory && !(recorder->directory = weft__strdup(directory)))
        status = weft__error_memory("a trace");
    engine->recorder = recorder;
    for (struct weft_run *run = context->runs; run && status == WEFT_OK; run = run->all_next)
        status = weft__recorder_register(run);
    if (status != WEFT_OK) {
        engine->recorder = before;
        weft__recorder_destroy(recorder);
        return status;
    }
    if (before) {
        /* What the environment asked for is still written at the end. */
        if (!recorder->directory) {
            recorder->directory = before->directory;
            before->directory = NULL;
            recorder->path = before->path;
            before->path = NULL;
        }
        weft__recorder_destroy(before);
    }
    return WEFT_OK;
}

int weft_context_trace_start(struct weft_context *context, const struct weft_trace_config *given)
{
    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL", __func__);
    struct weft_trace_config config;
    int status = weft_sized_read(__func__, "config", given, &config, sizeof config);
    if (status != WEFT_OK)
        return status;
    if (config.records > RECORDS_MOST)
        return WEFT__INVALID("%s: config->records is %zu, expected at most %zu", __func__,
                             config.records, RECORDS_MOST);
    size_t records =
        config.records != 0 ? config.records : weft__env_trace_records(context, RECORDS);
    weft__drive_lock(context);
    status = start(context, records, NULL);
    weft__drive_unlock(context);
    return status;
}

int weft_context_trace_stop(struct weft_context *context)
{
    if (!context)
        return WEFT__INVALID("%s: argument `context` is NULL", __func__);
    weft__drive_lock(context);
    struct weft__recorder *recorder = context->engine.recorder;
    context->engine.recorder = NULL;
    weft__drive_unlock(context);
    weft__recorder_destroy(recorder);
    return WEFT_OK;
}

int weft__recorder_open(struct weft_context *context)
{
    const char *directory = weft__env_trace();
    return !directory ? WEFT_OK
                      : start(context, weft__env_trace_records(context, RECORDS), directory);
}

/* ---- what was recorded ---- */

int weft_context_trace_collect(struct weft_context *context, struct weft_trace *trace)
{
    if (!context || !trace)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "trace");
    weft__drive_lock(context);
    int status = !context->engine.recorder
                     ? weft__error(WEFT_ERR_STATE, "%s: the context does not record", __func__)
                     : weft__recorder_collect(context, trace);
    weft__drive_unlock(context);
    return status;
}

/* Collects into a trace and writes that. */
static int write_trace(void *user, const char *part)
{
    struct weft_context *context = user;
    struct weft_trace *trace = NULL;
    int status = weft_trace_create(&trace);
    if (status == WEFT_OK)
        status = weft__recorder_collect(context, trace);
    if (status == WEFT_OK)
        status = weft_trace_write(trace, part);
    weft_trace_destroy(trace);
    return status;
}

void weft__recorder_flush(struct weft_context *context)
{
    struct weft__recorder *recorder = context->engine.recorder;
    int status = WEFT_OK;
    unsigned number = 0;
    if (!recorder || !recorder->directory)
        return;
    /* One that does not drive writes it at the end of the process: who does may be at that. */
    if (atomic_exchange_explicit(&recorder->writing, 1, memory_order_acquire))
        return;
    if (!recorder->path) /* the same each time it is written */
        status = weft__rank_file(context, recorder->directory, "trace", &number, &recorder->path);
    if (status == WEFT_OK)
        status = weft__rank_file_write(recorder->path, write_trace, context);
    if (status != WEFT_OK && recorder->path && access(recorder->path, F_OK) != 0) {
        weft__free(recorder->path); /* its name is free again */
        recorder->path = NULL;
    }
    atomic_store_explicit(&recorder->writing, 0, memory_order_release);
    if (status != WEFT_OK)
        weft__log(context, WEFT_LOG_WARNING, "WEFT_TRACE: %s", weft_error_text());
}

void weft__recorder_close(struct weft_context *context, int write)
{
    struct weft__recorder *recorder = context->engine.recorder;
    if (!recorder)
        return;
    if (write)
        weft__recorder_flush(context);
    context->engine.recorder = NULL;
    weft__recorder_destroy(recorder);
}
