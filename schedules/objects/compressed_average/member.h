/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compressed averages that are parts of another object: one fails with it and as it, its runs are
 * that object's. So making one needs no meeting and never waits, and who makes it sees to it that
 * all ranks make the same, in the same order. weft_compressed_average_get_state(), _get_stats() and
 * _get_tensor() are used as ever.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_COMPRESSED_AVERAGE_MEMBER_H
#define WEFT_SCHEDULES_OBJECTS_COMPRESSED_AVERAGE_MEMBER_H

#include <weft/compressed_average.h>
#include <weft/object.h>

#include "schedules/objects/agreement.h"

/* What a configuration points to, with defaults, as another configuration may point to it. */
struct weft__compressed_choices {
    struct weft_quantiser quantiser;
    struct weft_gradiveq_config gradiveq; /* algo: the configuration's */
    struct weft_powersgd_config powersgd;
    int keeps; /* residuals */
};

/* WEFT_OK if a configuration could be one, but for its tensors and shapes. `who` begins error
 * texts. choices: filled in, or NULL. */
int weft__compressed_average_check(const char *who,
                                   const struct weft_compressed_average_config *config,
                                   struct weft__compressed_choices *choices);

/* WEFT_OK if shapes are those of tensors; NULL: vectors. */
int weft__compressed_average_check_shapes(const char *who, const struct weft_piece *tensors,
                                          size_t count, const struct weft_tensor_shape *shapes);
/* What an element takes on the wire, about, on average over tensors: of what is sent most of the
 * time. */
double weft__compressed_average_bits(const struct weft_compressed_average_config *config,
                                     const struct weft_piece *tensors, size_t count,
                                     const struct weft_tensor_shape *shapes);

/* A tensor as another object has it: words and numbers of its state, and which of its tensors. */
struct weft__compressed_part {
    const uint64_t *words;
    size_t word_count;
    const float *numbers;
    size_t number_count;
    size_t tensor, tensor_count;
};

/* WEFT_OK if the words of a part are of tensors of these counts and shapes (zeros: vectors), which
 * are filled in. */
int weft__compressed_average_check_part(const char *who, const struct weft__compressed_part *part,
                                        const struct weft_piece *tensors,
                                        struct weft_tensor_shape *shapes);

/* Makes the words and numbers of a state of config->tensors, a part each, to be freed by
 * weft__compressed_average_unjoin(). Where the parts are not of the same phase, or a part has no
 * words, there are none: what hangs on them begins anew. Refuses words that are no state. */
int weft__compressed_average_join(const char *who,
                                  const struct weft_compressed_average_config *config,
                                  const struct weft__compressed_part *parts,
                                  struct weft_compressed_average_state *joined);
void weft__compressed_average_unjoin(struct weft_compressed_average_state *joined);

/* Makes one with runs of `object`, of which only the local part of
 * weft_compressed_average_create() can fail. Does not communicate or block. */
int weft__compressed_average_create_member(struct weft_compressed_average **average,
                                           const char *who, struct weft_context *context,
                                           struct weft_object *object,
                                           const struct weft_compressed_average_config *config);

/* weft_compressed_average_post(), for the function that is called `who`. */
int weft__compressed_average_post(struct weft_compressed_average *average, const char *who);
/* The sum of the step that was posted, until a time on the context's clock; 0: for ever.
 * WEFT_IN_PROGRESS: not by then, and it may be waited for again. WEFT_ERR_COMPUTE, once, where
 * gradients were not finite: the sum is there. */
int weft__compressed_average_wait(struct weft_compressed_average *average, const char *who,
                                  uint64_t until);
/* After the wait: the gradients become the sum by `divisor`. */
void weft__compressed_average_write(struct weft_compressed_average *average, int divisor);
/* After that: ends the step, with all that the next one needs. As the wait; it makes runs, so all
 * ranks call it of all their members in the same order, from one thread at a time. */
int weft__compressed_average_finish(struct weft_compressed_average *average, const char *who,
                                    uint64_t until);
/* 1: this rank votes with its next step for the end of GradiVeQ's compressed phase. */
int weft__compressed_average_votes(const struct weft_compressed_average *average);
/* What a step was. */
struct weft__compressed_part_step {
    weft_compressed_phase_t phase;
    double elements;
    double bits;             /* an element */
    double squares, dropped; /* of what was to be sent, and of what was not; 0: not known */
};

/* Of the last step, after its write. */
void weft__compressed_average_last(const struct weft_compressed_average *average,
                                   struct weft__compressed_part_step *last);
/* When the sum that was waited for last had ended, on the context's clock; 0: not known. */
uint64_t weft__compressed_average_ended(const struct weft_compressed_average *average);
/* What a posted step waits for, for weft_memory_free(); NULL: nothing, or no memory. */
char *weft__compressed_average_report(const struct weft_compressed_average *average);
/* Of one that has failed in `step`, whatever has come of it here: what is under way ends, and
 * weft_compressed_average_get_state() gives the state, with what is to come to its residual if the
 * step has ended nowhere as `unsent`. 1: the gradient of the step is in it; 0: it has not been
 * posted. */
int weft__compressed_average_abandon(struct weft_compressed_average *average, uint64_t step);
/* What weft_compressed_average_destroy() does, in two halves: the end of a step that has been
 * posted, and word to the others that there is none after it; the rest. NULL is accepted by the
 * second. */
int weft__compressed_average_leave(struct weft_compressed_average *average, const char *who);
void weft__compressed_average_free(struct weft_compressed_average *average);

#endif
