/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What algorithms promise to do, counted: rounds (a simulation in which a message takes 1 and all
 * else nothing), messages, bytes, and how far these go.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

struct job {
    const char *name;
    struct weft_template_params params;
    int size;
    int one_port; /* 1: a rank sends one message in a round, not as many as are ready */
};

struct work {
    int rounds;
    uint64_t messages, bytes; /* of all ranks */
    uint64_t most;            /* bytes that one rank sends, of the rank that sends most */
    uint64_t way;             /* bytes times the ranks between the two, around the ring */
    size_t scratch;           /* elements of scratch, of the rank that has most */
};

static int build(void *user, int rank, struct weft_schedule **schedule)
{
    struct job *job = user;
    return weft_template_build(job->name, rank, job->size, &job->params, schedule);
}

static int distance(int a, int b, int size)
{
    int apart = abs(a - b);
    return apart < size - apart ? apart : size - apart;
}

static void count_rank(const struct job *job, int rank, const struct weft_schedule *schedule,
                       struct work *work)
{
    uint64_t bytes = 0;
    size_t scratch = 0;
    for (size_t i = 0; i < weft_schedule_node_count(schedule); i++) {
        struct weft_node_info info = {.struct_size = sizeof info};
        weft_schedule_get_node(schedule, (weft_node_t)i, &info);
        if (info.kind != WEFT_NODE_SEND)
            continue;
        uint64_t own = info.regions[0].count * weft_dtype_size(job->params.dtype);
        bytes += own;
        work->way += own * (uint64_t)distance(rank, info.peer, job->size);
    }
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        struct weft_slot_info info = {.struct_size = sizeof info};
        weft_schedule_get_slot(schedule, (weft_slot_t)s, &info);
        scratch += info.kind == WEFT_SLOT_SCRATCH ? info.count : 0;
    }
    work->most = bytes > work->most ? bytes : work->most;
    work->scratch = scratch > work->scratch ? scratch : work->scratch;
}

static struct work work_of(struct job *job)
{
    struct work work = {0};
    struct weft_sim_config config;
    struct weft_net net;
    struct weft_sim_result *result;
    weft_net_init(&net);
    if (job->one_port)
        net.G = 1 / (double)job->params.count;
    else
        net.L = 1;
    weft_sim_config_init(&config);
    config.ranks = job->size;
    config.build = build;
    config.user = job;
    config.net = &net;
    cr_assert_eq(weft_simulate(&config, &result), WEFT_OK, "%s", weft_error_text());
    cr_assert(result->complete);
    work.rounds = (int)(result->time_us + 0.5);
    cr_assert_float_eq(result->time_us, work.rounds, 1e-6);
    work.messages = result->messages;
    work.bytes = result->bytes;
    weft_sim_result_destroy(result);
    for (int r = 0; r < job->size; r++) {
        struct weft_schedule *schedule;
        cr_assert_eq(build(job, r, &schedule), WEFT_OK);
        count_rank(job, r, schedule, &work);
        weft_schedule_destroy(schedule);
    }
    return work;
}

/* Elements of one byte, so that count is bytes. */
static struct job job_of(const char *name, const char *algo, int size, size_t count)
{
    struct job job = {.name = name, .size = size};
    weft_template_params_init(&job.params);
    job.params.algo = algo;
    job.params.count = count;
    job.params.dtype = WEFT_U8;
    job.params.segment = WEFT_SEGMENT_NONE;
    return job;
}

static int log2_of(int n)
{
    int log = 0;
    while (1 << log < n)
        log++;
    return log;
}

static int power_below(int n)
{
    return 1 << (log2_of(n + 1) - (1 << log2_of(n + 1) > n));
}

/* ---- butterflies and Bine trees ---- */

/* 2 log2 P messages of a rank, and (P - 1)/P of the vector in each of the two phases: what the
 * papers say of powers of two, for Bine and Swing as for the other. */
Test(algorithm_counts, allreduce_by_halves)
{
    static const char *const algos[] = {"reduce-scatter-allgather", "bine"};
    for (int i = 0; i < 2; i++)
        for (int size = 2; size <= 64; size *= 2) {
            struct job job = job_of("allreduce", algos[i], size, 6400);
            struct work work = work_of(&job);
            uint64_t ranks = (uint64_t)size, log = (uint64_t)log2_of(size);
            cr_expect_eq(work.rounds, 2 * (int)log);
            cr_expect_eq(work.messages, 2 * ranks * log);
            cr_expect_eq(work.most, 2 * (6400 - 6400 / ranks));
            cr_expect_eq(work.bytes, ranks * work.most);
        }
}

/* Other sizes: each rank beyond sends its vector and gets one, one round each. */
Test(algorithm_counts, folding_costs_two_rounds_and_two_vectors)
{
    for (int size = 3; size <= 33; size++) {
        struct job job = job_of("allreduce", "bine", size, 32 * 32);
        struct work work = work_of(&job);
        uint64_t power = (uint64_t)power_below(size), extra = (uint64_t)size - power;
        uint64_t log = (uint64_t)log2_of((int)power);
        cr_expect_eq(work.rounds, 2 * (int)log + (extra ? 2 : 0), "P=%d", size);
        cr_expect_eq(work.messages, 2 * power * log + 2 * extra);
        cr_expect_eq(work.bytes, 2 * power * (1024 - 1024 / power) + 2 * extra * 1024);
    }
}

/* Bytes that the busiest rank of a job sends to other hosts. */
static uint64_t most_between_hosts(struct job *job)
{
    uint64_t most = 0;
    for (int r = 0; r < job->size; r++) {
        struct weft_schedule *schedule;
        uint64_t bytes = 0;
        cr_assert_eq(build(job, r, &schedule), WEFT_OK);
        for (size_t i = 0; i < weft_schedule_node_count(schedule); i++) {
            struct weft_node_info info = {.struct_size = sizeof info};
            weft_schedule_get_node(schedule, (weft_node_t)i, &info);
            if (info.kind == WEFT_NODE_SEND && job->params.hosts[info.peer] != job->params.hosts[r])
                bytes += info.regions[0].count;
        }
        weft_schedule_destroy(schedule);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Of h hosts with s ranks each, a rank sends 2 (s - 1)/s of the vector to its host and 2 (h - 1)/h
 * of its s-th of it to others (Traeff, Hunold, CLUSTER 2020): all of a host's together as much as
 * one of them where hosts meet first. */
Test(algorithm_counts, lanes_share_what_goes_between_hosts)
{
    enum { COUNT = 4 * 8 * 9 * 5 };
    for (int hosts = 1; hosts <= 8; hosts *= 2)
        for (int members = 1; members <= 5; members++) {
            int places[40], size = hosts * members;
            struct job job = job_of("allreduce", "multi-lane", size, COUNT);
            for (int r = 0; r < size; r++)
                places[r] = hosts % 4 ? r / members : r % hosts; /* blocks, or in turns */
            job.params.hosts = places;
            uint64_t h = (uint64_t)hosts, s = (uint64_t)members, log = (uint64_t)log2_of(hosts);
            uint64_t between = 2 * (COUNT / s - COUNT / s / h);
            struct work work = work_of(&job);
            cr_expect_eq(work.rounds, (members > 1 ? 2 : 0) + 2 * (int)log, "%d x %d", hosts,
                         members);
            cr_expect_eq(work.messages, h * s * (2 * (s - 1) + 2 * log), "%d x %d", hosts, members);
            cr_expect_eq(work.most, 2 * (COUNT - COUNT / s) + between, "%d x %d", hosts, members);
            cr_expect_eq(most_between_hosts(&job), between);
            job.params.algo = "hierarchical";
            cr_expect_eq(most_between_hosts(&job), s * between);
        }
}

/* rho(k) of arXiv 2401.09356. */
static uint64_t bine_distance(int k)
{
    int64_t power = (int64_t)1 << (k + 1);
    return (uint64_t)llabs((1 + (k % 2 ? -power : power)) / 3);
}

/* Step k goes |rho(k)| ranks far where the other butterfly goes 2^k: a third less from 64 on. */
Test(algorithm_counts, bine_goes_a_third_less_far)
{
    for (int log = 3; log <= 8; log++) {
        int size = 1 << log;
        size_t count = (size_t)size * 4;
        struct job job = job_of("allreduce", "bine", size, count);
        struct job plain = job_of("allreduce", "reduce-scatter-allgather", size, count);
        uint64_t way = 0, ranks = (uint64_t)size;
        for (int k = 0; k < log; k++) {
            uint64_t far = bine_distance(k);
            way += 2 * ranks * (count >> (k + 1)) * (far < ranks - far ? far : ranks - far);
        }
        uint64_t bine = work_of(&job).way, other = work_of(&plain).way;
        cr_expect_eq(bine, way, "P=%d", size);
        cr_expect_eq(other, ranks * (uint64_t)log * count);
        if (log >= 6)
            cr_expect_lt(bine * 100, other * 71, "P=%d", size);
    }
}

/* Every message is contiguous: one in each of log2 P steps, and one with which a block comes home,
 * where the butterfly leaves it elsewhere. */
Test(algorithm_counts, reduce_scatter_and_allgather_by_butterflies)
{
    static const struct {
        const char *name, *algo;
        int apart; /* blocks come home, or leave it */
    } cases[] = {{"reduce-scatter", "bine", 1},
                 {"reduce-scatter", "ordered-halving", 1},
                 {"allgather", "bine", 1},
                 {"allgather", "recursive-doubling", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int size = 4; size <= 64; size *= 4) {
            struct job job = job_of(cases[i].name, cases[i].algo, size, 10);
            struct work work = work_of(&job);
            uint64_t ranks = (uint64_t)size, log = (uint64_t)log2_of(size);
            cr_expect_eq(work.rounds, (int)log + cases[i].apart, "%s %s P=%d: %d", cases[i].name,
                         cases[i].algo, size, work.rounds);
            cr_expect_leq(work.messages, ranks * (log + (uint64_t)cases[i].apart));
            cr_expect_geq(work.messages, ranks * log);
            cr_expect_leq(work.most, 10 * (ranks - 1 + (uint64_t)cases[i].apart));
            uint64_t moved = work.messages - ranks * log;
            cr_expect_eq(work.bytes, 10 * (ranks * (ranks - 1) + moved));
        }
}

/* ceil(log2 P) rounds for any P and root, P - 1 messages. */
Test(algorithm_counts, bine_trees)
{
    static const char *const names[] = {"broadcast", "reduce"};
    for (int i = 0; i < 2; i++)
        for (int size = 2; size <= 65; size++) {
            struct job job = job_of(names[i], "bine", size, 10);
            job.params.root = size / 3;
            job.one_port = 1;
            struct work work = work_of(&job);
            cr_expect_eq(work.rounds, log2_of(size), "%s P=%d: %d", names[i], size, work.rounds);
            cr_expect_eq(work.messages, (uint64_t)size - 1);
            cr_expect_eq(work.bytes, 10 * ((uint64_t)size - 1));
        }
}

/* Halves out and back: at most 2 log2 P rounds, as the root does not wait for what it has, and no
 * rank gets what it has. */
Test(algorithm_counts, rooted_collectives_by_halves)
{
    static const struct {
        const char *name, *algo;
        int all; /* all ranks get everything; otherwise the root alone */
    } cases[] = {{"broadcast", "scatter-doubling", 1},
                 {"broadcast", "bine-scatter-doubling", 1},
                 {"reduce", "reduce-scatter-gather", 0},
                 {"reduce", "bine-reduce-scatter-gather", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int size = 2; size <= 64; size++) {
            struct job job = job_of(cases[i].name, cases[i].algo, size, 6400);
            job.params.root = size / 3;
            struct work work = work_of(&job);
            uint64_t power = (uint64_t)power_below(size), extra = (uint64_t)size - power;
            int log = log2_of((int)power);
            cr_expect_leq(work.rounds, 2 * log + (extra > 0), "%s %s P=%d: %d", cases[i].name,
                          cases[i].algo, size, work.rounds);
            if (cases[i].all) /* everybody gets every byte once */
                cr_expect_eq(work.bytes, 6400 * ((uint64_t)size - 1));
            else if (6400 % power == 0)
                cr_expect_leq(work.bytes, 2 * power * (6400 - 6400 / power) + extra * 6400);
        }
}

/* ---- parallel aggregated trees ---- */

/* L - 1 + log2(P/L) rounds with P/L blocks in a message, each byte once to each rank, and of memory
 * a list of blocks for each of log2 L levels, two that come and two that are packed. */
Test(algorithm_counts, pat)
{
    static const char *const names[] = {"allgather", "reduce-scatter"};
    enum { BLOCK = 64 };
    for (int i = 0; i < 2; i++)
        for (int size = 16; size <= 64; size *= 4)
            for (int low = 2; low <= size; low *= 2) {
                struct job job = job_of(names[i], "pat", size, BLOCK);
                job.params.aggregate = (size_t)(size / low);
                struct work work = work_of(&job);
                uint64_t ranks = (uint64_t)size;
                int rounds = low - 1 + log2_of(size / low);
                cr_expect_eq(work.messages, ranks * (uint64_t)rounds, "P=%d L=%d", size, low);
                cr_expect_eq(work.bytes, BLOCK * ranks * (ranks - 1));
                cr_expect_eq(work.most, BLOCK * (ranks - 1));
                size_t lists = (size_t)log2_of(low) + 5, list = (size_t)(size / low) * BLOCK;
                cr_expect_leq(work.scratch, lists * (list + BLOCK), "%zu", work.scratch);
                cr_expect_leq(work.rounds, rounds);
                if (low == 2) /* the logarithm of the paper */
                    cr_expect_eq(work.rounds, log2_of(size));
            }
}

/* Any P in ceil(log2 P) rounds, where messages may be as long as that takes. */
Test(algorithm_counts, pat_takes_the_logarithm_of_any_size)
{
    for (int size = 2; size <= 65; size++) {
        struct job job = job_of("allgather", "pat", size, 10);
        struct work work = work_of(&job);
        uint64_t ranks = (uint64_t)size;
        cr_expect_leq(work.rounds, log2_of(size), "P=%d: %d", size, work.rounds);
        cr_expect_eq(work.messages, ranks * (uint64_t)log2_of(size));
        cr_expect_eq(work.bytes, 10 * ranks * (ranks - 1));
    }
}

/* ---- radix k ---- */

static int log_of(int n, int radix)
{
    int log = 0;
    for (int64_t power = 1; power < n; power *= radix)
        log++;
    return log;
}

/* ceil(logk P) messages in a row, k - 1 at a time; in all as many as with any tree. */
Test(algorithm_counts, steps_of_radix_k)
{
    static const struct {
        const char *name, *algo;
        int tree;
    } cases[] = {{"broadcast", "k-nomial", 1},      {"reduce", "k-nomial", 1},
                 {"gather", "k-nomial", 1},         {"scatter", "k-nomial", 1},
                 {"barrier", "k-dissemination", 0}, {"allgather", "k-bruck", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int radix = 2; radix <= 16; radix += radix < 5 ? 1 : 11)
            for (int size = 2; size <= 65; size += size < 18 ? 1 : 9) {
                struct job job = job_of(cases[i].name, cases[i].algo, size, 8);
                job.params.radix = radix;
                job.params.root = cases[i].tree ? size / 3 : 0;
                struct work work = work_of(&job);
                cr_expect_leq(work.rounds, log_of(size, radix), "%s P=%d k=%d: %d", cases[i].name,
                              size, radix, work.rounds);
                if (cases[i].tree)
                    cr_expect_eq(work.messages, (uint64_t)size - 1);
                if (size == 16 && radix == 4)
                    cr_expect_eq(work.rounds, 2);
            }
}

/* A message for each factor less one, P times; nobody folds where P has small factors only. Where
 * some fold, in the first exchange together, that is one round more. */
Test(algorithm_counts, allreduce_by_multiplying)
{
    static const struct {
        int size, radix, messages, rounds; /* messages of a rank; 0: some fold */
    } cases[] = {{3, 0, 2, 1},  {6, 0, 3, 2},   {12, 0, 4, 3}, {16, 0, 4, 4}, {27, 0, 6, 3},
                 {16, 4, 6, 2}, {64, 8, 14, 2}, {5, 5, 4, 1},  {30, 5, 7, 3}, {11, 16, 10, 1},
                 {7, 0, 0, 3},  {13, 3, 0, 4},  {11, 0, 0, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job job = job_of("allreduce", "recursive-multiplying", cases[i].size, 100);
        job.params.radix = cases[i].radix;
        struct work work = work_of(&job);
        cr_expect_eq(work.rounds, cases[i].rounds, "case %d: %d", (int)i, work.rounds);
        if (cases[i].messages)
            cr_expect_eq(work.messages, (uint64_t)(cases[i].size * cases[i].messages));
        cr_expect_eq(work.bytes, 100 * work.messages);
    }
}

/* ---- pipelined trees ---- */

/* One message a segment to each rank; the first segment is floor(log2 h) + 1 hops from the farthest
 * rank, h being the ranks on the longer side of the root. */
Test(algorithm_counts, pipelined_binary_trees)
{
    static const char *const names[] = {"broadcast", "reduce"};
    enum { SEGMENTS = 8, BYTES = 64 };
    for (int i = 0; i < 2; i++)
        for (int size = 2; size <= 65; size++)
            for (int root = 0; root < size; root += 1 + size / 3) {
                struct job job = job_of(names[i], "binary-tree", size, BYTES);
                int longer = root > size - 1 - root ? root : size - 1 - root;
                job.params.root = root;
                job.params.segment = BYTES / SEGMENTS;
                struct work work = work_of(&job);
                cr_expect_eq(work.rounds, log2_of(longer + 1), "%s P=%d root=%d: %d", names[i],
                             size, root, work.rounds);
                cr_expect_eq(work.messages, SEGMENTS * ((uint64_t)size - 1));
                cr_expect_eq(work.bytes, BYTES * ((uint64_t)size - 1));
                cr_expect_leq(work.most, 2 * BYTES);
            }
}
