/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers in a play: what they push, and what they have been seen to pull.
 *
 * Each parameter belongs to one worker: its gradient is 2^t there in step t, and 0 elsewhere. With
 * plain SGD a parameter then is a set of bits: the steps of its worker that are in it. Sums of
 * powers of two are exact.
 */
#ifndef WEFT_TESTS_PLAY_SERVER_H
#define WEFT_TESTS_PLAY_SERVER_H

#include "play.h"

enum { SERVER_LAYERS = 5, SERVER_TENSORS = 5, SERVER_COUNT = 40, SERVER_MEETINGS = 3 };

/* Of a layer: two have nothing, of which one has no tensor. */
extern const size_t server_counts[SERVER_LAYERS], server_tensors[SERVER_LAYERS];

/* What a worker has seen of a step. */
struct server_seen {
    double model[SERVER_COUNT];
    uint64_t version, staleness, late_bytes;
    uint64_t versions[SERVER_LAYERS];
    int corrected; /* OSP: the second stage is in it */
};

struct server {
    struct weft_server_config config;
    int weights[PLAY_RANKS];
    int workers;
    int varies;  /* the rate, from step to step */
    int absents; /* layers may be */
    int tells;   /* OSP: losses */
    /* All ranks go on from their states, each before its step; -1: they do not. They meet to stop
     * together, when second stages are over, and when all have their states. Who does not come
     * calls it off. */
    int restart[PLAY_RANKS], arrived[SERVER_MEETINGS], off;
    int failed[PLAY_RANKS]; /* by design */
    int ended[PLAY_RANKS];  /* its object was destroyed without an error */
    struct server_seen seen[PLAY_RANKS][PLAY_STEPS];
    char wrong[PLAY_TEXT];
};

/* How many layers there are: in a model without parameters none. */
static inline int server_layers(const struct server *server)
{
    return server->config.tensor_count ? SERVER_LAYERS : 0;
}

/* Whose an element of a layer is. */
static inline int server_owner(const struct server *server, int layer, size_t element)
{
    return (int)((element + 5 * (size_t)layer) % (size_t)server->workers);
}

/* Of what a worker does in a step: the same whenever it is asked for. */
uint64_t server_drawn(const struct play_object *object, int rank, int step, int what);
/* Whether the step is a pull, in which nothing is pushed but for some layers. */
int server_pulls(const struct play_object *object, int rank, int step);
/* Whether a worker pushes a layer. */
int server_pushes(const struct play_object *object, int rank, int step, int layer);
double server_rate(const struct server *server, int step);

int server_judge(struct play_object *object, char text[PLAY_TEXT]);

#endif
