/* SPDX-License-Identifier: BSD-3-Clause */
/* What collective objects on models share: the list of tensors, and settings that must agree. */
#ifndef WEFT_SCHEDULES_OBJECTS_MODEL_H
#define WEFT_SCHEDULES_OBJECTS_MODEL_H

#include <weft/context.h>
#include <weft/cost.h>
#include <weft/types.h>

/* A list of tensors. */
struct weft__model {
    weft_dtype_t dtype;
    struct weft_piece *tensors; /* owned; their memory is borrowed */
    size_t tensor_count;
    size_t count; /* elements of all tensors */
};

/* Datatypes that an object takes: 1 << dtype each. */
enum {
    WEFT__WIDE_DTYPES = 1 << WEFT_F32 | 1 << WEFT_F64,
    WEFT__GRADIENT_DTYPES = 1 << WEFT_F16 | 1 << WEFT_BF16 | 1 << WEFT_F32,
};

/* Checks and copies a list; `who` begins error texts. Leaves the model empty on failure. */
int weft__model_init(struct weft__model *model, const char *who, int dtypes, weft_dtype_t dtype,
                     const struct weft_piece *tensors, size_t tensor_count);
void weft__model_free(struct weft__model *model);

/* A pointer to element `at` of flat memory of the model's datatype. */
static inline void *weft__model_at(const struct weft__model *model, void *flat, size_t at)
{
    return (char *)flat + at * weft_dtype_size(model->dtype);
}

/* ---- steps ---- */

/* What has become of the step of an object, which a caller begins and waits for at once, or posts
 * and waits for later. */
enum weft__step { WEFT__STEP_NONE, WEFT__STEP_POSTED, WEFT__STEP_BEGUN };

/* WEFT_OK if no step is under way; else WEFT_ERR_STATE. `number` is that of the step. */
int weft__step_check_none(const char *who, enum weft__step step, uint64_t number);
/* WEFT_OK if one is. */
int weft__step_check_posted(const char *who, enum weft__step step);

/* Waits for a run that a step has started, for ever if deadline_ns is 0, and adds what that took to
 * *waited_ns. */
int weft__step_wait(struct weft_context *context, struct weft_run *run, uint64_t deadline_ns,
                    uint64_t *waited_ns);

/* A number that looks random (SplitMix64's mixing: Steele, Lea, Flood, OOPSLA 2014). */
uint64_t weft__scramble(uint64_t x);

/* ---- what is around an object ---- */

/* The costs and hosts of a context, which choose algorithms as weft_template_create_run() does: for
 * schedules that an object builds, and adds to, by itself. */
struct weft__surroundings {
    struct weft_cost_model cost;
    int *hosts; /* owned; NULL: all on one */
};

int weft__surroundings_find(struct weft__surroundings *surroundings, struct weft_context *context);
void weft__surroundings_free(struct weft__surroundings *surroundings);

/* ---- settings ---- */

enum { WEFT__SETTINGS_MOST = 24, WEFT__SETTING_TEXT = 48 };

/* A value that all ranks must give alike, and how it reads. */
struct weft__setting {
    const char *name;
    uint64_t value;
    char text[WEFT__SETTING_TEXT];
};

/* A number; a number with a fraction; one of several things that have a name; a text (NULL: none).
 * */
struct weft__setting weft__setting_count(const char *name, uint64_t value);
struct weft__setting weft__setting_real(const char *name, double value);
struct weft__setting weft__setting_word(const char *name, int value, const char *word);
struct weft__setting weft__setting_string(const char *name, const char *text);
/* Lists: compared by a hash, shown by their beginnings. Counts of 8 bytes stand `stride` bytes
 * apart. */
struct weft__setting weft__setting_counts(const char *name, const void *first, size_t count,
                                          size_t stride);
struct weft__setting weft__setting_reals(const char *name, const double *values, size_t count);

/* ---- creation ---- */

/*
 * The ranks that create an object meet twice: when each has done what needs no other rank, and when
 * each has made its runs and series.
 *
 *     rank 0    prepare   begin ---------------- make runs   end: OK
 *     rank 1    prepare   begin: settings agree  make runs   end: OK
 *     rank 2    prepare   begin ---------------- make runs   end: OK
 *
 * A rank that has failed comes too, with its status, or the others would wait for it. They get
 * WEFT_ERR_PEER and its text. They meet in one run, which is made before the object's, since all
 * ranks number what they create alike: who has failed in making runs has made fewer. So after an
 * error of the second meeting the numbers differ, and the context is of no use but to be destroyed.
 */
enum { WEFT__MEETING_WORDS = 2 + 2 * WEFT__SETTINGS_MOST };

struct weft__creation {
    struct weft_context *context;
    const char *who;
    struct weft_run *run; /* NULL: they need not meet any more */
    uint64_t met[WEFT__MEETING_WORDS];
};

/* The two meetings. What this rank itself has failed with is left to the functions below. */
int weft__creation_meet(struct weft__creation *creation, struct weft_context *context,
                        const char *who, const struct weft__setting *settings, size_t count,
                        uint64_t *largest, int failed);
int weft__creation_part(struct weft__creation *creation, int failed);

/* Compares settings (at most WEFT__SETTINGS_MOST) over all ranks. Collective, blocking.
 * largest: NULL, or a number of this rank, that becomes the largest of all ranks.
 * Returns `failed` if it is not WEFT_OK (the error text stays); WEFT_ERR_PEER if other ranks have
 * failed, with the text of the first of them; WEFT_ERR_INVALID names the first setting that
 * differs, two ranks, and what each of them has: "the ranks do not agree about dtype: rank 0 has
 * f32, rank 2 has f64". */
static inline int weft__creation_begin(struct weft__creation *creation,
                                       struct weft_context *context, const char *who,
                                       const struct weft__setting *settings, size_t count,
                                       uint64_t *largest, int failed)
{
    int status = weft__creation_meet(creation, context, who, settings, count, largest, failed);
    return failed ? failed : status;
}

/* To be called after weft__creation_begin() whatever has failed, with that: `failed` if it is not
 * WEFT_OK, WEFT_ERR_PEER if other ranks have failed. Collective and blocking if
 * weft__creation_begin() has succeeded. */
static inline int weft__creation_end(struct weft__creation *creation, int failed)
{
    int status = weft__creation_part(creation, failed);
    return failed ? failed : status;
}

#endif
