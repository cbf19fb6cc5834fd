/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cost files: what transports were measured to cost, as JSON. Keys are checked strictly: a slip in
 * one must not quietly leave an estimate in place of a measurement.
 *
 *     {"weft_cost": 1, "transports": {"local": {"alpha_us": 0.2, ..., "net": {"L": 0.1, ...}}}}
 */
#include <weft/sim.h>

#include "runtime/base/error.h"
#include "runtime/cost/loggops.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 1, KEYS = 9, SIZES = 3, NET_KEYS = 5 };

/* No cost is larger. */
#define LARGEST 1e9

struct key {
    const char *name;
    size_t offset;
    int optional;
};

static const struct key keys[KEYS] = {
    {"alpha_us", offsetof(struct weft_cost_model, alpha_us), 0},
    {"beta_us_per_byte", offsetof(struct weft_cost_model, beta_us_per_byte), 0},
    {"gamma_us_per_byte", offsetof(struct weft_cost_model, gamma_us_per_byte), 0},
    {"copy_us_per_byte", offsetof(struct weft_cost_model, copy_us_per_byte), 0},
    {"node_us", offsetof(struct weft_cost_model, node_us), 0},
    {"rendezvous_us", offsetof(struct weft_cost_model, rendezvous_us), 1},
    {"exchange_us_per_byte", offsetof(struct weft_cost_model, exchange_us_per_byte), 1},
    {"switch_us", offsetof(struct weft_cost_model, switch_us), 1},
    {"eager_us_per_byte", offsetof(struct weft_cost_model, eager_us_per_byte), 1},
};

/* Plain numbers of bytes, or of cores; each may be missing. */
static const struct key size_keys[SIZES] = {
    {"segment_bytes", offsetof(struct weft_cost_model, segment_bytes), 1},
    {"eager_bytes", offsetof(struct weft_cost_model, eager_bytes), 1},
    {"cores", offsetof(struct weft_cost_model, cores), 1},
};

static const struct key net_keys[NET_KEYS] = {
    {"L", offsetof(struct weft_net, L), 0}, {"o", offsetof(struct weft_net, o), 0},
    {"g", offsetof(struct weft_net, g), 0}, {"G", offsetof(struct weft_net, G), 0},
    {"O", offsetof(struct weft_net, O), 1},
};

/* Where an error is. */
struct where {
    const char *path;
    char text[128]; /* "transports.local.net" */
};

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };

    return value ? names[json_typeof(value)] : "nothing";
}

static int expected(const struct where *where, const char *key, const json_t *found,
                    const char *what)
{
    return weft__error(WEFT_ERR_FORMAT, "%s: %s%s%s is %s, expected %s", where->path, where->text,
                       where->text[0] && key[0] ? "." : "", key, type_name(found), what);
}

/* ---- reading ---- */

static int read_numbers(const struct where *where, const json_t *object, const struct key *wanted,
                        size_t count, void *out)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, wanted[i].name);
        double number = json_number_value(value);

        if (!value && wanted[i].optional)
            continue;
        if (!json_is_number(value))
            return expected(where, wanted[i].name, value, "a number");
        if (!(number >= 0 && number <= LARGEST))
            return weft__error(WEFT_ERR_FORMAT, "%s: %s.%s is %g, expected 0 to 1e9", where->path,
                               where->text, wanted[i].name, number);
        *(double *)((char *)out + wanted[i].offset) = number;
    }
    return WEFT_OK;
}

static int is_known(const char *key, const struct key *known, size_t count,
                    const char *const *others)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(known[i].name, key))
            return 1;
    for (; *others; others++)
        if (!strcmp(*others, key))
            return 1;
    return 0;
}

static int check_keys(const struct where *where, json_t *object, const struct key *known,
                      size_t count, const char *const *others)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return expected(where, "", object, "an object");
    json_object_foreach(object, key, value) if (
        !is_known(key, known, count,
                  others)) return weft__error(WEFT_ERR_FORMAT,
                                              "%s: %s.%.64s is not a key that is known here",
                                              where->path,
                                              where->text[0] ? where->text : "document", key);
    return WEFT_OK;
}

static int read_sizes(const struct where *where, const json_t *object,
                      struct weft_cost_model *model)
{
    for (size_t i = 0; i < SIZES; i++) {
        const json_t *value = json_object_get(object, size_keys[i].name);

        if (!value)
            continue;
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return expected(where, size_keys[i].name, value,
                            i == SIZES - 1 ? "a number of cores" : "a number of bytes");
        *(size_t *)(void *)((char *)model + size_keys[i].offset) =
            (size_t)json_integer_value(value);
    }
    return WEFT_OK;
}

static int read_entry(struct where *where, json_t *entry, struct weft_cost_model *model,
                      struct weft_net *net)
{
    static const char *const others[] = {"segment_bytes", "eager_bytes", "cores",
                                         "residual",      "net",         NULL};
    static const char *const net_others[] = {"S", NULL};
    json_t *network = json_object_get(entry, "net");
    const json_t *largest;
    int status;

    /* What was fitted without these has no such step. */
    model->eager_bytes = 0;
    model->rendezvous_us = 0;
    model->eager_us_per_byte = 0;
    model->exchange_us_per_byte = 0;

    if ((status = check_keys(where, entry, keys, KEYS, others)) ||
        (status = read_numbers(where, entry, keys, KEYS, model)) ||
        (status = read_sizes(where, entry, model)))
        return status;
    snprintf(where->text + strlen(where->text), sizeof where->text - strlen(where->text), ".net");
    if ((status = check_keys(where, network, net_keys, NET_KEYS, net_others)) ||
        (status = read_numbers(where, network, net_keys, NET_KEYS, net)))
        return status;
    largest = json_object_get(network, "S");
    if (largest && (!json_is_integer(largest) || json_integer_value(largest) < 0))
        return expected(where, "S", largest, "a number of bytes");
    if (largest)
        net->S =
            json_integer_value(largest) ? (uint64_t)json_integer_value(largest) : WEFT_NET_NO_EAGER;
    return WEFT_OK;
}

/* The document, checked down to its transports; NULL with a status in *status. */
static json_t *load(struct where *where, int *status)
{
    static const char *const others[] = {"weft_cost", "transports", NULL};
    json_error_t error;
    FILE *file = fopen(where->path, "rb");
    json_t *document, *version;

    if (!file) {
        *status = weft__error(WEFT_ERR_IO, "%s: %s, expected a cost file that can be read",
                              where->path, strerror(errno));
        return NULL;
    }
    document = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!document) {
        *status = weft__error(WEFT_ERR_FORMAT, "%s: line %d: %s, expected a cost file in JSON",
                              where->path, error.line, error.text);
        return NULL;
    }
    version = json_object_get(document, "weft_cost");
    if (!json_is_integer(version) || json_integer_value(version) != VERSION)
        *status = weft__error(
            WEFT_ERR_FORMAT, "%s: weft_cost is %s, expected 1: what weft bench model writes",
            where->path, json_is_integer(version) ? "another version" : type_name(version));
    else if (!(*status = check_keys(where, document, NULL, 0, others)) &&
             !json_is_object(json_object_get(document, "transports")))
        *status =
            expected(where, "transports", json_object_get(document, "transports"), "an object");
    if (*status) {
        json_decref(document);
        return NULL;
    }
    return document;
}

int weft_cost_model_read(const char *path, const char *transport, struct weft_cost_model *model,
                         struct weft_net *net)
{
    struct where where = {.path = path};
    struct weft_cost_model read_model;
    struct weft_net read_net;
    json_t *document, *entry;
    int status = WEFT_OK;

    if (!path || !transport || !model)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             !path        ? "path"
                             : !transport ? "transport"
                                          : "model");
    if ((status = weft_sized_read(__func__, "model", model, &read_model, sizeof read_model)) ||
        (status = weft_sized_check(__func__, "net", net)))
        return status;
    document = load(&where, &status);
    if (!document)
        return status;
    entry = json_object_get(json_object_get(document, "transports"), transport);
    weft_net_init(&read_net);
    snprintf(where.text, sizeof where.text, "transports.%.64s", transport);
    status = entry
                 ? read_entry(&where, entry, &read_model, &read_net)
                 : weft__error(WEFT_ERR_NOT_FOUND,
                               "%s: has nothing of transport `%.64s`: weft bench model -o adds it",
                               path, transport);
    json_decref(document);
    if (status)
        return status;
    weft_sized_fill(__func__, "model", model, &read_model, sizeof read_model);
    return weft_sized_fill(__func__, "net", net, &read_net, sizeof read_net);
}

/* ---- writing ---- */

static json_t *numbers(const struct key *wanted, size_t count, const void *from)
{
    json_t *object = json_object();

    for (size_t i = 0; object && i < count; i++)
        json_object_set_new(object, wanted[i].name,
                            json_real(*(const double *)((const char *)from + wanted[i].offset)));
    return object;
}

/* Through a file beside it, so that a reader never sees half of one. */
static int store(const char *path, const json_t *document)
{
    char beside[4096];
    int length = snprintf(beside, sizeof beside, "%s.new", path);

    if (length < 0 || (size_t)length >= sizeof beside)
        return weft__error(WEFT_ERR_IO, "%.64s...: the name is too long", path);
    if (json_dump_file(document, beside, JSON_INDENT(2) | JSON_PRESERVE_ORDER) ||
        rename(beside, path)) {
        int reason = errno;

        remove(beside);
        return weft__error(WEFT_ERR_IO, "%s: %s, expected a file that can be written", path,
                           strerror(reason));
    }
    return WEFT_OK;
}

/* What is written must be what is read. */
static int check_numbers(const char *who, const char *name, const struct key *numbers, size_t count,
                         const void *from)
{
    int status = WEFT_OK;

    for (size_t i = 0; i < count && !status; i++) {
        char member[64];
        double number;

        memcpy(&number, (const char *)from + numbers[i].offset, sizeof number);
        snprintf(member, sizeof member, "%s->%s", name, numbers[i].name);
        status = weft_sized_real(who, member, number, 0, LARGEST);
    }
    return status;
}

int weft_cost_model_write(const char *path, const char *transport,
                          const struct weft_cost_model *given_model,
                          const struct weft_net *given_net, double residual)
{
    struct weft_cost_model full_model, *model = &full_model;
    struct weft_net full_net, *net = &full_net;
    struct where where = {.path = path};
    json_t *document = NULL, *entry, *network;
    FILE *present;
    int status = WEFT_OK;

    if (!path || !transport || !given_model || !given_net)
        return WEFT__INVALID("%s: an argument is NULL, expected path, transport, model and net",
                             __func__);
    if ((status = weft_sized_read(__func__, "model", given_model, model, sizeof *model)) ||
        (status = check_numbers(__func__, "model", keys, KEYS, model)) ||
        (status = weft__net_read(__func__, "net", given_net, net)) ||
        (status = check_numbers(__func__, "net", net_keys, NET_KEYS, net)))
        return status;
    present = fopen(path, "rb");
    if (present) {
        fclose(present);
        document = load(&where, &status);
        if (!document)
            return status;
    } else {
        document = json_pack("{s:i, s:{}}", "weft_cost", VERSION, "transports");
    }
    entry = numbers(keys, KEYS, model);
    network = numbers(net_keys, NET_KEYS, net);
    if (net->S == WEFT_NET_NO_EAGER)
        json_object_set_new(network, "S", json_integer(0));
    else if (net->S && net->S <= INT64_MAX)
        json_object_set_new(network, "S", json_integer((json_int_t)net->S));
    for (size_t i = 0; i < SIZES; i++)
        json_object_set_new(
            entry, size_keys[i].name,
            json_integer((json_int_t) * (const size_t *)(const void *)((const char *)model +
                                                                       size_keys[i].offset)));
    json_object_set_new(entry, "residual", json_real(residual));
    if (json_object_set_new(entry, "net", network) ||
        json_object_set_new(json_object_get(document, "transports"), transport, entry))
        status = weft__error_memory("a cost file");
    if (!status)
        status = store(path, document);
    json_decref(document);
    return status;
}
