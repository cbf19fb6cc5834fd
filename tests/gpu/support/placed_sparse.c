/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse averaging of gradients on devices, for suites that know nothing of it, as
 * placed_averages.c does for group averaging: of each object the gradients are memory of a device,
 * laid out as the suite's are. They are filled with those before a call that reads them, spoilt
 * after it, and brought back where it writes them. What sums are applied to goes to the device for
 * the call, and back. Objects of virtual ranks, whose transport has no devices, stay on the
 * host.
 *
 *     WEFT_TEST_MIXED=1   on odd ranks gradients stay on the host
 */
#include <pthread.h>

#include "tests/gpu/support/device_memory.h"
#include "tests/gpu/support/open_devices.h"
#include "tests/support/ranks.h"

#define REAL(name, ...) int __real_weft_sparse_average_##name(__VA_ARGS__);
#define FUNCTIONS(X)                                                                               \
    X(create, struct weft_sparse_average **, struct weft_context *,                                \
      const struct weft_sparse_average_config *)                                                   \
    X(step, struct weft_sparse_average *, struct weft_sparse_average_result *)                     \
    X(post, struct weft_sparse_average *)                                                          \
    X(wait, struct weft_sparse_average *, struct weft_sparse_average_result *)                     \
    X(post_tensor, struct weft_sparse_average *, size_t)                                           \
    X(apply, const struct weft_sparse_average *, double, weft_dtype_t, const struct weft_piece *,  \
      size_t)                                                                                      \
    X(apply_tensor, const struct weft_sparse_average *, size_t, double, weft_dtype_t, void *)      \
    X(destroy, struct weft_sparse_average *)
FUNCTIONS(REAL)
#define WRAP(name, ...) int __wrap_weft_sparse_average_##name(__VA_ARGS__);
FUNCTIONS(WRAP)

enum { MOST_BYTES = 1 << 26 };

/* Tensors, and where they are on the device. */
struct copies {
    struct weft_piece *here, *there;
    size_t count, size; /* of an element */
    char *memory;
    int device;
};

struct placed {
    struct placed *next;
    struct weft_sparse_average *average;
    struct copies gradients;
    int stepping; /* a wait ends a step() */
};

static struct placed *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct placed *find(const struct weft_sparse_average *average)
{
    pthread_mutex_lock(&lock);
    struct placed *placed = all;
    while (placed && placed->average != average)
        placed = placed->next;
    pthread_mutex_unlock(&lock);
    return placed;
}

/* ---- memory ---- */

/* Whether tensors are such that nothing is refused for them. */
static int can_copy(const struct weft_piece *tensors, size_t count, weft_dtype_t dtype)
{
    size_t bytes = 0, size = weft_dtype_size(dtype);
    if ((dtype != WEFT_F16 && dtype != WEFT_BF16 && dtype != WEFT_F32 && dtype != WEFT_F64) ||
        (count && !tensors))
        return 0;
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].count > MOST_BYTES ||
            (tensors[i].count && (!tensors[i].data || (uintptr_t)tensors[i].data % size)))
            return 0;
        bytes += tensors[i].count * size;
    }
    return bytes <= MOST_BYTES;
}

/* What lies side by side here does so there. */
static void copies_make(struct copies *copies, const struct weft_piece *tensors, size_t count,
                        weft_dtype_t dtype, int device)
{
    uintptr_t first = UINTPTR_MAX, last = 0;
    *copies = (struct copies){.count = count, .size = weft_dtype_size(dtype), .device = device};
    copies->here = calloc(count + 1, sizeof *copies->here);
    copies->there = calloc(count + 1, sizeof *copies->there);
    CHECK(copies->here && copies->there);
    for (size_t i = 0; i < count; i++) {
        uintptr_t at = (uintptr_t)tensors[i].data;
        copies->here[i] = tensors[i];
        if (!tensors[i].count)
            continue;
        first = at < first ? at : first;
        at += tensors[i].count * copies->size;
        last = at > last ? at : last;
    }
    device_use(device);
    copies->memory = device_alloc(last > first ? last - first : 0);
    for (size_t i = 0; i < count; i++)
        copies->there[i] = (struct weft_piece){
            tensors[i].count ? copies->memory + ((uintptr_t)tensors[i].data - first) : NULL,
            tensors[i].count};
}

static void copies_free(struct copies *copies)
{
    device_use(copies->device);
    device_free(copies->memory);
    free(copies->here);
    free(copies->there);
}

static void put(const struct copies *copies)
{
    device_use(copies->device);
    for (size_t i = 0; i < copies->count; i++)
        device_put(copies->there[i].data, copies->here[i].data,
                   copies->here[i].count * copies->size);
}

static void get(const struct copies *copies)
{
    device_use(copies->device);
    for (size_t i = 0; i < copies->count; i++)
        device_get(copies->here[i].data, copies->there[i].data,
                   copies->here[i].count * copies->size);
}

/* NaNs, of which nothing may come. */
static void spoil(const struct copies *copies)
{
    device_use(copies->device);
    for (size_t i = 0; i < copies->count; i++) {
        size_t bytes = copies->here[i].count * copies->size;
        char *nans = malloc(bytes + 1);
        CHECK(nans);
        memset(nans, 0xff, bytes);
        device_put(copies->there[i].data, nans, bytes);
        free(nans);
    }
}

/* ---- life ---- */

static int can_place(struct weft_context *context, const struct weft_sparse_average_config *config)
{
    return context && config && config->struct_size == sizeof *config && !config->memory &&
           strcmp(weft_context_transport(context), "virtual") != 0 && config->dtype != WEFT_F64 &&
           !(getenv("WEFT_TEST_MIXED") && weft_context_rank(context) % 2) &&
           can_copy(config->tensors, config->tensor_count, config->dtype);
}

int __wrap_weft_sparse_average_create(struct weft_sparse_average **average,
                                      struct weft_context *context,
                                      const struct weft_sparse_average_config *config)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!average || !can_place(context, config))
        return __real_weft_sparse_average_create(average, context, config);
    struct weft_sparse_average_config there = *config;
    struct placed *placed = calloc(1, sizeof *placed);
    CHECK(placed);
    pthread_once(&once, open_devices);
    copies_make(&placed->gradients, config->tensors, config->tensor_count, config->dtype,
                weft_context_rank(context) % device_count());
    spoil(&placed->gradients);
    there.tensors = placed->gradients.there;
    there.memory = WEFT_MEMORY_DEVICE;
    int status = __real_weft_sparse_average_create(average, context, &there);
    if (status) {
        char text[600];
        snprintf(text, sizeof text, "%s", weft_error_text());
        copies_free(&placed->gradients);
        free(placed);
        weft_error_set(status, "%s", text);
        return status;
    }
    placed->average = *average;
    pthread_mutex_lock(&lock);
    placed->next = all;
    all = placed;
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

int __wrap_weft_sparse_average_destroy(struct weft_sparse_average *average)
{
    struct placed *placed = find(average);
    int status = __real_weft_sparse_average_destroy(average);
    if (!placed)
        return status;
    pthread_mutex_lock(&lock);
    struct placed **link = &all;
    while (*link != placed)
        link = &(*link)->next;
    *link = placed->next;
    pthread_mutex_unlock(&lock);
    copies_free(&placed->gradients);
    free(placed);
    return status;
}

/* ---- steps ---- */

int __wrap_weft_sparse_average_step(struct weft_sparse_average *average,
                                    struct weft_sparse_average_result *result)
{
    struct placed *placed = find(average);
    if (placed && !placed->stepping)
        put(&placed->gradients);
    int status = __real_weft_sparse_average_step(average, result);
    if (!placed)
        return status;
    if (status == WEFT_OK || status == WEFT_ERR_COMPUTE)
        get(&placed->gradients);
    placed->stepping |= status == WEFT_ERR_TIMEOUT;
    return status;
}

int __wrap_weft_sparse_average_post(struct weft_sparse_average *average)
{
    struct placed *placed = find(average);
    if (!placed)
        return __real_weft_sparse_average_post(average);
    put(&placed->gradients);
    int status = __real_weft_sparse_average_post(average);
    spoil(&placed->gradients);
    return status;
}

int __wrap_weft_sparse_average_post_tensor(struct weft_sparse_average *average, size_t tensor)
{
    struct placed *placed = find(average);
    if (!placed)
        return __real_weft_sparse_average_post_tensor(average, tensor);
    put(&placed->gradients);
    int status = __real_weft_sparse_average_post_tensor(average, tensor);
    spoil(&placed->gradients);
    return status;
}

int __wrap_weft_sparse_average_wait(struct weft_sparse_average *average,
                                    struct weft_sparse_average_result *result)
{
    struct placed *placed = find(average);
    int status = __real_weft_sparse_average_wait(average, result);
    if (!placed || !placed->stepping || status == WEFT_ERR_TIMEOUT)
        return status;
    placed->stepping = 0;
    get(&placed->gradients);
    return status;
}

/* ---- sums ---- */

/* Whether tensors are as long as the gradients: others are refused. */
static int are_as_long(const struct copies *gradients, const struct weft_piece *tensors,
                       size_t count)
{
    int same = count == gradients->count && (tensors || !count);
    for (size_t i = 0; i < count && same; i++)
        same = tensors[i].count == gradients->here[i].count;
    return same;
}

int __wrap_weft_sparse_average_apply(const struct weft_sparse_average *average, double scale,
                                     weft_dtype_t dtype, const struct weft_piece *tensors,
                                     size_t tensor_count)
{
    struct placed *placed = find(average);
    if (!placed || !are_as_long(&placed->gradients, tensors, tensor_count) ||
        !can_copy(tensors, tensor_count, dtype))
        return __real_weft_sparse_average_apply(average, scale, dtype, tensors, tensor_count);
    struct copies copies;
    copies_make(&copies, tensors, tensor_count, dtype, placed->gradients.device);
    put(&copies);
    int status =
        __real_weft_sparse_average_apply(average, scale, dtype, copies.there, tensor_count);
    get(&copies);
    copies_free(&copies);
    return status;
}

int __wrap_weft_sparse_average_apply_tensor(const struct weft_sparse_average *average,
                                            size_t tensor, double scale, weft_dtype_t dtype,
                                            void *data)
{
    struct placed *placed = find(average);
    struct weft_piece piece = {data, placed && tensor < placed->gradients.count
                                         ? placed->gradients.here[tensor].count
                                         : 0};
    struct copies copies;
    if (!piece.count || !can_copy(&piece, 1, dtype))
        return __real_weft_sparse_average_apply_tensor(average, tensor, scale, dtype, data);
    copies_make(&copies, &piece, 1, dtype, placed->gradients.device);
    put(&copies);
    int status = __real_weft_sparse_average_apply_tensor(average, tensor, scale, dtype,
                                                         copies.there[0].data);
    get(&copies);
    copies_free(&copies);
    return status;
}
