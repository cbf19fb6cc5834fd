/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stand-in of an MPI that takes memory of devices: a library that is loaded before MPI
 * (LD_PRELOAD), says so when it is asked, and takes the calls by which weft sends and receives.
 * What lies on a device goes by memory of the host, which MPI below knows, and is brought there and
 * back by the driver: device memory of the stand-in of that faults where anybody else touches it.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 /* requests of one call */ };

/* A transfer of device memory that is under way. */
struct transfer {
    struct transfer *next;
    MPI_Request request;
    void *host;
    CUdeviceptr device; /* 0: it is sent */
    CUcontext context;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct transfer *transfers;
static unsigned long taken;

/* How many messages of device memory it has been handed. */
unsigned long aware_taken(void);
unsigned long aware_taken(void)
{
    return __atomic_load_n(&taken, __ATOMIC_RELAXED);
}

#ifdef OPEN_MPI
int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void)
{
    return 1;
}
#else
int MPIX_GPU_query_support(int type, int *is_supported)
{
    *is_supported = type == 0;
    return MPI_SUCCESS;
}
#endif

static void fail(const char *what)
{
    fprintf(stderr, "GPU-aware MPI: %s\n", what);
    abort();
}

/* ---- what is below ---- */

static void *below(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (!found)
        fail(name);
    return found;
}

#define BELOW(name) ((__typeof__(&name))below(#name))

/* A function of the driver; NULL where a program has none. */
static void *driver(const char *name)
{
    static void *library;

    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

#define TEXT(name)     #name
#define EXPANDED(name) TEXT(name)
#define DRIVER(name)   ((__typeof__(&name))driver(EXPANDED(name)))

static void check(CUresult code, const char *call)
{
    if (code != CUDA_SUCCESS)
        fail(call);
}

/* The context of device memory; NULL: it is no such memory. */
static CUcontext context_of(const void *address)
{
    CUresult (*ask)(void *, CUpointer_attribute, CUdeviceptr) = DRIVER(cuPointerGetAttribute);
    CUmemorytype type = 0;
    CUcontext context = NULL;

    if (!ask || ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)address) ||
        type != CU_MEMORYTYPE_DEVICE)
        return NULL;
    check(ask(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)address), "context");
    return context;
}

static void bring(CUcontext context, void *host, CUdeviceptr device, size_t bytes, int back)
{
    CUcontext left;

    check(DRIVER(cuCtxPushCurrent)(context), "cuCtxPushCurrent");
    if (back)
        check(DRIVER(cuMemcpyHtoD)(device, host, bytes), "cuMemcpyHtoD");
    else
        check(DRIVER(cuMemcpyDtoH)(host, device, bytes), "cuMemcpyDtoH");
    check(DRIVER(cuCtxPopCurrent)(&left), "cuCtxPopCurrent");
}

static struct transfer *make(const void *address, CUcontext context, size_t bytes)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);

    if (!transfer || !(transfer->host = malloc(bytes)))
        fail("memory");
    transfer->context = context;
    transfer->bytes = bytes;
    transfer->device = (CUdeviceptr)(uintptr_t)address;
    __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
    return transfer;
}

static void add(struct transfer *transfer, MPI_Request request)
{
    transfer->request = request;
    pthread_mutex_lock(&lock);
    transfer->next = transfers;
    transfers = transfer;
    pthread_mutex_unlock(&lock);
}

/* A request has ended. */
static void end(MPI_Request request, MPI_Status *status)
{
    struct transfer **link, *found;
    int cancelled = 0;

    pthread_mutex_lock(&lock);
    for (link = &transfers; *link && (*link)->request != request; link = &(*link)->next)
        ;
    found = *link;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&lock);
    if (!found)
        return;
    if (found->device && status != MPI_STATUS_IGNORE)
        BELOW(PMPI_Test_cancelled)(status, &cancelled);
    if (found->device && !cancelled)
        bring(found->context, found->host, found->device, found->bytes, 1);
    free(found->host);
    free(found);
}

/* ---- sending and receiving ---- */

static size_t bytes_of(size_t count, MPI_Datatype type)
{
    int size = 0;

    BELOW(PMPI_Type_size)(type, &size);
    if (type != MPI_BYTE)
        fail("device memory of another type than bytes");
    return count * (size_t)size;
}

static struct transfer *outgoing(const void **data, size_t count, MPI_Datatype type)
{
    CUcontext context = context_of(*data);
    struct transfer *transfer;

    if (!context)
        return NULL;
    transfer = make(*data, context, bytes_of(count, type));
    bring(context, transfer->host, transfer->device, transfer->bytes, 0);
    transfer->device = 0;
    *data = transfer->host;
    return transfer;
}

static struct transfer *incoming(void **data, size_t count, MPI_Datatype type)
{
    CUcontext context = context_of(*data);
    struct transfer *transfer;

    if (!context)
        return NULL;
    transfer = make(*data, context, bytes_of(count, type));
    *data = transfer->host;
    return transfer;
}

int PMPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request)
{
    struct transfer *transfer = outgoing(&data, (size_t)count, type);
    int code = BELOW(PMPI_Isend)(data, count, type, to, tag, comm, request);

    if (transfer)
        add(transfer, *request);
    return code;
}

int PMPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
               MPI_Request *request)
{
    struct transfer *transfer = incoming(&data, (size_t)count, type);
    int code = BELOW(PMPI_Irecv)(data, count, type, from, tag, comm, request);

    if (transfer)
        add(transfer, *request);
    return code;
}

#if MPI_VERSION >= 4
int PMPI_Isend_c(const void *data, MPI_Count count, MPI_Datatype type, int to, int tag,
                 MPI_Comm comm, MPI_Request *request)
{
    struct transfer *transfer = outgoing(&data, (size_t)count, type);
    int code = BELOW(PMPI_Isend_c)(data, count, type, to, tag, comm, request);

    if (transfer)
        add(transfer, *request);
    return code;
}

int PMPI_Irecv_c(void *data, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                 MPI_Request *request)
{
    struct transfer *transfer = incoming(&data, (size_t)count, type);
    int code = BELOW(PMPI_Irecv_c)(data, count, type, from, tag, comm, request);

    if (transfer)
        add(transfer, *request);
    return code;
}
#endif

/* ---- ends ---- */

int PMPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    MPI_Request before = *request;
    int code = BELOW(PMPI_Test)(request, flag, status);

    if (code == MPI_SUCCESS && *flag && before != MPI_REQUEST_NULL)
        end(before, status);
    return code;
}

int PMPI_Wait(MPI_Request *request, MPI_Status *status)
{
    MPI_Request before = *request;
    int code = BELOW(PMPI_Wait)(request, status);

    if (code == MPI_SUCCESS && before != MPI_REQUEST_NULL)
        end(before, status);
    return code;
}

int PMPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
    MPI_Request before[MOST];
    int code;

    if (count > MOST)
        fail("too many requests");
    memcpy(before, requests, (size_t)count * sizeof *before);
    code = BELOW(PMPI_Testany)(count, requests, index, flag, status);
    if (code == MPI_SUCCESS && *flag && *index != MPI_UNDEFINED)
        end(before[*index], status);
    return code;
}

int PMPI_Testsome(int count, MPI_Request *requests, int *ended, int *indices, MPI_Status *statuses)
{
    MPI_Request before[MOST];
    int code;

    if (count > MOST)
        fail("too many requests");
    memcpy(before, requests, (size_t)count * sizeof *before);
    code = BELOW(PMPI_Testsome)(count, requests, ended, indices, statuses);
    for (int i = 0; code == MPI_SUCCESS && *ended != MPI_UNDEFINED && i < *ended; i++)
        end(before[indices[i]], &statuses[i]);
    return code;
}
