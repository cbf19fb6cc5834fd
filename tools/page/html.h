/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules as a page to look at: what is on it, and how it is written. */
#ifndef WEFT_TOOLS_PAGE_HTML_H
#define WEFT_TOOLS_PAGE_HTML_H

#include <weft/sim.h>
#include <weft/trace.h>
#include <weft/weft.h>

/* Nodes that a page holds: beyond, ranks are left out, and the page says so. */
#define HTML_MOST_NODES ((size_t)200000)

/* What a node did. */
struct html_node {
    double start_us, end_us; /* -1: it never came */
    int64_t peer;            /* send, receive: number of the node at the other end, or -1 */
    int retired;
};

struct html_step {
    size_t node;
    double start_us, end_us;
    const char *reason; /* why it did not start earlier; static */
};

/* Everything that is on a page. Nodes are numbered through: node n of rank r is first[r] + n. */
struct html_page {
    const struct weft_schedule *const *schedules;
    size_t ranks;
    size_t *first; /* [ranks + 1] */
    struct html_node *nodes;
    struct html_step *path; /* the critical path, in the order of time */
    size_t path_length;
    double time_us;
    int complete;
    char source[512];     /* where the times come from */
    char parameters[256]; /* of the template */
    char faults[1024];    /* why it is not complete */
};

/* Times of a simulation. 0, or a status with the thread's text. */
int html_simulate(struct html_page *page, const struct weft_sim_config *config, const char *net);

/* Times of the run in a trace whose plan has the schedules' name: number `run` of those that all
 * ranks have, from 0; -1: the last. Messages must have been found by html_simulate(). 0, or a
 * status with the thread's text. */
int html_read_trace(struct html_page *page, const char *path, long long run);

/* The page as one text, freed with weft_memory_free(); NULL without memory. */
char *html_write(const struct html_page *page, size_t *length);

void html_free(struct html_page *page);

/* Growing text; `failed` sticks. */
struct html_text {
    char *text;
    size_t length, capacity;
    int failed;
};
void html_add(struct html_text *out, const char *text, size_t length);
void html_print(struct html_text *out, const char *format, ...) WEFT_PRINTF(2, 3);

/* What stands in a page, made of tools/page/ when weft is built. */
extern const char html_template[];

#endif
