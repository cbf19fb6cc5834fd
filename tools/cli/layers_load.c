/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of layers, where they are found. */
#include "tools/cli/cli.h"
#include "tools/cli/files.h"
#include "tools/cli/layers.h"

#include <stdlib.h>

int cli_layers_load(struct layers *layers, const char *command, const char *path)
{
    size_t length = 0;
    char *text = cli_read_file(command, path, "a table of layers", &length);

    if (!text)
        return CLI_WRONG;
    int status = layers_read(layers, path, text, length);
    free(text);
    if (status == WEFT_ERR_MEMORY)
        return cli_fail(command, "%s", weft_error_text());
    return status ? cli_usage(command, "%s", weft_error_text()) : CLI_OK;
}
