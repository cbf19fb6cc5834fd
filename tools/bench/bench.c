/* SPDX-License-Identifier: BSD-3-Clause */
/* weft bench: finds the measurement, prints its rows. */
#include "tools/bench/bench.h"

#include "tools/cli/devices.h"
#include "tools/cli/ranks.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct measurement {
    const char *name;
    int (*run)(struct bench *bench);
    const char *summary;
};

static const struct measurement measurements[] = {
    {"nodes", bench_nodes, "time, instructions and allocations of a node of a local graph"},
    {"allreduce", bench_allreduce, "allreduce on 2 ranks, 4 B to 64 MiB, beside MPI's three forms"},
    {"blocking", bench_blocking, "blocking calls beside a plan of one's own and MPI_Allreduce"},
    {"oversubscribed", bench_oversubscribed, "4, 8 and 16 ranks on this machine's cores"},
    {"choice", bench_choice,
     "every algorithm of every collective beside the one chosen, and MPI's forms"},
    {"overlap", bench_overlap, "share of an allreduce that computation hides"},
    {"idle", bench_idle, "what waiting for an event costs, and how fast it ends"},
    {"model", bench_model, "what messages and computing cost: alpha, beta, L, o, g, G; -o FILE"},
    {"sim", bench_sim, "nodes that weft sim does in a second, beside LogGOPSim"},
    {"topk", bench_topk, "selecting the k largest magnitudes, beside one read of the data"},
    {"merge", bench_merge, "sums of sparse vectors that keep the k largest magnitudes"},
    {"merged", bench_merged, "gradients merged into one group beside an allreduce; a layer's cost"},
    {"gtopk", bench_gtopk, "sparse sums over all ranks, beside dense ones and top-k by allgather"},
    {"compress", bench_compress,
     "quantising and projecting, beside one pass over the data and BLAS"},
    {"projection", bench_projection,
     "what projections of real gradients lose (GradiVeQ's figure 5)"},
    {"osp", bench_osp, "steps through a parameter server in virtual time (OSP's section 5)"},
    {"wait-avoiding", bench_wait_avoiding,
     "group averaging beside a rank that sleeps, and with everybody there"},
    {"server", bench_server, "pushes and pulls of a parameter server, beside an allreduce"},
    {"death", bench_death, "how soon others notice that a process was killed, and shrink"},
    {"gpu", bench_gpu, "runs on devices beside the driver's calls and their memory's bandwidth"},
    {"growth", bench_growth, "time and memory of a rank of trainers' objects, 64 to -n P virtual"},
};

enum { MEASUREMENTS = sizeof measurements / sizeof measurements[0] };

/* ---- samples ---- */

void bench_sample(struct bench_samples *samples, double value)
{
    if (samples->count < BENCH_ROUNDS)
        samples->values[samples->count++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(const struct bench_samples *samples)
{
    struct bench_samples s = *samples;
    size_t n = s.count;

    if (n == 0)
        return NAN;
    qsort(s.values, n, sizeof s.values[0], by_value);
    return n % 2 ? s.values[n / 2] : (s.values[n / 2 - 1] + s.values[n / 2]) / 2;
}

double bench_least(const struct bench_samples *samples)
{
    double least = samples->count ? samples->values[0] : NAN;

    for (size_t i = 1; i < samples->count; i++)
        least = fmin(least, samples->values[i]);
    return least;
}

double bench_most(const struct bench_samples *samples)
{
    double most = samples->count ? samples->values[0] : NAN;

    for (size_t i = 1; i < samples->count; i++)
        most = fmax(most, samples->values[i]);
    return most;
}

/* ---- output ---- */

const char *bench_size_text(size_t bytes, char text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;

    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 16, "%zu %s", bytes, units[unit]);
    return text;
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void print_json(const struct bench *bench, const struct bench_row *row, double weft,
                       double peer)
{
    json_t *line = json_pack(
        "{s:s, s:s, s:o, s:s, s:s?, s:o, s:o, s:o, s:s?}", "bench", bench->name, "case", row->what,
        "weft", real(weft), "unit", row->unit, "peer", row->peer, "peer_value", real(peer), "ratio",
        real(weft / peer), "limit", real(row->limit), "transport", row->transport);

    if (row->bytes != SIZE_MAX)
        json_object_set_new(line, "bytes", json_integer((json_int_t)row->bytes));
    json_object_set_new(line, "weft_min", real(bench_least(row->weft)));
    json_object_set_new(line, "weft_max", real(bench_most(row->weft)));
    json_object_set_new(line, "peer_min", real(row->peers ? bench_least(row->peers) : NAN));
    json_object_set_new(line, "peer_max", real(row->peers ? bench_most(row->peers) : NAN));
    json_object_set_new(line, "rounds", json_integer((json_int_t)row->weft->count));
    json_object_set_new(line, "handover_ns", real(bench->handover_ns));
    if (row->more)
        json_object_update(line, row->more);
    cli_print_json("bench", line);
}

/* Three digits that count, never in exponents. */
static const char *number(double value, char text[16])
{
    if (!isfinite(value))
        return "-";
    double size = fabs(value);
    snprintf(text, 16, "%.*f", size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3, value);
    return size == 0 ? "0" : text;
}

static const char *spread(const struct bench_samples *samples, char text[40])
{
    char least[16], most[16];

    if (!samples || samples->count == 0)
        return "";
    snprintf(text, 40, "%s..%s", number(bench_least(samples), least),
             number(bench_most(samples), most));
    return text;
}

/* Columns of a row in one line; a narrower terminal gets two. */
enum { ROW_WIDTH = 150 };

void bench_print(struct bench *bench, const struct bench_row *row)
{
    double weft = bench_median(row->weft);
    double peer = row->peers ? bench_median(row->peers) : NAN;
    char a[16], b[16], c[16], d[16], e[40], f[40];

    if (bench->rank == 0 && bench->json)
        print_json(bench, row, weft, peer);
    json_decref(row->more);
    if (bench->rank != 0 || bench->json)
        return;
    int width = cli_width();
    int narrow = width > 0 && width < ROW_WIDTH;
    if (bench->lines++ == 0 && !narrow) {
        printf("%-34s %-5s %9s %-16s %-17s %-18s %9s %-16s %6s %9s\n", "case", "over", "weft",
               "  min..max", "unit", "peer", "peer", "  min..max", "ratio", "limit");
    }
    if (narrow) {
        printf("%-34s %-5s %9s %s  (%s)\n", row->what, row->transport ? row->transport : "-",
               number(weft, a), row->unit, spread(row->weft, e));
        printf("    %s %s (%s), ratio %s, limit %s\n", row->peer ? row->peer : "no peer",
               number(peer, b), spread(row->peers, f), number(weft / peer, c),
               number(row->limit, d));
    } else {
        printf("%-34s %-5s %9s   %-14s %-17s %-18s %9s   %-14s %6s %9s\n", row->what,
               row->transport ? row->transport : "-", number(weft, a), spread(row->weft, e),
               row->unit, row->peer ? row->peer : "-", number(peer, b), spread(row->peers, f),
               number(weft / peer, c), number(row->limit, d));
    }
    fflush(stdout);
}

void bench_note(const struct bench *bench, const char *format, ...)
{
    char text[1024];
    va_list list;

    if (bench->json || bench->rank != 0)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    table_paragraph(stdout, text, cli_width(), 0, 2);
    fflush(stdout);
}

int bench_fail(const struct bench *bench, const char *what)
{
    fprintf(stderr, "weft bench %s: rank %d: %s: %s\n", bench->name, bench->rank, what,
            weft_error_text());
    if (bench->world > 1)
        bench_mpi_abort();
    return CLI_NO;
}

int bench_respawn(const struct bench *bench, int ranks)
{
    char **words = ranks_words(ranks, bench->argc, bench->argv);
    posix_spawn_file_actions_t actions;
    pid_t child;
    int how = 0;

    size_t used = 0;

    if (!words)
        return CLI_NO_MPI;
    while (words[used])
        used++;
    words[used] = "--under-mpi";
    fflush(stdout);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    int failed = posix_spawn(&child, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(words);
    if (failed) {
        cli_fail("bench", "mpiexec: %s", strerror(failed));
        return CLI_NO_MPI;
    }
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : CLI_NO;
}

/* ---- the command ---- */

static int list(const struct cli *cli)
{
    for (int i = 0; i < MEASUREMENTS; i++) {
        if (cli->json) {
            cli_print_json("bench", json_pack("{s:s, s:s}", "bench", measurements[i].name,
                                              "summary", measurements[i].summary));
        } else {
            table_term(stdout, measurements[i].name, measurements[i].summary, cli_width(), 0, 16);
        }
    }
    return cli_finish("bench");
}

/* A list that commas separate: what it is of, how many there may be, and what a word becomes. */
struct list {
    const char *option, *things;
    size_t most;
    int (*take)(struct bench *bench, const char *command, const char *word, size_t at);
};

static int take_list(void *target, const char *command, const char *text, const struct list *list,
                     size_t *count)
{
    if (!*text || text[strlen(text) - 1] == ',')
        return cli_usage(command, "%s: '%s'; expected %s separated by commas", list->option, text,
                         list->things);
    while (*text) {
        size_t length = strcspn(text, ",");
        char word[1024];

        if (length >= sizeof word || *count == list->most)
            return cli_usage(command, "%s: too %s; expected at most %zu", list->option,
                             length < sizeof word ? "many" : "long",
                             length < sizeof word ? list->most : sizeof word - 1);
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        if (list->take(target, command, word, *count))
            return CLI_WRONG;
        *count += 1;
        text += length + (text[length] == ',');
    }
    return 0;
}

static int take_size(struct bench *bench, const char *command, const char *word, size_t at)
{
    if (cli_size(command, "--bytes", word, &bench->sizes[at]))
        return CLI_WRONG;
    if (bench->sizes[at] == 0 || bench->sizes[at] % sizeof(float) != 0)
        return cli_usage(command, "--bytes: '%s'; expected multiples of 4 from 4", word);
    return 0;
}

static int take_sizes(void *target, const char *command, const char *text)
{
    struct bench *bench = target;
    const struct list list = {"--bytes", "sizes", sizeof bench->sizes / sizeof bench->sizes[0],
                              take_size};

    return take_list(bench, command, text, &list, &bench->size_count);
}

static int take_density(struct bench *bench, const char *command, const char *word, size_t at)
{
    return cli_real(command, "--density", word, 0, 1, &bench->densities[at]);
}

static int take_densities(void *target, const char *command, const char *text)
{
    struct bench *bench = target;
    const struct list list = {"--density", "shares",
                              sizeof bench->densities / sizeof bench->densities[0], take_density};

    return take_list(bench, command, text, &list, &bench->density_count);
}

static int take_template(struct bench *bench, const char *command, const char *word, size_t at)
{
    (void)at;
    return bench_choice_template(command, word, &bench->templates);
}

static int take_templates(void *target, const char *command, const char *text)
{
    const struct list list = {"--template", "templates", 32, take_template};
    size_t count = 0;

    return take_list(target, command, text, &list, &count);
}

static int take_over(struct bench *bench, const char *command, const char *word, size_t at)
{
    const char *names[BENCH_OVERS + 1] = {NULL};

    (void)at;
    for (int over = 0; over < BENCH_OVERS; over++)
        names[over] = bench_over_name((enum bench_over)over);
    int which = cli_choice(command, "--transport", word, names);
    if (which < 0)
        return CLI_WRONG;
    bench->overs |= 1u << which;
    return 0;
}

static int take_overs(void *target, const char *command, const char *text)
{
    const struct list list = {"--transport", "transports", 32, take_over};
    size_t count = 0;

    return take_list(target, command, text, &list, &count);
}

static int take_program(struct bench *bench, const char *command, const char *word, size_t at)
{
    if (!*word)
        return cli_usage(command, "--beside: a name is empty; expected programs");
    snprintf(bench->beside[at], sizeof bench->beside[at], "%s", word);
    return 0;
}

static int take_beside(void *target, const char *command, const char *text)
{
    struct bench *bench = target;
    const struct list list = {"--beside", "programs", GPU_BESIDES, take_program};

    return take_list(bench, command, text, &list, &bench->beside_count);
}

static int take_device(void *target, const char *command, const char *text)
{
    ((struct bench *)target)->device = text;
    return cli_read_device(command, text);
}

static int measure(struct bench *bench, const struct measurement *measurement)
{
    bench->name = measurement->name;
    bench->world = 1;
    if (ranks_under_mpiexec()) {
        bench->mpi = 1;
        int status = ranks_start_mpi("bench", 1, &bench->rank, &bench->world);
        if (status)
            return status;
    }
    int status = measurement->run(bench);
    ranks_stop_mpi();
    return status ? status : cli_finish("bench");
}

static int run(struct cli *cli)
{
    const char *names[MEASUREMENTS + 1] = {NULL};
    struct bench bench = {.argc = cli->argc, .argv = cli->argv};

    if (!cli_parse(cli, &bench))
        return cli->status;
    bench.json = cli->json;
    bench.ranks = cli->ranks;
    if (bench.inside)
        return strncmp(bench.inside, "call:", 5) == 0     ? bench_blocking_inside(bench.inside)
               : strncmp(bench.inside, "merged:", 7) == 0 ? bench_merged_inside(bench.inside)
                                                          : bench_nodes_inside(bench.inside);
    if (ranks_launched() && cli_is_follower())
        return CLI_OK; /* it starts its ranks itself */
    if (cli->operand_count == 0)
        return cli_is_follower() ? CLI_OK : list(cli);
    for (int i = 0; i < MEASUREMENTS; i++)
        names[i] = measurements[i].name;
    int which = cli_choice(cli->spec->name, "NAME", cli->operands[0], names);
    return which < 0 ? CLI_WRONG : measure(&bench, &measurements[which]);
}

static int describe(size_t index, struct cli_term *term)
{
    if (index >= MEASUREMENTS)
        return 0;
    *term = (struct cli_term){measurements[index].name, measurements[index].summary};
    return 1;
}

static const struct cli_section sections[] = {
    {"Measurements", .term = describe},
    {0},
};

static const char *const memories[] = {"arena", "private", NULL};

/* The last two are how a measurement starts this command again: under valgrind, under mpiexec. */
static const struct cli_option table[] = {
    {"rounds", 'r', CLI_INTEGER, "N", "turns of each contender", "15", CLI_AT(struct bench, rounds),
     .least = 1, .most = BENCH_ROUNDS},
    {"bytes", 'b', CLI_TAKE, "SIZE,...", "message sizes, where a measurement has them",
     .take = take_sizes},
    {"density", 0, CLI_TAKE, "D,...", "gtopk: pairs by elements (default 0.001,0.01)",
     .take = take_densities},
    {"template", 0, CLI_TAKE, "NAME,...", "choice: which collectives (default all)",
     .take = take_templates},
    {"transport", 0, CLI_TAKE, "NAME,...", "choice: over which transports (default all)",
     .take = take_overs},
    {"steps", 0, CLI_INTEGER, "N",
     "projection: steps after sampling; as many before it (default 400)",
     CLI_AT(struct bench, steps), .least = 10, .most = 100000},
    {"memory", 0, CLI_CHOICE, "WHERE",
     "arena: of the context, which its transport moves best; private: the process' own", "arena",
     CLI_AT(struct bench, memory), .words = memories},
    {"device", 0, CLI_TAKE, "cuda[:N]", "gpu: which one; of its ranks, all (default: in turn)",
     .take = take_device},
    {"beside", 0, CLI_TAKE, "FILE,...",
     "gpu: programs that select with other libraries, in turns (tests/gpu/beside)",
     .take = take_beside},
    {"link", 0, CLI_REAL, "RATE", "server: what its link carries, bits a second; mpi alone",
     CLI_AT(struct bench, link), .high = 1e15},
    {"cost", 0, CLI_FILE, "FILE", "gtopk: alpha and beta as model wrote them, not measured",
     CLI_AT(struct bench, cost)},
    {"output", 'o', CLI_TEXT, "FILE", "model: writes a cost file", CLI_AT(struct bench, output)},
    {"inside", 0, CLI_TEXT, "CASE", .help = NULL, CLI_AT(struct bench, inside)},
    {"under-mpi", .help = NULL, CLI_AT(struct bench, mpi)},
    {0},
};

const struct cli_spec weft_command_bench = {
    .name = "bench",
    .summary = "measurements, each beside its peer and its limit",
    .operands = "[NAME]",
    .operands_max = 1,
    .about = "Measures, beside a peer in the same run: contenders take turns, a row is the "
             "median of the rounds. ratio is weft / peer; limit is a bound or a goal in the "
             "row's unit. Without NAME: lists them.",
    .sections = sections,
    .operands_among = "Measurements",
    .options = table,
    .common = CLI_RANKS,
    .mpi = 1,
    .run = run,
};
