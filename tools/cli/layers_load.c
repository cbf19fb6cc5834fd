/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of layers, where they are found. */
#include "tools/cli/cli.h"
#include "tools/cli/files.h"
#include "tools/cli/layers.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct cli_term cli_networks[] = {
    {"googlenet", "as Caffe trains it, with both auxiliary classifiers: 13,378,280 parameters"},
    {"googlenet-bn", "torchvision's, with batch normalisation: 13,004,888"},
    {"resnet50", "25,557,032"},
    {"resnet101", "44,549,160"},
    {"resnet152", "60,192,808"},
    {"vgg16", "138,357,544"},
    {"inception-v3", "torchvision's, with its auxiliary classifier: 27,161,264"},
    {"bert-base", "uncased, without task heads, 128 tokens: 109,482,240"},
    {0},
};

/* The file of a network in @storage; else @path as it is. */
static const char *find(const char *path, char *storage, size_t size)
{
    char name[64];

    if (access(path, F_OK) == 0)
        return path;
    for (const struct cli_term *network = cli_networks; network->word; network++) {
        if (strcmp(path, network->word) == 0) {
            snprintf(name, sizeof name, "layers/%s.json", path);
            return cli_data_path(name, storage, size);
        }
    }
    return path;
}

int cli_layers_load(struct layers *layers, const char *command, const char *path)
{
    char storage[PATH_MAX + 64];
    size_t length = 0;
    const char *found = find(path, storage, sizeof storage);
    char *text = cli_read_file(
        command, found, "a table of layers, or a network that weft merge --help lists", &length);

    if (!text)
        return CLI_WRONG;
    int status = layers_read(layers, path, text, length);
    free(text);
    if (status == WEFT_ERR_MEMORY)
        return cli_fail(command, "%s", weft_error_text());
    return status ? cli_usage(command, "%s", weft_error_text()) : CLI_OK;
}
