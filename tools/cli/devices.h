/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices as command lines have them: --device, and what there is. */
#ifndef WEFT_TOOLS_CLI_DEVICES_H
#define WEFT_TOOLS_CLI_DEVICES_H

#include <jansson.h>

/** weft_devices_describe(), read. The caller's; NULL: no memory. */
json_t *cli_devices(void);

/** A text of a description, or of an object in it; "" if it is not there. */
const char *cli_device_field(const json_t *object, const char *name);

/** Whether a text says "cuda" or "cuda:N": 0, or CLI_WRONG after a line. */
int cli_read_device(const char *command, const char *text);

/** The number in "cuda:N", -1 of "cuda", INT_MAX of more; -2: it is neither. */
int cli_device_number(const char *text);

/** Reads --device for the common options: into cli->device, and all slots of templates and files
 *  are memory of devices. @p target is a struct cli. */
int cli_take_device(void *target, const char *command, const char *text);

/** Whether there is the device that @p name says ("cuda": any). 0, or CLI_WRONG after a line that
 *  says what is missing; @p option is who asks for it. */
int cli_check_device(const char *command, const char *option, const char *name);

#endif
