/* SPDX-License-Identifier: BSD-3-Clause */
/* libweft-mpi, found and loaded by a libweft that was not linked with it. */
#ifndef WEFT_RUNTIME_TRANSPORT_MPI_MPI_LOAD_H
#define WEFT_RUNTIME_TRANSPORT_MPI_MPI_LOAD_H

#include <weft/context.h>

/* 1 if it is there: linked, loaded, or beside libweft. Does not load it. */
int weft__mpi_installed(void);

/* weft_context_create_world() over MPI. */
int weft__mpi_world(const char *who, struct weft_context **context,
                    const struct weft_context_config *config);

#endif
