/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a fuzz target on the files named, without libFuzzer: so the corpus is a test anywhere. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t capacity = 1 << 20, size;
    uint8_t *data;

    if (!file) {
        perror(path);
        return 1;
    }
    data = malloc(capacity);
    size = data ? fread(data, 1, capacity, file) : 0;
    fclose(file);
    if (!size || size == capacity) {
        fprintf(stderr, "%s: empty, or larger than a fuzz input should be\n", path);
        free(data);
        return 1;
    }
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = argc < 2;

    for (int i = 1; i < argc; i++)
        failed |= replay(argv[i]);
    printf("%d inputs\n", argc - 1);
    return failed;
}
