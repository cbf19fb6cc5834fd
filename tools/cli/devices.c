/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/devices.h"

#include "tools/cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

json_t *cli_devices(void)
{
    char *text = NULL;
    json_t *found = weft_devices_describe(&text) == WEFT_OK ? json_loads(text, 0, NULL) : NULL;

    weft_memory_free(text);
    return found;
}

const char *cli_device_field(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

int cli_device_number(const char *text)
{
    char *end;
    long number;

    if (strcmp(text, "cuda") == 0)
        return -1;
    if (strncmp(text, "cuda:", 5) != 0 || text[5] < '0' || text[5] > '9')
        return -2;
    errno = 0;
    number = strtol(text + 5, &end, 10);
    if (*end)
        return -2;
    return errno || number > INT_MAX ? INT_MAX : (int)number;
}

int cli_read_device(const char *command, const char *text)
{
    return cli_device_number(text) != -2
               ? 0
               : cli_usage(command, "--device: '%s'; expected cuda, or cuda:N", text);
}

int cli_take_device(void *target, const char *command, const char *text)
{
    struct cli *cli = target;

    cli->device = text;
    cli->params.memory = WEFT_MEMORY_DEVICE;
    return cli_read_device(command, text);
}

int cli_check_device(const char *command, const char *option, const char *name)
{
    json_t *found = cli_devices();
    const char *state = cli_device_field(found, "gpu");
    size_t count = json_array_size(json_object_get(found, "devices"));
    int status = 0;

    if (!found)
        return cli_fail(command, "%s", weft_error_text());
    if (strcmp(state, "cuda") != 0)
        status = cli_usage(command, "%s: %s; expected a device that weft info lists, but %s: %s",
                           option, name, strcmp(state, "no device") == 0 ? "there is none" : state,
                           cli_device_field(found, "why"));
    else if (cli_device_number(name) >= 0 && (size_t)cli_device_number(name) >= count)
        status = cli_usage(command, "%s: %s; expected cuda, or one of cuda:0 to cuda:%zu", option,
                           name, count - 1);
    json_decref(found);
    return status;
}
