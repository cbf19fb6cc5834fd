/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Group averaging of models on devices, for suites that know nothing of it: the linker hands their
 * calls of weft_group_average_create() and its like to the functions __wrap_*() below. Of each
 * object the tensors are memory of a device that is filled with what the suite's have before a
 * call, and brought back after it. Now and then a step is put on a stream, as are the copies, and
 * then waited for. Objects of virtual ranks, whose transport has no devices, stay on the host.
 *
 *     WEFT_TEST_VIRTUAL=local   virtual ranks without faults are local ones
 *     WEFT_TEST_MIXED=1         on odd ranks tensors stay on the host
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <weft/cuda.h>

#include "tests/gpu/support/device_memory.h"
#include "tests/gpu/support/open_devices.h"
#include "tests/support/draw.h"
#include "tests/support/ranks.h"

#define REAL(type, name, ...) type __real_##name(__VA_ARGS__);
#define FUNCTIONS(X)                                                                               \
    X(int, weft_group_average_create, struct weft_group_average **, struct weft_context *,         \
      const struct weft_group_average_config *)                                                    \
    X(int, weft_group_average_step, struct weft_group_average *,                                   \
      struct weft_group_average_result *)                                                          \
    X(int, weft_group_average_post, struct weft_group_average *)                                   \
    X(int, weft_group_average_wait, struct weft_group_average *,                                   \
      struct weft_group_average_result *)                                                          \
    X(int, weft_group_average_get_state, struct weft_group_average *,                              \
      struct weft_group_average_state *)                                                           \
    X(int, weft_group_average_take_state, struct weft_group_average *,                             \
      struct weft_group_average_state *)                                                           \
    X(int, weft_group_average_destroy, struct weft_group_average *)                                \
    X(int, weft_virtual_run, int, const struct weft_virtual_config *,                              \
      int (*)(struct weft_context *, void *), void *)
FUNCTIONS(REAL)
#define WRAP(type, name, ...) type __wrap_##name(__VA_ARGS__);
FUNCTIONS(WRAP)

enum { MOST_BYTES = 1 << 26, SPREAD = 3 };

/* An object whose tensors are elsewhere. */
struct placed {
    struct placed *next;
    struct weft_group_average *average;
    struct weft_group_average_config config;
    struct weft_piece *tensors; /* the suite's */
    struct weft_piece *there;
    size_t count;
    char *memory, *pinned;
    size_t bytes; /* of both */
    void *stream;
    int streams;   /* steps may be put on it */
    int on_stream; /* one is */
    int device;
    void *state[3]; /* what a state points to, on the host */
    struct draw draw;
};

static struct placed *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint made;

static struct placed *find(const struct weft_group_average *average)
{
    pthread_mutex_lock(&lock);
    struct placed *placed = all;
    while (placed && placed->average != average)
        placed = placed->next;
    pthread_mutex_unlock(&lock);
    return placed;
}

/* ---- memory ---- */

static size_t bytes_of(const struct placed *placed, const struct weft_piece *tensor)
{
    return tensor->count * weft_dtype_size(placed->config.dtype);
}

/* All tensors, between the suite's memory and pinned memory of the same layout. */
static void move(struct placed *placed, int out)
{
    for (size_t i = 0; i < placed->count; i++) {
        size_t bytes = bytes_of(placed, &placed->tensors[i]);
        if (bytes == 0) /* there may be no address */
            continue;
        char *at = placed->pinned + ((char *)placed->there[i].data - placed->memory);
        if (out)
            memcpy(at, placed->tensors[i].data, bytes);
        else
            memcpy(placed->tensors[i].data, at, bytes);
    }
}

static void put(struct placed *placed)
{
    device_use(placed->device);
    move(placed, 1);
    device_put(placed->memory, placed->pinned, placed->bytes);
}

static void get(struct placed *placed)
{
    device_use(placed->device);
    device_get(placed->pinned, placed->memory, placed->bytes);
    move(placed, 0);
}

/* Whether numbers are such that no call is refused for them. */
static int is_finite(const struct placed *placed)
{
    for (size_t i = 0; i < placed->count; i++)
        for (size_t e = 0; e < placed->tensors[i].count; e++) {
            double value;
            size_t size = weft_dtype_size(placed->config.dtype);
            OK(weft_convert(WEFT_F64, &value, placed->config.dtype,
                            (char *)placed->tensors[i].data + e * size, 1));
            if (!isfinite(value))
                return 0;
        }
    return 1;
}

/* ---- life ---- */

static int can_place(struct weft_context *context, const struct weft_group_average_config *config)
{
    size_t bytes = 0;
    if (!context || !config || config->struct_size != sizeof *config || config->memory ||
        strcmp(weft_context_transport(context), "virtual") == 0 ||
        (config->tensor_count && !config->tensors) || config->dtype < 0 ||
        config->dtype >= WEFT_DTYPE_COUNT ||
        (getenv("WEFT_TEST_MIXED") && weft_context_rank(context) % 2))
        return 0;
    for (size_t i = 0; i < config->tensor_count; i++) {
        if (config->tensors[i].count > MOST_BYTES ||
            (config->tensors[i].count && !config->tensors[i].data))
            return 0;
        bytes += config->tensors[i].count * weft_dtype_size(config->dtype);
    }
    return bytes <= MOST_BYTES;
}

/* Tensors begin at different multiples of an element. */
static struct placed *place(struct weft_context *context,
                            const struct weft_group_average_config *config)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct placed *placed = calloc(1, sizeof *placed);
    pthread_once(&once, open_devices);
    size_t size = weft_dtype_size(config->dtype);
    CHECK(placed);
    placed->config = *config;
    placed->count = config->tensor_count;
    placed->tensors = calloc(placed->count + 1, sizeof *placed->tensors);
    placed->there = calloc(placed->count + 1, sizeof *placed->there);
    CHECK(placed->tensors && placed->there);
    placed->device = weft_context_rank(context) % device_count();
    placed->draw.state = atomic_fetch_add(&made, 1) * 1000;
    for (size_t i = 0; i < placed->count; i++) {
        placed->tensors[i] = config->tensors[i];
        placed->bytes += (config->tensors[i].count + draw_below(&placed->draw, SPREAD)) * size;
    }
    device_use(placed->device);
    placed->memory = device_alloc(placed->bytes);
    placed->pinned = device_pin(placed->bytes);
    memset(placed->pinned, 0, placed->bytes);
    placed->stream = device_stream();
    placed->streams = config->deadline_ns == 0;
    char *at = placed->memory + placed->bytes;
    for (size_t i = placed->count; i-- > 0;) {
        size_t spare = (size_t)(at - placed->memory);
        for (size_t k = 0; k <= i; k++)
            spare -= bytes_of(placed, &placed->tensors[k]);
        spare = spare < SPREAD * size ? spare : (SPREAD - 1) * size;
        at -= bytes_of(placed, &placed->tensors[i]) + spare;
        placed->there[i] =
            (struct weft_piece){placed->tensors[i].count ? at : NULL, placed->tensors[i].count};
    }
    placed->config.tensors = placed->there;
    placed->config.memory = WEFT_MEMORY_DEVICE;
    return placed;
}

static void forget_state(struct placed *placed)
{
    for (int i = 0; i < 3; i++) {
        free(placed->state[i]);
        placed->state[i] = NULL;
    }
}

static void free_placed(struct placed *placed)
{
    device_use(placed->device);
    device_stream_wait(placed->stream);
    device_stream_close(placed->stream);
    device_free(placed->memory);
    device_unpin(placed->pinned);
    forget_state(placed);
    free(placed->tensors);
    free(placed->there);
    free(placed);
}

/* A vector of a state goes to the device, where it may be as well. */
static void *upload(struct placed *placed, const void **vector, size_t count)
{
    size_t bytes = count * (placed->config.dtype == WEFT_F64 ? sizeof(double) : sizeof(float));
    if (!*vector || draw_below(&placed->draw, 2))
        return NULL;
    void *memory = device_alloc(bytes);
    device_put(memory, *vector, bytes);
    *vector = memory;
    return memory;
}

int __wrap_weft_group_average_create(struct weft_group_average **average,
                                     struct weft_context *context,
                                     const struct weft_group_average_config *config)
{
    if (!average || !can_place(context, config))
        return __real_weft_group_average_create(average, context, config);
    struct placed *placed = place(context, config);
    struct weft_group_average_state state;
    void *uploaded[3] = {0};
    put(placed);
    if (config->state && config->state->struct_size == sizeof state) {
        state = *config->state;
        uploaded[0] = upload(placed, &state.pending, state.pending_count);
        uploaded[1] = upload(placed, &state.failed, state.failed_count);
        uploaded[2] = upload(placed, &state.sum, state.sum_count);
        placed->config.state = &state;
    }
    int status = __real_weft_group_average_create(average, context, &placed->config);
    for (int i = 0; i < 3; i++)
        device_free(uploaded[i]);
    if (status != WEFT_OK) {
        char text[600];
        snprintf(text, sizeof text, "%s", weft_error_text());
        free_placed(placed);
        weft_error_set(status, "%s", text);
        return status;
    }
    get(placed);
    placed->average = *average;
    pthread_mutex_lock(&lock);
    placed->next = all;
    all = placed;
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

int __wrap_weft_group_average_destroy(struct weft_group_average *average)
{
    struct placed *placed = find(average);
    int status = __real_weft_group_average_destroy(average);
    if (!placed)
        return status;
    pthread_mutex_lock(&lock);
    struct placed **link = &all;
    while (*link != placed)
        link = &(*link)->next;
    *link = placed->next;
    pthread_mutex_unlock(&lock);
    free_placed(placed);
    return status;
}

/* ---- steps ---- */

/* Whether the next call is to be put on the stream. */
static int draws_stream(struct placed *placed)
{
    return placed->streams && draw_below(&placed->draw, 2) && is_finite(placed);
}

static void put_on_stream(struct placed *placed)
{
    device_use(placed->device);
    move(placed, 1);
    device_stream_put(placed->stream, placed->memory, placed->pinned, placed->bytes);
}

/* What has been put on the stream is asked for in one of three ways, and brought back. */
static int end_on_stream(struct placed *placed, struct weft_group_average_result *result)
{
    int status = WEFT_IN_PROGRESS;
    device_stream_get(placed->stream, placed->pinned, placed->memory, placed->bytes);
    if (draw_below(&placed->draw, 3) == 0)
        device_stream_wait(placed->stream);
    if (draw_below(&placed->draw, 2))
        while ((status = weft_group_average_test(placed->average, result)) == WEFT_IN_PROGRESS)
            sched_yield();
    else
        status = __real_weft_group_average_wait(placed->average, result);
    device_stream_wait(placed->stream);
    move(placed, 0);
    return status;
}

int __wrap_weft_group_average_step(struct weft_group_average *average,
                                   struct weft_group_average_result *result)
{
    struct placed *placed = find(average);
    if (!placed || (result && result->struct_size != sizeof *result))
        return __real_weft_group_average_step(average, result);
    forget_state(placed);
    if (draws_stream(placed)) {
        put_on_stream(placed);
        int status = weft_group_average_step_on(average, placed->stream);
        return status ? status : end_on_stream(placed, result);
    }
    put(placed);
    int status = __real_weft_group_average_step(average, result);
    get(placed);
    return status;
}

int __wrap_weft_group_average_post(struct weft_group_average *average)
{
    struct placed *placed = find(average);
    if (!placed)
        return __real_weft_group_average_post(average);
    forget_state(placed);
    if (!draws_stream(placed)) {
        put(placed);
        return __real_weft_group_average_post(average);
    }
    put_on_stream(placed);
    int status = weft_group_average_post_on(average, placed->stream);
    /* What is brought over for the second half must not come before that. */
    device_stream_wait(placed->stream);
    return status;
}

int __wrap_weft_group_average_wait(struct weft_group_average *average,
                                   struct weft_group_average_result *result)
{
    struct placed *placed = find(average);
    if (!placed || (result && result->struct_size != sizeof *result))
        return __real_weft_group_average_wait(average, result);
    if (draws_stream(placed)) {
        put_on_stream(placed);
        int status = weft_group_average_wait_on(average, placed->stream);
        return status ? status : end_on_stream(placed, result);
    }
    put(placed);
    int status = __real_weft_group_average_wait(average, result);
    get(placed);
    return status;
}

/* ---- states ---- */

static void download(struct placed *placed, int place, const void **vector, size_t count)
{
    size_t bytes = count * (placed->config.dtype == WEFT_F64 ? sizeof(double) : sizeof(float));
    if (!*vector)
        return;
    placed->state[place] = malloc(bytes + 1);
    CHECK(placed->state[place]);
    device_use(placed->device);
    device_get(placed->state[place], *vector, bytes);
    *vector = placed->state[place];
}

static int bring_state(struct placed *placed, struct weft_group_average_state *state, int status)
{
    if (!placed || status != WEFT_OK || state->struct_size != sizeof *state)
        return status;
    forget_state(placed);
    download(placed, 0, &state->pending, state->pending_count);
    download(placed, 1, &state->failed, state->failed_count);
    download(placed, 2, &state->sum, state->sum_count);
    return status;
}

int __wrap_weft_group_average_get_state(struct weft_group_average *average,
                                        struct weft_group_average_state *state)
{
    return bring_state(find(average), state, __real_weft_group_average_get_state(average, state));
}

int __wrap_weft_group_average_take_state(struct weft_group_average *average,
                                         struct weft_group_average_state *state)
{
    return bring_state(find(average), state, __real_weft_group_average_take_state(average, state));
}

/* ---- ranks ---- */

int __wrap_weft_virtual_run(int ranks, const struct weft_virtual_config *config,
                            int (*program)(struct weft_context *, void *), void *user)
{
    const char *local = getenv("WEFT_TEST_VIRTUAL");
    struct weft_context_config helped;
    if (!local || strcmp(local, "local") != 0 || !config || config->fault_count || config->deaths)
        return __real_weft_virtual_run(ranks, config, program, user);
    weft_context_config_init(&helped);
    helped.progress = WEFT_PROGRESS_HELPER;
    return weft_local_run(ranks, &helped, program, user);
}
