/* SPDX-License-Identifier: BSD-3-Clause */
/* Opaque elements as a program has them, between processes; support/structs.h says which. */
#include "support/structs.h"
#include "world.h"

int main(int argc, char **argv)
{
    struct weft_context *context;
    int few;

    world_init(&argc, &argv, WORLD_ONE_THREAD);
    few = world_size > 3;
    context = world_context(NULL);
    OK(structs_rank(context, &few));
    world_ok("structs, complex numbers and long doubles");
    OK(structs_broken(context, NULL));
    world_ok("a message that ends within an element fails its receive");
    weft_context_destroy(context);
    return world_end();
}
