/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info: what this build has and what hwloc found on this machine. */
#include "tools/cli/cli.h"
#include "tools/cli/devices.h"
#include "tools/cli/table.h"

#include <string.h>

/* What the processor has, whatever WEFT_SIMD allows. */
static json_t *simd_list(void)
{
    json_t *list = json_array();
    weft_simd_t used = weft_simd_level();
    int best = (int)weft_simd_limit(WEFT_SIMD_AVX512);

    weft_simd_limit(used);
    for (int level = 0; level <= best; level++)
        json_array_append_new(list, json_string(weft_simd_name((weft_simd_t)level)));
    return list;
}

/* false: not built in; "no device"; or true. */
static json_t *gpu_json(const json_t *gpu)
{
    const char *state = cli_device_field(gpu, "gpu");

    if (strcmp(state, "no device") == 0)
        return json_string(state);
    return json_boolean(strcmp(state, "cuda") == 0);
}

static int print_json(const char *command, const struct weft_topology *topology, json_t *gpu)
{
    json_t *transports = json_array();

    for (size_t i = 0; i < weft_transport_count(); i++)
        if (weft_transport_at(i)->available)
            json_array_append_new(transports, json_string(weft_transport_at(i)->name));
    return cli_print_json(
        command,
        json_pack(
            "{s:s, s:o, s:o, s:s, s:s, s:O, s:b, s:i, s:s, s:o, s:{s:i, s:i, s:i, s:i, s:I, s:I, "
            "s:I, s:I, s:i, "
            "s:i, s:i, s:s}, s:{s:I, s:I, s:I}}",
            "version", weft_version(), "transports", transports, "gpu", gpu_json(gpu), "gpu_why",
            cli_device_field(gpu, "why"), "cuda_driver", cli_device_field(gpu, "driver"), "devices",
            json_object_get(gpu, "devices"), "lapack", weft_pca_available(), "cores",
            topology->cores, "simd", weft_simd_name(weft_simd_level()), "simd_levels", simd_list(),
            "topology", "packages", topology->packages, "numa_nodes", topology->numa_nodes, "cores",
            topology->cores, "threads", topology->threads, "memory_bytes",
            (json_int_t)topology->memory_bytes, "l1_bytes", (json_int_t)topology->l1_bytes,
            "l2_bytes", (json_int_t)topology->l2_bytes, "l3_bytes", (json_int_t)topology->l3_bytes,
            "caller_thread", topology->caller_thread, "helper_thread", topology->helper_thread,
            "caller_numa", topology->caller_numa, "hwloc", topology->hwloc, "limits", "ranks",
            (json_int_t)INT32_MAX, "nodes", (json_int_t)INT32_MAX, "tag", (json_int_t)UINT32_MAX));
}

/* "1.5 GiB" */
static void format_bytes(char *text, size_t size, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;

    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, size, "%.4g %s", bytes, units[unit]);
}

static void print_bytes(const char *name, size_t bytes)
{
    char text[32] = "unknown";

    if (bytes > 0)
        format_bytes(text, sizeof text, (double)bytes);
    printf("  %-12s %s\n", name, text);
}

static void print_gpu(const json_t *gpu)
{
    const char *state = cli_device_field(gpu, "gpu");

    if (strcmp(state, "cuda") == 0)
        table_say(2, 13, "%-12s CUDA, a driver of version %s", "gpu",
                  cli_device_field(gpu, "driver"));
    else if (strcmp(state, "no device") == 0)
        table_say(2, 13, "%-12s no device: %s", "gpu", cli_device_field(gpu, "why"));
    else
        printf("  %-12s not built in\n", "gpu");
}

static const char *link_text(const json_t *link)
{
    if (!json_is_true(json_object_get(link, "access")))
        return "copies only";
    return json_is_true(json_object_get(link, "atomics")) ? "peer access with atomics (as NVLink)"
                                                          : "peer access (as PCIe)";
}

static void print_links(const json_t *links)
{
    json_t *link;
    size_t i;

    json_array_foreach(links, i, link)
    {
        const char *other = cli_device_field(link, "device");
        table_say(2, 13, "%-12s to %s: %s", "", other, link_text(link));
    }
}

static void print_devices(const json_t *list)
{
    char memory[32], speed[32] = "";
    json_t *device;
    size_t i;

    if (json_array_size(list) > 0)
        printf("\ndevices\n");
    json_array_foreach(list, i, device)
    {
        double bandwidth = json_number_value(json_object_get(device, "bandwidth"));
        format_bytes(memory, sizeof memory,
                     json_number_value(json_object_get(device, "memory_bytes")));
        if (bandwidth > 0)
            snprintf(speed, sizeof speed, " at %.4g GB/s", bandwidth * 1e-9);
        table_say(2, 13, "%-12s %s: %s%s, compute capability %s, %d multiprocessors, PCI %s",
                  cli_device_field(device, "device"), cli_device_field(device, "name"), memory,
                  speed, cli_device_field(device, "compute_capability"),
                  (int)json_integer_value(json_object_get(device, "processors")),
                  cli_device_field(device, "bus"));
        print_links(json_object_get(device, "links"));
    }
}

static void print_thread(const char *name, int thread)
{
    if (thread < 0)
        printf("  %-12s any hardware thread\n", name);
    else
        printf("  %-12s hardware thread %d\n", name, thread);
}

static int print_human(const char *command, const struct weft_topology *topology, const json_t *gpu)
{
    printf("weft %s\n", weft_version());
    printf("  %-12s", "transports");
    for (size_t i = 0; i < weft_transport_count(); i++)
        if (weft_transport_at(i)->available)
            printf(" %s", weft_transport_at(i)->name);
    printf("\n");
    print_gpu(gpu);
    printf("  %-12s %s\n", "lapack", weft_pca_available() ? "yes" : "no");
    printf("  %-12s %s\n", "simd", weft_simd_name(weft_simd_level()));
    printf("\nmachine (hwloc %s)\n", topology->hwloc);
    table_say(2, 13, "%-12s %d package%s, %d NUMA node%s, %d core%s, %d hardware thread%s",
              "processors", topology->packages, topology->packages == 1 ? "" : "s",
              topology->numa_nodes, topology->numa_nodes == 1 ? "" : "s", topology->cores,
              topology->cores == 1 ? "" : "s", topology->threads,
              topology->threads == 1 ? "" : "s");
    print_bytes("memory", topology->memory_bytes);
    print_bytes("L1 data", topology->l1_bytes);
    print_bytes("L2", topology->l2_bytes);
    print_bytes("L3", topology->l3_bytes);
    print_devices(json_object_get(gpu, "devices"));
    printf("\nplacement\n");
    print_thread("caller", topology->caller_thread);
    print_thread("helper", topology->helper_thread);
    printf("  %-12s NUMA node %d\n", "scratch", topology->caller_numa);
    printf("\nlimits\n  %-12s %d\n  %-12s %d\n", "ranks", INT32_MAX, "nodes", INT32_MAX);
    table_say(2, 13, "%-12s memory (counts are 64 bits wide)", "message");
    printf("  %-12s 64 bits\n", "versions");
    return cli_finish(command);
}

/* The environment is read when a context is made. */
static int apply_environment(void)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    int status = weft_local_create(&local, 1, NULL);

    if (status == WEFT_OK)
        status = weft_context_create_local(&context, local, 0, NULL);
    weft_context_destroy(context);
    weft_local_destroy(local);
    return status;
}

static int info(struct cli *cli)
{
    struct weft_topology topology = {.struct_size = sizeof topology};
    const char *command = cli->spec->name;
    json_t *gpu;
    int status;

    if (!cli_parse(cli, NULL))
        return cli->status;
    if (apply_environment() != WEFT_OK || weft_topology_get(&topology) != WEFT_OK)
        return cli_fail(command, "%s", weft_error_text());
    gpu = cli_devices();
    if (!gpu)
        return cli_fail(command, "%s", weft_error_text());
    status = cli->json ? print_json(command, &topology, gpu) : print_human(command, &topology, gpu);
    json_decref(gpu);
    return status;
}

const struct cli_spec weft_command_info = {
    .name = "info",
    .summary = "what this build and this machine have",
    .about = "Version, transports compiled in, devices with their memory and links or what is "
             "missing for them, whether LAPACK is there, the machine as hwloc sees it, the "
             "SIMD level in use (WEFT_SIMD lowers it), where threads and memory are placed, and "
             "limits.",
    .run = info,
};
