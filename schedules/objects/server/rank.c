/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers, OSP: which layers are late in the next step, and what workers are told.
 *
 * When all its parts have been weighed in a step, a server sends the importance of its layers to
 * server 0, which adds up, in the order of the servers, what has been split, and answers the
 * workers. They have got their important layers long before, and the others as they were merged.
 */
#include <math.h>
#include <string.h>

#include "schedules/objects/server/server.h"

/* ---- what is measured ---- */

/*
 * The link of server 0 is busy from when all have asked until the important layers are here, and
 * then until the late ones are. What comes late because of who computes makes it look slow: the
 * fastest of some samples counts.
 */
void weft__server_all_asked(struct weft_server *server)
{
    struct host *host = &server->host;
    uint64_t now = weft_context_now(server->context);
    for (int late = 0; late <= 1; late++)
        host->stages[late] = (struct stage){.began_ns = late && host->stages[0].expected ? 0 : now,
                                            .came = host->stages[late].came,
                                            .expected = host->stages[late].expected};
}

void weft__server_measure(struct weft_server *server, int late, uint64_t bytes)
{
    struct host *host = &server->host;
    struct stage *stage = &host->stages[late];
    stage->came++;
    stage->bytes += bytes;
    if (stage->came != stage->expected)
        return;
    uint64_t now = weft_context_now(server->context);
    if (stage->began_ns)
        weft__goodput_add(&host->goodput, stage->bytes, now - stage->began_ns);
    if (!late)
        host->stages[1].began_ns = now;
}

/* T_c: the shortest of those that take part, since all of them share the link while it computes. */
static uint64_t compute_of_all(const struct weft_server *server)
{
    uint64_t least = UINT64_MAX;
    if (server->config.osp_compute_ns)
        return server->config.osp_compute_ns;
    for (size_t w = 0; w < server->workers; w++) {
        const struct guest *guest = &server->host.guests[w];
        if (guest->present && guest->report[REPORT_COMPUTE] < least)
            least = guest->report[REPORT_COMPUTE];
    }
    return least == UINT64_MAX ? 0 : least;
}

/* The weighted mean of what workers have told last; NaN: one has told nothing. */
static double loss_of_all(const struct weft_server *server)
{
    double sum = 0, weights = 0;
    for (size_t w = 0; w < server->workers; w++) {
        const struct guest *guest = &server->host.guests[w];
        if (!guest->present)
            continue;
        if (!guest->report[REPORT_HAS_LOSS])
            return NAN;
        sum += server->weights[w] * weft__word_real(guest->report[REPORT_LOSS]);
        weights += server->weights[w];
    }
    return weights > 0 ? sum / weights : NAN;
}

/* ---- ranking ---- */

static void add_up(struct weft_server *server)
{
    struct host *host = &server->host;
    size_t layers = server->layer_count, holders = weft__server_holders(server);
    for (size_t k = 1; k < holders; k++)
        for (size_t l = 0; l < layers; l++)
            host->importance[l] += host->importance[k * layers + l];
}

/* Server 0: all importance is here. */
static void rank_layers(struct weft_server *server)
{
    struct host *host = &server->host;
    struct weft__tune *tune = &host->tune;
    add_up(server);
    double loss = loss_of_all(server);
    if (!isnan(loss)) {
        tune->loss = loss;
        if (isnan(tune->first_loss))
            tune->first_loss = loss;
    }
    /* Late layers are on all links at once. */
    tune->goodput = (double)weft__server_holders(server) *
                    (server->config.osp_goodput > 0 ? server->config.osp_goodput
                                                    : weft__goodput_get(&host->goodput));
    tune->compute_ns = compute_of_all(server);
    tune->workers = host->present;
    host->tuned = weft__tune(tune);
    weft__tune_choose(host->importance, host->layer_bytes, server->layer_count,
                      host->tuned.late_bytes, host->late, host->order);
    memset(host->importance, 0, server->layer_count * sizeof *host->importance);
    host->ranked++;
    host->reported = 0;
    memset(host->stages, 0, sizeof host->stages);
    for (size_t w = 0; w < server->workers; w++) {
        struct guest *guest = &host->guests[w];
        if (!guest->answer)
            continue;
        weft__server_fill_reply(server, w, host->ranked - 1);
        weft__server_complete(&guest->answer, WEFT_OK);
    }
}

void weft__server_tallied(void *user, struct weft_run *run, int status)
{
    struct weft_server *server = user;
    (void)run;
    server->host.tallying = 0;
    if (status || server->broken)
        return;
    if (server->host.index == 0)
        rank_layers(server);
    if (server->host.tally_wanted)
        weft__server_tally(server);
}

void weft__server_tally(struct weft_server *server)
{
    if (!server->host.tally) {
        rank_layers(server);
        return;
    }
    struct host *host = &server->host;
    /* What was sent for the last step has arrived, but may not have been told so. */
    host->tally_wanted = host->tallying;
    if (host->tallying)
        return;
    if (host->index) { /* the next step is weighed while this one's is sent */
        size_t bytes = server->layer_count * sizeof *host->importance;
        memcpy(host->importance + server->layer_count, host->importance, bytes);
        memset(host->importance, 0, bytes);
    }
    host->tallying = 1;
    int status = weft_run_start(host->tally);
    if (status)
        weft_object_fail(server->object, status, weft_error_text());
}

/* ---- what workers are told ---- */

void weft__server_fill_reply(struct weft_server *server, size_t worker, uint64_t version)
{
    struct host *host = &server->host;
    struct guest *guest = &host->guests[worker];
    uint64_t *reply = guest->reply;
    int merges = weft__server_merges(server);
    memset(reply, 0, (REPLY_WORDS + server->words) * sizeof *reply);
    reply[REPLY_VERSION] = merges ? version + 1 : guest->pulled;
    reply[REPLY_STALENESS] = merges ? 0 : guest->staleness;
    if (!weft__server_is_osp(server))
        return;
    size_t holders = weft__server_holders(server);
    reply[REPLY_GOODPUT] = weft__real_word(holders ? host->tune.goodput / (double)holders : 0);
    reply[REPLY_COMPUTE] = host->tune.compute_ns;
    reply[REPLY_MOST] = host->tuned.most_bytes;
    reply[REPLY_LATE] = host->tuned.late_bytes;
    reply[REPLY_HAS_LOSS] = !isnan(host->tune.loss);
    reply[REPLY_FIRST_LOSS] = weft__real_word(host->tune.first_loss);
    reply[REPLY_LOSS] = weft__real_word(host->tune.loss);
    for (size_t l = 0; l < server->layer_count; l++)
        reply[REPLY_WORDS + l / 64] |= (uint64_t)host->late[l] << (l % 64);
}
