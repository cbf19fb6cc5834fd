/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of a node when its predecessors end or are retired, for all who execute schedules
 * without the engine: the execution that GOAL shows (graph/resolve.c), the simulator (sim/run.c)
 * and the checker (check/execute.c, check/race.c).
 *
 *     a node of   a predecessor has ended        a predecessor is retired
 *     ALL         starts with the last one       is retired with the first one
 *     ANY         starts with the first one      is retired with the last one, if none has ended
 *
 * An event waits besides that until it has fired, and may fire before its predecessors have ended.
 * The first event of a choice that fires retires the others, whatever has become of their
 * predecessors.
 *
 * The engine has this rule a second time, in release_successors(), retire() and weft__engine_fire()
 * of engine/engine.c: there the count shares a word with flags, and an end must not cost a branch
 * more than a plain node needs. tests/unit/graph/test_settle.c holds the two together.
 */
#ifndef WEFT_RUNTIME_GRAPH_SETTLE_H
#define WEFT_RUNTIME_GRAPH_SETTLE_H

#include <stdint.h>

enum weft__settled {
    WEFT__SETTLED_NOTHING, /* it waits for others, or was settled before */
    WEFT__SETTLED_STARTS,  /* its predecessors allow it, now */
    WEFT__SETTLED_RETIRES  /* it is to be retired, now */
};

/* A predecessor of a node has ended (1), or been retired (0). `left` counts the node's predecessors
 * that have done neither; it is 0 once the node is settled. A choice that retires an event settles
 * it by writing 0. */
static inline enum weft__settled weft__settle(uint32_t *left, int any, int ended)
{
    if (!*left)
        return WEFT__SETTLED_NOTHING;
    *left = any == ended ? 0 : *left - 1;
    if (*left)
        return WEFT__SETTLED_NOTHING;
    return ended ? WEFT__SETTLED_STARTS : WEFT__SETTLED_RETIRES;
}

#endif
