/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment: read here and nowhere else, when a context is made (WEFT_DUMP: at a commit). */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/context/context.h"
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/sim.h>

/* Variables that may be bad. */
enum variable {
    PROGRESS,
    LOG,
    STALL,
    SIMD,
    TRACE,
    STATE,
    DUMP,
    COST,
    TRACE_RECORDS,
    DEVICE_WAY,
    APART,
    VARIABLES
};

static const char *const names[VARIABLES] = {
    [PROGRESS] = "WEFT_PROGRESS",
    [LOG] = "WEFT_LOG",
    [STALL] = "WEFT_STALL",
    [SIMD] = "WEFT_SIMD",
    [TRACE] = "WEFT_TRACE",
    [STATE] = "WEFT_STATE",
    [DUMP] = "WEFT_DUMP",
    [COST] = "WEFT_COST",
    [TRACE_RECORDS] = "WEFT_TRACE_RECORDS",
    [DEVICE_WAY] = "WEFT_DEVICE_WAY",
    [APART] = "WEFT_APART",
};

/* Whether nobody in this process has told of this value: it has a context a rank, and one line is
 * enough. A program that sets another value is told again. */
static int is_news(enum variable variable, const char *value)
{
    static atomic_uint_least64_t told[VARIABLES];
    uint64_t hash = weft__hash_bytes(WEFT__HASH_EMPTY, value, strlen(value)) | 1; /* 0: none yet */
    return atomic_exchange_explicit(&told[variable], hash, memory_order_relaxed) != hash;
}

static void bad(const struct weft_context_config *config, enum variable variable, const char *value,
                const char *expected)
{
    char line[512];
    if (!is_news(variable, value))
        return;
    snprintf(line, sizeof line, "environment: %s is `%s`, expected %s; ignored", names[variable],
             value, expected);
    if (config && config->log)
        config->log(config->log_user, WEFT_LOG_WARNING, -1, line);
    else
        fprintf(stderr, "weft: %s\n", line);
}

/* Words are numbered from 1 on, as enums do it after their default. */
_Static_assert(WEFT_PROGRESS_HELPER == 2 && WEFT_LOG_DEBUG == 4 && WEFT_DEVICE_WAY_STAGED == 2 &&
                   WEFT_BIND_OFF == 2,
               "words of variables have the order of their enums");

/* The number of the word that a variable has; 0: it is not set, or has none of these. */
static int read_word(const struct weft_context_config *config, enum variable variable,
                     const char *const *words, const char *expected)
{
    const char *value = getenv(names[variable]);
    if (!value)
        return 0;
    for (int i = 0; words[i]; i++)
        if (strcmp(value, words[i]) == 0)
            return i + 1;
    bad(config, variable, value, expected);
    return 0;
}

static void apply_words(struct weft_context_config *config)
{
    static const char *const who[] = {"caller", "helper", NULL};
    static const char *const levels[] = {"error", "warning", "info", "debug", NULL};
    static const char *const ways[] = {"direct", "staged", NULL};
    static const char *const apart[] = {"on", "off", NULL};
    if (config->progress == WEFT_PROGRESS_DEFAULT)
        config->progress = (weft_progress_t)read_word(config, PROGRESS, who, "caller or helper");
    if (config->log_level == WEFT_LOG_DEFAULT)
        config->log_level =
            (weft_log_level_t)read_word(config, LOG, levels, "error, warning, info or debug");
    if (config->device_way == WEFT_DEVICE_WAY_DEFAULT)
        config->device_way =
            (weft_device_way_t)read_word(config, DEVICE_WAY, ways, "direct or staged");
    if (config->keep_apart == WEFT_BIND_DEFAULT)
        config->keep_apart = (weft_bind_t)read_word(config, APART, apart, "on or off");
}

static void apply_stall(struct weft_context_config *config)
{
    const char *value = getenv(names[STALL]);
    if (!value || config->stall_ns != 0)
        return;
    char *end = NULL;
    double seconds = strtod(value, &end);
    if (end == value || *end != '\0' || !(seconds >= 0 && seconds < 1e9))
        bad(config, STALL, value, "seconds");
    else
        config->stall_ns = seconds * 1e9 < 1 ? WEFT_NEVER : (uint64_t)(seconds * 1e9);
}

static void apply_simd(const struct weft_context_config *config)
{
    const char *value = getenv(names[SIMD]);
    if (!value)
        return;
    for (weft_simd_t level = WEFT_SIMD_SCALAR; level <= WEFT_SIMD_AVX512; level++)
        if (strcmp(value, weft_simd_name(level)) == 0) {
            weft_simd_limit(level);
            return;
        }
    bad(config, SIMD, value, "scalar, avx2 or avx512");
}

/* Whether files can be made in a folder, which is made if only its last part is missing. 0, or why
 * not. */
static int try_folder(const char *path)
{
    struct stat found;
    (void)mkdir(path, 0777);
    if (stat(path, &found) != 0)
        return errno;
    if (!S_ISDIR(found.st_mode))
        return ENOTDIR;
    return access(path, W_OK | X_OK) != 0 ? errno : 0;
}

/* The folder that a variable names, or NULL. */
static const char *folder(const struct weft_context_config *config, enum variable variable)
{
    const char *path = getenv(names[variable]);
    char expected[128];
    if (!path || path[0] == '\0')
        return NULL;
    int error = try_folder(path);
    if (error == 0)
        return path;
    snprintf(expected, sizeof expected, "a folder that can be written to (%s)", strerror(error));
    bad(config, variable, path, expected);
    return NULL;
}

static void try_folders(const struct weft_context_config *config)
{
    (void)folder(config, TRACE);
    (void)folder(config, STATE);
    (void)folder(config, DUMP);
}

void weft__env_apply(struct weft_context_config *config)
{
    apply_words(config);
    apply_stall(config);
    apply_simd(config);
    try_folders(config);
}

struct weft_cost_model *weft__env_cost(const struct weft_context *context)
{
    const char *value = getenv(names[COST]);
    const char *transport = weft_context_transport(context);
    struct weft_cost_model *model;
    if (!value || value[0] == '\0')
        return NULL;
    model = weft__malloc(1, sizeof *model);
    if (!model)
        return NULL;
    *model = *weft__context_cost(context);
    struct weft__error_saved saved;
    weft__error_save(&saved);
    int status = weft_cost_model_read(value, transport, model, NULL);
    if (status == WEFT_OK)
        return model;
    weft__free(model);
    weft_log_level_t level = status == WEFT_ERR_NOT_FOUND ? WEFT_LOG_INFO : WEFT_LOG_WARNING;
    if (level <= context->config.log_level && is_news(COST, value))
        weft__log(context, level, "environment: WEFT_COST: %s; ignored", weft_error_text());
    weft__error_restore(&saved);
    return NULL;
}

/* One number of a list of them, from *text on; moves behind it and the comma. 0: there is none. */
static int next_number(const char **text, int *number)
{
    char *end = NULL;
    if (**text < '0' || **text > '9')
        return 0;
    errno = 0;
    long value = strtol(*text, &end, 10);
    if (errno != 0 || value > INT_MAX || (*end != ',' && *end != '\0'))
        return 0;
    *number = (int)value;
    *text = *end == ',' ? end + 1 : end;
    return *end != ',' || **text != '\0';
}

const char *weft__env_text(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] != '\0' ? value : NULL;
}

static int whole_number(const char *text, long least, long most, int *number)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    *number = (int)value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && value >= least &&
           value <= most;
}

int weft__env_rank(const char *who, const char *rank_name, const char *size_name, int most,
                   int *rank, int *size)
{
    const char *rank_text = weft__env_text(rank_name);
    const char *size_text = weft__env_text(size_name);
    if (!rank_text || !size_text)
        return WEFT__INVALID("%s: environment: %s is set, but %s is not", who,
                             rank_text ? rank_name : size_name, rank_text ? size_name : rank_name);
    if (!whole_number(size_text, 1, most, size))
        return WEFT__INVALID("%s: environment: %s is `%.100s`, expected 1 to %d", who, size_name,
                             size_text, most);
    if (!whole_number(rank_text, 0, *size - 1, rank))
        return WEFT__INVALID("%s: environment: %s is `%.100s`, expected 0 to %d, as %s is %d", who,
                             rank_name, rank_text, *size - 1, size_name, *size);
    return WEFT_OK;
}

int weft__env_host(int rank, int size, int *host)
{
    const char *value = getenv("WEFT_HOSTS");
    *host = -1;
    if (!value || value[0] == '\0')
        return WEFT_OK;
    const char *text = value;
    int own = -1, count = 0, number;
    while (next_number(&text, &number)) {
        if (count == rank)
            own = number;
        count++;
    }
    if (*text != '\0' || count != size)
        return WEFT__INVALID("environment: WEFT_HOSTS is `%.200s`, expected the hosts of all %d "
                             "processes of MPI_COMM_WORLD, numbers from 0 with commas between them",
                             value, size);
    *host = own;
    return WEFT_OK;
}

const char *weft__env_dump(void)
{
    return folder(NULL, DUMP);
}

const char *weft__env_trace(void)
{
    return folder(NULL, TRACE);
}

const char *weft__env_state(void)
{
    return folder(NULL, STATE);
}

size_t weft__env_trace_records(const struct weft_context *context, size_t standard)
{
    const char *value = getenv(names[TRACE_RECORDS]);
    if (!value)
        return standard;
    char *end = NULL;
    double records = strtod(value, &end);
    if (end != value && *end == '\0' && records >= 1 && records <= 1e12)
        return (size_t)records;
    bad(&context->config, TRACE_RECORDS, value, "a number from 1");
    return standard;
}

void weft__env_dump_file(const char *directory, const char *name, int rank, int size,
                         unsigned number, const char *text, size_t length)
{
    char safe[64];
    size_t n = 0;
    for (; name[n] != '\0' && n + 1 < sizeof safe; n++) {
        char c = name[n];
        int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        safe[n] = plain || c == '-' || c == '.' ? c : '_';
    }
    safe[n] = '\0';
    char path[4096];
    int written = snprintf(path, sizeof path, "%s/%s.%d-of-%d.%ld.%u.weft", directory, safe, rank,
                           size, (long)getpid(), number);
    FILE *file = written > 0 && (size_t)written < sizeof path ? fopen(path, "w") : NULL;
    int bad_write = !file || fwrite(text, 1, length, file) != length;
    if (file)
        bad_write |= fclose(file) != 0;
    if (bad_write)
        fprintf(stderr, "weft: WEFT_DUMP: %s could not be written: %s\n", path, strerror(errno));
}
