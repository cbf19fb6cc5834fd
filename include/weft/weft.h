/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * weft: collective communication written down as graphs. This header is the whole library except
 * what needs MPI (weft/mpi.h).
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <weft/activation.h>
#include <weft/check.h>
#include <weft/collectives.h>
#include <weft/compress.h>
#include <weft/compressed_average.h>
#include <weft/context.h>
#include <weft/cost.h>
#include <weft/cuda.h>
#include <weft/device.h>
#include <weft/fabric.h>
#include <weft/format.h>
#include <weft/gossip.h>
#include <weft/gradients.h>
#include <weft/group_average.h>
#include <weft/groups.h>
#include <weft/joint.h>
#include <weft/memory.h>
#include <weft/merge.h>
#include <weft/model.h>
#include <weft/nccl.h>
#include <weft/object.h>
#include <weft/plan.h>
#include <weft/run.h>
#include <weft/schedule.h>
#include <weft/server.h>
#include <weft/shared.h>
#include <weft/sim.h>
#include <weft/sized.h>
#include <weft/sparse.h>
#include <weft/sparse_average.h>
#include <weft/status.h>
#include <weft/template.h>
#include <weft/trace.h>
#include <weft/tracker.h>
#include <weft/types.h>
#include <weft/version.h>
#include <weft/virtual.h>

#endif
