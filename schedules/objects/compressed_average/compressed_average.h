/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of weft/compressed_average.h.
 *
 * What all methods share brings gradients in, gives them back and keeps residuals; a method adds up
 * flat memory over all ranks:
 *
 *     post       x = g + e, into `values`; arranged as the method has it     application
 *                method->post                                                application
 *     runs       sum = what becomes of the sum of all ranks' values          engine
 *     wait       method->wait, and counts what that was                      application
 *     write      arranged back; g = sum / ranks, e = x - sent                application
 *     advance    method->advance: new phases, before the next step           application
 *     keep       nothing takes the step back any more
 *
 * A step that has failed is dropped instead: x is what has not been sent, and the method is as it
 * was before.
 *
 * `sent` is a rank's share of the sum: over all ranks it adds up to the sum. So what ranks keep,
 * and the sum, are together what was to be sent; and residuals do not take up what ranks differ by,
 * which nobody has dropped.
 *
 * While a step is posted `values`, `sum` and `sent` belong to the engine.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_COMPRESSED_AVERAGE_COMPRESSED_AVERAGE_H
#define WEFT_SCHEDULES_OBJECTS_COMPRESSED_AVERAGE_COMPRESSED_AVERAGE_H

#include <stdatomic.h>
#include <weft/compressed_average.h>
#include <weft/object.h>
#include <weft/run.h>
#include <weft/template.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/model.h"

/* What a step was, filled in by the method's wait. */
struct weft__compressed_step {
    weft_compressed_phase_t phase;
    uint64_t messages, bytes; /* that this rank has sent: counted by the common part */
    double bits;              /* an element, on average over all of them */
    double loss;              /* -1: not known; where `sent` is, the common part finds it */
    double squares, dropped;  /* that it is made of: dropped by squares; 0: not known */
    int votes;
};

/* How far a step is. */
enum weft__compressed_stage {
    WEFT__COMPRESSED_IDLE,
    WEFT__COMPRESSED_POSTED,
    WEFT__COMPRESSED_SUMMED,   /* the sum is there */
    WEFT__COMPRESSED_ADVANCED, /* and what the next step needs */
};

/* A run of the object, in the memory of who uses it. */
struct weft__compressed_run {
    struct weft_run *run;              /* NULL: none */
    uint64_t messages, bytes;          /* that an execution sends from this rank */
    struct weft__compressed_run *next; /* of the object's */
};

struct weft_compressed_average {
    struct weft_context *context;
    int ranks;
    /* Without pointers; members that were 0 are their defaults. */
    struct weft_compressed_average_config config;
    struct weft_quantiser quantiser;
    struct weft_gradiveq_config gradiveq; /* algo: borrowed until the creation has ended */
    struct weft_powersgd_config powersgd;
    const struct weft__compression *method;
    void *own;                         /* of the method; NULL: the model has no elements */
    struct weft__compressed_run *runs; /* all that there are */
    struct weft__model model;
    size_t *offsets; /* elements before each tensor of the model; owned */
    /* A shape a tensor, each of as many elements as its tensor, `outputs` of a vector; owned. */
    struct weft_tensor_shape *shapes;
    char *layouts; /* of shapes, a letter each; owned */
    int keeps;     /* residuals are kept */
    struct weft__surroundings surroundings;

    /* Flat memory of model.count + method->extra elements each, of the context; owned. */
    float *values; /* what this rank contributes */
    float *sum;
    float *sent;     /* NULL: no residuals */
    float *residual; /* in the order of the model; NULL: none */

    struct weft_object *object;
    int member;      /* 1: the object is another's, which destroys it */
    const char *who; /* of the call under way, for error texts */

    /* The step under way, or the last. */
    uint64_t first; /* the step of the creation */
    uint64_t next;
    int vote; /* this rank's, of the last step, for the end of the phase: the method's affair */
    enum weft__compressed_stage stage;
    int stepping; /* a step() has not ended */
    int written;  /* the tensors have the sum, and `residual` what was kept */
    int dropped;  /* it has failed; `values`, or if it was written `sent`, have what was to be sent
                     beside the residual */
    struct weft_run *late;     /* that was waited for in vain, or NULL */
    _Atomic uint64_t ended_ns; /* when a run of it had ended last, on the context's clock */
    struct weft__compressed_step step;
    struct weft__bad bad; /* of its gradients */
    int told;

    struct weft_compressed_average_stats stats;

    /* Of weft_compressed_average_get_state(); owned. */
    uint64_t *words;
    float *numbers;
    size_t number_count;
    uint64_t state_number; /* the same where words and numbers of config.state were */
};

/* ---- methods ---- */

/* How flat vectors are added up. Every function that returns a status leaves its text; NULL members
 * are nothing to be done. */
struct weft__compression {
    const char *name;
    int keeps;    /* residuals by default, where that does not depend on settings */
    size_t extra; /* elements of flat memory behind the model's, the method's own (votes) */

    /* What is wrong with the method's own configuration: average->gradiveq or ->powersgd as they
     * were given, or zeros, which are filled in with defaults; config and quantiser are there,
     * nothing else. No memory is taken. Called whatever the method is: so what this machine lacks
     * is create's affair. Texts begin with average->who. */
    int (*check)(struct weft_compressed_average *average);
    /* What all ranks must give alike; returns how many, up to WEFT__METHOD_SETTINGS. After
     * create. */
    size_t (*settings)(const struct weft_compressed_average *average,
                       struct weft__setting settings[]);
    /* Makes average->own: memory and runs of average->object, in the same number and order on all
     * ranks, whatever average->next is: after a failure some are a step behind. Local. Nothing that
     * can fail is left for after it; not called for models of no elements, of which nothing is ever
     * posted. Residuals and state are not there yet. */
    int (*create)(struct weft_compressed_average *average);
    /* Also of what is half made. */
    void (*destroy)(struct weft_compressed_average *average);

    /* From the order of a tensor to the method's, in place, and back. scratch: as many elements.
     * Both are called for `values`, the second for `sum` and `sent` too. */
    void (*arrange)(const struct weft_compressed_average *average, size_t tensor, float *values,
                    float *scratch);
    void (*restore)(const struct weft_compressed_average *average, size_t tensor, float *values,
                    float *scratch);

    /* Begins the sum of `values`. Does not block or allocate. What it fails with fails the object
     * if nothing has. */
    int (*post)(struct weft_compressed_average *average);
    /* Until a time on the context's clock; 0: for ever. Then `sum` is there, and `sent` where
     * `keeps`; fills in average->step, which is zeros. WEFT_IN_PROGRESS: not by then, and it is
     * called again. By weft__compressed_run_wait(). Local work after that must not fail. */
    int (*wait)(struct weft_compressed_average *average, uint64_t until);
    /* What is to be done between this step and the next: exchanges, new runs. As wait, and it may
     * allocate, in any number of stages. All ranks call it, once a step, after the wait; of merged
     * gradients group after group, in the same order, by one thread (wait may be called in any
     * order). What fails locally fails the object (weft__compressed_fail()). */
    int (*advance)(struct weft_compressed_average *average, uint64_t until);
    /* The step, and its advance, are good: nothing takes them back. */
    void (*keep)(struct weft_compressed_average *average);
    /* The step has failed, perhaps after its wait, perhaps in its advance: as before, as far as it
     * can be said. Its runs have ended. All that is called after it is save, quit, destroy. */
    void (*drop)(struct weft_compressed_average *average);
    /* The phase of the step to come. NULL: compressed. */
    weft_compressed_phase_t (*phase)(const struct weft_compressed_average *average);

    /* What all ranks have alike between steps, as words and numbers:
     *
     *     words      state_common | state_each of tensor 0 | state_each of tensor 1 | ...
     *     numbers                 |           of tensor 0  |           of tensor 1  | ...
     *
     * The first word of a tensor is how many numbers it has. So merged gradients move them with
     * their tensors to other objects: from objects whose common words are the same. */
    size_t state_common, state_each;
    /* How many numbers there are; then all is written. Of a dropped step, what there is. */
    size_t (*state_size)(const struct weft_compressed_average *average);
    void (*save)(const struct weft_compressed_average *average, uint64_t *words, float *numbers);
    /* Takes over what was saved by an object of the same method, tensors and shapes, on so many
     * ranks. After create, before the ranks meet. Refuses what does not fit. */
    int (*load)(struct weft_compressed_average *average, int ranks, const uint64_t *words,
                size_t word_count, const float *numbers, size_t number_count);
    /* After an object that has failed, when all ranks are there: their states were not all the same
     * (or some have none), and all begin anew what hangs on it. Cannot fail. NULL: never needed. */
    void (*renew)(struct weft_compressed_average *average);
    /* At the end of the creation: all ranks are there, and their states are alike. Makes runs that
     * hang on the state, which are the same on all ranks then. What it fails with fails the object.
     */
    int (*ready)(struct weft_compressed_average *average);
    /* weft_compressed_average_get_tensor(): fills in zeros. */
    int (*tensor)(const struct weft_compressed_average *average, size_t tensor,
                  struct weft_gradiveq_tensor *info);
};

enum { WEFT__METHOD_SETTINGS = 14 };

extern const struct weft__compression weft__compression_gradiveq;
extern const struct weft__compression weft__compression_qsgd;
extern const struct weft__compression weft__compression_powersgd;

/* create.c: by weft_compressed_method_t; NULL: this library does not have it. */
extern const struct weft__compression *const weft__compressions[];

/* ---- what methods are made of: sum.c ---- */

/* Builds a template's schedule with the costs and hosts of the context, and makes a run of it that
 * belongs to the object. Of a step that fails, and of objects that are left, the common part sees
 * to the end of all runs that there are. */
int weft__compressed_run_make(struct weft_compressed_average *average, const char *name,
                              struct weft_template_params *params,
                              struct weft__compressed_run *made);
/* It may be zeros. */
void weft__compressed_run_free(struct weft_compressed_average *average,
                               struct weft__compressed_run *run);
/* Starts it with the number of the step as its version: once a step. Counts what it sends. */
int weft__compressed_run_start(struct weft_compressed_average *average,
                               struct weft__compressed_run *run);
/* Waits for it, counts the time, and sets average->late. Until a time on the context's clock, or
 * for ever if it is 0. WEFT_IN_PROGRESS; else what it has ended with: where the object has failed,
 * as that. */
int weft__compressed_run_wait(struct weft_compressed_average *average,
                              const struct weft__compressed_run *run, uint64_t until);
/* `status`, for which the error text is set, ends it on all ranks, if nothing has before. Returns
 * what it has failed with, with its text. */
int weft__compressed_fail(struct weft_compressed_average *average, int status);

/* A sum of `values` that no projection compresses: QSGD's, or an allreduce. Of the first `count`
 * elements. */
struct weft__sum {
    struct weft__compressed_run run;
    int quantised;
    size_t count;
    double bits; /* an element */
};

/* quantiser: of what is sent, as config.qsgd_way says; NULL: an allreduce. Borrowed for the call.
 * Where residuals are kept `sent` comes with it. Local. */
int weft__sum_make(struct weft_compressed_average *average, struct weft__sum *sum,
                   const struct weft_quantiser *quantiser, size_t count);
void weft__sum_free(struct weft_compressed_average *average, struct weft__sum *sum);
int weft__sum_start(struct weft_compressed_average *average, struct weft__sum *sum);
/* As method->wait; fills in average->step.bits and .loss. */
int weft__sum_wait(struct weft_compressed_average *average, struct weft__sum *sum, uint64_t until);
/* QSGD's settings; returns how many, at most 6. */
size_t weft__sum_settings(const struct weft_compressed_average *average,
                          struct weft__setting settings[]);

/* ---- state.c ---- */

/* Checks the state of a checkpoint, takes over statistics and residuals, and has the method load
 * its part. All zeros: nothing. */
int weft__compressed_load(struct weft_compressed_average *average,
                          const struct weft_compressed_average_state *state);

/* What the words of a state begin with; then come the method's. */
enum {
    WEFT__STATE_FORMAT,
    WEFT__STATE_METHOD,
    WEFT__STATE_RANKS,
    WEFT__STATE_TENSORS,
    WEFT__STATE_SHAPES,
    WEFT__STATE_OWN
};
/* Of tensors, and of their shapes, vectors with `outputs`. */
uint64_t weft__compressed_tensors_number(const struct weft_piece *tensors, size_t count);
uint64_t weft__compressed_shapes_number(const struct weft_tensor_shape *shapes, size_t count);

/* ---- compressed_average.c ---- */

/* Ends a step that has been posted, in config.leave_ns; or the object fails. */
int weft__compressed_end(struct weft_compressed_average *average, const char *who);
/* The object has failed: a step that was under way ends, and comes to nothing. */
void weft__compressed_give_up(struct weft_compressed_average *average);

/* ---- tensors.c ---- */

/* Gradients and residuals to `values`, as the policy on what is not finite says. */
void weft__compressed_read(struct weft_compressed_average *average);
/* The sum by `divisor` to the gradients, and what is kept to the residual. */
void weft__compressed_write(struct weft_compressed_average *average, int divisor);
/* `values` in the order of the model again: what a step that is dropped was to send. */
void weft__compressed_unread(struct weft_compressed_average *average);

/* Fills in average->shapes; NULL: vectors. Refuses those that are not their tensors'. */
int weft__compressed_shapes(struct weft_compressed_average *average,
                            const struct weft_tensor_shape *shapes);
/* One of them: of a vector `outputs` is filled in. */
int weft__compressed_shape(const char *who, struct weft_tensor_shape *shape, size_t tensor,
                           size_t count);
/* rows x columns of a tensor as PowerSGD factors it: outputs (rows) by the rest; 0 x 0 of vectors.
 */
void weft__compressed_matrix(const struct weft_tensor_shape *shape, size_t *rows, size_t *columns);

#endif
