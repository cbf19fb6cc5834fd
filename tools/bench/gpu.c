/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench gpu: what runs on a device take, each beside a call of CUDA's driver, or the same on
 * the host, and beside its bound. The bound of what moves memory is the device's bandwidth: by the
 * clock and width that the driver tells, else that of the driver's own copy.
 */
#include "tools/bench/gpu.h"

#include "tools/cli/devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void gpu_print(struct gpu *gpu, struct bench_row *row, double share, double goal)
{
    row->more = json_pack("{s:s}", "device", gpu->name);
    if (isfinite(share))
        json_object_update_new(row->more, json_pack("{s:f, s:f}", "of_limit", share, "goal", goal));
    row->transport = row->transport ? row->transport : "local";
    bench_print(gpu->bench, row);
}

/* What weft_devices_describe() says of the device. */
static void look_up(struct gpu *gpu)
{
    json_t *found = cli_devices(), *device;
    size_t i;

    gpu->devices = json_array_size(json_object_get(found, "devices"));
    json_array_foreach(json_object_get(found, "devices"), i, device)
    {
        if (strcmp(cli_device_field(device, "device"), gpu->name) != 0)
            continue;
        gpu->bandwidth = json_number_value(json_object_get(device, "bandwidth"));
        gpu->told = gpu->bandwidth > 0;
        bench_note(
            gpu->bench,
            "%s: %s, a driver of version %s; GB/s are of all that is read and written, their "
            "limit is what its memory moves",
            gpu->name, cli_device_field(device, "name"), cli_device_field(found, "driver"));
    }
    json_decref(found);
}

static int open_gpu(struct gpu *gpu)
{
    struct weft_context_config config;
    int status = weft_local_create(&gpu->local, 1, NULL);

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_CALLER;
    config.device = gpu->bench->device;
    if (status == WEFT_OK)
        status = weft_context_create_local(&gpu->context, gpu->local, 0, &config);
    if (status == WEFT_OK)
        status = weft_context_device(gpu->context, &gpu->name);
    if (status != WEFT_OK)
        return status;
    gpu->device = cli_device_number(gpu->name);
    look_up(gpu);
    return gpu_driver_open(&gpu->driver, gpu->device);
}

static void close_gpu(struct gpu *gpu)
{
    gpu_driver_close(gpu->driver);
    weft_context_destroy(gpu->context);
    weft_local_destroy(gpu->local);
}

int bench_gpu(struct bench *bench)
{
    struct gpu gpu = {.bench = bench};
    int status;

    if (bench->rank != 0)
        return 0;
    if (cli_check_device("bench", bench->device ? "--device" : "gpu",
                         bench->device ? bench->device : "cuda"))
        return CLI_WRONG;
    bench_machine(bench);
    status = open_gpu(&gpu) == WEFT_OK ? 0 : bench_fail(bench, "a device");
    if (!status)
        status = gpu_bandwidth(&gpu);
    if (!status)
        status = gpu_topk(&gpu);
    if (!status)
        status = gpu_latency(&gpu);
    if (!status)
        status = gpu_allreduce(&gpu);
    close_gpu(&gpu);
    return status;
}
