/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local ranks over shared memory: with WEFT_TEST_RANKS=shared in the environment, what a suite
 * makes as a group of local ranks is a group of the shared transport, all of whose members are
 * threads of this process over one mapping of each region. So suites that share state between their
 * ranks run on it as they are, and the thread sanitizer sees both sides of a ring.
 *
 * The linker hands calls of weft_local_create() and its like to the functions __wrap_*() below,
 * also those of weft_local_run(). Sockets are left out, so that a group is made fast; how ranks
 * meet is tested between processes.
 */
#include "mapped_ranks.h"
#include "runtime/base/error.h"

int __real_weft_local_create(struct weft_local **, int, const struct weft_local_config *);
void __real_weft_local_destroy(struct weft_local *);
int __real_weft_context_create_local(struct weft_context **, struct weft_local *, int,
                                     const struct weft_context_config *);
int __wrap_weft_local_create(struct weft_local **, int, const struct weft_local_config *);
void __wrap_weft_local_destroy(struct weft_local *);
int __wrap_weft_context_create_local(struct weft_context **, struct weft_local *, int,
                                     const struct weft_context_config *);

/* Of its own, a rank can have so much eagerly; and so much a message costs at least. */
enum { MOST_EAGER = 1 << 20, MESSAGE = 64 };

static int is_shared(void)
{
    const char *ranks = getenv("WEFT_TEST_RANKS");
    return ranks && strcmp(ranks, "shared") == 0;
}

int __wrap_weft_local_create(struct weft_local **local, int size,
                             const struct weft_local_config *config)
{
    if (!is_shared())
        return __real_weft_local_create(local, size, config);
    struct mapped *mapped = calloc(1, sizeof *mapped);
    size_t eager = config ? config->eager_bytes : 0;
    CHECK(mapped);
    mapped_create(mapped, size, eager > MOST_EAGER && eager != WEFT_EAGER_NONE ? MOST_EAGER : eager,
                  config ? config->eager_messages * MESSAGE : 0);
    *local = (struct weft_local *)mapped;
    return WEFT_OK;
}

int __wrap_weft_context_create_local(struct weft_context **context, struct weft_local *local,
                                     int rank, const struct weft_context_config *config)
{
    struct weft_context_config settings;
    if (!is_shared())
        return __real_weft_context_create_local(context, local, rank, config);
    int status =
        weft__context_config_read("weft_context_create_local", "config", config, &settings);
    return status != WEFT_OK
               ? status
               : weft__context_create(
                     context, &mapped_transport((struct mapped *)local, rank)->base, &settings);
}

void __wrap_weft_local_destroy(struct weft_local *local)
{
    if (!is_shared()) {
        __real_weft_local_destroy(local);
    } else if (local) {
        mapped_destroy((struct mapped *)local);
        free(local);
    }
}
