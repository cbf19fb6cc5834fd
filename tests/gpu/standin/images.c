/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a module is made of: a fatbin, a cubin or PTX, read as far as to know that it is one, how
 * long it is, and which names are in it. Its code is not looked at: kernels are run by the grid,
 * which has the same sources. */
#include "inside.h"

#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { FATBIN = 0xba55ed50, WRAPPER = 0x466243b1, MACHINE_CUDA = 190, ENTRY_PTX = 1, ENTRY_CUBIN };

struct fatbin_head {
    uint32_t magic;
    uint16_t version, head_bytes;
    uint64_t bytes; /* of the entries behind it */
};

struct fatbin_entry {
    uint16_t kind, version;
    uint32_t head_bytes;
    uint64_t bytes;
};

struct fatbin_wrapper {
    uint32_t magic, version;
    const void *image;
};

/* Entries follow each other, to the last byte. Returns the size of all, 0 if it is none. */
static size_t fatbin_bytes(const char *image)
{
    struct fatbin_head head;
    struct fatbin_entry entry;
    memcpy(&head, image, sizeof head);
    if (head.magic != FATBIN || head.version != 1 || head.head_bytes != sizeof head)
        return 0;
    uint64_t at = 0;
    while (at < head.bytes) {
        if (head.bytes - at < sizeof entry)
            return 0;
        memcpy(&entry, image + sizeof head + at, sizeof entry);
        uint64_t left = head.bytes - at;
        if ((entry.kind != ENTRY_PTX && entry.kind != ENTRY_CUBIN) ||
            entry.head_bytes < sizeof entry || entry.head_bytes > left ||
            entry.bytes > left - entry.head_bytes)
            return 0;
        at += entry.head_bytes + entry.bytes;
    }
    return at ? sizeof head + at : 0;
}

static size_t cubin_bytes(const char *image)
{
    Elf64_Ehdr head;
    if (memcmp(image, ELFMAG, SELFMAG))
        return 0;
    memcpy(&head, image, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != MACHINE_CUDA ||
        head.e_shentsize != sizeof(Elf64_Shdr))
        return 0;
    return head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
}

/* PTX is a text that begins with its version, behind spaces and comments. */
static size_t ptx_bytes(const char *image)
{
    const char *at = image;
    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        const char *end = !strncmp(at, "//", 2)   ? strchr(at, '\n')
                          : !strncmp(at, "/*", 2) ? strstr(at, "*/")
                                                  : NULL;
        if (!end)
            break;
        at = end + (*end == '\n' ? 1 : 2);
    }
    return strncmp(at, ".version ", 9) ? 0 : strlen(image) + 1;
}

bool standin__image_copy(struct standin_image *image, const void *data)
{
    uint32_t magic;
    memcpy(&magic, data, sizeof magic);
    if (magic == WRAPPER) {
        struct fatbin_wrapper wrapper;
        memcpy(&wrapper, data, sizeof wrapper);
        data = wrapper.image;
        memcpy(&magic, data, sizeof magic);
    }
    size_t bytes = magic == FATBIN                    ? fatbin_bytes(data)
                   : !memcmp(&magic, ELFMAG, SELFMAG) ? cubin_bytes(data)
                                                      : ptx_bytes(data);
    image->bytes = bytes;
    image->text = bytes && magic != FATBIN && memcmp(&magic, ELFMAG, SELFMAG);
    image->data = bytes ? malloc(bytes) : NULL;
    image->found = 0;
    if (!image->data)
        return bytes;
    memcpy(image->data, data, bytes);
    image->named = image->text || memmem(image->data, bytes, ELFMAG, SELFMAG);
    return bytes;
}

static bool is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* Where a name is in a part of an image; NULL: it is not. */
static const char *name_in(const struct standin_image *image, const char *from, const char *end,
                           const char *name)
{
    size_t length = strlen(name);
    for (const char *at = from; length && (at = memmem(at, (size_t)(end - at), name, length));
         at++) {
        const char *behind = at + length;
        bool whole = at > image->data && !is_of_name(at[-1]) &&
                     behind < image->data + image->bytes && !is_of_name(*behind);
        if (whole &&
            (image->text ? at - image->data > 7 && !memcmp(at - 7, ".entry ", 7) : !*behind))
            return at;
    }
    return NULL;
}

/* A kernel's name is a symbol of a cubin, or an entry of PTX. What nvcc has compressed is not
 * looked into: a fatbin of that alone has all names. Names are mostly asked for in the order in
 * which they are there. */
bool standin__image_has(struct standin_image *image, const char *name)
{
    const char *end = image->data + image->bytes;
    if (!image->named)
        return true;
    const char *at = name_in(image, image->data + image->found, end, name);
    if (!at)
        at = name_in(image, image->data, end, name);
    if (at)
        image->found = (size_t)(at - image->data);
    return at;
}

/* ---- how many threads a block of a kernel may have (__launch_bounds__) ---- */

enum { THREADS_MAX = 1024, INFO_SIZED = 4, INFO_MAX_THREADS = 5 };

/* An entry of .nv.info.NAME: bytes follow where it is sized. */
struct info {
    uint8_t form, attribute;
    uint16_t value;
};

static unsigned threads_of(const char *at, size_t bytes)
{
    struct info info;
    uint32_t threads = THREADS_MAX;
    while (bytes >= sizeof info) {
        memcpy(&info, at, sizeof info);
        size_t length = sizeof info + (info.form == INFO_SIZED ? info.value : 0);
        if (length > bytes)
            break;
        if (info.form == INFO_SIZED && info.attribute == INFO_MAX_THREADS && info.value >= 4)
            memcpy(&threads, at + sizeof info, sizeof threads);
        at += length;
        bytes -= length;
    }
    return threads;
}

/* Of an ELF file of so many bytes: sections that end behind it are not looked at. */
static unsigned cubin_threads(const char *file, size_t bytes, const char *name)
{
    static const char prefix[] = ".nv.info.";
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    memcpy(&head, file, sizeof head);
    if (head.e_shoff > bytes || (bytes - head.e_shoff) / sizeof section < head.e_shnum ||
        head.e_shstrndx >= head.e_shnum)
        return THREADS_MAX;
    memcpy(&names, file + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
    for (unsigned i = 0; i < head.e_shnum; i++) {
        memcpy(&section, file + head.e_shoff + i * sizeof section, sizeof section);
        if (names.sh_offset + section.sh_name + sizeof prefix > bytes ||
            section.sh_offset > bytes || section.sh_size > bytes - section.sh_offset)
            continue;
        const char *own = file + names.sh_offset + section.sh_name;
        if (!strncmp(own, prefix, sizeof prefix - 1) && !strcmp(own + sizeof prefix - 1, name))
            return threads_of(file + section.sh_offset, section.sh_size);
    }
    return THREADS_MAX;
}

/* All that is known where there is no cubin: as many as a device has. */
unsigned standin__image_threads(const struct standin_image *image, const char *name)
{
    const char *cubin = image->text ? NULL : memmem(image->data, image->bytes, ELFMAG, SELFMAG);
    size_t bytes = cubin ? (size_t)(image->data + image->bytes - cubin) : 0;
    return bytes > sizeof(Elf64_Ehdr) ? cubin_threads(cubin, bytes, name) : THREADS_MAX;
}
