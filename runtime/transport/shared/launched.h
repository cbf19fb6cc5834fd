/* SPDX-License-Identifier: BSD-3-Clause */
/* What a launcher has told this process (weft/shared.h), and what it tells of the others. */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_LAUNCHED_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_LAUNCHED_H

#include <stdint.h>

/* Of a launch, with its end. */
enum { WEFT__LAUNCH_TOKEN = 40 };
/* Processes of a launch. */
enum { WEFT__LAUNCH_MOST = 1024 };

/* Which process of which launch it is; launch 0: of none. */
struct weft__launched {
    uint64_t launch; /* a hash */
    int32_t rank;
    int32_t size;
};

/* This process, and, if `token` is given, what all of the launch have in common. WEFT_OK, also of
 * none; WEFT_ERR_INVALID: the variables make no sense. */
int weft__launched(const char *who, struct weft__launched *launched,
                   char token[WEFT__LAUNCH_TOKEN]);
/* The same; of none if they make no sense, and the thread's error text is as it was. */
void weft__launched_quietly(struct weft__launched *launched);

/* The page on which the launcher of this process writes who has ended; NULL: there is none. */
struct weft__launch_page;
struct weft__launch_page *weft__launch_page_open(void);
/* 1: the process has ended, and *wait_status is as waitpid() gave it. Waits for it to be written so
 * long at most. Any thread. */
int weft__launch_page_ended(const struct weft__launch_page *page, int rank, uint64_t wait_ns,
                            int *wait_status);
/* 1: *rank is the first that has ended. Any thread. */
int weft__launch_page_first(const struct weft__launch_page *page, int *rank, int *wait_status);
void weft__launch_page_close(struct weft__launch_page *page);

#endif
