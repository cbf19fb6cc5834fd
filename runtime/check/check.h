/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the phases of weft_check() share.
 *
 *   check.c          the phases one after the other
 *   graph.c          all nodes in one numbering, successors, cycles
 *   match.c          the other end of every message, sizes
 *   race.c           pairs of nodes that are not ordered
 *   execute.c        one execution of all ranks under rendezvous
 *   choice.c         which executions there are
 *   stuck.c          why one does not end
 *   value.c          what bytes hold, as combinations of contributions
 *   memory.c         slots as intervals of values
 *   compute.c        what nodes do to them
 *   fold.c           what functions that merge have folded in
 *   compressed.c     what functions that compress stand for
 *   result.c         what they should hold in the end
 *   synchronised.c   whether ends come after starts
 *   order.c          whether messages can be issued in one order
 *   report.c         faults
 *
 * A node is known by one number over all ranks: base[rank] + its index.
 */
#ifndef WEFT_RUNTIME_CHECK_CHECK_H
#define WEFT_RUNTIME_CHECK_CHECK_H

#include "runtime/base/hash.h"
#include "runtime/base/out.h"
#include "runtime/graph/schedule.h"
#include <weft/check.h>

#define WEFT__CHECK_NONE UINT32_MAX

/* ---- faults: report.c ---- */

struct weft_check_report {
    struct weft_check_summary summary;
    struct weft__fault *faults;
    size_t count, capacity, most;
    char *unordered; /* the text of the summary, or NULL */
};

/* A fault while it is made. */
struct weft__fault {
    weft_fault_kind_t kind;
    struct weft__out text;
    int *ranks;
    size_t rank_count, rank_capacity;
    struct weft_check_node *nodes;
    size_t node_count, node_capacity;
    uint64_t bytes;
};

struct weft__check;

/* Begins a fault; its text is appended to `text`. */
void weft__fault_begin(struct weft__fault *fault, weft_fault_kind_t kind);
void weft__fault_rank(struct weft__fault *fault, int rank);
/* Names a node (and its rank), and writes "node 3 `label` (recv tmp[0:4] from 1 tag 2)". */
void weft__fault_node(const struct weft__check *check, struct weft__fault *fault, uint32_t node);
/* As weft__fault_node() without the text. */
void weft__fault_note(const struct weft__check *check, struct weft__fault *fault, uint32_t node);
/* Writes "slot[0:4]" from bytes. */
void weft__fault_bytes(struct weft__out *out, const struct weft__buffer *buffer, uint64_t begin,
                       uint64_t end);
/* Ends it: the report takes it, or, if it has the same one or enough, frees it. 0, or -1 without
 * memory. */
int weft__fault_end(struct weft__check *check, struct weft__fault *fault);
void weft__report_sort(struct weft_check_report *report);

/* ---- the graph: graph.c ---- */

struct weft__check {
    const char *who; /* in errors: the public function */
    struct weft_check_config config;
    struct weft_check_report *report;
    int size;                               /* ranks */
    const struct weft_schedule **schedules; /* by rank; NULL: missing */
    /* The same before joint nodes were written out, which keep their numbers; NULL if none was. */
    const struct weft_schedule **originals;
    uint32_t *base; /* first node of a rank; size + 1 */
    uint32_t nodes;
    size_t *slot_base; /* first slot of a rank; size + 1 */
    size_t *value_base;
    int32_t *rank_of;    /* of a node */
    uint32_t *partner;   /* the other end of a message, or none */
    uint8_t *mismatched; /* 1 in a receive whose send has another size: what arrives is unknown */
    uint32_t *first;     /* successors of n: after[first[n] .. first[n + 1]) */
    uint32_t *after;
    uint32_t *waits; /* predecessors of a node */
    int cyclic;
    /* Events with a channel, and members of choices: sorted, see below. */
    struct weft__listener *listeners;
    size_t listener_count;
    struct weft__member *members;
    size_t member_count;
    uint32_t *choice_first; /* members of choice c: members[choice_first[c] .. [c + 1]) */
    size_t choice_count;
    uint32_t *choice_of; /* by index in `events`: its choice or none */
    int synchronised;    /* a rank states that its end comes after the starts of others */
    char scenario[160];  /* "if ranks 0 and 3 start it", or empty */
};

/* An event that a channel fires; ascending in rank, channel, node. */
struct weft__listener {
    int32_t rank;
    uint32_t channel;
    uint32_t node;
    uint32_t signals; /* how many signal nodes there are for it */
};

/* An event of a choice; ascending in rank, choice, node. */
struct weft__member {
    int32_t rank;
    int32_t choice; /* of the rank */
    uint32_t node;
};

static inline const struct weft__snode *weft__check_node(const struct weft__check *check,
                                                         uint32_t node)
{
    int32_t rank = check->rank_of[node];
    return &check->schedules[rank]->nodes[node - check->base[rank]];
}

static inline const struct weft_schedule *weft__check_schedule(const struct weft__check *check,
                                                               uint32_t node)
{
    return check->schedules[check->rank_of[node]];
}

static inline const struct weft_region *weft__check_region(const struct weft__check *check,
                                                           uint32_t node, uint32_t index)
{
    const struct weft_schedule *schedule = weft__check_schedule(check, node);
    return &schedule->regions[weft__check_node(check, node)->regions + index];
}

/* Numbers the nodes; faults for ranks that are missing or twice there. */
int weft__check_graph(struct weft__check *check, const struct weft_schedule *const *schedules,
                      size_t count);
void weft__check_graph_free(struct weft__check *check);
/* Faults for cycles; sets check->cyclic. */
int weft__check_cycles(struct weft__check *check);
/* Faults for calls of operations whose regions are not what they take: fits.c. */
int weft__check_fits(struct weft__check *check);

/* The listeners of a channel: first and past the last. */
void weft__check_listeners(const struct weft__check *check, int rank, uint32_t channel,
                           size_t *first, size_t *last);

/* ---- match.c, race.c ---- */

int weft__check_match(struct weft__check *check);
int weft__check_races(struct weft__check *check);

/* ---- values: value.c ---- */

/* What bytes hold. Values from VALUE_FIRST on: first the contributions, the contents of a slot of a
 * rank at the start, in ascending (name, rank); then what is computed from them. */
enum { WEFT__VALUE_UNKNOWN, WEFT__VALUE_UNDEFINED, WEFT__VALUE_FIRST };

enum weft__value_kind {
    WEFT__COMBINED, /* by a reduction: parts in rank order, or sorted if it commutes */
    WEFT__CALL,     /* what a compute function made of its arguments */
    WEFT__FOLD,     /* what a folding function has taken in: a set of contributions */
    WEFT__FOLDED,   /* one of the regions that it wrote */
    WEFT__CUT,      /* a part of a contribution: of that, and of bounds, bytes at .. at + extent */
    /* compressed.c: */
    WEFT__ABOUT,     /* a value, up to what compression has lost */
    WEFT__ENCODED,   /* quantised */
    WEFT__PROJECTED, /* linear maps */
    WEFT__CORRELATED
};

/* Values lo .. hi, each `times` times. Byte q of what they combine to is made of their bytes q +
 * at. In calls and folds: bytes at .. at + extent of it. */
struct weft__part {
    uint32_t lo, hi;
    int64_t at;
    uint64_t extent;
    uint32_t times;
};

struct weft__term {
    uint32_t part, parts;
    uint32_t op;     /* in values->ops; fold, folded: of the family; about: 0 */
    uint32_t detail; /* combined: the datatype; call, folded: which region; cut: bytes of a bound */
    uint8_t kind;
};

/* A contribution: the contents of a slot at the start. */
struct weft__leaf {
    const char *name;
    int32_t rank;
    int32_t slot;
};

struct weft__values {
    struct weft__leaf *leaves;
    size_t leaf_count;
    struct weft__term *at; /* value v is at[v - VALUE_FIRST - leaf_count] */
    size_t count, capacity;
    struct weft__part *parts;
    size_t part_count, part_capacity;
    struct weft__table table; /* of those in `at` */
    const struct weft_op **ops;
    size_t op_count, op_capacity;
};

int weft__values_create(struct weft__values *values, const struct weft__check *check);
void weft__values_destroy(struct weft__values *values);
/* The contribution of a slot, or WEFT__VALUE_UNKNOWN. */
uint32_t weft__values_leaf(const struct weft__values *values, const char *name, int rank);
/* The contribution of the lowest rank that has one of the same name. */
uint32_t weft__values_first(const struct weft__values *values, uint32_t leaf);
static inline int weft__value_is_leaf(const struct weft__values *values, uint32_t value)
{
    return value >= WEFT__VALUE_FIRST && value - WEFT__VALUE_FIRST < values->leaf_count;
}
/* NULL for contributions. */
static inline const struct weft__term *weft__term(const struct weft__values *values, uint32_t value)
{
    if (value < WEFT__VALUE_FIRST || value - WEFT__VALUE_FIRST < values->leaf_count)
        return NULL;
    return &values->at[value - WEFT__VALUE_FIRST - values->leaf_count];
}
/* a op b, where byte p is made of byte p + a_at of a and p + b_at of b. 0, or -1 without memory. */
int weft__value_combine(struct weft__values *values, const struct weft_op *op, weft_dtype_t dtype,
                        uint32_t a, int64_t a_at, uint32_t b, int64_t b_at, uint32_t *value,
                        int64_t *at);
/* compressed.c: the same of values that are compressed. 1; 0: they are as any others; -1 without
 * memory. */
int weft__value_combine_inside(struct weft__values *values, const struct weft_op *op,
                               weft_dtype_t dtype, uint32_t a, int64_t a_at, uint32_t b,
                               int64_t b_at, uint32_t *value, int64_t *at);
/* A value, or, if it is one up to a loss, that. Byte by byte the same. */
uint32_t weft__value_inside(const struct weft__values *values, uint32_t value);
/* The value of a kind with these parts: `parts` are the caller's. Combined ones must be in their
 * normal form. WEFT__CHECK_NONE without memory. */
uint32_t weft__value_intern(struct weft__values *values, enum weft__value_kind kind, uint32_t op,
                            uint32_t detail, const struct weft__part *parts, size_t count);
/* The number of an operation; operations of one name are one. WEFT__CHECK_NONE without memory. */
uint32_t weft__values_op(struct weft__values *values, const struct weft_op *op);
/* The same for its family, which all that fold one kind of thing have in common. */
uint32_t weft__values_family(struct weft__values *values, const struct weft_op *op);
/* Writes what a value is: "sum of send of ranks 0..3". */
void weft__value_text(const struct weft__values *values, struct weft__out *out, uint32_t value);
/* The same of a combination from its byte `from` on, where byte 0 was expected: "sum of send of
 * ranks 0..3 (+16 bytes)". */
void weft__value_text_from(const struct weft__values *values, struct weft__out *out, uint32_t value,
                           int64_t from);

/* ---- memory: memory.c ---- */

/* Bytes [begin, begin of the next) hold `value`: byte p is its byte p + at. Node `writer` wrote
 * them. If `limit` is not 0, only as many as that value of a rank says are defined. */
struct weft__interval {
    uint64_t begin;
    int64_t at;
    uint32_t value;
    uint32_t writer;
    uint32_t limit;
};

/* A slot. */
struct weft__line {
    struct weft__interval *at;
    size_t count, capacity;
    size_t hint; /* where it was looked at last: the next time is near */
    uint64_t bytes;
};

/* Part of what was read: `bytes` bytes of `value` from its byte `from` on. */
struct weft__piece {
    uint64_t bytes;
    int64_t from;
    uint32_t value;
    uint32_t writer;
    uint32_t limit;
};

struct weft__pieces {
    struct weft__piece *at;
    size_t count, capacity;
};

/* One value for the whole slot. 0, or -1 without memory; so do the others. */
int weft__line_reset(struct weft__line *line, uint64_t bytes, uint32_t value);
int weft__line_read(struct weft__line *line, uint64_t begin, uint64_t end,
                    struct weft__pieces *pieces);
/* The pieces cover the range exactly; their writers are replaced, and limits too. */
int weft__line_write(struct weft__line *line, uint64_t begin, uint64_t end,
                     const struct weft__pieces *pieces, uint32_t writer, uint32_t limit);
int weft__pieces_add(struct weft__pieces *pieces, struct weft__piece piece);

/* ---- execution ---- */

enum weft__state {
    WEFT__NODE_WAITS,
    WEFT__NODE_READY, /* in the queue, to be started */
    WEFT__NODE_STARTED,
    WEFT__NODE_ENDED,
    WEFT__NODE_RETIRING, /* in the queue, to be retired */
    WEFT__NODE_RETIRED
};

/* A value of a rank while it runs: a number, or, if `symbol` is not 0, something that is not known,
 * but equal to everything of the same symbol. */
struct weft__number {
    uint64_t number;
    uint32_t symbol; /* 1 + number of the value over all ranks; CHECK_NONE: anything */
};

/* How to decide a choice. */
struct weft__decisions {
    uint32_t *taken; /* alternative that was taken, and how many there were */
    uint32_t *of;
    size_t count, capacity;
    size_t given;    /* the first so many are to be repeated */
    uint64_t random; /* 0: the first alternative otherwise */
    int only;        /* >= 0: only this rank's application comes by itself; -2: all come first */
};

/* A reduction that has put a contribution in twice, or different elements together. */
struct weft__odd {
    uint32_t value;
    uint32_t node;
};

/* A part of a contribution, while lists are compared: the contribution, and between which bounds.
 */
struct weft__cover {
    uint32_t list;
    uint32_t bounds;
    int64_t list_at;
    uint64_t list_extent;
    int64_t begin, end; /* bytes of the slot of bounds, of the first bound and of the last */
    uint32_t times;
};

/* Nodes of a rank that can start, or are to be retired. */
struct weft__queue {
    uint32_t first, last;
    int busy;
};

struct weft__execution {
    struct weft__check *check;
    struct weft__values values;
    uint8_t *state;
    uint32_t *left; /* of a node: see weft__settle() */
    uint32_t *next; /* in the queue of its rank */
    struct weft__queue *queues;
    int32_t *busy; /* ranks with a queue, in a ring: busy[head] has its turn */
    size_t head, busy_count;
    size_t ended;    /* or retired */
    uint32_t *order; /* nodes as they ended; NULL if nobody asks */
    size_t order_count;
    struct weft__line *lines; /* by slot, over all ranks */
    struct weft__number *numbers;
    struct weft__pieces pieces[3];
    struct weft__part *parts;
    size_t part_count, part_capacity;
    struct weft__cover *covers;
    size_t cover_count, cover_capacity;
    struct weft__odd *odd;
    size_t odd_count, odd_capacity;
    uint8_t *signalled; /* by listener */
    uint32_t *winner;   /* by choice: the event that fired, or none */
    uint8_t *declined;  /* by member: 1 passed over until another comes */
    uint32_t *options;  /* members that may have fired */
    struct weft__decisions decisions;
    int symbolic; /* 0: without values */
    int eager;    /* 1: sends end at once (without values only) */
    int happened; /* 0: a branch that cannot happen */
    int started;  /* how many choices the application of a rank has won against signals */
};

int weft__execution_create(struct weft__execution *execution, struct weft__check *check);
void weft__execution_destroy(struct weft__execution *execution);
/* Executes once, as the decisions say. 0, or -1 without memory. */
int weft__execute(struct weft__execution *execution);
/* An event has been chosen. */
void weft__execution_win(struct weft__execution *execution, size_t choice, uint32_t event);
/* At rest: decides one choice and returns 1; 0 if there is nothing to decide; -1 without memory. */
int weft__execution_decide(struct weft__execution *execution);
/* All executions that can happen, or as many as the configuration allows. */
int weft__check_executions(struct weft__check *check);
/* Faults for nodes that wait without end. */
int weft__check_stuck(struct weft__execution *execution);

/* compute.c: what a node does to the memory. 0, or -1 without memory. */
int weft__execution_transfer(struct weft__execution *execution, uint32_t send, uint32_t recv);
int weft__execution_compute(struct weft__execution *execution, uint32_t node);
/* fold.c: everything that a merging function takes in, to execution->parts. 1: something is
 * unknown, or the node is at fault, which has been reported; 2: it is a function like any other,
 * since nobody can tell which parts it takes. -1 without memory. */
int weft__execution_fold(struct weft__execution *execution, uint32_t node);
/* compressed.c: what region 0 of a function that compresses stands for, to `to`. 1; 0: it is a
 * function like any other; -1 without memory. */
int weft__execution_compress(struct weft__execution *execution, uint32_t node,
                             struct weft__pieces *to);
/* For fold.c and compressed.c. Reads region `index` of a node; what is not defined is reported and
 * unknown. */
int weft__execution_read(struct weft__execution *execution, uint32_t node, uint32_t index,
                         struct weft__pieces *pieces);
/* Whether what a node's region held before goes into what the function makes. */
int weft__execution_reads(const struct weft__execution *execution, uint32_t node, uint32_t index);
int weft__execution_add_part(struct weft__execution *execution, struct weft__part part);
/* A receive without a send: its region becomes unknown. */
int weft__execution_forget(struct weft__execution *execution, uint32_t recv);

/* The bytes that a region takes in this execution. */
struct weft__span {
    size_t line;
    uint64_t begin, end;
    uint32_t limit; /* symbol of the value that says how many of them, or 0 */
};
struct weft__span weft__execution_span(const struct weft__execution *execution, int rank,
                                       const struct weft_region *region);

/* result.c: faults for what the slots hold. 0, or -1 without memory. */
int weft__check_results(struct weft__execution *execution);
/* synchronised.c: faults for ranks that may end before others have started. 0, or -1 as above. */
int weft__check_synchronised(struct weft__execution *execution);
/* order.c: a fault if there is no order of issue; the summary's part. 0, or -1 as above. */
int weft__check_order(struct weft__check *check);

#endif
