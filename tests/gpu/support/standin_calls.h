/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What tests ask the stand-in of the driver (tests/gpu/standin/standin.h), where it is what the
 * process has for a driver. On a device nobody can be asked, and nothing made to fail: tests that
 * need that are skipped there.
 */
#ifndef WEFT_TESTS_GPU_STANDIN_CALLS_H
#define WEFT_TESTS_GPU_STANDIN_CALLS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct standin {
    int there; /* 0: the driver is one; then what follows counts nothing, but for the last two */
    unsigned (*report)(char *text, size_t size);
    unsigned (*leaks)(char *text, size_t size);
    unsigned long (*calls)(void);
    unsigned long (*calls_of)(const char *name);
    /* Not on a device. */
    void (*fail_at)(unsigned long n, int code);
    void (*fault_at)(unsigned long n, int code);
};

/* Of the driver that the process finds. Loads it; a process without any ends. Any thread. */
const struct standin *standin_find(void);

/* Whether what is left are pages of words alone, on a rank of some of the lives in which something
 * was made to fail, far from all; `text` has what is left. A stream was to write such a word that
 * got no further: nobody can tell when it will, so the page stays. */
int standin_left_words(char *text, size_t size, unsigned broken, unsigned ranks);

#ifdef __cplusplus
}
#endif

#endif
