/* SPDX-License-Identifier: BSD-3-Clause */
/* What libraries on top keep for a context: a list, added to by any thread, that ends with it. */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/context.h"

struct weft__attachment {
    struct weft__attachment *next;
    const void *key;
    void *value;
    weft_end_fn end;
};

static const struct weft__attachment *find(const struct weft__attachment *attachment,
                                           const void *key)
{
    while (attachment && attachment->key != key)
        attachment = attachment->next;
    return attachment;
}

void *weft_context_attached(const struct weft_context *context, const void *key)
{
    if (!context)
        return NULL;
    /* Acquire pairs with the release of who has attached it. */
    const struct weft__attachment *found =
        find(atomic_load_explicit(&context->attachments, memory_order_acquire), key);
    return found ? found->value : NULL;
}

int weft_context_attach(struct weft_context *context, const void *key, void *value, weft_end_fn end)
{
    if (!context || !key || !value)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             !context ? "context"
                             : !key   ? "key"
                                      : "value");
    struct weft__attachment *attachment = weft__calloc(1, sizeof *attachment);
    if (!attachment)
        return weft__error_memory(__func__);
    *attachment = (struct weft__attachment){NULL, key, value, end};
    struct weft__attachment *first =
        atomic_load_explicit(&context->attachments, memory_order_acquire);
    do {
        if (find(first, key)) {
            weft__free(attachment);
            return weft__error(WEFT_ERR_STATE, "%s: something is attached with that key", __func__);
        }
        attachment->next = first;
    } while (!atomic_compare_exchange_weak_explicit(&context->attachments, &first, attachment,
                                                    memory_order_acq_rel, memory_order_acquire));
    return WEFT_OK;
}

void weft__attachments_end(struct weft_context *context)
{
    struct weft__attachment *attachment;
    while ((attachment = atomic_load_explicit(&context->attachments, memory_order_acquire))) {
        if (attachment->end)
            attachment->end(attachment->value);
        atomic_store_explicit(&context->attachments, attachment->next, memory_order_release);
        weft__free(attachment);
    }
}
