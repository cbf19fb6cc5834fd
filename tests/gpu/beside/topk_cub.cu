/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For `weft bench gpu --beside`: the k numbers of largest magnitude with cub, by
 * cub::DeviceRadixSort on the bits of |x| with indices, which is what cub of CUDA 13.0 has.
 *
 *     topk_cub COUNT K     answers every line "N" with "SECONDS NAME": of one of N selections
 */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cub/device/device_radix_sort.cuh>
#include <random>
#include <vector>

static void need(cudaError_t code, const char *call)
{
    if (code == cudaSuccess)
        return;
    std::fprintf(stderr, "topk_cub: %s: %s\n", call, cudaGetErrorString(code));
    std::exit(1);
}

template <typename T> static T *allocate(std::size_t count)
{
    void *memory;

    need(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    return static_cast<T *>(memory);
}

__global__ void magnitudes(const float *x, std::uint32_t *keys, std::uint32_t *at, std::size_t n)
{
    const std::size_t step = (std::size_t)gridDim.x * blockDim.x;

    for (std::size_t i = (std::size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        keys[i] = __float_as_uint(x[i]) & 0x7fffffffu;
        at[i] = (std::uint32_t)i;
    }
}

int main(int argc, char **argv)
{
    const std::size_t n = argc > 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
    const std::size_t k = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::size_t bytes = 0;
    int times;

    if (n == 0 || n > INT32_MAX || k > n) {
        std::fprintf(stderr, "usage: topk_cub COUNT K\n");
        return 2;
    }
    std::vector<float> values(n);
    for (float &value : values)
        value = normal(random);
    float *x = allocate<float>(n);
    std::uint32_t *keys = allocate<std::uint32_t>(n), *at = allocate<std::uint32_t>(n);
    std::uint32_t *largest = allocate<std::uint32_t>(n), *where = allocate<std::uint32_t>(n);
    need(cudaMemcpy(x, values.data(), n * sizeof *x, cudaMemcpyHostToDevice), "cudaMemcpy");
    need(cub::DeviceRadixSort::SortPairsDescending(nullptr, bytes, keys, largest, at, where, n, 0,
                                                   31),
         "SortPairsDescending");
    char *room = allocate<char>(bytes);
    while (std::scanf("%d", &times) == 1) {
        need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < times; i++) {
            magnitudes<<<1024, 256>>>(x, keys, at, n);
            need(cub::DeviceRadixSort::SortPairsDescending(room, bytes, keys, largest, at, where, n,
                                                           0, 31),
                 "SortPairsDescending");
        }
        need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        std::printf("%.9g cub::DeviceRadixSort %d.%d\n", took.count() / times, CUB_MAJOR_VERSION,
                    CUB_MINOR_VERSION);
        std::fflush(stdout);
    }
    return 0;
}
