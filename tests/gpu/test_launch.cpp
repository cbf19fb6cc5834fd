// SPDX-License-Identifier: BSD-3-Clause
// What only launches have: streams that run beside each other, and arguments that are wrong.
#include "tests/gpu/driver_tests.h"

namespace
{

enum { CHAINS = 6, STEPS = 40, COUNT = 700 };

// A stream's numbers: each step adds those of another chain, or a number of its own.
struct chain {
    CUstream stream;
    CUevent done;
    CUdeviceptr numbers;
    std::vector<uint32_t> expected;
};

void begin(chain &own, uint32_t first)
{
    MUST(cuStreamCreate(&own.stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&own.done, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAlloc(&own.numbers, COUNT * sizeof(uint32_t)));
    own.expected.assign(COUNT, first);
    MUST(device_launch("weft_fill_32", 2, 64, own.stream, (void *)own.numbers, (uint64_t)first,
                       (uint64_t)COUNT));
    MUST(cuEventRecord(own.done, own.stream));
}

// Reads of another chain what it has after its last step; that goes on when they are read.
void add(chain &own, chain &other)
{
    MUST(cuStreamWaitEvent(own.stream, other.done, 0));
    MUST(device_launch("weft_reduce_sum_u32", 1 + (unsigned)draw_below(3), 32, own.stream,
                       (void *)own.numbers, (const void *)own.numbers, (const void *)other.numbers,
                       (uint64_t)COUNT));
    MUST(cuEventRecord(own.done, own.stream));
    MUST(cuStreamWaitEvent(other.stream, own.done, 0));
    for (size_t i = 0; i < COUNT; i++)
        own.expected[i] += other.expected[i];
}

void fill_part(chain &own, uint32_t value)
{
    const size_t first = draw_below(COUNT);
    const size_t count = draw_below(COUNT - first + 1);

    MUST(device_launch("weft_fill_32", 1, 1 + (unsigned)draw_below(64), own.stream,
                       (void *)(own.numbers + 4 * first), (uint64_t)value, (uint64_t)count));
    MUST(cuEventRecord(own.done, own.stream));
    for (size_t i = 0; i < count; i++)
        own.expected[first + i] = value;
}

void end(chain &own, int number)
{
    std::vector<uint32_t> found(COUNT);

    MUST(cuMemcpyDtoHAsync(found.data(), own.numbers, COUNT * sizeof(uint32_t), own.stream));
    MUST(cuStreamSynchronize(own.stream));
    check(found == own.expected, "chain %d of streams", number);
    MUST(cuMemFree(own.numbers));
    MUST(cuEventDestroy(own.done));
    MUST(cuStreamDestroy(own.stream));
}

// ---- misuse ----

struct stage {
    CUdeviceptr numbers; // of 60 bytes
    CUdeviceptr freed;
    std::vector<uint32_t> host;
};

// Each breaks one rule of a launch; the context has failed with `code`, and `text` was said.
struct misuse {
    const char *name;
    CUresult code;
    const char *text;
    void (*launch)(const stage &on);
};

CUresult fill(CUdeviceptr to, uint64_t count)
{
    return device_launch("weft_fill_32", 1, 32, nullptr, (void *)to, UINT64_C(7), count);
}

const misuse all[] = {
    {"nothing is wrong", CUDA_SUCCESS, "", [](const stage &on) { fill(on.numbers, 15); }},
    {"a pointer to the end, of nothing", CUDA_SUCCESS, "",
     [](const stage &on) { fill(on.numbers + 60, 0); }},
    {"one element too many", CUDA_ERROR_ILLEGAL_ADDRESS,
     "weft_fill_8 wrote behind them, at byte 60",
     [](const stage &on) {
         device_launch("weft_fill_8", 1, 32, nullptr, (void *)on.numbers, UINT64_C(7),
                       UINT64_C(61));
     }},
    {"far too many elements", CUDA_ERROR_ILLEGAL_ADDRESS, "left its device memory",
     [](const stage &on) { fill(on.numbers, 2000); }},
    {"a pointer beside its memory", CUDA_ERROR_ILLEGAL_ADDRESS, "is beside the 60 bytes",
     [](const stage &on) { fill(on.numbers + 61, 0); }},
    {"memory that was freed", CUDA_ERROR_ILLEGAL_ADDRESS, "was freed",
     [](const stage &on) { fill(on.freed, 1); }},
    {"memory of the host", CUDA_ERROR_ILLEGAL_ADDRESS, "not pinned",
     [](const stage &on) { fill((CUdeviceptr)on.host.data(), 1); }},
#ifndef WITH_UBSAN /* which ends the program at once */
    {"NULL", CUDA_ERROR_ILLEGAL_ADDRESS, "memory that no device has",
     [](const stage &) { fill(0, 1); }},
#endif
    {"a warp that is not whole", CUDA_ERROR_LAUNCH_FAILED, "which does not exist",
     [](const stage &on) {
         device_launch("weft_nan_count_f32", 1, 20, nullptr, (const void *)on.numbers, UINT64_C(4),
                       (unsigned long long *)on.numbers);
     }},
};

void test_one(const misuse &is)
{
    stage on;
    std::string text;

    if (!device_begin(0))
        return;
    on.host.resize(4);
    MUST(cuMemAlloc(&on.numbers, 60));
    MUST(cuMemAlloc(&on.freed, 60));
    MUST(cuMemFree(on.freed));
    MUST(cuMemsetD8Async(on.numbers, 0, 60, nullptr));
    MUST(cuCtxSynchronize());
    misuses(nullptr);
    is.launch(on);
    const CUresult result = cuCtxSynchronize();
    const CUresult again = cuMemFree(on.numbers);
    const unsigned found = misuses(&text);

    check(result == is.code && again == is.code, "%s: %d, %d, not %d", is.name, (int)result,
          (int)again, (int)is.code);
    check(is.code ? found > 0 : found == 0, "%s: %u misuses counted", is.name, found);
    check(text.find(is.text) != std::string::npos, "%s: not said: %s, but %s", is.name, is.text,
          text.c_str());
    device_end(0);
}

// A block of more threads than a kernel was compiled for.
void test_bounds()
{
    int most = 0;
    CUdeviceptr to;

    if (!device_begin(0))
        return;
    MUST(cuMemAlloc(&to, 4));
    MUST(cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                            device_kernel("weft_reduce_sum_f32")));
    misuses(nullptr);
    const CUresult result = device_launch("weft_reduce_sum_f32", 1, 1024, nullptr, (void *)to,
                                          (const void *)to, (const void *)to, UINT64_C(0));

    check((result != CUDA_SUCCESS) == (most < 1024) && misuses(nullptr) == (most < 1024 ? 1u : 0u),
          "a block of 1024 threads, %d are allowed: %d", most, (int)result);
#ifdef HAVE_IMAGES
    check(most == 512, "the bounds of a kernel are %d threads", most);
#endif
    MUST(cuMemFree(to));
    device_end(0);
}

} // namespace

void test_streams()
{
    std::vector<chain> chains(CHAINS);

    for (size_t i = 0; i < CHAINS; i++)
        begin(chains[i], (uint32_t)draw());
    for (int step = 0; step < CHAINS * STEPS; step++) {
        const size_t to = draw_below(CHAINS);
        const size_t from = (to + 1 + draw_below(CHAINS - 1)) % CHAINS;

        if (draw_below(3) == 0)
            fill_part(chains[to], (uint32_t)draw());
        else
            add(chains[to], chains[from]);
    }
    for (int i = 0; i < CHAINS; i++)
        end(chains[(size_t)i], i);
}

// Only the stand-in is asked: a device may do anything.
void test_misuse()
{
    if (!is_standin())
        return;
    for (const misuse &is : all)
        test_one(is);
    test_bounds();
}
