/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptions of the collective objects: what a user creates by a function of its own, not by
 * name.
 */
#ifndef WEFT_TOOLS_COMMANDS_OBJECTS_H
#define WEFT_TOOLS_COMMANDS_OBJECTS_H

#include <weft/weft.h>

/** Object number @p index, described as a template is; NULL past the end. */
const struct weft_template *object_at(size_t index);

#endif
