/* SPDX-License-Identifier: BSD-3-Clause */
/* What the models of the ranks are when an object is created (weft/model.h). */
#ifndef WEFT_SCHEDULES_OBJECTS_INITIAL_H
#define WEFT_SCHEDULES_OBJECTS_INITIAL_H

#include <weft/model.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/model.h"

enum { WEFT__INITIAL_SETTINGS = 2 };

/* WEFT_OK; WEFT_ERR_INVALID names config->initial. */
int weft__initial_check(const char *who, weft_initial_t initial);
/* Before the meeting: creation->share, with WEFT_INITIAL_BROADCAST. It writes the tensors.
 * looks: a model that is not finite is refused with WEFT_ERR_COMPUTE; compares: the model of this
 * rank has to be that of others. work: of a model on a device; else NULL. */
int weft__initial_make(struct weft__creation *creation, weft_initial_t initial,
                       const struct weft__model *model, struct weft__device_work *work, int looks,
                       int compares);
/* What the ranks compare, after that. */
void weft__initial_settings(struct weft__setting settings[WEFT__INITIAL_SETTINGS],
                            const struct weft__creation *creation, weft_initial_t initial);
#endif
