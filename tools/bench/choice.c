/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench choice: what the automatic choice of an algorithm costs. In a cell (template, ranks,
 * transport, size) all algorithms of the template take turns, and what MPI has of the kind,
 * blocking and as a request that is waited for:
 *
 *   stream   a loop of calls, in which a root may run ahead; the slowest rank's time, by the calls
 *   single   all ranks meet before each call, having written their contributions anew, as who
 *            computes them does; the mean of its time, on the rank where that is most
 *
 * The regret is the time of the algorithm that would be chosen by the time of the best one: both
 * from the same turns, so a choice of the best one has a regret of 1; and algorithms whose
 * schedules are the same for this number of ranks are one. Every turn checks what it has computed.
 * Over local ranks, MPI's calls are between the processes all the same.
 */
#include "tools/bench/choice.h"
#include "tools/cli/ranks.h"
#include "tools/cli/table.h"

#include <math.h>
#include <string.h>

/* Of one rank's vectors: 16 MiB to each of 4 ranks. */
#define BYTES_MOST ((size_t)128 << 20)
/* The goal of the choice, in nine of ten cells. */
#define REGRET_GOAL 1.15

static const struct choice_template templates[] = {
    {"allgather", "send", "recv", CHOICE_BLOCKS_OUT, CHOICE_EVERYBODY},
    {"allreduce", "send", "recv", 0, CHOICE_SUM},
    {"alltoall", "send", "recv", CHOICE_BLOCKS_IN | CHOICE_BLOCKS_OUT, CHOICE_EVERYBODY},
    {"barrier", NULL, NULL, 0, CHOICE_NOTHING},
    {"broadcast", NULL, "buffer", 0, CHOICE_FIRST},
    {"exscan", "send", "recv", CHOICE_FIRST_OUT_NOT, CHOICE_SUM_BEFORE},
    {"gather", "send", "recv", CHOICE_BLOCKS_OUT | CHOICE_ROOT_OUT, CHOICE_EVERYBODY},
    {"reduce", "send", "recv", CHOICE_ROOT_OUT, CHOICE_SUM},
    {"reduce-scatter", "send", "recv", CHOICE_BLOCKS_IN, CHOICE_SUM},
    {"scan", "send", "recv", 0, CHOICE_SUM_UP_TO},
    {"scatter", "send", "recv", CHOICE_BLOCKS_IN | CHOICE_ROOT_IN, CHOICE_FIRST},
};
enum { TEMPLATES = sizeof templates / sizeof templates[0] };

static const char *const mode_names[] = {"stream", "single"};

/* What was found, over one transport. */
struct tally {
    int cells, good;     /* regret up to the goal */
    int beside, ahead;   /* beside MPI's better form: not above it */
    double worst, least; /* regret; and the most of weft by MPI */
    char at[2][64];
};

int bench_choice_template(const char *command, const char *word, unsigned *set)
{
    const char *names[TEMPLATES + 1] = {NULL};

    for (int t = 0; t < TEMPLATES; t++)
        names[t] = templates[t].name;
    int which = cli_choice(command, "--template", word, names);
    if (which < 0)
        return CLI_WRONG;
    *set |= 1u << which;
    return 0;
}

/* ---- output ---- */

static void count_cell(struct tally *tally, const char *what, double regret, double by_mpi)
{
    tally->cells++;
    tally->good += regret <= REGRET_GOAL;
    if (regret > tally->worst) {
        tally->worst = regret;
        snprintf(tally->at[0], sizeof tally->at[0], "%s", what);
    }
    if (!isfinite(by_mpi))
        return;
    tally->beside++;
    tally->ahead += by_mpi <= 1;
    if (by_mpi > tally->least) {
        tally->least = by_mpi;
        snprintf(tally->at[1], sizeof tally->at[1], "%s", what);
    }
}

static json_t *more_of(const struct choice *c, int best, double regret)
{
    json_t *times = json_object();

    for (int a = 0; a < c->algorithms; a++)
        json_object_set_new(times, c->who[a].name,
                            json_real(bench_median(&c->who[a].samples[c->mode])));
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:f, s:o}", "template", c->template->name, "ranks",
                     c->ranks, "mode", mode_names[c->mode], "algorithm", c->who[c->chosen].name,
                     "best", c->who[best].name, "regret", regret, "algorithms", times);
}

/* Rows of a cell: the chosen algorithm beside the best one, and beside MPI's forms. */
static void print_cell(struct choice *c, struct tally *tally)
{
    int best = 0;
    char what[64], size[16], peer[64];

    for (int a = 1; a < c->algorithms; a++)
        if (bench_median(&c->who[a].samples[c->mode]) <
            bench_median(&c->who[best].samples[c->mode]))
            best = a;
    const struct bench_samples *weft = &c->who[c->chosen].samples[c->mode];
    double us = bench_median(weft), mpi = NAN;
    double regret = us / bench_median(&c->who[best].samples[c->mode]);
    snprintf(what, sizeof what, "%s P=%d %s, %s", c->template->name, c->ranks,
             bench_size_text(c->template->out ? c->count * sizeof(float) : 0, size),
             mode_names[c->mode]);
    for (int who = 0; who < c->contenders; who++) {
        const struct bench_samples *peers = &c->who[who].samples[c->mode];
        if (!c->who[who].mpi && who != best)
            continue;
        /* By its algorithm, or by MPI's name. */
        snprintf(peer, sizeof peer, "%s", c->who[who].name);
        if (c->who[who].mpi)
            mpi = fmin(mpi, bench_median(peers));
        bench_print(c->bench,
                    &(struct bench_row){.what = what,
                                        .unit = "us",
                                        .transport = bench_over_name(c->over),
                                        .peer = peer,
                                        .weft = weft,
                                        .peers = peers,
                                        .limit = NAN,
                                        .bytes = c->template->out ? c->count * sizeof(float) : 0,
                                        .more = more_of(c, best, regret)});
    }
    count_cell(tally, what, regret, us / mpi);
}

static void print_tally(const struct choice *c, const struct tally *tally)
{
    const char *over = bench_over_name(c->over);

    if (tally->cells == 0)
        return;
    bench_note(c->bench, "P=%d, %s: regret at most %.2f in %d of %d cells; most: %.2f (%s)",
               c->ranks, over, REGRET_GOAL, tally->good, tally->cells, tally->worst, tally->at[0]);
    if (tally->beside > 0)
        bench_note(c->bench,
                   "P=%d, %s: not above the better of MPI's forms in %d of %d cells; most: %.2f "
                   "(%s)",
                   c->ranks, over, tally->ahead, tally->beside, tally->least, tally->at[1]);
}

/* ---- cells ---- */

/* The schedules of all ranks, as text; NULL: that did not work. */
static char *text_of(const struct choice *c, const struct weft_template_params *params)
{
    struct weft_schedule **all =
        weft_memory_alloc((size_t)c->ranks, sizeof(struct weft_schedule *));
    char *text = NULL;
    int status = all ? WEFT_OK : WEFT_ERR_MEMORY;

    for (int r = 0; status == WEFT_OK && r < c->ranks; r++) {
        status = weft_template_build(c->template->name, r, c->ranks, params, &all[r]);
        if (status == WEFT_OK)
            weft_schedule_set_name(all[r], "algorithm");
    }
    if (status == WEFT_OK)
        weft_schedule_write((const struct weft_schedule *const *)all, (size_t)c->ranks,
                            WEFT_FORMAT_TEXT, &text, NULL);
    for (int r = 0; all && r < c->ranks; r++)
        weft_schedule_destroy(all[r]);
    weft_memory_free(all);
    return text;
}

static void find_same(struct choice *c, const struct weft_cost_model *cost)
{
    char *texts[CHOICE_ALGORITHMS] = {NULL};
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.count = c->count;
    params.cost = cost;
    for (int a = 0; a < c->contenders; a++) {
        c->who[a].same = -1;
        if (c->who[a].mpi)
            continue;
        params.algo = c->who[a].name;
        texts[a] = text_of(c, &params);
        for (int b = 0; b < a && c->who[a].same < 0; b++)
            if (texts[a] && texts[b] && !strcmp(texts[a], texts[b]))
                c->who[a].same = b;
    }
    for (int a = 0; a < c->algorithms; a++)
        weft_memory_free(texts[a]);
}

/* Who takes turns: all algorithms, the one that would be chosen among them. */
static int set_contenders(struct choice *c)
{
    const struct weft_template *template = weft_template_find(c->template->name);
    const struct mpi_collective *mpi =
        c->bench->world > 1 ? ranks_mpi()->collective(c->template->name) : NULL;
    struct weft_context *context = c->over == BENCH_LOCAL
                                       ? c->bench->rank == 0 ? c->team.contexts[0] : NULL
                                       : c->contexts[c->over];
    struct weft_template_params params;
    struct weft_cost_model cost = {.struct_size = sizeof cost};
    const char *chosen = template->algorithms[0].name;
    int status = WEFT_OK;

    memset(c->who, 0, sizeof c->who);
    c->algorithms = 0;
    for (size_t a = 0; a < template->algorithm_count && a < CHOICE_ALGORITHMS; a++)
        c->who[c->algorithms++].name = template->algorithms[a].name;
    c->contenders = c->algorithms;
    for (int form = 0; mpi && form < 2; form++)
        c->who[c->contenders++] =
            (struct choice_contender){.name = mpi->names[form], .mpi = mpi->call[form]};
    if (context) {
        weft_template_params_init(&params);
        params.count = c->count;
        status = weft_context_get_cost(context, &cost);
        params.cost = &cost;
        if (status == WEFT_OK)
            status = weft_template_choose(c->template->name, c->ranks, &params, &chosen, NULL);
    }
    find_same(c, context ? &cost : NULL);
    for (c->chosen = 0; strcmp(c->who[c->chosen].name, chosen) != 0;)
        c->chosen++;
    /* The first process' word counts: of local ranks' costs the others know nothing. */
    for (int who = 0; c->bench->world > 1 && who < c->contenders; who++)
        c->who[who].same = (int)bench_mpi_agree(c->bench->rank ? -1 : c->who[who].same, 1);
    return status;
}

static int measure_cell(struct choice *c, size_t bytes, struct tally *tally)
{
    c->count = bytes / sizeof(float);
    if (choice_bytes(c) > BYTES_MOST)
        return WEFT_OK;
    int status = set_contenders(c);
    if (status == WEFT_OK)
        status = choice_open(c);
    if (status == WEFT_OK)
        status = choice_measure(c);
    for (c->mode = 0; status == WEFT_OK && c->mode < CHOICE_MODES; c->mode++)
        print_cell(c, tally);
    choice_close(c);
    return status;
}

static int measure_transport(struct choice *c)
{
    static const size_t sizes[] = {4, 64, 1u << 10, 1u << 14, 1u << 18, 1u << 22, 1u << 24};
    const struct bench *bench = c->bench;
    const size_t *all = bench->size_count ? bench->sizes : sizes;
    size_t count = bench->size_count ? bench->size_count : sizeof sizes / sizeof sizes[0];
    struct tally tally = {0};
    int status = WEFT_OK;

    for (int t = 0; t < TEMPLATES && status == WEFT_OK; t++) {
        if (bench->templates && !(bench->templates >> t & 1u))
            continue;
        c->template = &templates[t];
        size_t here = c->template->out ? count : 1;
        for (size_t i = 0; i < here && status == WEFT_OK; i++)
            status = measure_cell(c, all[i], &tally);
    }
    if (status == WEFT_OK)
        print_tally(c, &tally);
    return status;
}

/* ---- the measurement ---- */

static int wants(const struct bench *bench, enum bench_over over)
{
    return !bench->overs || (int)(bench->overs >> over & 1u);
}

static int open_all(struct choice *c, int shares)
{
    struct bench *bench = c->bench;
    int status = WEFT_OK;

    c->sides = weft_memory_alloc((size_t)c->ranks, sizeof *c->sides);
    if (!c->sides)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d ranks", c->ranks);
    if (bench->rank == 0)
        status = bench_team_open(&c->team, c->ranks, NULL);
    if (bench->world > 1 && shares)
        c->meeting = ranks_mpi()->share(sizeof *c->meeting);
    for (int over = BENCH_SHARED; status == WEFT_OK && over <= (int)bench_over_last(bench); over++)
        if (wants(bench, over) && (over != BENCH_SHARED || shares)) {
            c->contexts[over] = bench_context(bench, (enum bench_over)over, NULL);
            status = c->contexts[over] ? WEFT_OK : WEFT_ERR_TRANSPORT;
        }
    return status;
}

static int measure_ranks(struct bench *bench, int ranks)
{
    struct choice c = {.bench = bench, .ranks = ranks};
    int shares = bench->world > 1 && bench_shares(bench);
    int status = open_all(&c, shares);

    for (int over = 0; status == WEFT_OK && over < BENCH_OVERS; over++) {
        c.over = (enum bench_over)over;
        if (wants(bench, c.over) && (over == BENCH_LOCAL || c.contexts[over]))
            status = measure_transport(&c);
    }
    if (status != WEFT_OK)
        return bench_fail(bench, c.template ? c.template->name : "ranks");
    for (int over = BENCH_SHARED; over < BENCH_OVERS; over++)
        weft_context_destroy(c.contexts[over]);
    if (bench->rank == 0)
        bench_team_close(&c.team);
    weft_memory_free(c.sides);
    return 0;
}

int bench_choice(struct bench *bench)
{
    static const int numbers[] = {2, 3, 4, 8};
    int count = bench->ranks ? 1 : sizeof numbers / sizeof numbers[0];

    if (bench->world == 1 && !bench->mpi) {
        for (int i = 0; i < count; i++) {
            int ranks = bench->ranks ? bench->ranks : numbers[i];
            int status = ranks > 1 ? bench_respawn(bench, ranks) : CLI_NO_MPI;
            bench->respawned = status != CLI_NO_MPI;
            if (status == CLI_NO_MPI) {
                if (i == 0)
                    bench_note(bench, "no mpiexec here: local ranks alone, without a peer");
                if (i == 0)
                    bench_machine(bench);
                status = measure_ranks(bench, ranks);
            }
            if (status != 0)
                return status;
        }
        return 0;
    }
    if (bench->rank == 0)
        bench_machine(bench);
    bench->cores = (int)bench_mpi_agree(bench->rank == 0 ? bench->cores : 0, 1);
    bench_note(bench,
               "%d ranks: the chosen algorithm beside the best one, and MPI; hand-over between "
               "cores %.0f ns, yield on one %.0f ns",
               bench->world, bench->handover_ns, bench->yield_ns);
    return measure_ranks(bench, bench->world);
}
