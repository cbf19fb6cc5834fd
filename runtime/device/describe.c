/* SPDX-License-Identifier: BSD-3-Clause */
/* What devices there are, for people. Nothing that is missing is an error. */
#include <weft/device.h>

#include <inttypes.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/out.h"
#include "runtime/device/library.h"

static void write_links(struct weft__out *out, const struct weft__devices *devices, int device)
{
    const char *comma = "";

    for (int i = 0; i < devices->count; i++) {
        const struct weft__device_link *link = &devices->links[device * devices->count + i];

        if (i == device)
            continue;
        weft__out_format(out, "%s{\"device\":\"cuda:%d\",\"access\":%s,\"atomics\":%s,\"rank\":%d}",
                         comma, i, link->access ? "true" : "false",
                         link->atomics ? "true" : "false", link->rank);
        comma = ",";
    }
}

static void write_devices(struct weft__out *out, const struct weft__devices *devices)
{
    for (int i = 0; i < devices->count; i++) {
        const struct weft__device_about *about = &devices->devices[i];

        weft__out_format(out, "%s{\"device\":\"cuda:%d\",\"name\":", i ? "," : "", i);
        weft__out_json(out, about->name);
        weft__out_format(out,
                         ",\"memory_bytes\":%" PRIu64 ",\"bandwidth\":%" PRIu64
                         ",\"compute_capability\":\"%d.%d\",\"processors\":%d,\"bus\":",
                         about->memory_bytes, about->bandwidth, about->major, about->minor,
                         about->processors);
        weft__out_json(out, about->bus);
        weft__out_text(out, ",\"links\":[");
        write_links(out, devices, i);
        weft__out_text(out, "]}");
    }
}

static void write_all(struct weft__out *out, const struct weft__devices *devices, const char *gpu,
                      const char *why)
{
    weft__out_format(out, "{\"gpu\":\"%s\",\"why\":", gpu);
    weft__out_json(out, why);
    if (devices->driver > 0)
        weft__out_format(out, ",\"driver\":\"%d.%d\"", devices->driver / 1000,
                         devices->driver % 1000 / 10);
    else
        weft__out_text(out, ",\"driver\":\"\"");
    weft__out_text(out, ",\"devices\":[");
    write_devices(out, devices);
    weft__out_text(out, "]}");
}

int weft_devices_locate(const void *address, int *of_host, int *of_device)
{
    int status;

    if (!of_host || !of_device)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             !of_host ? "of_host" : "of_device");
    status = weft__device_locate(address);
    if (status < 0)
        return status;
    *of_host = status != 1;
    *of_device = status != 0;
    return WEFT_OK;
}

int weft_devices_describe(char **text)
{
    struct weft__devices devices = {0};
    struct weft__error_saved saved;
    struct weft__out out = {0};
    int status;

    if (!text)
        return WEFT__INVALID("%s: argument `text` is NULL", __func__);
    weft__error_save(&saved);
    status = weft__device_describe(&devices);
    write_all(&out, &devices,
              status == WEFT_OK              ? "cuda"
              : status == WEFT_ERR_NOT_FOUND ? "not built in"
                                             : "no device",
              status == WEFT_OK ? "" : weft_error_text());
    weft__error_restore(&saved);
    weft__free(devices.devices);
    weft__free(devices.links);
    if (out.failed) {
        weft__free(out.text);
        return weft__error_memory("a description of devices");
    }
    *text = out.text;
    return WEFT_OK;
}
