/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine as hwloc sees it. It is looked at once, the first time somebody asks: the topology is
 * never changed afterwards, so this cache is the one process-wide thing here, and reading it needs
 * no lock. Without hwloc the affinity mask gives the hardware threads, and nothing is known about
 * caches and NUMA nodes.
 */
#include "runtime/base/topology.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <weft/context.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

static size_t system_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);

    return pages > 0 && page_bytes > 0 ? (size_t)pages * (size_t)page_bytes : 0;
}

int weft__topology_cores(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return cores < 1 ? 1 : (int)cores;
}

#ifdef WEFT_HAVE_HWLOC

#    include <hwloc.h>
#    include <limits.h>
#    include <pthread.h>

enum {
    PLACED_BYTES = 1 << 20, /* smaller memory is not worth a mapping of its own */
    ALIGNMENT = 64
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static hwloc_topology_t machine; /* NULL if hwloc could not look; lives as long as the process */

static void load(void)
{
    hwloc_topology_t found;

    if (hwloc_topology_init(&found) != 0)
        return;
    if (hwloc_topology_load(found) != 0) {
        hwloc_topology_destroy(found);
        return;
    }
    machine = found;
}

static hwloc_topology_t get_machine(void)
{
    return pthread_once(&once, load) == 0 ? machine : NULL;
}

/* The hardware threads this process may use, of those hwloc knows. Freed by the caller; or NULL. */
static hwloc_bitmap_t usable(hwloc_topology_t topology)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    if (!set)
        return NULL;
    if (hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_fill(set);
    hwloc_bitmap_and(set, set, hwloc_topology_get_allowed_cpuset(topology));
    return set;
}

/* The hardware thread that the calling thread is on, or NULL. */
static hwloc_obj_t caller_pu(hwloc_topology_t topology)
{
    int cpu = sched_getcpu();

    return cpu < 0 ? NULL : hwloc_get_pu_obj_by_os_index(topology, (unsigned)cpu);
}

/* The first hardware thread of `in` after `pu` in cyclic logical order that is usable and, if
 * `not_in` is not NULL, outside it. NULL if there is none. */
static hwloc_obj_t next_pu(hwloc_topology_t topology, hwloc_obj_t pu, hwloc_obj_t in,
                           hwloc_obj_t not_in, hwloc_const_bitmap_t set)
{
    hwloc_obj_t candidate = pu->next_cousin;

    for (;; candidate = candidate->next_cousin) {
        if (!candidate)
            candidate = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, 0);
        if (candidate == pu)
            return NULL;
        if (!hwloc_bitmap_isset(set, candidate->os_index) ||
            !hwloc_bitmap_isset(in->cpuset, candidate->os_index))
            continue;
        if (!not_in || !hwloc_bitmap_isset(not_in->cpuset, candidate->os_index))
            return candidate;
    }
}

/* The smallest object that contains `pu` and shares an L3 cache, or a package where there is none.
 */
static hwloc_obj_t sharing(hwloc_topology_t topology, hwloc_obj_t pu)
{
    hwloc_obj_t object = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_L3CACHE, pu);

    if (!object)
        object = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, pu);
    return object ? object : hwloc_get_root_obj(topology);
}

/* 1 if the calling thread may run on nothing but `core`. */
static int bound_to(hwloc_topology_t topology, hwloc_obj_t core)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int bound;

    if (!set)
        return 0;
    bound = hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_THREAD) == 0 &&
            hwloc_bitmap_isincluded(set, core->cpuset);
    hwloc_bitmap_free(set);
    return bound;
}

static hwloc_obj_t core_of(hwloc_topology_t topology, hwloc_obj_t pu)
{
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
    return core ? core : pu;
}

/* For one rank, or one of several that is bound to its core. */
static int choose_helper(hwloc_topology_t topology, hwloc_obj_t pu, int ranks,
                         hwloc_const_bitmap_t set)
{
    hwloc_obj_t core = core_of(topology, pu);
    hwloc_obj_t choice = NULL;

    if (ranks <= 1)
        choice = next_pu(topology, pu, sharing(topology, pu), core, set);
    if (!choice)
        choice = next_pu(topology, pu, core, NULL, set);
    if (!choice && ranks <= 1)
        choice = next_pu(topology, pu, hwloc_get_root_obj(topology), core, set);
    return choice ? (int)choice->os_index : -1;
}

int weft__topology_helper(int ranks)
{
    hwloc_topology_t topology = get_machine();
    hwloc_obj_t pu = topology ? caller_pu(topology) : NULL;
    hwloc_bitmap_t set;
    int helper;

    if (!pu || (ranks > 1 && !bound_to(topology, core_of(topology, pu))) ||
        !(set = usable(topology)))
        return -1;
    helper = choose_helper(topology, pu, ranks, set);
    hwloc_bitmap_free(set);
    return helper;
}

int weft__topology_threads(void)
{
    hwloc_topology_t topology = get_machine();
    hwloc_bitmap_t set = topology ? usable(topology) : NULL;
    int threads;

    if (!set)
        return 1;
    threads = hwloc_bitmap_weight(set);
    hwloc_bitmap_free(set);
    return threads < 1 ? 1 : threads;
}

int weft__topology_holds(int ranks)
{
    hwloc_topology_t topology = get_machine();

    if (topology && ranks > hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU))
        return 0;
    return ranks <= weft__topology_threads();
}

int weft__topology_bind(int thread)
{
    hwloc_topology_t topology = get_machine();
    hwloc_obj_t pu;

    if (thread < 0)
        return WEFT_OK;
    pu = topology ? hwloc_get_pu_obj_by_os_index(topology, (unsigned)thread) : NULL;
    if (!pu || hwloc_set_cpubind(topology, pu->cpuset, HWLOC_CPUBIND_THREAD) != 0)
        return weft__error(WEFT_ERR_SYSTEM, "cannot bind a thread to hardware thread %d", thread);
    return WEFT_OK;
}

void *weft__topology_alloc(size_t bytes)
{
    hwloc_topology_t topology;
    hwloc_obj_t pu;
    void *memory;

    if (bytes < PLACED_BYTES)
        return NULL;
    topology = get_machine();
    if (!topology || hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) < 2)
        return NULL;
    pu = caller_pu(topology);
    if (!pu)
        return NULL;
    memory = hwloc_alloc_membind(topology, bytes, pu->nodeset, HWLOC_MEMBIND_BIND,
                                 HWLOC_MEMBIND_BYNODESET);
    if (!memory)
        return NULL;
    if ((uintptr_t)memory % ALIGNMENT != 0) { /* not a mapping of its own */
        hwloc_free(topology, memory, bytes);
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

void weft__topology_free(void *memory, size_t bytes)
{
    if (memory)
        hwloc_free(get_machine(), memory, bytes);
}

static size_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_obj_t pu)
{
    hwloc_obj_t cache = pu ? hwloc_get_ancestor_obj_by_type(topology, type, pu)
                           : hwloc_get_obj_by_type(topology, type, 0);

    return cache && cache->attr ? (size_t)cache->attr->cache.size : 0;
}

static int count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);

    return count < 1 ? 1 : count;
}

/* Some virtual machines give their node less than the system says that there is. */
static size_t memory_bytes(hwloc_topology_t topology)
{
    size_t nodes = (size_t)hwloc_get_root_obj(topology)->total_memory;
    size_t system = system_memory();

    return hwloc_topology_is_thissystem(topology) && system > nodes ? system : nodes;
}

int weft_topology_get(struct weft_topology *topology)
{
    hwloc_topology_t found;
    hwloc_obj_t pu;

    if (!topology)
        return WEFT__INVALID("%s: argument `topology` is NULL", __func__);
    found = get_machine();
    if (!found)
        return weft__error(WEFT_ERR_SYSTEM, "hwloc cannot see this machine");
    pu = caller_pu(found);
    struct weft_topology seen = {
        .packages = count_of(found, HWLOC_OBJ_PACKAGE),
        .numa_nodes = count_of(found, HWLOC_OBJ_NUMANODE),
        .cores = count_of(found, HWLOC_OBJ_CORE),
        .threads = weft__topology_threads(),
        .memory_bytes = memory_bytes(found),
        .l1_bytes = cache_bytes(found, HWLOC_OBJ_L1CACHE, pu),
        .l2_bytes = cache_bytes(found, HWLOC_OBJ_L2CACHE, pu),
        .l3_bytes = cache_bytes(found, HWLOC_OBJ_L3CACHE, pu),
        .caller_thread = pu ? (int)pu->os_index : -1,
        .helper_thread = weft__topology_helper(1),
        .caller_numa = pu && pu->nodeset ? hwloc_bitmap_first(pu->nodeset) : 0,
    };
    snprintf(seen.hwloc, sizeof seen.hwloc, "%s", HWLOC_VERSION);
    return weft_sized_fill(__func__, "topology", topology, &seen, sizeof seen);
}

/* As hwloc would spread `ranks` threads over the whole machine: cores before their second hardware
 * threads. -1 where that says nothing. */
static int spread_machine(int rank, int ranks)
{
    hwloc_topology_t topology = get_machine();
    if (!topology || !weft__topology_holds(ranks))
        return -1;
    hwloc_bitmap_t *sets = weft__calloc((size_t)ranks, sizeof(hwloc_bitmap_t));
    if (!sets)
        return -1;
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    int thread = -1;
    if (hwloc_distrib(topology, &root, 1, sets, (unsigned)ranks, INT_MAX, 0) == 0)
        thread = hwloc_bitmap_first(sets[rank]);
    for (int r = 0; r < ranks; r++)
        hwloc_bitmap_free(sets[r]);
    weft__free(sets);
    return thread;
}

/* Whether nobody is on the core of a hardware thread. */
static int core_is_free(int thread, const cpu_set_t *taken)
{
    hwloc_topology_t topology = get_machine();
    hwloc_obj_t pu = topology ? hwloc_get_pu_obj_by_os_index(topology, (unsigned)thread) : NULL;
    if (!pu)
        return 0;
    hwloc_obj_t core = core_of(topology, pu);
    for (int other = hwloc_bitmap_first(core->cpuset); other >= 0;
         other = hwloc_bitmap_next(core->cpuset, other))
        if (other < CPU_SETSIZE && CPU_ISSET((size_t)other, taken))
            return 0;
    return 1;
}

#else

static int core_is_free(int thread, const cpu_set_t *taken)
{
    (void)thread;
    (void)taken;
    return 0;
}

/* The affinity mask of the calling thread; empty if the system does not tell. */
static int spread_machine(int rank, int ranks)
{
    (void)rank;
    (void)ranks;
    return -1;
}

static void usable(cpu_set_t *set)
{
    if (sched_getaffinity(0, sizeof *set, set) != 0)
        CPU_ZERO(set);
}

int weft__topology_threads(void)
{
    cpu_set_t set;

    usable(&set);
    return CPU_COUNT(&set) < 1 ? 1 : CPU_COUNT(&set);
}

int weft__topology_holds(int ranks)
{
    return ranks <= weft__topology_threads();
}

int weft__topology_helper(int ranks)
{
    cpu_set_t set;
    int caller = sched_getcpu();

    if (ranks > 1 || caller < 0 || caller >= CPU_SETSIZE)
        return -1;
    usable(&set);
    for (int cpu = (caller + 1) % CPU_SETSIZE; cpu != caller; cpu = (cpu + 1) % CPU_SETSIZE)
        if (CPU_ISSET(cpu, &set))
            return cpu;
    return -1;
}

int weft__topology_bind(int thread)
{
    cpu_set_t set;

    if (thread < 0)
        return WEFT_OK;
    CPU_ZERO(&set);
    if (thread < CPU_SETSIZE)
        CPU_SET(thread, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        return weft__error(WEFT_ERR_SYSTEM, "cannot bind a thread to hardware thread %d", thread);
    return WEFT_OK;
}

void *weft__topology_alloc(size_t bytes)
{
    (void)bytes;
    return NULL;
}

void weft__topology_free(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

int weft_topology_get(struct weft_topology *topology)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (!topology)
        return WEFT__INVALID("%s: argument `topology` is NULL", __func__);
    struct weft_topology seen = {
        .packages = 1,
        .numa_nodes = 1,
        .cores = cores < 1 ? 1 : (int)cores,
        .threads = weft__topology_threads(),
        .memory_bytes = system_memory(),
        .caller_thread = sched_getcpu(),
        .helper_thread = weft__topology_helper(1),
        .hwloc = "none",
    };
    return weft_sized_fill(__func__, "topology", topology, &seen, sizeof seen);
}

#endif

/* ---- with or without hwloc ---- */

/* The hardware thread for part `part` of `parts`: number part * count / parts of the usable ones.
 */
static int spread(const cpu_set_t *set, int part, int parts)
{
    int wanted = (int)((long)part * CPU_COUNT(set) / parts);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, set) && wanted-- == 0)
            return cpu;
    return -1;
}

/* Moves the calling thread, which may use what `before` says and still may. 1: it has. Getting
 * there can take others' slices: what somebody has set in that time stays. */
static int move(int thread, const cpu_set_t *before)
{
    cpu_set_t one, now, all;

    CPU_ZERO(&one);
    CPU_SET((size_t)thread, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return 0;
    if (sched_getaffinity(0, sizeof now, &now) == 0 && !CPU_EQUAL(&now, &one))
        return 1;
    if (sched_setaffinity(0, sizeof *before, before) == 0)
        return 1;
    /* None of these is this process' any more: it gets all that are. */
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
    return 1;
}

void weft__topology_place(int rank, int ranks)
{
    cpu_set_t before;

    if (sched_getaffinity(0, sizeof before, &before) != 0)
        return;
    int thread = spread_machine(rank, ranks);
    if (thread < 0 || !CPU_ISSET((size_t)thread, &before))
        thread = spread(&before, rank, ranks);
    if (thread >= 0)
        move(thread, &before);
}

int weft__topology_move_to(int thread)
{
    cpu_set_t before;

    return thread >= 0 && thread < CPU_SETSIZE &&
           sched_getaffinity(0, sizeof before, &before) == 0 &&
           CPU_ISSET((size_t)thread, &before) && move(thread, &before);
}

int weft__topology_move(const cpu_set_t *taken)
{
    cpu_set_t before;
    int choice = -1;

    if (sched_getaffinity(0, sizeof before, &before) != 0)
        return -1;
    for (int thread = 0; thread < CPU_SETSIZE; thread++) {
        if (!CPU_ISSET((size_t)thread, &before) || CPU_ISSET((size_t)thread, taken))
            continue;
        if (choice < 0)
            choice = thread;
        if (core_is_free(thread, taken)) {
            choice = thread;
            break;
        }
    }
    return choice >= 0 && move(choice, &before) ? choice : -1;
}
