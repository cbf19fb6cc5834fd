/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks that create an object agree about its settings, or are told who does not. */
#ifndef WEFT_SCHEDULES_OBJECTS_AGREEMENT_H
#define WEFT_SCHEDULES_OBJECTS_AGREEMENT_H

#include <weft/object.h>
#include <weft/template.h>

/* ---- settings ---- */

enum { WEFT__SETTINGS_MOST = 32, WEFT__SETTING_TEXT = 48 };

/* A value that all ranks must give alike, and how it reads. */
struct weft__setting {
    const char *name;
    uint64_t value;
    uint64_t apart; /* values may differ by so much */
    int abstains;   /* 1: this rank's is not compared */
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
 * An object is created in two phases. First each rank does what needs no other rank: it takes the
 * object's number, then makes the run of the meeting, its own runs, series and memory. Then they
 * meet, once, and compare their settings; nothing that could fail comes after it.
 *
 *     rank 0    begin   plans, runs, memory    end: meets - settings agree -> OK
 *     rank 1    begin   plans, runs, memory    end: meets - settings agree -> OK
 *     rank 2    begin   out of memory          end: fails the object
 *                                                   and all the others end with its text
 *
 * Where a model is broadcast, that follows the meeting: what ends it fails the object.
 */
enum { WEFT__MEETING_WORDS = 1 + 2 * WEFT__SETTINGS_MOST };

struct weft__creation {
    struct weft_context *context;
    const char *who;
    struct weft_object *object; /* NULL: no memory for it, which the others have been told */
    struct weft_run *run;
    struct weft_run *share; /* of the object: what ranks get from rank 0; or NULL */
    int compares;           /* the first models, by a hash of this rank's */
    uint64_t contents;
    uint64_t met[WEFT__MEETING_WORDS];
};

/* `failed` is what the caller has failed with so far, perhaps before it knew more than the context:
 * the number is taken all the same. config: of the object, as far as it is known.
 * Returns `failed`, with its text, or else how it went. */
int weft__creation_begin(struct weft__creation *creation, struct weft_context *context,
                         const char *who, const struct weft_object_config *config, int failed);

/* To be called after weft__creation_begin() whatever has failed, with that. Collective, and
 * blocking unless this rank has failed. Compares settings (at most WEFT__SETTINGS_MOST).
 * largest: NULL, or a number of this rank, that becomes the largest of all ranks.
 * meet_ns: how long to wait for the others; 0 or WEFT_NEVER: as long as it takes.
 * Executes creation->share at last.
 * Returns `failed` if it is not WEFT_OK (the error text stays); WEFT_ERR_PEER if another rank has
 * failed, with its text; WEFT_ERR_TIMEOUT; WEFT_ERR_INVALID names the first setting that
 * differs, two ranks, and what each of them has: "the ranks do not agree about dtype: rank 0 has
 * f32, rank 2 has f64". After an error the object has failed on all ranks. */
int weft__creation_end(struct weft__creation *creation, const struct weft__setting *settings,
                       size_t count, uint64_t *largest, uint64_t meet_ns, int failed);

/* The largest value, and the smallest, that a rank has given of a setting whose values may differ,
 * from which none abstains. After weft__creation_end(). */
uint64_t weft__creation_largest(const struct weft__creation *creation, size_t setting);
uint64_t weft__creation_smallest(const struct weft__creation *creation, size_t setting);

/* ---- the end of objects that nobody serves once they have been left ---- */

#define WEFT__LEAVE_NS UINT64_C(60000000000) /* by default */

/* Ends a run that may be under way, in so much time: the others need this rank's part of it. If it
 * does not end, the object fails. Returns what it has ended with. */
int weft__object_end_run(const char *who, struct weft_object *object, struct weft_run *run,
                         uint64_t leave_ns);
/* weft_object_fail() for the function that is called `who`. */
int weft__object_give_up(const char *who, struct weft_object *object, int status, const char *text);

/* A run of a template that belongs to an object. */
int weft__object_run(struct weft_run **run, struct weft_context *context,
                     struct weft_object *object, const char *name,
                     const struct weft_template_params *params);

#endif
