/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks that create an object agree about its settings, or are told who does not. */
#ifndef WEFT_SCHEDULES_OBJECTS_AGREEMENT_H
#define WEFT_SCHEDULES_OBJECTS_AGREEMENT_H

#include <weft/context.h>

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
