/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A campaign: plays (play.h) of many seeds, or with --cases the cases that once hung, on local
 * ranks (cases.h). A line for each seed that fails, and exit status 1.
 *
 *     campaign [--first SEED] [--count N] [--jobs N] [--object KIND] [--deed DEED] [--verbose]
 *     campaign --shrink [--first SEED] [--count N] [--jobs N]
 *     campaign --cases [--runs N] [--case NAME] [--patience SECONDS]
 *
 * Seeds are played in processes of their own, a hundred at a time, so that one that crashes or
 * never ends is a line like any other. With the address sanitizer a process that leaks is played
 * again seed by seed.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "play.h"
#include "surviving.h"

enum { MOST_JOBS = 64, CHUNK = 100, CPU_SECONDS = 60 };

struct options {
    uint64_t first, count;
    int jobs, verbose, cases, shrink, runs, patience;
    const char *name;
    struct play_wish wish;
};

/* What the processes share. */
struct job {
    pid_t process;
    uint64_t first, last;  /* of the seeds of its chunk; last: past it */
    _Atomic uint64_t seed; /* that it plays */
};

static struct shared {
    struct job jobs[MOST_JOBS];
    _Atomic uint64_t played, failed, events;
    _Atomic uint64_t deaths, shrinks, during; /* with --shrink */
    _Atomic uint64_t deeds[PLAY_DEED_KINDS], done[PLAY_DEED_KINDS];
} * shared;

/* ---- a seed ---- */

static void count_deeds(const struct play *play)
{
    for (int e = 0; e < play->event_count; e++) {
        shared->deeds[play->events[e].deed]++;
        shared->done[play->events[e].deed] += (uint64_t)play->events[e].done;
    }
    shared->events += play->happened;
}

static void tell(const struct play *play, char *wrong, const char *when)
{
    char settings[PLAY_TEXT];
    play_describe(play, settings);
    for (char *at = wrong; at && *at; at++)
        *at = *at == '\n' ? ' ' : *at;
    printf("seed %" PRIu64 ": %s%s%s%s\n", play->seed, settings, wrong ? ": " : "",
           wrong ? when : "", wrong ? wrong : "");
    fflush(stdout);
}

/* The errors of all ranks. */
static void tell_reports(const struct play *play)
{
    for (int r = 0; r < play->ranks; r++)
        for (int o = 0; o < play->object_count; o++) {
            const struct play_report *report = &play->objects[o].reports[r];
            if (report->status != WEFT_OK)
                printf("    rank %d, object %d, step %d, at %" PRIu64 " ns: %s: %s\n", r, o,
                       report->step, report->at_ns, weft_status_name(report->status), report->text);
        }
}

static int perform(struct play *play, const struct options *options)
{
    char text[PLAY_TEXT];
    play_perform(play);
    if (options->verbose && !play->rehearsing) {
        tell(play, NULL, "");
        tell_reports(play);
    }
    if (!play_judge(play, text)) {
        tell(play, text, play->rehearsing ? "undisturbed: " : "");
        return 0;
    }
    return 1;
}

static void play_deaths(uint64_t seed)
{
    struct surviving_counts counts = {0};
    char text[SURVIVING_TEXT];
    int right = surviving_play(seed, &counts, text) == 0;
    if (!right)
        printf("seed %" PRIu64 ": %s\n", seed, text);
    shared->played++;
    shared->failed += !right;
    shared->events += counts.events;
    shared->deaths += counts.deaths;
    shared->shrinks += counts.shrinks;
    shared->during += counts.during;
}

static void play_seed(uint64_t seed, const struct options *options)
{
    static struct play rehearsal, performance;
    play_draw(&rehearsal, seed, &options->wish);
    rehearsal.rehearsing = 1;
    int right = perform(&rehearsal, options);
    if (right && rehearsal.event_count > 0) {
        play_draw(&performance, seed, &options->wish);
        performance.times = rehearsal.times;
        performance.time_count = rehearsal.time_count;
        rehearsal.times = NULL;
        right = perform(&performance, options);
        count_deeds(&performance);
        play_end(&performance);
    }
    play_end(&rehearsal);
    shared->played++;
    shared->failed += !right;
}

/* ---- processes ---- */

static void start(struct job *job, uint64_t first, uint64_t last, const struct options *options)
{
    job->first = first;
    job->last = last;
    job->seed = first;
    fflush(stdout);
    pid_t process = fork();
    if (process < 0) {
        perror("campaign: fork");
        exit(2);
    }
    if (process > 0) {
        job->process = process; /* which the other has in its memory too */
        return;
    }
    for (uint64_t seed = first; seed < last; seed++) {
        struct itimerval most = {.it_value.tv_sec = CPU_SECONDS};
        job->seed = seed;
        setitimer(ITIMER_PROF, &most, NULL); /* its signal ends the process */
        if (options->shrink)
            play_deaths(seed);
        else
            play_seed(seed, options);
    }
    exit(0); /* where the sanitizer looks for leaks */
}

/* A process has ended. What is left of its chunk, if it did not get through it: a seed that has
 * crashed is not played again. */
static void ended(struct job *job, int status, const struct options *options)
{
    uint64_t seed = job->seed, first = job->first, last = job->last;
    job->process = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    if (WIFEXITED(status) && seed + 1 == last && first + 1 < last) {
        printf("seeds %" PRIu64 " to %" PRIu64 ": exit status %d; one by one:\n", first, last - 1,
               WEXITSTATUS(status));
        for (uint64_t one = first; one < last; one++) {
            start(job, one, one + 1, options);
            waitpid(job->process, &status, 0);
            ended(job, status, options);
        }
        return;
    }
    shared->failed++;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
        printf("seed %" PRIu64 ": it has not ended after %d s of processor time\n", seed,
               CPU_SECONDS);
    else if (WIFSIGNALED(status))
        printf("seed %" PRIu64 ": signal %d\n", seed, WTERMSIG(status));
    else
        printf("seed %" PRIu64 ": exit status %d\n", seed, WEXITSTATUS(status));
    fflush(stdout);
    if (seed + 1 < last)
        start(job, seed + 1, last, options);
}

static void summarise(const struct options *options)
{
    printf("%" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " events, %" PRIu64 " failed;",
           (uint64_t)shared->played, options->first, (uint64_t)shared->events,
           (uint64_t)shared->failed);
    if (options->shrink)
        printf(" %" PRIu64 " deaths, %" PRIu64 " contexts shrunk, of %" PRIu64
               " a rank died meanwhile",
               (uint64_t)shared->deaths, (uint64_t)shared->shrinks, (uint64_t)shared->during);
    for (int d = 1; !options->shrink && d < PLAY_DEED_KINDS; d++)
        printf("%s %s %" PRIu64 " of %" PRIu64, d > 1 ? "," : "", play_deed_name((enum play_deed)d),
               (uint64_t)shared->done[d], (uint64_t)shared->deeds[d]);
    printf("\n");
}

static struct job *job_of(pid_t process, int jobs)
{
    for (int j = 0; j < jobs; j++)
        if (shared->jobs[j].process == process)
            return &shared->jobs[j];
    return NULL;
}

static int run_seeds(const struct options *options)
{
    uint64_t next = options->first, last = options->first + options->count;
    for (;;) {
        int status, running = 0;
        for (int j = 0; j < options->jobs; j++) {
            struct job *job = &shared->jobs[j];
            if (!job->process && next < last) {
                uint64_t upto = last - next < CHUNK ? last : next + CHUNK;
                start(job, next, upto, options);
                next = upto;
            }
            running |= job->process != 0;
        }
        if (!running)
            break;
        struct job *job = job_of(waitpid(-1, &status, 0), options->jobs);
        if (job)
            ended(job, status, options);
    }
    summarise(options);
    return shared->failed > 0;
}

/* ---- the command line ---- */

static void usage(const char *wrong)
{
    fprintf(stderr,
            "campaign: %s\n"
            "usage: campaign [--first SEED] [--count N] [--jobs N] [--object KIND] [--deed DEED] "
            "[--verbose]\n"
            "       campaign --shrink [--first SEED] [--count N] [--jobs N]\n"
            "       campaign --cases [--runs N] [--case NAME] [--patience SECONDS]\n",
            wrong);
    exit(2);
}

static uint64_t number_of(const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    if (!*text || *end)
        usage(text);
    return number;
}

static const struct play_kind *kind_of(const char *name)
{
    static const struct play_kind *const kinds[] = {&play_group,  &play_pair,   &play_gossip,
                                                    &play_sparse, &play_merged, &play_compressed,
                                                    &play_server};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    usage(name);
    return NULL;
}

static int deed_of(const char *name)
{
    for (int d = 0; d < PLAY_DEED_KINDS; d++)
        if (strcmp(play_deed_name((enum play_deed)d), name) == 0)
            return d;
    usage(name);
    return -1;
}

static void read_option(struct options *options, const char *name, const char *value)
{
    if (!value)
        usage(name);
    else if (strcmp(name, "--first") == 0)
        options->first = number_of(value);
    else if (strcmp(name, "--count") == 0)
        options->count = number_of(value);
    else if (strcmp(name, "--jobs") == 0)
        options->jobs = (int)number_of(value);
    else if (strcmp(name, "--runs") == 0)
        options->runs = (int)number_of(value);
    else if (strcmp(name, "--patience") == 0)
        options->patience = (int)number_of(value);
    else if (strcmp(name, "--case") == 0)
        options->name = value;
    else if (strcmp(name, "--object") == 0)
        options->wish.kind = kind_of(value);
    else if (strcmp(name, "--deed") == 0)
        options->wish.deed = deed_of(value);
    else
        usage(name);
}

int main(int argc, char **argv)
{
    struct options options = {
        .count = 1, .jobs = 1, .runs = 10, .patience = 60, .wish = {.deed = -1}};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--verbose") == 0)
            options.verbose = 1;
        else if (strcmp(argv[i], "--cases") == 0)
            options.cases = 1;
        else if (strcmp(argv[i], "--shrink") == 0)
            options.shrink = 1;
        else
            read_option(&options, argv[i], argv[i + 1]), i++;
    if (options.jobs < 1 || options.jobs > MOST_JOBS)
        usage("--jobs is 1 to 64");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("campaign: mmap");
        return 2;
    }
    return options.cases ? cases_run(options.name, options.runs, options.patience)
                         : run_seeds(&options);
}
