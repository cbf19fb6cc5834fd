/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a document will take, against the memory that is there: this system promises memory that it
 * does not have, and then kills. A short text with a long loop must be refused before it has taken
 * all, so repetitions are judged by those that are done.
 */
#include "runtime/format/format.h"

#include <stdio.h>
#include <weft/context.h>

/* What templates are judged by, too; with what arrays hold in reserve. */
enum { RANK_BYTES = 1024, NODE_BYTES = 128, EDGE_BYTES = 8, OTHER_BYTES = 128 };

/* Below this share of the memory nothing is foretold, nor from fewer repetitions: the first ones
 * may be unlike the others. */
enum { SHARE = 16, FEW = 16 };

static double schedule_bytes(const struct weft_schedule *s)
{
    return RANK_BYTES + (double)s->node_count * NODE_BYTES + (double)s->edge_count * EDGE_BYTES +
           (double)(s->buffer_count + s->value_count + s->result_count + s->label_count) *
               OTHER_BYTES;
}

static double taken(const struct weft__document *document)
{
    double last = document->count ? schedule_bytes(document->schedules[document->count - 1]) : 0;

    return document->finished_bytes + document->reader_bytes + last;
}

static double memory_of(struct weft__document *document)
{
    struct weft_topology topology = {.struct_size = sizeof topology};

    if (!document->most_memory)
        document->most_memory = weft_topology_get(&topology) == WEFT_OK && topology.memory_bytes
                                    ? topology.memory_bytes
                                    : SIZE_MAX;
    return (double)document->most_memory;
}

void weft__document_finish(struct weft__document *document)
{
    if (document->count)
        document->finished_bytes += schedule_bytes(document->schedules[document->count - 1]);
}

void weft__progress_begin(struct weft__progress *progress, const struct weft__document *document,
                          uint64_t total)
{
    double now = taken(document);

    *progress = (struct weft__progress){.total = total, .older_bytes = now, .newer_bytes = now};
}

double weft__progress_needs(struct weft__progress *progress, const struct weft__document *document)
{
    double now = taken(document), needs = now;
    uint64_t done = ++progress->done;

    if (done >= FEW && done < progress->total)
        needs += (now - progress->older_bytes) / (double)(done - progress->older) *
                 (double)(progress->total - done);
    if ((done & (done - 1)) == 0) { /* a power of two: the first half is forgotten */
        progress->older = progress->newer;
        progress->older_bytes = progress->newer_bytes;
        progress->newer = done;
        progress->newer_bytes = now;
    }
    return needs;
}

int weft__document_lacks(struct weft__document *document, double needs, char *text, size_t bytes)
{
    enum { SURELY_THERE = 16 << 20 };
    double now = taken(document), memory, gib = 1 << 30;

    if (now < (document->most_memory ? 0 : SURELY_THERE))
        return 0; /* without looking at the machine */
    memory = memory_of(document);
    needs = needs > now ? needs : now;
    if (now < memory / SHARE || needs <= memory)
        return 0;
    snprintf(text, bytes, "about %.3g GiB of memory, expected at most the %.3g GiB here",
             needs / gib, memory / gib);
    return 1;
}
