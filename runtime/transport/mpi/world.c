/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts of MPI_COMM_WORLD for programs that do not know MPI: it is initialised with the first
 * one and finalised when the process exits. A process that exits with contexts that are still open
 * does so in the middle of something: its peers may wait for it, where MPI_Finalize would wait for
 * them. So it goes without, and the launcher, which sees that, ends the others. The same where a
 * process of a context has died, which MPI_Finalize would wait for.
 */
#include "runtime/transport/mpi/mpi_transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <weft/mpi.h>

#include "runtime/context/context.h"
#include <weft/version.h>

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static void at_exit(void)
{
    int finalized = 0;

    PMPI_Finalized(&finalized);
    if (!finalized && weft__mpi_may_finalize())
        PMPI_Finalize();
}

/* Initialises MPI unless that was done, by whomever. */
static int start(void)
{
    int initialized = 0;
    int level;
    int code = PMPI_Initialized(&initialized);

    if (code == MPI_SUCCESS && !initialized) {
        code = PMPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
        if (code == MPI_SUCCESS && atexit(at_exit) != 0)
            return weft__error_memory("the end of MPI");
    }
    return code == MPI_SUCCESS ? WEFT_OK : weft__mpi_error(code, "MPI_Init_thread", -1);
}

int weft__mpi_create_world(struct weft_context **context, const struct weft_context_config *config)
{
    int status = weft__companion_check("libweft-mpi", WEFT_VERSION, WEFT__LAYOUT);

    if (status < 0)
        return status;
    pthread_mutex_lock(&starting);
    status = start();
    pthread_mutex_unlock(&starting);
    return status < 0 ? status : weft_context_create_mpi(context, MPI_COMM_WORLD, config, NULL);
}
