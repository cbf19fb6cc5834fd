/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs that all ranks take part in: where a rank dies they fail on all others, also on those whose
 * part of the run has nothing to do with it, and which would wait for the others.
 */
#ifndef WEFT_TOOLS_TRAIN_TOGETHER_H
#define WEFT_TOOLS_TRAIN_TOGETHER_H

#include <weft/weft.h>

/**
 * A run of a template that belongs to an object. Collective, does not block.
 * @param object of @p context; destroyed after the run.
 * @return WEFT_OK, or why not.
 */
int train_together(struct weft_run **run, struct weft_context *context, struct weft_object *object,
                   const char *name, const struct weft_template_params *params);

#endif
