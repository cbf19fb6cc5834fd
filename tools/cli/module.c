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

int cli_find_beside(const char *const *places, char *path, size_t room)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    self[length < 0 ? 0 : length] = '\0';
    const char *slash = strrchr(self, '/');
    for (; slash && *places; places++)
        if ((size_t)snprintf(path, room, "%.*s/%s", (int)(slash - self), self, *places) < room &&
            access(path, R_OK) == 0)
            return 1;
    return 0;
}

/* In a build, and installed. */
static int find(const char *file, char *path, size_t room)
{
    char installed[PATH_MAX];

    snprintf(installed, sizeof installed, WEFT_MODULES "/%s", file);
    return cli_find_beside((const char *const[]){file, installed, NULL}, path, room);
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
