/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines: of the rank in the root, by which users know the process or thread; in one of a split
 * context stands its rank there, as what follows has. */
#include "runtime/context/context.h"
#include <stdarg.h>
#include <stdio.h>

void weft__log(const struct weft_context *context, weft_log_level_t level, const char *format, ...)
{
    if (level > context->config.log_level)
        return;
    char line[512];
    va_list arguments;
    const struct weft__transport *own = context->engine.transport;
    int length =
        context->part ? snprintf(line, sizeof line, "rank %d of %d: ", own->rank, own->size) : 0;
    va_start(arguments, format);
    vsnprintf(line + length, sizeof line - (size_t)length, format, arguments);
    va_end(arguments);
    int rank = context->root->engine.transport->rank;
    if (context->config.log)
        context->config.log(context->config.log_user, level, rank, line);
    else
        fprintf(stderr, "weft[%d]: %s\n", rank, line);
}
