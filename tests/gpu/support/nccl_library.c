/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/support/nccl_library.h"

#include <criterion/criterion.h>
#include <dlfcn.h>

#include "tests/gpu/support/device_memory.h"

enum { SYSTEM_ERROR = 3 };

static struct {
    int looked;
    unsigned (*report)(char *text, size_t size);
    unsigned (*leaks)(char *text, size_t size);
    unsigned long (*calls_of)(const char *name);
    void (*fail_at)(unsigned long n, int code);
} nccl;

static void find(void)
{
    void *library = nccl.looked ? NULL : dlopen("libnccl.so.2", RTLD_NOW);

    nccl.looked = 1;
    if (!library)
        return;
    *(void **)&nccl.report = dlsym(library, "standin_nccl_report");
    *(void **)&nccl.leaks = dlsym(library, "standin_nccl_leaks");
    *(void **)&nccl.calls_of = dlsym(library, "standin_nccl_calls_of");
    *(void **)&nccl.fail_at = dlsym(library, "standin_nccl_fail_at");
}

int nccl_stands_in(void)
{
    find();
    return nccl.report != NULL;
}

static void check(void)
{
    char text[4096] = "";

    if (!nccl_stands_in())
        return;
    cr_expect_eq(nccl.report(text, sizeof text), 0, "%s", text);
    cr_expect_eq(nccl.leaks(text, sizeof text), 0, "%s", text);
}

void nccl_play(ranks_fn fn, int size, weft_progress_t progress, void *user)
{
    struct ranks ranks;

    ranks_init(&ranks, size, fn, user);
    ranks.config.progress = progress;
    ranks_run(&ranks);
    check();
    device_check();
}

unsigned long nccl_calls(const char *name)
{
    return nccl_stands_in() ? nccl.calls_of(name) : 0;
}

void nccl_fail_at(unsigned long n)
{
    if (nccl_stands_in())
        nccl.fail_at(n, SYSTEM_ERROR);
}
