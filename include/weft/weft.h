/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * weft: collective communication written down as graphs. This header is the whole library except
 * what needs MPI (weft/mpi.h).
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <weft/context.h>
#include <weft/groups.h>
#include <weft/run.h>
#include <weft/schedule.h>
#include <weft/status.h>
#include <weft/template.h>
#include <weft/types.h>

#endif
