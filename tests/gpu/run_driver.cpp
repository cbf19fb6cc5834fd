// SPDX-License-Identifier: BSD-3-Clause
// Kernels are launched: what a launch names goes to memory of a device, and comes back. A stream
// takes it there, another one runs the kernel, and a third takes it back, so that nothing but
// events keeps the order.
#include "tests/gpu/driver_tests.h"
#include "tests/gpu/standin/standin.h"

#include <dlfcn.h>
#include <map>
#ifdef HAVE_IMAGES
extern "C" {
#    include "gpu/kernels/image.h"
}
#endif

const bool kernels_are_apart = true;

namespace
{

enum place { ON_DEVICE, PINNED, REGISTERED, ON_PEER, PLACES };

// Where an area is for one launch.
struct copy {
    const area *of;
    place where;
    CUdeviceptr at;
};

CUcontext contexts[2];
std::vector<CUmodule> modules;
std::map<std::string, CUfunction> functions;
std::vector<copy> copies;
CUstream streams[3];
CUevent events[2];
int devices;

decltype(&standin_report) report;
unsigned reported;

#ifndef HAVE_IMAGES
// One image with the names of all kernels, where nvcc has made none.
std::string plain_image()
{
#    define NAME(name)      #    name,
#    define BOTH(operation) NAME(weft_reduce_##operation) NAME(weft_reduce_n_##operation)
    static const char *const names[] = {
        WEFT_GPU_OPERATIONS(BOTH) WEFT_GPU_COPY_KERNELS(NAME) WEFT_GPU_NAN_KERNELS(NAME)
            WEFT_GPU_CONVERT_KERNELS(NAME) WEFT_GPU_COMBINE_KERNELS(NAME)
                WEFT_GPU_SPARSE_KERNELS(NAME) WEFT_GPU_LIST_KERNELS(NAME)
                    WEFT_GPU_TOPK_KERNELS(NAME) WEFT_GPU_SELECT_KERNELS(NAME)};
    std::string text = ".version 8.0\n.target sm_75\n.address_size 64\n";

    for (const char *name : names)
        text += std::string(".visible .entry ") + name + "(\n";
    return text;
}
#endif

bool load(const void *image)
{
    CUmodule module;

    if (!MUST(cuModuleLoadData(&module, image)))
        return false;
    modules.push_back(module);
    return true;
}

bool load_all()
{
#ifdef HAVE_IMAGES
    for (unsigned i = 0; i < weft__gpu_image_count; i++)
        if (!load(weft__gpu_images[i].data))
            return false;
    return true;
#else
    return load(plain_image().c_str());
#endif
}

// The stand-in can be made to say more than a driver does.
void find_standin()
{
    report = reinterpret_cast<decltype(report)>(dlsym(RTLD_DEFAULT, "standin_report"));
}

place draw_place()
{
    const place where = draw_below(2) ? ON_DEVICE : (place)draw_below(PLACES);

    return where == ON_PEER && !contexts[1] ? ON_DEVICE : where;
}

bool allocate(copy &made, size_t bytes)
{
    void *pinned;

    switch (made.where) {
    case PINNED:
        if (!MUST(cuMemHostAlloc(&pinned, bytes, 0)))
            return false;
        made.at = (CUdeviceptr)pinned;
        memcpy(pinned, made.of->memory, bytes);
        return true;
    case REGISTERED:
        made.at = (CUdeviceptr)made.of->memory;
        return MUST(cuMemHostRegister(made.of->memory, bytes, 0));
    default:
        break;
    }
    if (made.where == ON_PEER)
        MUST(cuCtxPushCurrent(contexts[1]));
    const bool allocated = MUST(cuMemAlloc(&made.at, bytes));

    if (made.where == ON_PEER)
        MUST(cuCtxPopCurrent(nullptr));
    return allocated && MUST(cuMemcpyHtoDAsync(made.at, made.of->memory, bytes, streams[0]));
}

void bring_back(const copy &made)
{
    const size_t bytes = made.of->offset + made.of->bytes;

    if (made.where == ON_DEVICE || made.where == ON_PEER)
        MUST(cuMemcpyDtoHAsync(made.of->memory, made.at, bytes, streams[2]));
}

void release(const copy &made)
{
    switch (made.where) {
    case PINNED:
        memcpy(made.of->memory, (void *)made.at, made.of->offset + made.of->bytes);
        MUST(cuMemFreeHost((void *)made.at));
        return;
    case REGISTERED:
        MUST(cuMemHostUnregister(made.of->memory));
        return;
    case ON_PEER:
        MUST(cuCtxPushCurrent(contexts[1]));
        MUST(cuMemFree(made.at));
        MUST(cuCtxPopCurrent(nullptr));
        return;
    default:
        MUST(cuMemFree(made.at));
    }
}

bool follow(CUstream before, CUstream after, CUevent event)
{
    return MUST(cuEventRecord(event, before)) && MUST(cuStreamWaitEvent(after, event, 0));
}

} // namespace

bool must(CUresult result, const char *what)
{
    const char *name = nullptr;

    if (result == CUDA_SUCCESS)
        return true;
    cuGetErrorName(result, &name);
    check(false, "%s: %s", what, name ? name : "?");
    return false;
}

bool is_standin()
{
    return report;
}

unsigned misuses(std::string *text)
{
    static char said[1 << 16];

    if (!report)
        return 0;
    const unsigned all = report(said, sizeof said);
    const unsigned found = all - reported;

    reported = all;
    if (text)
        *text = said;
    return found;
}

bool device_begin(int device)
{
    return MUST(cuDevicePrimaryCtxRetain(&contexts[0], device)) &&
           MUST(cuCtxSetCurrent(contexts[0])) && load_all();
}

void device_end(int device)
{
    for (CUmodule module : modules)
        cuModuleUnload(module);
    modules.clear();
    functions.clear();
    cuCtxSetCurrent(nullptr);
    MUST(cuDevicePrimaryCtxRelease(device));
}

CUfunction device_kernel(const std::string &name)
{
    CUfunction &known = functions[name];

    for (size_t i = 0; !known && i < modules.size(); i++)
        if (cuModuleGetFunction(&known, modules[i], name.c_str()))
            known = nullptr;
    return known;
}

bool run_begin(uint64_t seed)
{
    int reaches = 0;

    setenv("STANDIN_SEED", std::to_string(seed).c_str(), 0);
    find_standin();
    if (!MUST(cuInit(0)) || !MUST(cuDeviceGetCount(&devices)) || !device_begin(0))
        return false;
    if (devices > 1 && MUST(cuDeviceCanAccessPeer(&reaches, 0, 1)) && reaches &&
        MUST(cuDevicePrimaryCtxRetain(&contexts[1], 1)))
        MUST(cuCtxEnablePeerAccess(contexts[1], 0));
    for (CUstream &stream : streams)
        if (!MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
            return false;
    for (CUevent &event : events)
        if (!MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)))
            return false;
    return true;
}

void run_end()
{
    std::string text;

    test_streams();
    for (CUstream stream : streams)
        MUST(cuStreamDestroy(stream));
    for (CUevent event : events)
        MUST(cuEventDestroy(event));
    if (contexts[1]) {
        MUST(cuCtxDisablePeerAccess(contexts[1]));
        MUST(cuDevicePrimaryCtxRelease(1));
    }
    device_end(0);
    const unsigned found = misuses(&text);

    check(found == 0, "the stand-in has counted %u misuses: %s", found, text.c_str());
    test_misuse();
}

void *run_pointer(void *memory)
{
    const area *of = area_of(memory);

    if (!of)
        return nullptr;
    const size_t behind = (size_t)(static_cast<char *>(memory) - of->memory);

    for (const copy &made : copies)
        if (made.of == of)
            return (void *)(made.at + behind);
    copy made = {of, draw_place(), 0};

    if (!allocate(made, of->offset + of->bytes))
        return nullptr;
    copies.push_back(made);
    return (void *)(made.at + behind);
}

bool launch_shape(const char *name, const unsigned grid[3], const unsigned block[3],
                  void **arguments)
{
    const CUfunction function = device_kernel(name);
    const bool runs = function && follow(streams[0], streams[1], events[0]) &&
                      MUST(cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1],
                                          block[2], 0, streams[1], arguments, nullptr)) &&
                      follow(streams[1], streams[2], events[1]);

    check(runs, "%s: %s", name, function ? "not launched" : "no such kernel");
    for (const copy &made : copies)
        if (runs)
            bring_back(made);
    const bool done = MUST(cuStreamSynchronize(streams[2]));

    for (const copy &made : copies)
        release(made);
    copies.clear();
    return runs && done;
}
