/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/support/standin_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned none(char *text, size_t size)
{
    if (text && size > 0)
        text[0] = '\0';
    return 0;
}

static unsigned long no_calls(void)
{
    return 0;
}

static unsigned long no_calls_of(const char *name)
{
    (void)name;
    return 0;
}

static void cannot_fail(unsigned long n, int code)
{
    fprintf(stderr, "call %lu of a real driver was to fail with %d\n", n, code);
    abort();
}

static struct standin found = {0, none, none, no_calls, no_calls_of, cannot_fail, cannot_fail};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"standin_report", &found.report},   {"standin_leaks", &found.leaks},
        {"standin_calls", &found.calls},     {"standin_calls_of", &found.calls_of},
        {"standin_fail_at", &found.fail_at}, {"standin_fault_at", &found.fault_at},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);

        if (!function)
            return; /* a driver */
        memcpy(functions[i].place, &function, sizeof function);
    }
    found.there = 1;
}

const struct standin *standin_find(void)
{
    pthread_once(&once, load);
    return &found;
}

int standin_left_words(char *text, size_t size, unsigned broken, unsigned ranks)
{
    const size_t page = 4096; /* 64 words in lines of their own */
    unsigned most = broken ? ranks + broken * ranks / 8 : 0, left, pages = 0;

    text[0] = '\0';
    left = standin_find()->leaks(text, size);
    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        unsigned objects, pins;
        size_t largest;

        if (sscanf(line,
                   "%u objects of device %*u when its context was released, %u of them pinned "
                   "memory of at most %zu bytes",
                   &objects, &pins, &largest) == 3 &&
            objects == pins && largest <= page)
            pages += pins;
    }
    return left == pages && left <= most;
}
