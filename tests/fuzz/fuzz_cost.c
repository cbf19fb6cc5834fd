/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes what says how much things cost: files of measured costs, and networks, fabrics and methods
 * of merging on the command line. After an error nothing has changed; what is read is within its
 * bounds.
 */
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/fabric.h>
#include <weft/merge.h>
#include <weft/sim.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_cost: %s: %s\n", what, weft_error_text());
    abort();
}

static int is_sane(const struct weft_net *net)
{
    const double values[] = {net->L, net->o, net->g, net->G, net->O};

    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (!isfinite(values[i]) || values[i] < 0)
            return 0;
    return 1;
}

static void parse_net(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct weft_net net, before;

    if (!text)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    weft_net_init(&net);
    before = net;
    if (weft_net_parse(text, &net) == WEFT_OK)
        require(is_sane(&net), "a network that cannot be");
    else
        require(!memcmp(&before, &net, sizeof net), "a network that was refused has changed");
    free(text);
}

/* Of some kind, and no more than may be. */
static int is_wired(const struct weft_fabric *fabric)
{
    long long hosts = 1;

    for (int i = 0; i < fabric->levels && i < WEFT_FABRIC_LEVELS; i++) {
        if (fabric->extents[i] < 1 || hosts > (1LL << 30) / fabric->extents[i])
            return 0;
        hosts *= fabric->extents[i];
    }
    return fabric->kind == WEFT_FABRIC_NONE
               ? !fabric->levels
               : fabric->levels >= 1 && fabric->levels <= WEFT_FABRIC_LEVELS &&
                     weft_fabric_kind_name(fabric->kind) && isfinite(fabric->hop_us) &&
                     isfinite(fabric->link_us_per_byte);
}

static void parse_fabric(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct weft_net net, net_before;
    struct weft_fabric fabric, before;

    if (!text)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    weft_net_init(&net);
    weft_fabric_init(&fabric);
    net_before = net;
    before = fabric;
    if (weft_fabric_parse(text, &fabric, &net) == WEFT_OK)
        require(is_sane(&net) && is_wired(&fabric), "a fabric that cannot be");
    else
        require(!memcmp(&before, &fabric, sizeof fabric) && !memcmp(&net_before, &net, sizeof net),
                "a fabric that was refused has changed");
    free(text);
}

/* What is read is written as a text that means the same. */
static void parse_method(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), written[WEFT_MERGE_METHOD_TEXT], again[WEFT_MERGE_METHOD_TEXT];
    struct weft_merge_config config, before;

    if (!text)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    weft_merge_config_init(&config);
    before = config;
    if (weft_merge_method_parse(text, &config)) {
        require(!memcmp(&before, &config, sizeof config), "a method that was refused is there");
    } else {
        require(!weft_merge_method_format(&config, written, sizeof written), "not written");
        require(!weft_merge_method_parse(written, &config), "not read again");
        require(!weft_merge_method_format(&config, again, sizeof again), "not written again");
        require(!strcmp(written, again), "another method when it is read again");
    }
    free(text);
}

static void read_file(const uint8_t *data, size_t size)
{
    static int file = -1;
    char path[64];
    struct weft_cost_model model, before;
    struct weft_net net, net_before;
    int status;

    if (file < 0)
        file = memfd_create("cost", 0);
    if (file < 0 || ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    weft_cost_model_init(&model, "local");
    weft_net_init(&net);
    before = model;
    net_before = net;
    status = weft_cost_model_read(path, "local", &model, &net);
    require(status == WEFT_OK || status == WEFT_ERR_FORMAT || status == WEFT_ERR_NOT_FOUND,
            "an unexpected status");
    if (status == WEFT_OK) {
        require(is_sane(&net), "a file with a network that cannot be");
        require(isfinite(model.alpha_us) && model.alpha_us >= 0, "a cost that cannot be");
    } else {
        require(!memcmp(&before, &model, sizeof model) && !memcmp(&net_before, &net, sizeof net),
                "costs that were refused have changed");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A file begins with a brace, or with what is wrong in one. */
    if (size && data[0] >= 'A' && data[0] <= 'z') {
        parse_net(data, size);
        parse_fabric(data, size);
        parse_method(data, size);
    } else {
        read_file(data, size);
    }
    return 0;
}
