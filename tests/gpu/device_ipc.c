/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory of other processes. */
#include "device_test.h"

#include "runtime/base/alloc.h"
#include "turns.h"

enum { COUNT = 1000, MANY = 300, MOST_OPEN = 256, KEPT_OPEN = 64 };

/* What one process says to the other of its memory. */
struct told {
    struct weft__exported exported;
    uint64_t offset;
};

static void fill(struct weft__device *device, uint32_t *memory, uint32_t first)
{
    uint32_t *pinned = device->ops->pin(device, COUNT * sizeof *pinned);

    for (uint32_t i = 0; i < COUNT; i++)
        pinned[i] = first + i;
    copy_now(device, memory, pinned, COUNT * sizeof *pinned);
    device->ops->unpin(device, pinned);
}

static void expect(struct weft__device *device, const uint32_t *memory, uint32_t first,
                   uint32_t step)
{
    uint32_t *pinned = device->ops->pin(device, COUNT * sizeof *pinned);
    int wrong = 0;

    copy_now(device, pinned, memory, COUNT * sizeof *pinned);
    for (uint32_t i = 0; i < COUNT; i++)
        wrong += pinned[i] != first + step * i;
    CHECK(wrong == 0);
    device->ops->unpin(device, pinned);
}

static void tell(struct weft__device *device, const struct turns *turns, const void *memory,
                 size_t bytes)
{
    struct told told;

    CHECK(device->ops->export_memory(device, memory, bytes, &told.exported, &told.offset) == 1);
    say(turns->to_child[1], &told, sizeof told);
}

static void wait_turn(int fd)
{
    char turn;

    hear(fd, &turn, 1);
}

static void give_turn(int fd)
{
    say(fd, "", 1);
}

/* A stream that is created, where what is idle is closed. */
static void trim(struct weft__device *device)
{
    struct weft__stream *stream = NULL;

    OK(device->ops->open(device, &stream));
    device->ops->close(stream);
}

/* ---- read where it is ---- */

static void lend(struct turns *turns)
{
    struct weft__device *device = open_device("cuda:0");
    uint32_t *memory = device->ops->alloc(device, (COUNT + 64) * sizeof *memory);
    char here[16];
    struct told told;

    fill(device, memory + 64, 7);
    tell(device, turns, memory + 64, COUNT * sizeof *memory);
    CHECK(!device->ops->export_memory(device, memory + 65, COUNT * sizeof *memory, &told.exported,
                                      &told.offset));
    CHECK(!device->ops->export_memory(device, here, sizeof here, &told.exported, &told.offset));
    wait_turn(turns->to_parent[0]);
    device->ops->free(device, memory);
    device->ops->end(device);
    check_clean();
}

static void read_it(struct turns *turns)
{
    struct weft__device *device = open_device("cuda:1");
    const struct weft__device_ops *ops = device->ops;
    uint32_t *own = ops->alloc(device, COUNT * sizeof *own);
    struct weft__imported *imported[2];
    struct weft__stream *stream = NULL;
    struct told told;
    char *first;

    hear(turns->to_child[0], &told, sizeof told);
    first = ops->import_memory(device, &told.exported, &imported[0]);
    CHECK(first && ops->import_memory(device, &told.exported, &imported[1]) == (void *)first);
    CHECK(standin.calls_of("cuIpcOpenMemHandle_v2") == 1);
    const uint32_t *there = (const uint32_t *)(const void *)(first + told.offset);
    CHECK(ops->where(device, there, COUNT * sizeof *there) == WEFT__ON_DEVICE);
    REFUSED(ops->where(device, there, (COUNT + 1) * sizeof *there), WEFT_ERR_INVALID,
            "are not in one allocation");
    copy_now(device, own, there, COUNT * sizeof *own);
    expect(device, own, 7, 1);
    OK(ops->open(device, &stream));
    OK(ops->reduce(stream, WEFT_SUM, WEFT_U32, own, own, there, COUNT));
    OK(wait_for(stream));
    ops->close(stream);
    expect(device, own, 14, 2);
    ops->return_memory(device, imported[0]);
    ops->forget_owner(device, told.exported.owner);
    trim(device);
    CHECK(standin.calls_of("cuIpcCloseMemHandle") == 0); /* in use */
    ops->return_memory(device, imported[1]);
    trim(device);
    CHECK(standin.calls_of("cuIpcCloseMemHandle") == 1);
    give_turn(turns->to_parent[1]);
    ops->free(device, own);
    ops->end(device);
    check_clean();
}

void case_ipc(void)
{
    take_turns(lend, read_it);
}

/* ---- freed, and another one at the same address ---- */

static void lend_again(struct turns *turns)
{
    struct weft__device *device = open_device("cuda:0");
    CUcontext left;
    CUdeviceptr memory = 0, again = 0;

    OK((int)driver->cuCtxPushCurrent(weft__cuda_of(device)->context));
    OK((int)driver->cuMemAlloc(&memory, COUNT * sizeof(uint32_t)));
    fill(device, (void *)(uintptr_t)memory, 1);
    tell(device, turns, (void *)(uintptr_t)memory, COUNT * sizeof(uint32_t));
    wait_turn(turns->to_parent[0]);
    OK((int)driver->cuMemFree(memory));
    OK((int)driver->cuMemAlloc(&again, COUNT * sizeof(uint32_t)));
    CHECK(again == memory);
    fill(device, (void *)(uintptr_t)again, 2);
    tell(device, turns, (void *)(uintptr_t)again, COUNT * sizeof(uint32_t));
    wait_turn(turns->to_parent[0]);
    OK((int)driver->cuMemFree(again));
    OK((int)driver->cuCtxPopCurrent(&left));
    device->ops->end(device);
    check_clean();
}

static void read_again(struct turns *turns)
{
    struct weft__device *device = open_device("cuda:0");
    const struct weft__device_ops *ops = device->ops;
    struct weft__imported *imported;
    struct told told[2];
    uint32_t *there;

    for (uint32_t i = 0; i < 2; i++) {
        hear(turns->to_child[0], &told[i], sizeof told[i]);
        there = ops->import_memory(device, &told[i].exported, &imported);
        CHECK(there != NULL);
        expect(device, there, i + 1, 1);
        ops->return_memory(device, imported);
        give_turn(turns->to_parent[1]);
    }
    CHECK(told[0].exported.base == told[1].exported.base);
    ops->end(device);
    check_clean();
    CHECK(standin.calls_of("cuIpcOpenMemHandle_v2") == 2);
    CHECK(standin.calls_of("cuIpcCloseMemHandle") == 2);
}

void case_ipc_freed(void)
{
    take_turns(lend_again, read_again);
}

/* ---- more than are kept open ---- */

static void lend_many(struct turns *turns)
{
    struct weft__device *device = open_device("cuda:0");
    void *memory[MANY];

    for (int i = 0; i < MANY; i++) {
        memory[i] = device->ops->alloc(device, 64);
        tell(device, turns, memory[i], 64);
    }
    wait_turn(turns->to_parent[0]);
    for (int i = 0; i < MANY; i++)
        device->ops->free(device, memory[i]);
    device->ops->end(device);
    check_clean();
}

static void open_many(struct turns *turns)
{
    struct weft__device *device = open_device("cuda:0");
    const struct weft__device_ops *ops = device->ops;
    struct weft__imported *imported[MANY], *again;
    struct told told[MANY];

    for (int i = 0; i < MANY; i++) {
        hear(turns->to_child[0], &told[i], sizeof told[i]);
        void *there = ops->import_memory(device, &told[i].exported, &imported[i]);
        CHECK(!there == (i >= MOST_OPEN));
    }
    trim(device);
    CHECK(standin.calls_of("cuIpcCloseMemHandle") == 0); /* all are in use */
    CHECK(!ops->import_memory(device, &told[MANY - 1].exported, &again));
    for (int i = 0; i < MOST_OPEN; i++)
        ops->return_memory(device, imported[i]);
    /* The first one is the latest used now: it stays. */
    CHECK(ops->import_memory(device, &told[0].exported, &again) != NULL);
    ops->return_memory(device, again);
    trim(device);
    CHECK(standin.calls_of("cuIpcCloseMemHandle") == MOST_OPEN - KEPT_OPEN);
    CHECK(ops->import_memory(device, &told[0].exported, &again) != NULL);
    CHECK(standin.calls_of("cuIpcOpenMemHandle_v2") == MOST_OPEN);
    ops->return_memory(device, again);
    CHECK(ops->import_memory(device, &told[MANY - 1].exported, &again) != NULL);
    ops->return_memory(device, again);
    ops->end(device);
    CHECK(standin.calls_of("cuIpcCloseMemHandle") == MOST_OPEN + 1);
    give_turn(turns->to_parent[1]);
    check_clean();
}

void case_ipc_many(void)
{
    take_turns(lend_many, open_many);
}

/* ---- what cannot be ---- */

void case_ipc_pool(void)
{
    struct weft__device *device = open_device("cuda:0");
    void *memory = device->ops->alloc(device, 64);
    struct told told;

    CHECK(!device->ops->export_memory(device, memory, 64, &told.exported, &told.offset));
    CHECK(standin.calls_of("cuIpcGetMemHandle") == 0);
    device->ops->free(device, memory);
    device->ops->end(device);
    check_clean();
}

/* The driver is asked once. */
static void refused(struct turns *turns)
{
    setenv("STANDIN_IPC", "0", 1);
    struct weft__device *device = open_device("cuda:0");
    struct weft__imported *imported;
    struct told told;

    hear(turns->to_child[0], &told, sizeof told);
    for (int i = 0; i < 3; i++)
        CHECK(!device->ops->import_memory(device, &told.exported, &imported));
    CHECK(standin.calls_of("cuIpcOpenMemHandle_v2") == 1);
    device->ops->end(device);
    give_turn(turns->to_parent[1]);
    check_clean();
}

void case_ipc_refused(void)
{
    take_turns(lend, refused);
}

/* ---- calls that fail ---- */

static void fail_memory(const struct told *told)
{
    struct weft__device *device = open_device("cuda:0");
    struct weft__imported *imported = NULL;

    atomic_store(&weft__alloc_countdown, 1);
    CHECK(!device->ops->import_memory(device, &told->exported, &imported));
    atomic_store(&weft__alloc_countdown, -1);
    CHECK(device->ops->import_memory(device, &told->exported, &imported) != NULL);
    device->ops->return_memory(device, imported);
    device->ops->end(device);
    check_clean();
}

/* Any of them may: then it is not read where it is, and nothing is left. */
static void fail_import(struct turns *turns)
{
    struct told told;
    unsigned long n = 0, calls;
    int imports = 0;

    hear(turns->to_child[0], &told, sizeof told);
    do {
        struct weft__imported *imported = NULL;
        struct weft__device *device = open_device("cuda:0");
        calls = standin.calls();
        standin.fail_at(++n, CUDA_ERROR_UNKNOWN);
        if (device->ops->import_memory(device, &told.exported, &imported)) {
            device->ops->return_memory(device, imported);
            imports++;
        }
        device->ops->forget_owner(device, told.exported.owner);
        device->ops->end(device);
        standin.fail_at(0, 0);
        check_clean();
    } while (standin.calls() - calls >= n);
    CHECK(imports > 1 && n > (unsigned long)imports);
    fail_memory(&told);
    give_turn(turns->to_parent[1]);
}

static void fail_export(struct turns *turns)
{
    struct weft__device *device = open_device("cuda:0");
    void *memory = device->ops->alloc(device, 64);
    unsigned long n = 0, calls;
    struct told told;
    int done;

    do {
        calls = standin.calls();
        standin.fail_at(++n, CUDA_ERROR_UNKNOWN);
        done = device->ops->export_memory(device, memory, 64, &told.exported, &told.offset);
        standin.fail_at(0, 0);
    } while (standin.calls() - calls >= n);
    CHECK(n > 3 && done == 1);
    say(turns->to_child[1], &told, sizeof told);
    wait_turn(turns->to_parent[0]);
    device->ops->free(device, memory);
    device->ops->end(device);
    check_clean();
}

void case_ipc_fails(void)
{
    take_turns(fail_export, fail_import);
}
