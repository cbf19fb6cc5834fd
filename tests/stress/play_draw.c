/* SPDX-License-Identifier: BSD-3-Clause */
/* What a play is, drawn from its seed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

uint64_t play_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int play_below(uint64_t *state, int bound)
{
    return (int)(play_random(state) % (uint64_t)bound);
}

void *play_take(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        abort();
    return memory;
}

static const char *const deed_names[PLAY_DEED_KINDS] = {
    "nothing", "abort", "fail", "error", "run", "leave", "abandon", "stop", "pause", "memory",
};

const char *play_deed_name(enum play_deed deed)
{
    return deed_names[deed];
}

void play_words(const struct play *play, int rank, char *text, size_t size)
{
    snprintf(text, size, "by design %d-%llu", rank, (unsigned long long)play->seed);
}

/* ---- drawing ---- */

static void draw_network(struct play *play, uint64_t *random)
{
    struct weft_virtual_config *config = &play->network;
    weft_virtual_config_init(config);
    config->seed = play_random(random);
    config->shuffle = play_below(random, 8) > 0;
    config->limit_ns = UINT64_C(100000000000);
    switch (play_below(random, 4)) {
    case 0:
        break;
    case 1:
        config->delay_ns = 20000;
        break;
    case 2:
        config->delay_ns = 3000;
        config->heavy_share = 0.05;
        config->heavy_ns = 1000000;
        break;
    default:
        config->delay_ns = 500;
        config->pauses_per_second = 3000;
        config->pause_ns = 300000;
    }
    if (play_below(random, 2))
        config->duplicate_share = 0.2;
    if (play_below(random, 2))
        config->node_ns = (double)(play_random(random) % 2000);
    weft_net_init(&play->net);
    play->net.L = 1;
    if (play_below(random, 3) == 0)
        play->net.S = 32; /* what is larger goes by rendezvous */
    config->net = &play->net;
}

/* Half of the objects are group averages, which have most to go wrong. */
static const struct play_kind *draw_kind(uint64_t *random)
{
    static const struct play_kind *const kinds[] = {&play_pair,   &play_gossip,     &play_sparse,
                                                    &play_merged, &play_compressed, &play_server};
    return play_below(random, 2) ? &play_group : kinds[play_below(random, 6)];
}

static void draw_object(struct play *play, int number, uint64_t *random,
                        const struct play_wish *wish)
{
    struct play_object *object = &play->objects[number];
    object->kind = wish->kind && number == 0 ? wish->kind : draw_kind(random);
    object->play = play;
    object->number = number;
    object->ranks = play->ranks;
    object->seed = play_random(random);
    object->sleep_ns = 1000 + play_random(random) % (play_below(random, 2) ? 30000 : 400000);
    int steps = 1 + play_below(random, PLAY_STEPS);
    object->unequal = object->kind->leaves && play_below(random, 3) == 0;
    for (int r = 0; r < play->ranks; r++)
        object->steps[r] = object->unequal ? play_below(random, steps + 1) : steps;
}

static void draw_event(struct play *play, struct play_event *event, uint64_t *random,
                       const struct play_wish *wish)
{
    event->deed = wish->deed >= 0 ? (enum play_deed)wish->deed
                                  : (enum play_deed)(1 + play_below(random, PLAY_DEED_KINDS - 1));
    event->rank = play_below(random, play->ranks);
    event->object = play_below(random, play->object_count);
    event->share = (double)(play_random(random) >> 11) * 0x1p-53;
    event->for_ns = 1 + play_random(random) % (play_below(random, 2) ? 1000000 : 100000000);
    event->skipped = play_below(random, 2) ? 0 : play_below(random, 40);
    event->victim = -1;
}

/* Whom nothing is heard of any more is not waited for without a deadline. */
static int needs_deadline(const struct play *play)
{
    for (int e = 0; e < play->event_count; e++)
        if (play->events[e].deed == PLAY_STOP || play->events[e].deed == PLAY_ABANDON)
            return 1;
    return 0;
}

static void draw_deadlines(struct play *play, uint64_t *random)
{
    uint64_t deadline = 20000000 + play_random(random) % 40000000;
    int needed = needs_deadline(play), some = play_below(random, 4) == 0;
    int patience = 1 + play_below(random, 2);
    uint64_t leave = play_below(random, 8) ? PLAY_LEAVE_NS : 1 + play_random(random) % 20000000;
    for (int o = 0; o < play->object_count; o++) {
        play->objects[o].deadline_ns = needed || some ? deadline : 0;
        play->objects[o].patience = needed ? patience : 0;
        play->objects[o].meet_ns = needed ? deadline : 0;
        play->objects[o].leave_ns = leave;
    }
}

void play_draw(struct play *play, uint64_t seed, const struct play_wish *wish)
{
    uint64_t random = seed * UINT64_C(0xd1342543de82ef95) + 1;
    memset(play, 0, sizeof *play);
    play->seed = seed;
    play->ranks = 1 + play_below(&random, play_below(&random, 3) ? 8 : PLAY_RANKS);
    play->object_count = 1 + (play_below(&random, 4) == 0);
    play->tells = play_below(&random, 4) == 0;
    play->crossed = play_below(&random, 2);
    draw_network(play, &random);
    for (int o = 0; o < play->object_count; o++)
        draw_object(play, o, &random, wish);
    play->event_count = play_below(&random, 20) ? 1 + (play_below(&random, 5) == 0) : 0;
    for (int e = 0; e < play->event_count; e++)
        draw_event(play, &play->events[e], &random, wish);
    draw_deadlines(play, &random);
    for (int o = 0; o < play->object_count; o++)
        play->objects[o].kind->draw(&play->objects[o], &random);
}

void play_end(struct play *play)
{
    for (int o = 0; o < play->object_count; o++) {
        if (play->objects[o].kind->free)
            play->objects[o].kind->free(&play->objects[o]);
        free(play->objects[o].settings);
    }
    free(play->times);
}

/* ---- in words ---- */

static size_t append(char *text, size_t length, const char *format, ...) WEFT_PRINTF(3, 4);
static size_t append(char *text, size_t length, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more =
        length >= PLAY_TEXT ? 0 : vsnprintf(text + length, PLAY_TEXT - length, format, arguments);
    va_end(arguments);
    return length + (size_t)(more > 0 ? more : 0);
}

void play_describe(const struct play *play, char text[PLAY_TEXT])
{
    size_t length = append(text, 0, "P %d", play->ranks);
    for (int o = 0; o < play->object_count; o++)
        length = append(text, length, "%s %s", o ? " and" : ",", play->objects[o].kind->name);
    if (play->objects[0].deadline_ns)
        length = append(text, length, ", deadline %llu ns",
                        (unsigned long long)play->objects[0].deadline_ns);
    for (int e = 0; e < play->event_count; e++) {
        const struct play_event *event = &play->events[e];
        length = append(text, length, ", %s", play_deed_name(event->deed));
        if (event->deed == PLAY_FAIL || event->deed == PLAY_LEAVE)
            length = append(text, length, " (object %d)", event->object);
        length = append(text, length, " of rank %d at event %llu of %zu%s", event->rank,
                        (unsigned long long)event->event, play->time_count,
                        event->done ? "" : ", not done");
        if (event->deed == PLAY_MEMORY && event->done)
            length = append(text, length, ", to rank %d", event->victim);
    }
}
