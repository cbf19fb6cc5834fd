/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rendezvous by name. Rank 0 listens on a socket whose name is made of the user and the name, all
 * others connect to it and say who they are; once all are there it listens no more, so that the
 * same name can be used again, and hands round what each of them gives.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_MEET_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_MEET_H

#include "runtime/transport/shared/socket.h"

struct weft__meeting;
struct weft__launch_page;

/*
 * Meets the other ranks. Blocking until all are there, an error is found, or `meet_ns` has passed
 * (WEFT_NEVER: for ever). WEFT_OK; WEFT_ERR_TIMEOUT; WEFT_ERR_INVALID (ranks or sizes that do not
 * fit together: the text, on all that were there, names them); WEFT_ERR_PEER (a rank has ended
 * meanwhile); WEFT_ERR_STATE (the name is somebody else's, or ranks of another version);
 * WEFT_ERR_MEMORY; WEFT_ERR_SYSTEM. On a page (NULL: there is none) a launcher writes which of
 * the ranks have ended: nobody waits for those, which is WEFT_ERR_PEER too.
 */
int weft__meet(struct weft__meeting **meeting, const char *who, const char *name, int rank,
               int size, uint64_t meet_ns, const struct weft__launch_page *page);

/* all[i] := what rank i gives, `bytes` bytes each: a weft_gather_fn, `meeting` is the user's. */
int weft__meeting_gather(void *meeting, const void *mine, size_t bytes, void *all);

/* The name of the socket at which ranks of this user meet. */
void weft__meeting_socket(const char *name, char socket[WEFT__SOCKET_NAME]);

void weft__meeting_end(struct weft__meeting *meeting);

#endif
