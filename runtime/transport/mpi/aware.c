/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPIs that take memory of devices: they are asked, by functions that they have or have not, so
 * these are looked up. What is contiguous and not small is handed to such an MPI as it is, once the
 * stream has got there; all else goes as to any other.
 */
#include <dlfcn.h>
#include <limits.h>

#include "runtime/transport/mpi/mpi_transport.h"

enum { CUDA = 0 /* MPIX_GPU_SUPPORT_CUDA */ };

/* MPICH has both, Open MPI the first one. */
static int ask(void)
{
    void *query = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    void *query_of = dlsym(RTLD_DEFAULT, "MPIX_GPU_query_support");
    int takes = 0;

    if (query && ((int (*)(void))(uintptr_t)query)() != 0)
        return 1;
    return query_of && ((int (*)(int, int *))(uintptr_t)query_of)(CUDA, &takes) == MPI_SUCCESS &&
           takes != 0;
}

static int takes_device(struct weft__mpi *mpi)
{
    if (mpi->base.device_way != WEFT_DEVICE_WAY_DEFAULT)
        return mpi->base.device_way == WEFT_DEVICE_WAY_DIRECT;
    if (!mpi->asked)
        mpi->takes_device = ask();
    mpi->asked = 1;
    return mpi->takes_device;
}

int weft__mpi_send_device(struct weft__transport *transport, struct weft__xfer *xfer)
{
    size_t bytes = xfer->message.bytes, chunk = bytes;

    if (bytes <= WEFT__MPI_EAGER || !takes_device(weft__mpi_of(transport)))
        return WEFT__OUT_OF_REACH;
    weft__xfer_chunk(xfer, 0, &chunk);
    if (chunk < bytes || (MPI_VERSION < 4 && bytes > INT_MAX))
        return WEFT__OUT_OF_REACH;
    return weft__mpi_send(transport, xfer);
}

int weft__mpi_fetch_device(struct weft__transport *transport, struct weft__message *message,
                           struct weft__xfer *xfer)
{
    if ((MPI_VERSION < 4 && message->bytes > INT_MAX) || !takes_device(weft__mpi_of(transport)))
        return WEFT__OUT_OF_REACH;
    return weft__mpi_fetch(transport, message, xfer);
}
