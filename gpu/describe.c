/* SPDX-License-Identifier: BSD-3-Clause */
/* What devices there are: asked of the driver, with no context made. */
#include "gpu/driver.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/device/library.h"

/* WEFT_OK, or the error of a call about a device. */
static int ask(const struct weft__cuda_driver *driver, CUresult code, const char *call,
               CUdevice device)
{
    return code ? weft__cuda_error(driver, code, call, "on cuda:%d", (int)device) : WEFT_OK;
}

/* Both edges of the clock move data. What a driver does not tell is no error: newer ones may not.
 */
static uint64_t bandwidth_of(const struct weft__cuda_driver *driver, CUdevice device)
{
    int khz = 0, bits = 0;

    if (driver->cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device) ||
        driver->cuDeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device) ||
        khz < 0 || bits < 0)
        return 0;
    return 2 * (uint64_t)khz * 1000 * ((uint64_t)bits / 8);
}

static int describe_device(const struct weft__cuda_driver *driver, int ordinal,
                           struct weft__device_about *about)
{
    CUdevice device = ordinal;
    size_t bytes = 0;
    int status = ask(driver, driver->cuDeviceGet(&device, ordinal), "cuDeviceGet", ordinal);

    if (status < 0 ||
        (status = ask(driver, driver->cuDeviceGetName(about->name, sizeof about->name, device),
                      "cuDeviceGetName", device)) < 0 ||
        (status = ask(driver, driver->cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem",
                      device)) < 0 ||
        (status = ask(driver, driver->cuDeviceGetPCIBusId(about->bus, sizeof about->bus, device),
                      "cuDeviceGetPCIBusId", device)) < 0)
        return status;
    about->memory_bytes = bytes;
    about->bandwidth = bandwidth_of(driver, device);
    const struct {
        CUdevice_attribute attribute;
        int *value;
    } asked[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &about->major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &about->minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &about->processors},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked && status == WEFT_OK; i++)
        status =
            ask(driver, driver->cuDeviceGetAttribute(asked[i].value, asked[i].attribute, device),
                "cuDeviceGetAttribute", device);
    return status;
}

/* A link that the driver does not know is one of copies. */
static void describe_link(const struct weft__cuda_driver *driver, int device, int peer,
                          struct weft__device_link *link)
{
    const struct {
        CUdevice_P2PAttribute attribute;
        int *value;
    } asked[] = {
        {CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, &link->access},
        {CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, &link->atomics},
        {CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, &link->rank},
    };

    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (driver->cuDeviceGetP2PAttribute(asked[i].value, asked[i].attribute, device, peer))
            *asked[i].value = 0;
}

static int describe(const struct weft__cuda_driver *driver, struct weft__devices *devices)
{
    int status = WEFT_OK;

    for (int i = 0; i < devices->count && status == WEFT_OK; i++)
        status = describe_device(driver, i, &devices->devices[i]);
    for (int i = 0; i < devices->count && status == WEFT_OK; i++)
        for (int k = 0; k < devices->count; k++)
            if (i != k)
                describe_link(driver, i, k, &devices->links[i * devices->count + k]);
    return status;
}

int weft__cuda_describe(struct weft__devices *devices)
{
    const struct weft__cuda_driver *driver;
    struct weft__devices found = {0};
    CUresult code;
    int status = weft__cuda_driver(&driver);

    if (status < 0)
        return status;
    code = driver->cuDriverGetVersion(&found.driver);
    if (!code)
        code = driver->cuDeviceGetCount(&found.count);
    if (code)
        return weft__cuda_error(driver, code, "cuDeviceGetCount", "%s", "of the CUDA driver");
    found.devices = weft__calloc((size_t)found.count, sizeof *found.devices);
    found.links = weft__calloc((size_t)found.count * (size_t)found.count, sizeof *found.links);
    status = found.devices && found.links ? describe(driver, &found)
                                          : weft__error_memory("a description of devices");
    if (status == WEFT_OK) {
        *devices = found;
    } else {
        weft__free(found.devices);
        weft__free(found.links);
    }
    return status;
}
