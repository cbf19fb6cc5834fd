/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes the reader of what a rank has written for `weft profile`. What is read is within its
 * bounds, and read once more it is as much; what is refused leaves something that can be freed.
 */
#include "tools/commands/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weft/status.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_profile: %s: %s\n", what, weft_error_text());
    abort();
}

static void check_line(const struct profile *profile, const struct profile_line *line)
{
    json_int_t others = 0;
    const char *reason;
    json_t *value;

    require(line->call && line->communicator && line->json, "a line without its parts");
    require(line->form >= 0 && line->form < PROFILE_FORMS, "a form that there is not");
    require(line->ranks >= 0 && line->ranks <= profile->size, "more ranks than there are");
    require(line->bytes <= (uint64_t)1 << 53 && line->served <= (uint64_t)1 << 53,
            "too large a count");
    require(isfinite(line->served_s) && line->served_s >= 0, "a time that is none");
    require(isfinite(line->others_s) && line->others_s >= 0, "a time that is none");
    json_object_foreach((json_t *)(uintptr_t)line->reasons, reason, value)
    {
        require(json_is_integer(value) && json_integer_value(value) >= 0, "a count that is none");
        others += json_integer_value(value);
    }
    require((uint64_t)others == line->others, "another sum of reasons");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile profile = {0};
    char *text = malloc(size + 1);

    require(text != NULL, "no memory");
    memcpy(text, data, size);
    text[size] = '\0';
    int status = profile_add(&profile, 5, "input", text, size);
    require(!memcmp(text, data, size), "the text has changed");
    require(status == WEFT_OK || status == WEFT_ERR_FORMAT, "an unexpected status");
    for (size_t i = 0; i < profile.count; i++)
        check_line(&profile, &profile.lines[i]);
    if (status == WEFT_OK) {
        size_t count = profile.count;
        require(profile.reported == 1 && profile.size >= 6, "nobody reported");
        require(profile_add(&profile, 7, "input", text, size) == WEFT_OK, "not read twice");
        require(profile.count == 2 * count && profile.reported == 2, "another count");
    } else {
        require(!strncmp(weft_error_text(), "input, line ", 12), "no line in an error");
        require(profile.reported == 0, "refused, but reported");
    }
    profile_free(&profile);
    free(text);
    return 0;
}
