/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers: what a configuration may be, and what the ranks compare of it. */
#include <math.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/initial.h"
#include "schedules/objects/server/create.h"

enum { SPLIT_BYTES = 256 * 1024, SEGMENT_BYTES = 64 * 1024 };
#define MOST 0.8
#define RATE 0.1

void weft_server_config_init_sized(struct weft_server_config *config, size_t size)
{
    weft_sized_init(config, size);
}

static const char *const syncs[] = {
    [WEFT_SERVER_BSP] = "BSP",   [WEFT_SERVER_ASP] = "ASP",   [WEFT_SERVER_SSP] = "SSP",
    [WEFT_SERVER_DSSP] = "DSSP", [WEFT_SERVER_R2SP] = "R2SP", [WEFT_SERVER_OSP] = "OSP"};
static const char *const places[] = {"apart", "co-located"};
static const char *const pushes[] = {"gradients", "models"};
static const char *const optimisers[] = {"the servers", "the workers"};
static const char *const flows[] = {"at once", "turns", "paced"};
static const char *const corrections[] = {"at the end", "before the layer"};

static int check_choice(const char *who, const char *member, int value, int count, const char *type)
{
    if (value >= 0 && value < count)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID, "%s: config->%s is %d, expected one of weft_%s_t", who,
                          member, value, type);
}

static int check_choices(const char *who, const struct weft_server_config *config)
{
    int status = check_choice(who, "sync", (int)config->sync, 6, "server_sync");
    if (!status)
        status = check_choice(who, "place", (int)config->place, 2, "server_place");
    if (!status)
        status = check_choice(who, "push", (int)config->push, 2, "server_push");
    if (!status)
        status = check_choice(who, "optimiser", (int)config->optimiser, 2, "server_optimiser");
    if (!status)
        status = check_choice(who, "flow", (int)config->flow, 3, "server_flow");
    if (!status)
        status =
            check_choice(who, "osp_correction", (int)config->osp_correction, 2, "osp_correction");
    if (!status && config->nan != WEFT_NAN_ERROR && config->nan != WEFT_NAN_SPREAD)
        status = weft_error_set(WEFT_ERR_INVALID,
                                "%s: config->nan is %d, expected WEFT_NAN_ERROR or WEFT_NAN_SPREAD",
                                who, (int)config->nan);
    return status ? status : weft__initial_check(who, config->initial);
}

static int check_servers(const char *who, const struct weft_context *context,
                         const struct weft_server_config *config)
{
    int size = weft_context_size(context);
    int most = config->place == WEFT_SERVER_COLOCATED ? size : size - 1;
    if (config->servers >= 1 && config->servers <= most)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: config->servers is %d, expected 1 to %d for %d ranks", who,
                          config->servers, most, size);
}

static int check_models(const char *who, const struct weft_server_config *config)
{
    if (config->push != WEFT_SERVER_MODELS)
        return WEFT_OK;
    if (config->sync == WEFT_SERVER_OSP)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->push is WEFT_SERVER_MODELS, expected "
                              "WEFT_SERVER_GRADIENTS with WEFT_SERVER_OSP",
                              who);
    if (config->gradients || config->rate != 0 || config->momentum != 0 ||
        config->optimiser != WEFT_SERVER_UPDATES)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->push is WEFT_SERVER_MODELS, expected config->%s to be 0",
                              who,
                              config->gradients       ? "gradients"
                              : config->rate != 0     ? "rate"
                              : config->momentum != 0 ? "momentum"
                                                      : "optimiser");
    return WEFT_OK;
}

/* Of a number that 1 is too much for. */
static int check_decay(const char *who, const char *member, double value)
{
    if (value >= 0 && value < 1)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: config->%s is %g, expected at least 0, and less than 1", who, member,
                          value);
}

static int check_numbers(const char *who, const struct weft_server_config *config)
{
    int status = check_decay(who, "momentum", config->momentum);
    if (status)
        return status;
    if (!(config->weight > 0) || isinf(config->weight))
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->weight is %g, expected a number above 0", who,
                              config->weight);
    if (config->push == WEFT_SERVER_GRADIENTS &&
        (!(config->rate > 0) || config->rate > WEFT__SERVER_MOST_REAL))
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->rate is %g, expected a number above 0, at most 1e300",
                              who, config->rate);
    if (config->staleness >= WEFT__SERVER_MOST_STEPS ||
        config->staleness_most >= WEFT__SERVER_MOST_STEPS)
        return weft_error_set(
            WEFT_ERR_INVALID, "%s: config->%s is %llu, expected less than 2^62", who,
            config->staleness >= WEFT__SERVER_MOST_STEPS ? "staleness" : "staleness_most",
            (unsigned long long)(config->staleness >= WEFT__SERVER_MOST_STEPS
                                     ? config->staleness
                                     : config->staleness_most));
    if (config->sync == WEFT_SERVER_DSSP && config->staleness_most < config->staleness)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->staleness_most is %llu, expected at least "
                              "config->staleness, which is %llu",
                              who, (unsigned long long)config->staleness_most,
                              (unsigned long long)config->staleness);
    status = weft_sized_number(who, "config->turns", config->turns, 1, INT32_MAX);
    if (!status)
        status = weft_sized_number(who, "config->window", config->window, 1, INT32_MAX);
    if (!status && config->segment_bytes < 8)
        status =
            weft_error_set(WEFT_ERR_INVALID, "%s: config->segment_bytes is %zu, expected 8 or more",
                           who, config->segment_bytes);
    return status;
}

static int check_osp(const char *who, const struct weft_server_config *config)
{
    int status = weft_sized_real(who, "config->osp_most", config->osp_most, 0, 1);
    if (!status && config->osp_share != WEFT_OSP_NOTHING &&
        !(config->osp_share >= 0 && config->osp_share <= 1))
        status = weft_error_set(WEFT_ERR_INVALID,
                                "%s: config->osp_share is %g, expected 0 to 1, or WEFT_OSP_NOTHING",
                                who, config->osp_share);
    if (!status)
        status = weft_sized_real(who, "config->osp_goodput", config->osp_goodput, 0, 1e300);
    if (!status)
        status = check_decay(who, "osp_average", config->osp_average);
    return status ? status
                  : weft_sized_time(who, "config->osp_compute_ns", config->osp_compute_ns, 0);
}

static int check_times(const char *who, const struct weft_server_config *config)
{
    int status = weft_sized_time(who, "config->deadline_ns", config->deadline_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->meet_ns", config->meet_ns, WEFT_NEVER);
    return status ? status : weft_sized_time(who, "config->leave_ns", config->leave_ns, WEFT_NEVER);
}

static void set_defaults(const struct weft_context *context, struct weft_server_config *config)
{
    if (config->place == WEFT_SERVER_APART && weft_context_size(context) == 1)
        config->place = WEFT_SERVER_COLOCATED; /* the one rank is both */
    if (config->rate == 0 && config->push == WEFT_SERVER_GRADIENTS)
        config->rate = RATE;
    if (!config->servers)
        config->servers = 1;
    if (!config->split_bytes)
        config->split_bytes = SPLIT_BYTES;
    if (config->weight == 0)
        config->weight = 1;
    if (!config->turns)
        config->turns = 1;
    if (!config->segment_bytes)
        config->segment_bytes = SEGMENT_BYTES;
    if (!config->window)
        config->window = 1;
    if (config->osp_most == 0)
        config->osp_most = MOST;
    if (!config->leave_ns)
        config->leave_ns = WEFT__LEAVE_NS;
}

/* Who is a worker of OSP, or a server that computes as well, needs its helper. */
static int check_progress(const char *who, const struct weft_context *context,
                          const struct weft_server_config *config)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    int colocated = config->place == WEFT_SERVER_COLOCATED;
    int worker = colocated || rank < size - config->servers;
    if (weft_context_progress_mode(context) == WEFT_PROGRESS_HELPER || size == 1)
        return WEFT_OK;
    if (colocated && rank < config->servers)
        return weft_error_set(WEFT_ERR_STATE,
                              "%s: the context of rank %d has caller progress, expected helper "
                              "progress: it is a server and a worker",
                              who, rank);
    if (worker && config->sync == WEFT_SERVER_OSP)
        return weft_error_set(WEFT_ERR_STATE,
                              "%s: the context of rank %d has caller progress, expected helper "
                              "progress: its second stage goes on while it computes",
                              who, rank);
    return WEFT_OK;
}

int weft__server_check(const char *who, const struct weft_context *context,
                       const struct weft_server_config *given, struct weft_server_config *config)
{
    if (!given)
        return weft_error_set(WEFT_ERR_INVALID, "%s: config is NULL", who);
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    if (status)
        return status;
    set_defaults(context, config);
    status = check_choices(who, config);
    if (!status)
        status = check_servers(who, context, config);
    if (!status)
        status = check_models(who, config);
    if (!status)
        status = check_numbers(who, config);
    if (!status)
        status = check_osp(who, config);
    if (!status)
        status = check_times(who, config);
    return status ? status : check_progress(who, context, config);
}

/* ---- what ranks compare ---- */

/* Of the same unit on all ranks: layers' elements. */
static size_t model_settings(const struct weft_server *server, struct weft__setting *settings)
{
    size_t n = 0;
    settings[n++] = weft__setting_count("the number of elements", server->model.count);
    settings[n++] = weft__setting_count("the number of layers", server->layer_count);
    settings[n++] = weft__setting_counts("the layers' elements", &server->layers[0].count,
                                         server->layer_count, sizeof *server->layers);
    settings[n++] = weft__setting_word("config->dtype", (int)server->model.dtype,
                                       weft_dtype_name(server->model.dtype));
    return n;
}

static size_t sync_settings(const struct weft_server_config *config, struct weft__setting *settings)
{
    size_t n = 0;
    settings[n++] = weft__setting_word("config->sync", (int)config->sync, syncs[config->sync]);
    settings[n++] = weft__setting_word("config->place", (int)config->place, places[config->place]);
    settings[n++] = weft__setting_count("config->servers", (uint64_t)config->servers);
    settings[n++] = weft__setting_count("config->split_bytes", config->split_bytes);
    settings[n++] = weft__setting_count("config->merge_bytes", config->merge_bytes);
    settings[n++] = weft__setting_count("config->staleness", config->staleness);
    settings[n++] = weft__setting_count("config->staleness_most", config->staleness_most);
    settings[n++] = weft__setting_word("config->push", (int)config->push, pushes[config->push]);
    settings[n++] = weft__setting_word("config->optimiser", (int)config->optimiser,
                                       optimisers[config->optimiser]);
    settings[n++] = weft__setting_real("config->rate", config->rate);
    settings[n++] = weft__setting_real("config->momentum", config->momentum);
    settings[n++] = weft__setting_word("config->flow", (int)config->flow, flows[config->flow]);
    settings[n++] = weft__setting_count("config->turns", (uint64_t)config->turns);
    settings[n++] = weft__setting_count("config->segment_bytes", config->segment_bytes);
    settings[n++] = weft__setting_count("config->window", (uint64_t)config->window);
    return n;
}

static size_t osp_settings(const struct weft_server_config *config, struct weft__setting *settings)
{
    size_t n = 0;
    settings[n++] = weft__setting_real("config->osp_most", config->osp_most);
    settings[n++] = weft__setting_real("config->osp_share", config->osp_share);
    settings[n++] = weft__setting_real("config->osp_goodput", config->osp_goodput);
    settings[n++] = weft__setting_count("config->osp_compute_ns", config->osp_compute_ns);
    settings[n++] = weft__setting_real("config->osp_average", config->osp_average);
    settings[n++] = weft__setting_word("config->osp_correction", (int)config->osp_correction,
                                       corrections[config->osp_correction]);
    settings[n++] = weft__setting_word("config->state", config->state != NULL,
                                       config->state ? "a state" : "none");
    return n;
}

/* Workers that go on from a state in which others are late would wait for each other. */
static struct weft__setting late_setting(const struct weft_server *server)
{
    const unsigned char *late = server->config.state ? server->state.late : NULL;
    uint64_t *words = server->worker.report + REPORT_WORDS; /* written anew by every step */
    int compares = server->is_worker && weft__server_is_osp(server) && server->config.state;
    for (size_t l = 0; late && compares && l < server->layer_count; l++)
        words[l / 64] |= (uint64_t)(late[l] & 1) << (l % 64);
    struct weft__setting setting =
        weft__setting_counts("the late layers of config->state, as bits", words,
                             compares ? server->words : 0, sizeof *words);
    setting.abstains = !compares;
    return setting;
}

size_t weft__server_settings(const struct weft_server *server,
                             const struct weft__creation *creation, struct weft__setting *settings)
{
    const struct weft_server_config *config = &server->config;
    size_t n = model_settings(server, settings);
    n += sync_settings(config, &settings[n]);
    n += osp_settings(config, &settings[n]);
    settings[n++] = late_setting(server);
    weft__initial_settings(&settings[n], creation, config->initial);
    return n + WEFT__INITIAL_SETTINGS;
}
