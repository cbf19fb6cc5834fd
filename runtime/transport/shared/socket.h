/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets by which processes of one machine meet: Unix sockets with names that are in no file
 * system, so that nothing is left of a process that is killed. They never block, programs that are
 * started do not inherit them, and who is at the other end is known from the kernel.
 */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_SOCKET_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_SOCKET_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Of a name, with its end. */
enum { WEFT__SOCKET_NAME = 64 };

/* A name that nobody else has, and nobody guesses. 0, or an errno. */
int weft__socket_name(char name[WEFT__SOCKET_NAME]);

/* Each gives a socket, or an errno below 0. Type: SOCK_STREAM or SOCK_SEQPACKET. To connect is
 * -ECONNREFUSED: nobody listens; -EAGAIN: too many wait to be accepted. To accept is -EAGAIN:
 * nobody waits. */
int weft__socket_listen(const char *name, int type, int backlog);
int weft__socket_connect(const char *name, int type);
int weft__socket_accept(int listener);

/* The process at the other end: who listened, or who connected. 0, or an errno. */
int weft__socket_peer(int socket, pid_t *pid, uid_t *user);

/* Whether the other end is a process of the same user. */
int weft__socket_trusted(int socket);

/* Closes a socket for whoever has it, also children that were forked meanwhile; below 0: none. */
void weft__socket_close(int socket);

/* poll() until a time of weft__now() (WEFT_NEVER: for ever), also through signals. How many are
 * ready; 0: the time has come; or an errno below 0. */
int weft__socket_poll(struct pollfd *polls, size_t count, uint64_t until);

/* Sends or receives all of it on a stream, waiting for the other end until a time. 0; an errno
 * (ETIMEDOUT; EPIPE or ECONNRESET: the other end is gone). */
int weft__socket_send(int socket, const void *data, size_t bytes, uint64_t until);
int weft__socket_receive(int socket, void *data, size_t bytes, uint64_t until);

#endif
