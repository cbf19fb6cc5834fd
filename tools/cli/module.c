/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

/* What a struct of a module begins with. */
struct head {
    const char *version;
    size_t size;
};

/* Where a module is, seen from the folder of the command: in a build, and installed. */
static const char *const folders[] = {"", WEFT_MODULES "/"};

/* 1: it is there. */
static int find(const char *file, char *path, size_t room)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    self[length < 0 ? 0 : length] = '\0';
    const char *slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof folders / sizeof folders[0]; i++)
        if ((size_t)snprintf(path, room, "%.*s/%s%s", (int)(slash - self), self, folders[i], file) <
                room &&
            access(path, R_OK) == 0)
            return 1;
    return 0;
}

const void *cli_load_module(const struct cli_module *module, char *why, size_t room)
{
    char path[PATH_MAX];
    struct head head;

    if (!find(module->file, path, sizeof path)) {
        snprintf(why, room, "%s, which %s, is not installed; it is built where %s is found",
                 module->file, module->does, module->needs);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const void *found = library ? dlsym(library, module->symbol) : NULL;
    if (!found) {
        snprintf(why, room, "%s", dlerror());
        return NULL;
    }
    memcpy(&head, found, sizeof head);
    if (strcmp(head.version, weft_version()) == 0 && head.size == module->size)
        return found;
    snprintf(why, room, "%s is of weft %s, this is %s", path, head.version, weft_version());
    return NULL;
}
