/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers: layers, where their parts lie, and memory.
 *
 *     a server    | its share of the model | velocity | room of worker 0 | room of worker 1 | ...
 *     a worker    | kept | fresh | base | last | average | velocity |    as far as they are needed
 */
#include <math.h>
#include <string.h>

#include "schedules/objects/server/create.h"

static int no_memory(const char *what, size_t count)
{
    return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu %s", count, what);
}

/* ---- the model ---- */

static int copy_gradients(const char *who, struct weft_server *server,
                          const struct weft_server_config *config)
{
    size_t count = config->tensor_count;
    if (!server->is_worker || config->push == WEFT_SERVER_MODELS)
        return WEFT_OK;
    if (!config->gradients && count)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->gradients is NULL, expected %zu tensors", who, count);
    server->gradients = weft_memory_alloc(count + 1, sizeof *server->gradients);
    if (!server->gradients)
        return no_memory("tensors", count);
    for (size_t t = 0; t < count; t++) {
        server->gradients[t] = config->gradients[t];
        if (config->gradients[t].count != config->tensors[t].count)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: config->gradients[%zu].count is %zu, expected %zu, as "
                                  "config->tensors[%zu].count",
                                  who, t, config->gradients[t].count, config->tensors[t].count, t);
        if (!config->gradients[t].data && config->gradients[t].count)
            return weft_error_set(WEFT_ERR_INVALID, "%s: config->gradients[%zu].data is NULL", who,
                                  t);
    }
    return weft__tensors_locate(who, "config->gradients", server->gradients, count, WEFT_F32,
                                WEFT_MEMORY_HOST);
}

static int check_layers(const char *who, const struct weft_server_config *config, size_t layers)
{
    size_t sum = 0;
    if (!config->layer_tensors)
        return config->layer_count == 0 || config->layer_count == config->tensor_count
                   ? WEFT_OK
                   : weft_error_set(WEFT_ERR_INVALID,
                                    "%s: config->layer_tensors is NULL, expected a list for "
                                    "config->layer_count %zu and %zu tensors",
                                    who, config->layer_count, config->tensor_count);
    for (size_t l = 0; l < layers; l++) {
        size_t left = config->tensor_count - sum;
        if (config->layer_tensors[l] > left)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: config->layer_tensors[%zu] is %zu, expected at most %zu: "
                                  "there are %zu tensors",
                                  who, l, config->layer_tensors[l], left, config->tensor_count);
        sum += config->layer_tensors[l];
    }
    if (sum != config->tensor_count)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->layer_tensors add up to %zu, expected "
                              "config->tensor_count, %zu",
                              who, sum, config->tensor_count);
    return WEFT_OK;
}

static int make_layers(const char *who, struct weft_server *server,
                       const struct weft_server_config *config)
{
    size_t layers = config->layer_tensors ? config->layer_count : config->tensor_count;
    int status = check_layers(who, config, layers);
    if (status)
        return status;
    server->layer_count = layers;
    server->words = (layers + 63) / 64;
    server->layers = weft_memory_alloc(layers + 1, sizeof *server->layers);
    if (!server->layers)
        return no_memory("layers", layers);
    size_t tensor = 0, at = 0;
    for (size_t l = 0; l < layers; l++) {
        struct layer *layer = &server->layers[l];
        layer->first_tensor = tensor;
        layer->tensor_count = config->layer_tensors ? config->layer_tensors[l] : 1;
        layer->at = at;
        for (size_t t = 0; t < layer->tensor_count; t++)
            layer->count += server->model.tensors[tensor++].count;
        at += layer->count;
    }
    return WEFT_OK;
}

/* ---- parts ---- */

/* By default a server's share of the model is merged in so many pieces, of so many bytes each. */
enum { PIECES = 4, LEAST_PIECE = 64 * 1024, MOST_PIECE = 1024 * 1024 };

/* Elements of a piece: what has come of it from all workers is merged at once. */
static size_t piece_of(const struct weft_server *server)
{
    size_t bytes = server->config.merge_bytes;
    if (!weft__server_merges(server) || bytes == SIZE_MAX)
        return SIZE_MAX;
    if (!bytes) {
        bytes = server->model.count / server->servers / PIECES * server->element;
        bytes = bytes < LEAST_PIECE ? LEAST_PIECE : bytes > MOST_PIECE ? MOST_PIECE : bytes;
    }
    return bytes < server->element ? 1 : bytes / server->element;
}

/* A piece of a part, with its segments, and where it lies on its server. */
static void add_piece(struct weft_server *server, const struct weft_server_part *is, size_t at)
{
    struct part *part = &server->parts[server->part_count];
    struct layer *layer = &server->layers[is->layer];
    part->is = *is;
    part->at = at;
    part->first_unit = server->unit_count;
    part->units = (is->count - 1) / server->unit_elements + 1;
    server->unit_count += part->units;
    if (!layer->part_count++)
        layer->first_part = server->part_count;
    server->part_count++;
}

/* Cuts what each server has of each layer; the pieces of a layer are one behind the other. */
static int cut_parts(struct weft_server *server, const struct weft_server_part *whole, size_t count,
                     size_t *shares)
{
    size_t piece = piece_of(server), pieces = 0;
    for (size_t p = 0; p < count; p++)
        pieces += (whole[p].count - 1) / piece + 1;
    server->parts = weft_memory_alloc(pieces + 1, sizeof *server->parts);
    if (!server->parts)
        return no_memory("parts", pieces);
    for (size_t p = 0; p < count; p++)
        for (size_t done = 0; done < whole[p].count;) {
            struct weft_server_part is = whole[p];
            is.offset += done;
            is.count = is.count - done < piece ? is.count - done : piece;
            add_piece(server, &is, shares[is.server]);
            shares[is.server] += is.count;
            done += is.count;
        }
    if (weft__server_hosts(server))
        server->host.count = shares[server->host.index];
    if (server->unit_count <= weft__server_most_units())
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID,
                          "config->merge_bytes and config->segment_bytes are too small: they cut "
                          "the model into %zu segments, expected at most %zu",
                          server->unit_count, weft__server_most_units());
}

static int make_parts(struct weft_server *server)
{
    size_t layers = server->layer_count, servers = server->servers, count = 0;
    size_t split = server->config.split_bytes / server->element;
    size_t *counts = weft_memory_alloc(layers + servers + 1, sizeof *counts);
    struct weft_server_part *parts =
        layers < SIZE_MAX / servers ? weft_memory_alloc(layers * servers + 1, sizeof *parts) : NULL;
    int status = counts && parts ? WEFT_OK : no_memory("parts", layers);
    for (size_t l = 0; l < layers && !status; l++)
        counts[l] = server->layers[l].count;
    if (server->config.split_bytes == SIZE_MAX)
        split = SIZE_MAX;
    if (!status)
        status = weft_server_place_layers(counts, layers, (int)servers, split ? split : 1, parts,
                                          &count);
    server->unit_elements = server->config.flow == WEFT_SERVER_PACED
                                ? server->config.segment_bytes / server->element
                                : SIZE_MAX;
    if (!status) {
        memset(counts, 0, (layers + servers) * sizeof *counts);
        status = cut_parts(server, parts, count, counts);
    }
    weft_memory_free(parts);
    weft_memory_free(counts);
    return status;
}

/* ---- memory of workers ---- */

/* Whole models of memory, one behind the other, as far as a flag says that one is needed. */
static int make_models(struct weft_server *server, char **const *models, const int *needed,
                       size_t count)
{
    size_t bytes = server->model.count * server->element, total = 0;
    for (size_t i = 0; i < count; i++)
        total += needed[i] != 0;
    if (!total || !bytes)
        return WEFT_OK;
    char *memory = server->model.count <= SIZE_MAX / total
                       ? weft_context_memory_alloc(server->context, server->model.count * total,
                                                   server->element)
                       : NULL;
    if (!memory)
        return no_memory("models of a worker", total);
    server->worker.memory = memory;
    for (size_t i = 0; i < count; i++)
        if (needed[i]) {
            *models[i] = memory;
            memory += bytes;
        }
    return WEFT_OK;
}

/* The base of a layer's changes: what the tensors are. */
static void fill_flat(const struct weft_server *server, char *flat)
{
    for (size_t t = 0; t < server->model.tensor_count; t++) {
        size_t bytes = server->model.tensors[t].count * server->element;
        if (bytes)
            memcpy(flat, server->model.tensors[t].data, bytes);
        flat += bytes;
    }
}

static int make_worker(struct weft_server *server)
{
    struct worker *worker = &server->worker;
    const struct weft_server_config *config = &server->config;
    int osp = weft__server_is_osp(server), keeps = weft__server_keeps_base(server);
    int own = config->optimiser == WEFT_WORKER_UPDATES && config->push == WEFT_SERVER_GRADIENTS;
    char **models[] = {&worker->kept, &worker->fresh,   &worker->base,
                       &worker->last, &worker->average, &worker->velocity};
    const int needed[] = {osp || own,
                          osp,
                          keeps,
                          keeps,
                          keeps && config->osp_average > 0,
                          own && config->momentum > 0};
    size_t layers = server->layer_count, servers = server->servers;
    if (!server->is_worker)
        return WEFT_OK;
    int status = make_models(server, models, needed, sizeof needed / sizeof needed[0]);
    worker->layers = weft_memory_alloc(layers + 1, sizeof *worker->layers);
    worker->held = weft_memory_alloc(layers + 1, sizeof *worker->held);
    worker->report = weft_memory_alloc(REPORT_WORDS + server->words, sizeof *worker->report);
    worker->reply = weft_memory_alloc(REPLY_WORDS + server->words, sizeof *worker->reply);
    worker->waiting_first = weft_memory_alloc(3 * servers, sizeof *worker->waiting_first);
    if (!status && config->flow == WEFT_SERVER_PACED) {
        worker->waiting =
            weft_memory_alloc(servers * server->unit_count + 1, sizeof *worker->waiting);
        status = worker->waiting ? WEFT_OK : no_memory("segments", server->unit_count);
    }
    if (!status && (!worker->layers || !worker->held || !worker->report || !worker->reply ||
                    !worker->waiting_first))
        status = no_memory("layers", layers);
    if (status)
        return status;
    worker->waiting_count = worker->waiting_first + servers;
    worker->on_the_way = worker->waiting_count + servers;
    worker->rate = config->rate;
    worker->has_optimiser = own;
    atomic_init(&worker->to_land, 0);
    atomic_init(&worker->landed_ns, 0);
    return WEFT_OK;
}

/* ---- memory of servers ---- */

static int make_guests(struct weft_server *server)
{
    struct host *host = &server->host;
    size_t words = REPORT_WORDS + REPLY_WORDS + 2 * server->words + 2 * PLACE_WORDS;
    host->guests = weft_memory_alloc(server->workers + 1, sizeof *host->guests);
    host->words = weft_memory_alloc(server->workers * words + 1, sizeof *host->words);
    if (!host->guests || !host->words)
        return no_memory("workers", server->workers);
    host->present = server->workers;
    for (size_t w = 0; w < server->workers; w++) {
        struct guest *guest = &host->guests[w];
        guest->server = server;
        guest->present = 1;
        guest->report = host->words + w * words;
        guest->reply = guest->report + REPORT_WORDS + server->words;
        guest->order = guest->reply + REPLY_WORDS + server->words;
        guest->release = guest->order + PLACE_WORDS;
    }
    return WEFT_OK;
}

static int make_share(struct weft_server *server)
{
    struct host *host = &server->host;
    size_t velocity = server->config.momentum > 0 &&
                      server->config.optimiser == WEFT_SERVER_UPDATES &&
                      server->config.push == WEFT_SERVER_GRADIENTS;
    size_t copies = 1 + velocity + server->workers, cells = 0;
    for (size_t p = 0; p < server->part_count; p++)
        host->part_count += server->parts[p].is.server == host->index;
    if (host->count > SIZE_MAX / copies / server->element)
        return no_memory("rooms for pushes", server->workers);
    host->parts = weft_memory_alloc(host->part_count + 1, sizeof *host->parts);
    cells = host->part_count * server->workers;
    host->calls = weft_memory_alloc(cells + 1, sizeof *host->calls);
    host->empty = weft_memory_alloc(cells + 1, 1);
    host->lists = weft_memory_alloc(server->workers + 1, sizeof *host->lists);
    host->weights = weft_memory_alloc(server->workers + 1, sizeof *host->weights);
    host->parameters =
        weft_context_memory_alloc(server->context, host->count * copies + 1, server->element);
    if (!host->parts || !host->calls || !host->empty || !host->lists || !host->weights ||
        !host->parameters)
        return no_memory("rooms for pushes", server->workers);
    host->velocity = velocity ? weft__server_flat(server, host->parameters, host->count) : NULL;
    host->rooms = weft__server_flat(server, host->parameters, (1 + velocity) * host->count);
    for (size_t p = 0, mine = 0; p < server->part_count; p++)
        if (server->parts[p].is.server == host->index) {
            host->parts[mine].server = server;
            host->parts[mine++].part = p;
        }
    return WEFT_OK;
}

static int make_ranking(struct weft_server *server)
{
    struct host *host = &server->host;
    size_t layers = server->layer_count, holders = weft__server_holders(server);
    if (!weft__server_is_osp(server))
        return WEFT_OK;
    host->importance = weft_memory_alloc(layers * (host->index ? 2
                                                   : holders   ? holders
                                                               : 1) +
                                             1,
                                         sizeof *host->importance);
    host->late = weft_memory_alloc(layers + 1, sizeof *host->late);
    host->order = weft_memory_alloc(layers + 1, sizeof *host->order);
    host->layer_bytes = weft_memory_alloc(layers + 1, sizeof *host->layer_bytes);
    if (!host->importance || !host->late || !host->order || !host->layer_bytes)
        return no_memory("layers", layers);
    for (size_t l = 0; l < layers; l++)
        host->layer_bytes[l] = server->layers[l].count * server->element;
    host->tune = (struct weft__tune){.first_loss = NAN,
                                     .loss = NAN,
                                     .model_bytes = server->model.count * server->element,
                                     .most = server->config.osp_most,
                                     .share = server->config.osp_share};
    return WEFT_OK;
}

static int make_host(struct weft_server *server)
{
    struct host *host = &server->host;
    if (!weft__server_hosts(server))
        return WEFT_OK;
    int status = make_guests(server);
    if (!status)
        status = make_share(server);
    if (!status)
        status = make_ranking(server);
    return status
               ? status
               : weft__threshold_init(&host->threshold, server->workers, server->config.staleness,
                                      server->config.sync == WEFT_SERVER_DSSP
                                          ? server->config.staleness_most
                                          : server->config.staleness);
}

/* ---- all of it ---- */

static void set_roles(struct weft_server *server)
{
    const struct weft_server_config *config = &server->config;
    int colocated = config->place == WEFT_SERVER_COLOCATED;
    server->servers = (size_t)config->servers;
    server->workers = (size_t)server->size - (colocated ? 0 : server->servers);
    server->is_worker = server->rank < (int)server->workers;
    if (colocated)
        server->host.index = server->rank < config->servers ? server->rank : -1;
    else
        server->host.index = server->is_worker ? -1 : server->rank - (int)server->workers;
    server->update.kind = config->push == WEFT_SERVER_GRADIENTS ? WEFT__UPDATE_SGD
                          : weft__server_merges(server)         ? WEFT__UPDATE_SET
                                                                : WEFT__UPDATE_MIX;
    server->update.rate = -1; /* of updates that workers have made */
    server->update.momentum = config->optimiser == WEFT_SERVER_UPDATES ? config->momentum : 0;
    server->push_share = 1;
    if (weft__server_merges(server) || !(server->update.momentum > 0))
        return;
    /* By the push: after as many as there are workers v has decayed as in a step of BSP, and what a
     * gradient does to the parameters in the end is the same. */
    double momentum = pow(server->update.momentum, 1.0 / (double)server->workers);
    server->push_share = (1 - momentum) / (1 - server->update.momentum);
    server->update.momentum = momentum;
}

static int make_ids(struct weft_server *server)
{
    size_t count =
        server->layer_count > server->part_count ? server->layer_count : server->part_count;
    if (server->workers > count)
        count = server->workers;
    if (server->servers > count)
        count = server->servers;
    server->ids = weft_memory_alloc(count + 1, sizeof *server->ids);
    server->weights = weft_memory_alloc((size_t)server->size, sizeof *server->weights);
    server->steps = weft_memory_alloc((size_t)server->size, sizeof *server->steps);
    server->pulled = weft_memory_alloc((size_t)server->size, sizeof *server->pulled);
    if (!server->ids || !server->weights || !server->steps || !server->pulled)
        return no_memory("parts", count);
    server->id_count = count + 1;
    for (size_t i = 0; i <= count; i++)
        server->ids[i] = i;
    return WEFT_OK;
}

int weft__server_set_up(const char *who, struct weft_server *server,
                        const struct weft_server_config *config)
{
    server->config = *config;
    server->rank = weft_context_rank(server->context);
    server->size = weft_context_size(server->context);
    set_roles(server);
    int status = weft__model_init(&server->model, who, WEFT__WIDE_DTYPES, config->dtype,
                                  config->tensors, config->tensor_count);
    if (status)
        return status;
    server->element = weft_dtype_size(server->model.dtype);
    status = copy_gradients(who, server, config);
    if (!status)
        status = make_layers(who, server, config);
    if (!status)
        status = make_parts(server);
    if (!status)
        status = make_ids(server);
    if (!status)
        status = make_host(server);
    return status ? status : make_worker(server);
}

void weft__server_fill_share(struct weft_server *server)
{
    struct host *host = &server->host;
    for (size_t mine = 0; weft__server_hosts(server) && mine < host->part_count; mine++) {
        const struct part *part = &server->parts[host->parts[mine].part];
        const struct layer *layer = &server->layers[part->is.layer];
        size_t from = part->is.offset, left = part->is.count, tensor = layer->first_tensor;
        char *to = weft__server_flat(server, host->parameters, part->at);
        while (left) {
            const struct weft_piece *piece = &server->model.tensors[tensor++];
            if (from >= piece->count) {
                from -= piece->count;
                continue;
            }
            size_t count = piece->count - from < left ? piece->count - from : left;
            memcpy(to, (const char *)piece->data + from * server->element, count * server->element);
            to += count * server->element;
            left -= count;
            from = 0;
        }
    }
    if (server->worker.base)
        fill_flat(server, server->worker.base);
}

static double sum_weights(const struct weft_server *server)
{
    double sum = 0;
    for (size_t w = 0; w < server->workers; w++)
        sum += server->weights[w];
    return sum;
}

void weft__server_set_weights(struct weft_server *server)
{
    double sum = sum_weights(server), most = 0;
    int equal = 1;
    for (size_t w = 0; w < server->workers; w++) {
        equal &= server->weights[w] == server->weights[0];
        most = server->weights[w] > most ? server->weights[w] : most;
    }
    if (isinf(sum)) {
        for (size_t w = 0; w < server->workers; w++)
            server->weights[w] /= most;
        sum = sum_weights(server);
    }
    for (size_t w = 0; w < server->workers; w++)
        server->weights[w] = equal ? 1 : server->weights[w] / sum * (double)server->workers;
}

static void free_host(struct weft_server *server)
{
    struct host *host = &server->host;
    weft__threshold_free(&host->threshold);
    weft_memory_free(host->layer_bytes);
    weft_memory_free(host->order);
    weft_memory_free(host->late);
    weft_memory_free(host->importance);
    weft_context_memory_free(server->context, host->parameters);
    weft_memory_free(host->weights);
    weft_memory_free((void *)host->lists);
    weft_memory_free(host->empty);
    weft_memory_free((void *)host->calls);
    weft_memory_free(host->parts);
    weft_memory_free(host->saved_clocks);
    weft_memory_free(host->words);
    weft_memory_free(host->guests);
}

static void free_worker(struct weft_server *server)
{
    struct worker *worker = &server->worker;
    weft_memory_free((void *)worker->waiting);
    weft_memory_free(worker->waiting_first);
    weft_memory_free(worker->saved_late);
    weft_memory_free(worker->reply);
    weft_memory_free(worker->report);
    weft_memory_free((void *)worker->held);
    weft_memory_free(worker->layers);
    weft_context_memory_free(server->context, worker->memory);
}

void weft__server_free(struct weft_server *server)
{
    weft__server_destroy_runs(server);
    weft_object_destroy(server->object);
    for (int i = 0; i < OPS; i++)
        weft_op_destroy(server->ops[i]);
    free_worker(server);
    free_host(server);
    weft_memory_free(server->pulled);
    weft_memory_free(server->steps);
    weft_memory_free(server->weights);
    weft_memory_free(server->ids);
    weft_memory_free(server->parts);
    weft_memory_free(server->layers);
    weft_memory_free(server->gradients);
    weft__model_free(&server->model);
    weft_memory_free(server);
}
