/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Templates with counts a block between processes, with a plain computation beside them: zero, odd,
 * even and uneven counts, blocks behind each other and anywhere, in place and not, counts that only
 * the ranks concerned know.
 */
#include <stdio.h>
#include <string.h>

#include "support/ragged.h"
#include "tests/support/opaque.h"
#include "world.h"

enum { STARTS = 2 };

static void check(struct weft_context *context, const struct ragged *c)
{
    char text[768];

    if (ragged_run(context, c, STARTS, text, sizeof text)) {
        printf("%s\n", text);
        CHECK(!"what a plain computation gives");
    }
}

static void sweep(struct weft_context *context, const struct weft_template *template, size_t a,
                  const struct weft_op *compose, int brief)
{
    static const size_t segments[] = {0, 20, 4096};
    struct ragged c = {.name = template->name, .size = world_size};
    int rooted = strstr(template->parameters, "root") != NULL;
    int reduces = strstr(template->parameters, " op") != NULL;
    int number = 0;

    c.algo = template->algorithms[a].name;
    for (c.pattern = 0; c.pattern < RAGGED_PATTERNS; c.pattern++)
        for (int way = 0; way < 8; way++, number++) {
            c.in_place = way & 1;
            c.apart = (way >> 1 & 1) && !(c.in_place && reduces);
            c.agreed = way >> 2 & 1;
            c.root = rooted ? number % world_size : 0;
            c.segment = segments[c.pattern == 6 && number % 3 ? 2 : number % 3];
            c.dtype = WEFT_U32;
            c.op = weft_op_builtin(WEFT_SUM);
            if (number % 4 == 0 && template->algorithms[a].ordered) {
                c.dtype = weft_dtype_opaque(12);
                c.op = compose;
            }
            if (ragged_serves(&c) && (!brief || number % 5 == 0))
                check(context, &c);
        }
    world_ok("%s %s", template->name, c.algo);
}

/* With an argument: few of them, for numbers of ranks far above the cores. */
int main(int argc, char **argv)
{
    struct weft_context *context;
    const struct weft_op *compose = opaque_op(0);
    int brief = argc > 1;

    world_init(&argc, &argv, WORLD_ONE_THREAD);
    CHECK(compose);
    context = world_context(NULL);
    for (int n = 0; ragged_names[n]; n++) {
        const struct weft_template *template = weft_template_find(ragged_names[n]);

        CHECK(template);
        for (size_t a = 0; a < template->algorithm_count; a++)
            sweep(context, template, a, compose, brief);
    }
    weft_context_destroy(context);
    weft_op_destroy((struct weft_op *)compose);
    return world_end();
}
