/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment: read here and nowhere else, when a context is made (WEFT_DUMP: at a commit). */
#include "runtime/context.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void bad(const struct weft_context_config *config, const char *name, const char *value,
                const char *expected)
{
    char line[256];
    snprintf(line, sizeof(line), "environment: %s is `%s`, expected %s; ignored", name, value,
             expected);
    if (config->log != NULL)
        config->log(config->log_user, WEFT_LOG_WARNING, -1, line);
    else
        fprintf(stderr, "weft: %s\n", line);
}

static void apply_progress(struct weft_context_config *config)
{
    const char *value = getenv("WEFT_PROGRESS");
    if (value == NULL || config->progress != WEFT_PROGRESS_DEFAULT)
        return;
    if (strcmp(value, "helper") == 0)
        config->progress = WEFT_PROGRESS_HELPER;
    else if (strcmp(value, "caller") == 0)
        config->progress = WEFT_PROGRESS_CALLER;
    else
        bad(config, "WEFT_PROGRESS", value, "caller or helper");
}

static void apply_log(struct weft_context_config *config)
{
    static const char *const names[] = {"", "error", "warning", "info", "debug"};
    const char *value = getenv("WEFT_LOG");
    if (value == NULL || config->log_level != WEFT_LOG_DEFAULT)
        return;
    for (int level = WEFT_LOG_ERROR; level <= WEFT_LOG_DEBUG; level++)
        if (strcmp(value, names[level]) == 0) {
            config->log_level = (weft_log_level_t)level;
            return;
        }
    bad(config, "WEFT_LOG", value, "error, warning, info or debug");
}

static void apply_stall(struct weft_context_config *config)
{
    const char *value = getenv("WEFT_STALL");
    if (value == NULL || config->stall_ns != WEFT_NS_DEFAULT)
        return;
    char *end = NULL;
    double seconds = strtod(value, &end);
    if (end == value || *end != '\0' || !(seconds >= 0 && seconds < 1e9))
        bad(config, "WEFT_STALL", value, "seconds");
    else
        config->stall_ns = (uint64_t)(seconds * 1e9);
}

static void apply_simd(const struct weft_context_config *config)
{
    const char *value = getenv("WEFT_SIMD");
    if (value == NULL)
        return;
    for (weft_simd_t level = WEFT_SIMD_SCALAR; level <= WEFT_SIMD_AVX512; level++)
        if (strcmp(value, weft_simd_name(level)) == 0) {
            weft_simd_limit(level);
            return;
        }
    bad(config, "WEFT_SIMD", value, "scalar, avx2 or avx512");
}

void weft__env_apply(struct weft_context_config *config)
{
    apply_progress(config);
    apply_log(config);
    apply_stall(config);
    apply_simd(config);
}

const char *weft__env_dump(void)
{
    const char *directory = getenv("WEFT_DUMP");
    return directory != NULL && directory[0] != '\0' ? directory : NULL;
}

void weft__env_dump_file(const char *directory, const char *name, int rank, int size,
                         unsigned number, const char *text, size_t length)
{
    char safe[64];
    size_t n = 0;
    for (; name[n] != '\0' && n + 1 < sizeof(safe); n++) {
        char c = name[n];
        int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        safe[n] = plain || c == '-' || c == '.' ? c : '_';
    }
    safe[n] = '\0';
    char path[4096];
    int written = snprintf(path, sizeof(path), "%s/%s.%d-of-%d.%ld.%u.weft", directory, safe, rank,
                           size, (long)getpid(), number);
    FILE *file = written > 0 && (size_t)written < sizeof(path) ? fopen(path, "w") : NULL;
    int bad_write = file == NULL || fwrite(text, 1, length, file) != length;
    if (file != NULL)
        bad_write |= fclose(file) != 0;
    if (bad_write)
        fprintf(stderr, "weft: WEFT_DUMP: %s could not be written: %s\n", path, strerror(errno));
}
