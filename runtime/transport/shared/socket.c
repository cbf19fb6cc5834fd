/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets with abstract names (unix(7)): gone with the last process that has them. */
#include "runtime/transport/shared/socket.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include <weft/sized.h>

int weft__socket_name(char name[WEFT__SOCKET_NAME])
{
    uint64_t random[2];
    size_t got = 0;

    while (got < sizeof random) {
        ssize_t now = getrandom((char *)random + got, sizeof random - got, 0);
        if (now < 0 && errno != EINTR)
            return errno;
        got += now < 0 ? 0 : (size_t)now;
    }
    snprintf(name, WEFT__SOCKET_NAME, "weft-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return 0;
}

/* The first byte of an abstract name is 0, and its length is part of it. */
static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    size_t length = strlen(name);

    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (length > sizeof address->sun_path - 1)
        length = sizeof address->sun_path - 1;
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int open_socket(int type)
{
    int made = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return made < 0 ? -errno : made;
}

int weft__socket_listen(const char *name, int type, int backlog)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int made = open_socket(type);

    if (made < 0)
        return made;
    if (bind(made, (struct sockaddr *)&address, length) != 0 || listen(made, backlog) != 0) {
        int error = errno;
        weft__socket_close(made);
        return -error;
    }
    return made;
}

int weft__socket_connect(const char *name, int type)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int made = open_socket(type);
    int error = 0;

    if (made < 0)
        return made;
    /* On Unix sockets it is done at once, or not at all. */
    do
        error = connect(made, (struct sockaddr *)&address, length) == 0 ? 0 : errno;
    while (error == EINTR);
    if (error) {
        weft__socket_close(made);
        return -error;
    }
    return made;
}

int weft__socket_accept(int listener)
{
    int made;

    /* Who connected and went is not an error of the listener's. */
    do
        made = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (made < 0 && (errno == EINTR || errno == ECONNABORTED));
    return made < 0 ? -errno : made;
}

int weft__socket_peer(int socket, pid_t *pid, uid_t *user)
{
    struct ucred peer;
    socklen_t length = sizeof peer;

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return errno;
    *pid = peer.pid;
    *user = peer.uid;
    return 0;
}

int weft__socket_trusted(int socket)
{
    pid_t pid = 0;
    uid_t user = 0;

    return weft__socket_peer(socket, &pid, &user) == 0 && user == geteuid();
}

void weft__socket_close(int socket)
{
    if (socket < 0)
        return;
    shutdown(socket, SHUT_RDWR);
    close(socket);
}

int weft__socket_poll(struct pollfd *polls, size_t count, uint64_t until)
{
    for (;;) {
        uint64_t now = weft__now();
        uint64_t left = until == WEFT_NEVER ? 0
                        : until > now       ? (until - now + 999999) / 1000000
                                            : 0;
        int wait = until == WEFT_NEVER ? -1 : left > INT_MAX ? INT_MAX : (int)left;
        int ready = poll(polls, (nfds_t)count, wait);
        if (ready > 0)
            return ready;
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (until != WEFT_NEVER && weft__now() >= until)
            return 0;
    }
}

/* Waits until a socket can be used. 0, or an errno. */
static int wait_for(int socket, short events, uint64_t until)
{
    struct pollfd one = {.fd = socket, .events = events};
    int ready = weft__socket_poll(&one, 1, until);

    return ready < 0 ? -ready : ready == 0 ? ETIMEDOUT : 0;
}

int weft__socket_send(int socket, const void *data, size_t bytes, uint64_t until)
{
    const char *at = data;
    int error = 0;

    while (bytes > 0 && !error) {
        ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
        if (sent >= 0) {
            at += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN) {
            error = wait_for(socket, POLLOUT, until);
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    return error;
}

int weft__socket_receive(int socket, void *data, size_t bytes, uint64_t until)
{
    char *at = data;
    int error = 0;

    while (bytes > 0 && !error) {
        ssize_t got = recv(socket, at, bytes, 0);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got == 0) {
            error = ECONNRESET;
        } else if (errno == EAGAIN) {
            error = wait_for(socket, POLLIN, until);
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    return error;
}
