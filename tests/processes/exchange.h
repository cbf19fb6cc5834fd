/* SPDX-License-Identifier: BSD-3-Clause */
/* An exchange among all ranks, oneself included. */
#ifndef WEFT_TESTS_EXCHANGE_H
#define WEFT_TESTS_EXCHANGE_H

#include "world.h"

struct exchange {
    struct weft_run *run;
    unsigned char *out;
    unsigned char *in;
    size_t bytes;
    int rank;
    int size;
    uint64_t version;
};

/* Every rank sends `bytes` to each rank, `per_peer` times. */
struct exchange exchange_make(struct weft_context *context, size_t bytes, int per_peer);
void exchange_start(struct exchange *x);
void exchange_finish(struct exchange *x);
void exchange_free(struct exchange *x);

/* Many at once, with ranks that come late; a case by the name. */
void exchange_many(struct weft_context *context, size_t bytes, int messages, const char *name);

void pause_ms(int ms);

#endif
