/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench model: what a transport and this machine cost, as weft_cost_model and weft_net put it.
 *
 *   alpha, beta   a ping-pong: a message of m bytes takes alpha + m beta; least squares of the
 *                 relative errors over sizes from 8 B to 1 MiB
 *   rendezvous    how much longer those take that wait for their receives, and from which size on
 *                 they do: where that makes the errors less by a fifth
 *   eager         that size; and what a byte of smaller ones costs more, since they are copied
 *   exchange      a further byte of messages that two ranks send to each other at once
 *   switch        a yield on one core
 *   o, g          what a further small message in a row costs: its sender, and both together
 *   L, G          alpha - 2 o, beta
 *   node          a further join in a chain
 *   gamma, copy   a further byte of a reduction, of a copy
 *
 * All are short, and take turns, so that a phase of the machine falls on all of them. What is
 * fitted is the least of the rounds: whatever else runs here can only add.
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <string.h>

enum kind { PING, EXCHANGE, SENDS, STREAM, JOINS, REDUCE, COPY };
enum { POINTS = 21, SMALL = 8, LARGEST = 1 << 20, REPEATS = 3 };

/* One thing that is timed: `count` of it in one run. */
struct point {
    enum kind kind;
    size_t bytes;
    int count;
};

static const struct point points[POINTS] = {
    {PING, 8, 64},       {PING, 64, 64},        {PING, 512, 64},        {PING, 2048, 64},
    {PING, 8192, 32},    {PING, 32768, 16},     {PING, 131072, 8},      {PING, 524288, 2},
    {PING, LARGEST, 2},  {EXCHANGE, 131072, 8}, {EXCHANGE, LARGEST, 2}, {SENDS, SMALL, 64},
    {SENDS, SMALL, 192}, {STREAM, SMALL, 64},   {STREAM, SMALL, 192},   {JOINS, 0, 200},
    {JOINS, 0, 1000},    {REDUCE, 4096, 64},    {REDUCE, 262144, 8},    {COPY, 4096, 64},
    {COPY, 262144, 8},
};

/* What one rank holds. */
struct side {
    unsigned char *data;
    struct weft_run *runs[POINTS];
    double us;
};

struct model {
    struct bench *bench;
    const char *transport;
    int messages; /* 1: alpha and beta alone */
    int now;      /* the point whose turn it is */
    struct bench_team team;
    struct weft_context *context; /* of MPI */
    struct side sides[2];         /* of local ranks; of MPI the first */
    struct bench_samples samples[POINTS];
};

static int is_local(enum kind kind)
{
    return kind >= JOINS;
}

/* ---- schedules ---- */

/* Messages there and back, each after the one before. */
static void build_ping(struct weft_schedule *s, int rank, const struct point *point)
{
    struct weft_region region = weft_region_at(0, 0, point->bytes);
    weft_node_t last = -1;

    for (int i = 0; i < 2 * point->count; i++) {
        weft_node_t node = i % 2 == rank ? weft_schedule_add_send(s, region, !rank, (uint32_t)i)
                                         : weft_schedule_add_recv(s, region, !rank, (uint32_t)i);
        if (last >= 0)
            weft_schedule_add_order(s, last, node);
        last = node;
    }
}

/* Messages both ways at once, each pair after the one before. */
static void build_exchange(struct weft_schedule *s, int rank, const struct point *point)
{
    struct weft_region out = weft_region_at(0, 0, point->bytes);
    struct weft_region in = weft_region_at(0, LARGEST, point->bytes);
    weft_node_t last = -1;

    for (int i = 0; i < point->count; i++) {
        weft_node_t end = weft_schedule_add_join(s);
        weft_node_t nodes[] = {weft_schedule_add_recv(s, in, !rank, (uint32_t)i),
                               weft_schedule_add_send(s, out, !rank, (uint32_t)i)};
        for (int n = 0; n < 2; n++) {
            if (last >= 0)
                weft_schedule_add_order(s, last, nodes[n]);
            weft_schedule_add_order(s, nodes[n], end);
        }
        last = end;
    }
}

/* Messages from rank 0 in a row; with an answer, rank 0 knows when the last one has come. */
static void build_row(struct weft_schedule *s, int rank, const struct point *point, int answer)
{
    weft_node_t end = weft_schedule_add_join(s);
    weft_node_t back = -1;

    for (int i = 0; i < point->count; i++) {
        struct weft_region region = weft_region_at(0, (size_t)i * point->bytes, point->bytes);
        weft_node_t node = rank == 0 ? weft_schedule_add_send(s, region, 1, (uint32_t)i)
                                     : weft_schedule_add_recv(s, region, 0, (uint32_t)i);
        weft_schedule_add_order(s, node, end);
    }
    if (answer) {
        struct weft_region region = weft_region_at(1, 0, SMALL);
        back = rank == 0 ? weft_schedule_add_recv(s, region, 1, UINT32_MAX)
                         : weft_schedule_add_send(s, region, 0, UINT32_MAX);
        weft_schedule_add_order(s, end, back);
    }
}

static void build_chain(struct weft_schedule *s, const struct point *point)
{
    size_t count = point->bytes / sizeof(float);
    struct weft_region one = weft_region_at(0, 0, count), two = weft_region_at(0, count, count);
    const struct weft_op *sum = weft_op_builtin(WEFT_SUM);
    weft_node_t last = -1;

    for (int i = 0; i < point->count; i++) {
        weft_node_t node = point->kind == JOINS    ? weft_schedule_add_join(s)
                           : point->kind == REDUCE ? weft_schedule_add_reduce(s, sum, one, one, two)
                           : i % 2                 ? weft_schedule_add_copy(s, one, two)
                                                   : weft_schedule_add_copy(s, two, one);
        if (last >= 0)
            weft_schedule_add_order(s, last, node);
        last = node;
    }
}

static int open_point(struct weft_run **run, struct weft_context *context, unsigned char *data,
                      const struct point *point)
{
    int rank = weft_context_rank(context), local = is_local(point->kind);
    weft_dtype_t dtype = local ? WEFT_F32 : WEFT_U8;
    size_t count = 2 * (size_t)LARGEST / weft_dtype_size(dtype);
    struct weft_schedule *s = NULL;
    struct weft_plan *plan = NULL;
    int status = weft_schedule_create(&s, rank, weft_context_size(context));

    if (status != WEFT_OK)
        return status;
    weft_schedule_add_slot(s, "data", dtype, count, WEFT_SLOT_INOUT);
    weft_schedule_add_slot(s, "answer", WEFT_U8, SMALL, WEFT_SLOT_SCRATCH);
    if (point->kind == PING && rank < 2)
        build_ping(s, rank, point);
    else if (point->kind == EXCHANGE && rank < 2)
        build_exchange(s, rank, point);
    else if ((point->kind == SENDS || point->kind == STREAM) && rank < 2)
        build_row(s, rank, point, point->kind == STREAM);
    else if (local && rank == 0)
        build_chain(s, point);
    status = weft_schedule_commit(s, &plan);
    if (status == WEFT_OK)
        status = weft_run_create(run, context, plan, NULL);
    if (status == WEFT_OK)
        status = weft_run_bind(*run, 0, data, count, dtype);
    weft_plan_destroy(plan);
    weft_schedule_destroy(s);
    return status;
}

static int open_side(struct side *side, struct weft_context *context)
{
    int status = WEFT_OK;

    side->data = weft_memory_alloc(2, LARGEST);
    if (!side->data)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d bytes", 2 * LARGEST);
    for (int p = 0; status == WEFT_OK && p < POINTS; p++)
        status = open_point(&side->runs[p], context, side->data, &points[p]);
    return status;
}

static void close_side(struct side *side)
{
    for (int p = 0; p < POINTS; p++)
        weft_run_destroy(side->runs[p]);
    weft_memory_free(side->data);
    memset(side, 0, sizeof *side);
}

/* ---- turns ---- */

/* The two that measure; other ranks of MPI sleep until the end. */
static void meet(struct model *model)
{
    if (model->context) {
        int other = !model->bench->rank;
        if (other) {
            bench_mpi_send(other);
            bench_mpi_recv(other);
        } else {
            bench_mpi_recv(other);
            bench_mpi_send(other);
        }
    } else {
        bench_team_meet(&model->team);
    }
}

/* One rank's part in a turn: the first execution warms up. */
static int turn(struct model *model, struct side *side)
{
    int status = WEFT_OK;

    side->us = 0;
    for (int i = 0; i <= REPEATS; i++) {
        meet(model);
        uint64_t start = ranks_now();
        int now = status == WEFT_OK ? weft_run_execute(side->runs[model->now]) : status;
        if (i > 0)
            side->us += (double)(ranks_now() - start) * 1e-3 / REPEATS;
        status = now;
    }
    meet(model);
    return status;
}

static int local_turn(struct bench_team *team, int rank, void *user)
{
    struct model *model = user;

    (void)team;
    return turn(model, &model->sides[rank]);
}

static int local_open(struct bench_team *team, int rank, void *user)
{
    struct model *model = user;

    return open_side(&model->sides[rank], team->contexts[rank]);
}

static int takes_part(const struct model *model, int point)
{
    return (!model->messages || points[point].kind == PING) &&
           (!model->context || model->bench->rank < 2);
}

static int take_turns(struct model *model)
{
    int status = WEFT_OK;

    for (int round = 0; round < model->bench->rounds; round++) {
        for (int p = 0; status == WEFT_OK && p < POINTS; p++) {
            if (!takes_part(model, p))
                continue;
            model->now = p;
            status = model->context ? turn(model, &model->sides[0])
                                    : bench_team_run(&model->team, local_turn, model);
            bench_sample(&model->samples[p], model->sides[0].us);
        }
    }
    if (status == WEFT_OK && model->context)
        bench_mpi_agree(0, model->bench->rank > 1);
    return status;
}

/* ---- fits ---- */

/* t = a + b x with the least sum of squares of relative errors, a and b not below 0. Returns the
 * root of their mean. */
static double fit(const double *x, const double *t, int count, double *a, double *b)
{
    double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0, sum = 0;

    for (int i = 0; i < count; i++) {
        double weight = 1 / (t[i] * t[i]);
        w += weight;
        wx += weight * x[i];
        wxx += weight * x[i] * x[i];
        wt += weight * t[i];
        wxt += weight * x[i] * t[i];
    }
    *b = (w * wxt - wx * wt) / (w * wxx - wx * wx);
    *a = (wt - *b * wx) / w;
    if (*b < 0) {
        *b = 0;
        *a = wt / w;
    } else if (*a < 0) {
        *a = 0;
        *b = wxt / wxx;
    }
    for (int i = 0; i < count; i++) {
        double off = (*a + *b * x[i] - t[i]) / t[i];
        sum += off * off;
    }
    return sqrt(sum / count);
}

/* The same of two lines, the second from `from` on. */
static double fit_lines(const double *x, const double *t, int count, int from,
                        struct weft_cost_model *cost)
{
    double a, slope, beyond, b;
    double off = fit(x, t, from, &a, &slope);
    double other = fit(x + from, t + from, count - from, &beyond, &b);

    if (beyond < a)
        return INFINITY;
    cost->alpha_us = a;
    cost->beta_us_per_byte = b;
    cost->eager_bytes = (size_t)x[from - 1];
    cost->eager_us_per_byte = fmax(slope - b, 0);
    cost->rendezvous_us = beyond - a;
    return sqrt((off * off * from + other * other * (count - from)) / count);
}

/* What one more costs: per item between the two points of a kind; never below 0. */
static double one_more(const struct model *model, enum kind kind)
{
    double us[2] = {0}, count[2] = {0};
    int found = 0;

    for (int p = 0; p < POINTS && found < 2; p++) {
        if (points[p].kind == kind) {
            us[found] = bench_least(&model->samples[p]);
            count[found++] = points[p].count;
        }
    }
    return fmax((us[1] - us[0]) / (count[1] - count[0]), 0);
}

/* What one more byte costs: between the two points of a kind, each item by itself. */
static double byte_more(const struct model *model, enum kind kind)
{
    double us[2] = {0}, bytes[2] = {0};
    int found = 0;

    for (int p = 0; p < POINTS && found < 2; p++) {
        if (points[p].kind == kind) {
            us[found] = bench_least(&model->samples[p]) / points[p].count;
            bytes[found++] = (double)points[p].bytes;
        }
    }
    return fmax((us[1] - us[0]) / (bytes[1] - bytes[0]), 0);
}

static void value(const struct model *model, const char *what, const char *unit, double number)
{
    struct bench_samples samples = {0};
    struct bench_row row = {.what = what,
                            .unit = unit,
                            .transport = model->transport,
                            .weft = &samples,
                            .limit = NAN,
                            .bytes = SIZE_MAX};

    bench_sample(&samples, number);
    bench_print(model->bench, &row);
}

/* Messages as they were measured, beside what the fit says of them. */
static void print_messages(const struct model *model, const struct weft_cost_model *cost)
{
    for (int p = 0; p < POINTS; p++) {
        struct bench_samples each = {0}, fitted = {0};
        char what[64], size[16];

        if (points[p].kind != PING)
            continue;
        for (size_t i = 0; i < model->samples[p].count; i++)
            bench_sample(&each, model->samples[p].values[i] / (2 * points[p].count));
        bench_sample(&fitted, cost->alpha_us + cost->beta_us_per_byte * (double)points[p].bytes +
                                  (points[p].bytes > cost->eager_bytes
                                       ? cost->rendezvous_us
                                       : cost->eager_us_per_byte * (double)points[p].bytes));
        snprintf(what, sizeof what, "message %s", bench_size_text(points[p].bytes, size));
        bench_print(model->bench, &(struct bench_row){.what = what,
                                                      .unit = "us",
                                                      .transport = model->transport,
                                                      .peer = "fit",
                                                      .weft = &each,
                                                      .peers = &fitted,
                                                      .limit = NAN,
                                                      .bytes = points[p].bytes});
    }
}

static void print_values(const struct model *model, const struct weft_cost_model *cost,
                         const struct weft_net *net, double residual)
{
    const double mega = 1024 * 1024;

    value(model, "alpha", "us", cost->alpha_us);
    value(model, "beta", "us/MiB", cost->beta_us_per_byte * mega);
    value(model, "exchange", "us/MiB",
          (cost->exchange_us_per_byte > 0 ? cost->exchange_us_per_byte : cost->beta_us_per_byte) *
              mega);
    value(model, "rendezvous", "us", cost->rendezvous_us);
    value(model, "eager", "bytes", (double)cost->eager_bytes);
    value(model, "eager byte", "us/MiB", cost->eager_us_per_byte * mega);
    value(model, "residual", "share", residual);
    value(model, "L", "us", net->L);
    value(model, "o", "us", net->o);
    value(model, "g", "us", net->g);
    value(model, "G", "us/MiB", net->G * mega);
    value(model, "gamma", "us/MiB", cost->gamma_us_per_byte * mega);
    value(model, "copy", "us/MiB", cost->copy_us_per_byte * mega);
    value(model, "node", "ns/node", cost->node_us * 1e3);
    value(model, "cores", "-", (double)cost->cores);
    value(model, "switch", "us", cost->switch_us);
}

static double fit_messages(const struct model *model, struct weft_cost_model *cost)
{
    double bytes[POINTS], us[POINTS];
    int count = 0;

    for (int p = 0; p < POINTS; p++) {
        if (points[p].kind == PING) {
            bytes[count] = (double)points[p].bytes;
            us[count++] = bench_least(&model->samples[p]) / (2 * points[p].count);
        }
    }
    double residual = fit(bytes, us, count, &cost->alpha_us, &cost->beta_us_per_byte);
    double enough = residual * 0.8;
    cost->eager_bytes = 0;
    cost->rendezvous_us = cost->eager_us_per_byte = 0;
    for (int from = 2; !model->messages && from < count - 1; from++) {
        struct weft_cost_model lines = *cost;
        double off = fit_lines(bytes, us, count, from, &lines);
        if (off >= enough)
            continue;
        enough = residual = off;
        *cost = lines;
    }
    return residual;
}

/* A byte both ways, where it is more than one way. */
static double exchanged(const struct model *model, const struct weft_cost_model *cost)
{
    double each = byte_more(model, EXCHANGE);

    return each > 1.1 * cost->beta_us_per_byte ? each : 0;
}

static int conclude(const struct model *model)
{
    struct weft_cost_model cost;
    struct weft_net net;

    weft_cost_model_init(&cost, model->transport);
    weft_net_init(&net);
    double residual = fit_messages(model, &cost);
    double between = one_more(model, STREAM);
    net.o = fmin(one_more(model, SENDS), cost.alpha_us / 2);
    net.L = cost.alpha_us - 2 * net.o;
    net.g = between > net.o ? between : 0;
    net.G = cost.beta_us_per_byte;
    cost.node_us = one_more(model, JOINS);
    cost.gamma_us_per_byte = byte_more(model, REDUCE);
    cost.copy_us_per_byte = byte_more(model, COPY);
    cost.exchange_us_per_byte = exchanged(model, &cost);
    cost.cores = (size_t)model->bench->cores;
    cost.switch_us = model->bench->yield_ns * 1e-3;
    print_messages(model, &cost);
    print_values(model, &cost, &net, residual);
    if (!model->bench->output)
        return 0;
    return weft_cost_model_write(model->bench->output, model->transport, &cost, &net, residual)
               ? cli_usage("bench", "-o: %s", weft_error_text())
               : 0;
}

/* ---- the measurement ---- */

static int measure_local(struct model *model)
{
    int status = bench_team_open(&model->team, 2, NULL);

    if (status == WEFT_OK)
        status = bench_team_run(&model->team, local_open, model);
    if (status == WEFT_OK)
        status = take_turns(model);
    close_side(&model->sides[0]);
    close_side(&model->sides[1]);
    bench_team_close(&model->team);
    return status;
}

static int measure_processes(struct model *model, enum bench_over over)
{
    model->context = bench_context(model->bench, over, NULL);
    int status = model->context ? open_side(&model->sides[0], model->context) : WEFT_ERR_TRANSPORT;
    if (status == WEFT_OK)
        status = take_turns(model);
    close_side(&model->sides[0]);
    weft_context_destroy(model->context);
    return status;
}

static int measure(struct bench *bench, enum bench_over over)
{
    struct model model = {.bench = bench, .transport = bench_over_name(over)};
    int status = over == BENCH_LOCAL ? measure_local(&model) : measure_processes(&model, over);

    if (status != WEFT_OK)
        return bench_fail(bench, model.transport);
    return bench->rank == 0 ? conclude(&model) : 0;
}

int bench_model_messages(struct bench *bench, enum bench_over over, struct weft_cost_model *cost)
{
    struct model model = {.bench = bench, .transport = bench_over_name(over), .messages = 1};
    int status = over == BENCH_LOCAL ? measure_local(&model) : measure_processes(&model, over);

    weft_cost_model_init(cost, model.transport);
    if (status != WEFT_OK)
        return status;
    if (bench->rank == 0)
        fit_messages(&model, cost);
    if (over != BENCH_LOCAL) /* whole: who differs in one of them may choose another algorithm */
        bench_mpi_adopt(cost, sizeof *cost);
    return WEFT_OK;
}

int bench_model(struct bench *bench)
{
    if (bench->rank == 0)
        bench_machine(bench);
    if (bench->world > 1) {
        bench_mpi_agree(0, 1);
        int status = bench_shares(bench) ? measure(bench, BENCH_SHARED) : 0;
        return status ? status : measure(bench, BENCH_MPI);
    }
    bench_note(bench, "hand-over between cores %.0f ns, yield on one %.0f ns", bench->handover_ns,
               bench->yield_ns);
    int status = measure(bench, BENCH_LOCAL);
    if (status || bench->mpi)
        return status;
    status = bench_respawn(bench, 2);
    if (status == CLI_NO_MPI) {
        bench_note(bench, "no mpiexec here: local ranks alone");
        return 0;
    }
    return status;
}
