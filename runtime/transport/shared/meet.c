/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rendezvous by name.
 *
 *   rank 0                         rank r
 *     listens                        connects, again until somebody listens
 *     <------------- hello: its rank, size, version
 *     all are there: listens no more
 *     answer: 0 ------------------>
 *     <------------- block: what it gives        }
 *     answer: all blocks --------->              } each gather
 *
 * Any answer may be an error instead, and its text: so what rank 0 finds wrong is known to all.
 * Only processes of the same user are listened to. Who has come and goes before the others are
 * there ends the meeting, since he is not coming again. Who comes when all are there is told so: he
 * is of another job that has the same name.
 */
#include "runtime/transport/shared/meet.h"

#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/transport/shared/launched.h"
#include "runtime/transport/shared/socket.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/sized.h>
#include <weft/version.h>

enum { MAGIC = 0x77656674, TEXT_BYTES = 400, VERSION_BYTES = 32 };

/* After an error those that have not come yet are told of it, if they come within this time. */
#define LATECOMERS_NS UINT64_C(10000000000)
/* If there are two jobs, others are here about as soon as these. */
#define SECOND_JOB_NS UINT64_C(1000000000)
/* Rank 0 knows better who is missing when the time is over, and says so. */
#define ANSWER_NS UINT64_C(1000000000)
/* Nothing tells when somebody begins to listen. */
#define AGAIN_MIN_NS UINT64_C(100000)
#define AGAIN_MAX_NS UINT64_C(10000000)
/* Nor does a socket tell what a launcher writes. */
#define PAGE_NS UINT64_C(20000000)

struct hello {
    uint32_t magic;
    int32_t rank;
    int32_t size;
    uint32_t zero;
    char version[VERSION_BYTES];
};

struct block {
    uint32_t magic;
    uint32_t zero;
    uint64_t bytes;
};

struct answer {
    uint32_t magic;
    int32_t status;
    uint64_t bytes; /* that follow: of the blocks, or of a text */
};

/* Who has connected to rank 0. */
struct caller {
    int socket;
    int rank; /* -1: not known yet */
    size_t got;
    struct hello hello;
};

struct weft__meeting {
    const char *who;
    const char *name;
    int rank, size;
    const struct weft__launch_page *page; /* NULL: none */
    int *sockets;                         /* rank 0: to each rank; others: [0] is to rank 0 */
    /* While rank 0 waits. */
    int listener;
    uint64_t meet_ns, until;
    struct caller *callers;
    size_t count, capacity;
    int known; /* ranks that are there */
    int told;  /* ranks that have been told what is wrong */
    int twice; /* a rank has come twice, so there may be two jobs */
    struct pollfd *polls;
    size_t poll_capacity;
    int ended;  /* ... which those that come hear of the launcher, too */
    int status; /* what is wrong, and why */
    char text[TEXT_BYTES];
};

/* Two hashes, so that different names do not meet. */
void weft__meeting_socket(const char *name, char out[WEFT__SOCKET_NAME])
{
    size_t length = strlen(name);
    uint64_t first = weft__hash_bytes(WEFT__HASH_EMPTY, name, length);
    uint64_t second = weft__hash_bytes(weft__hash_word(first, length), name, length);

    snprintf(out, WEFT__SOCKET_NAME, "weft-%lu-%016llx%016llx", (unsigned long)geteuid(),
             (unsigned long long)first, (unsigned long long)second);
}

static int out_of_order(const struct weft__meeting *meeting, const char *what, int error)
{
    return weft__error(WEFT_ERR_SYSTEM, "%s: the rendezvous `%s`: rank %d: %s: %s", meeting->who,
                       meeting->name, meeting->rank, what, strerror(error));
}

/* 1: a rank has ended that has not come to rank 0, as the launcher says; and the text of it. */
static int has_ended(const struct weft__meeting *meeting, char text[TEXT_BYTES])
{
    int rank, status;

    if (!weft__launch_page_first(meeting->page, &rank, &status))
        return 0;
    if (meeting->listener >= 0 && rank < meeting->size && meeting->sockets[rank] >= 0)
        return 0;
    if (WIFSIGNALED(status))
        snprintf(text, TEXT_BYTES, "rank %d has died: killed by signal %d (%s)", rank,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, TEXT_BYTES, "rank %d has ended: exited with status %d", rank,
                 WEXITSTATUS(status));
    return 1;
}

static int peer_ended(const struct weft__meeting *meeting, const char *text)
{
    return weft__error(WEFT_ERR_PEER, "%s: the rendezvous `%s`: %s", meeting->who, meeting->name,
                       text);
}

/* ---- rank 0 ---- */

/* Remembers what is wrong; the first fault counts. */
static void fault(struct weft__meeting *meeting, int status, const char *text)
{
    if (meeting->status)
        return;
    meeting->status = status;
    snprintf(meeting->text, sizeof meeting->text, "%s", text);
}

/* What rank 0 itself cannot do. */
static int own_fault(struct weft__meeting *meeting, const char *what, int error)
{
    char text[TEXT_BYTES];

    snprintf(text, sizeof text, "rank 0: %s: %s", what, strerror(error));
    fault(meeting, WEFT_ERR_SYSTEM, text);
    return meeting->status;
}

static int no_memory(struct weft__meeting *meeting)
{
    fault(meeting, WEFT_ERR_MEMORY, "rank 0: out of memory");
    return meeting->status;
}

static void answer_fault(const struct weft__meeting *meeting, int socket)
{
    struct answer answer = {MAGIC, meeting->status, strlen(meeting->text)};

    /* Little enough for the socket: it does not wait for somebody who does not listen. */
    if (weft__socket_send(socket, &answer, sizeof answer, 0) == 0)
        (void)weft__socket_send(socket, meeting->text, strlen(meeting->text), 0);
}

/* The text of ranks that are missing, as many as fit. */
static void missing(const struct weft__meeting *meeting, char *text, size_t bytes)
{
    size_t used = 0;

    for (int r = 1; r < meeting->size; r++) {
        if (meeting->sockets[r] >= 0)
            continue;
        if (used + 24 > bytes) {
            snprintf(text + used, bytes - used, " ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", used == 0 ? "" : ", ", r);
    }
}

static void came(struct weft__meeting *meeting, struct caller *caller)
{
    const struct hello *hello = &caller->hello;
    char text[TEXT_BYTES];

    caller->rank = hello->rank < 0 ? INT32_MAX : hello->rank; /* known now, whatever he says */
    if (meeting->status)
        return; /* he is told, that is all */
    if (strncmp(hello->version, WEFT_VERSION, sizeof hello->version) != 0) {
        snprintf(text, sizeof text, "rank %d is of weft %.*s, rank 0 of %s", hello->rank,
                 VERSION_BYTES, hello->version, WEFT_VERSION);
        fault(meeting, WEFT_ERR_STATE, text);
    } else if (hello->size != meeting->size) {
        snprintf(text, sizeof text, "rank %d says that there are %d ranks, rank 0 says %d",
                 hello->rank, hello->size, meeting->size);
        fault(meeting, WEFT_ERR_INVALID, text);
    } else if (hello->rank < 0 || hello->rank >= meeting->size) {
        snprintf(text, sizeof text, "rank %d has come, expected ranks below %d", hello->rank,
                 meeting->size);
        fault(meeting, WEFT_ERR_INVALID, text);
    } else if (hello->rank == 0 || meeting->sockets[hello->rank] >= 0) {
        snprintf(text, sizeof text,
                 "rank %d has come twice: do two jobs have this name, or two ranks this number?",
                 hello->rank);
        meeting->twice = 1;
        fault(meeting, WEFT_ERR_INVALID, text);
    } else {
        meeting->sockets[hello->rank] = caller->socket;
        meeting->known++;
    }
}

/* Takes a caller out of the list. */
static void dismiss(struct weft__meeting *meeting, struct caller *caller)
{
    weft__socket_close(caller->socket);
    *caller = meeting->callers[--meeting->count];
}

/* Reads what a caller says of himself. 0: he is to be dismissed. */
static int hear(struct weft__meeting *meeting, struct caller *caller)
{
    char *into = (char *)&caller->hello;
    ssize_t got = recv(caller->socket, into + caller->got, sizeof caller->hello - caller->got, 0);

    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got == 0)
        return 0;
    caller->got += (size_t)got;
    if (caller->got < sizeof caller->hello)
        return 1;
    if (caller->hello.magic != MAGIC)
        return 0; /* no rank at all */
    came(meeting, caller);
    return 1;
}

/* Lets in whoever waits. */
static int let_in(struct weft__meeting *meeting)
{
    for (;;) {
        int socket = weft__socket_accept(meeting->listener);
        if (socket == -EAGAIN || socket == -EINVAL) /* listens no more */
            return WEFT_OK;
        if (socket < 0)
            return own_fault(meeting, "accept", -socket);
        if (!weft__socket_trusted(socket)) {
            weft__socket_close(socket);
            continue;
        }
        if (weft__grow((void **)&meeting->callers, &meeting->capacity, meeting->count + 1,
                       sizeof *meeting->callers) != 0) {
            weft__socket_close(socket);
            return no_memory(meeting);
        }
        meeting->callers[meeting->count++] = (struct caller){.socket = socket, .rank = -1};
    }
}

/* Something has happened at the sockets of those that have come. */
static void attend(struct weft__meeting *meeting, size_t polled)
{
    char text[TEXT_BYTES];

    /* From behind, since who is dismissed is replaced by the last. */
    for (size_t i = polled; i-- > 0;) {
        struct caller *caller = &meeting->callers[i];
        short events = meeting->polls[i + 1].revents;
        if (!events)
            continue;
        if (caller->rank < 0) {
            if (!hear(meeting, caller))
                dismiss(meeting, caller);
            continue;
        }
        if (!meeting->status) {
            snprintf(text, sizeof text, "rank %d has come, and gone before all were there",
                     caller->rank);
            fault(meeting, WEFT_ERR_PEER, text);
        }
    }
}

/* Tells those that are not of the meeting what is wrong, and forgets them: with a fault of its own
 * all. Returns how many. */
static int tell_fault(struct weft__meeting *meeting, int all)
{
    int told = 0;

    for (size_t i = meeting->count; i-- > 0;)
        if (all || meeting->callers[i].rank < 0) {
            answer_fault(meeting, meeting->callers[i].socket);
            dismiss(meeting, &meeting->callers[i]);
            told++;
        }
    return told;
}

/* Listens no more. Who has come meanwhile is told why; as many at a time as there is room for. */
static void turn_away(struct weft__meeting *meeting, int all)
{
    int status;

    (void)shutdown(meeting->listener, SHUT_RD); /* so nobody comes and is not seen */
    do
        status = let_in(meeting);
    while (tell_fault(meeting, all) > 0 && status != WEFT_OK);
    weft__socket_close(meeting->listener);
    meeting->listener = -1;
}

static int look(struct weft__meeting *meeting, uint64_t until)
{
    size_t polled = meeting->count;

    if (weft__grow((void **)&meeting->polls, &meeting->poll_capacity, polled + 1,
                   sizeof *meeting->polls) != 0)
        return no_memory(meeting);
    meeting->polls[0] = (struct pollfd){.fd = meeting->listener, .events = POLLIN};
    /* Of those that are known only that they go. */
    for (size_t i = 0; i < polled; i++)
        meeting->polls[i + 1] = (struct pollfd){
            .fd = meeting->callers[i].socket,
            .events = (short)(meeting->callers[i].rank < 0 ? POLLIN : 0),
        };
    uint64_t soon = weft__now() + PAGE_NS;
    int by_page = meeting->page && soon < until;
    int ready = weft__socket_poll(meeting->polls, polled + 1, by_page ? soon : until);
    if (ready < 0)
        return own_fault(meeting, "poll", -ready);
    if (ready == 0)
        return by_page ? WEFT_OK : WEFT_ERR_TIMEOUT;
    attend(meeting, polled);
    return meeting->polls[0].revents ? let_in(meeting) : WEFT_OK;
}

/* Something is wrong. Those that have come hear of it, and those that were started with them. */
static int refuse(struct weft__meeting *meeting)
{
    uint64_t until = weft__now() + LATECOMERS_NS;
    int status = WEFT_OK;

    for (int r = 0; r < meeting->size; r++)
        meeting->sockets[r] = -1; /* the callers' */
    for (;;) {
        int told = tell_fault(meeting, 1);
        meeting->told += told;
        /* Whoever was told has made room for others. */
        if (status == WEFT_ERR_TIMEOUT || (status != WEFT_OK && told == 0) || meeting->ended)
            break;
        if (meeting->told >= meeting->size - 1) {
            if (!meeting->twice || meeting->told >= 2 * meeting->size - 1)
                break;
            uint64_t soon = weft__now() + SECOND_JOB_NS;
            until = soon < until ? soon : until;
        }
        status = look(meeting, until < meeting->until ? until : meeting->until);
    }
    turn_away(meeting, 1);
    return weft__error(meeting->status, "%s: the rendezvous `%s`: %s", meeting->who, meeting->name,
                       meeting->text);
}

/* Waits for all others. Their sockets are then the meeting's. */
static int serve(struct weft__meeting *meeting)
{
    const struct answer welcome = {MAGIC, WEFT_OK, 0};
    int status = WEFT_OK;
    char text[TEXT_BYTES];
    char ranks[TEXT_BYTES / 2] = "";

    while (status == WEFT_OK && !meeting->status && meeting->known < meeting->size - 1) {
        meeting->ended = has_ended(meeting, text);
        if (meeting->ended)
            fault(meeting, WEFT_ERR_PEER, text);
        else
            status = look(meeting, meeting->until);
    }
    if (status == WEFT_ERR_TIMEOUT) {
        missing(meeting, ranks, sizeof ranks);
        snprintf(text, sizeof text, "%d of %d ranks have not come within %g s: %s",
                 meeting->size - 1 - meeting->known, meeting->size, (double)meeting->meet_ns * 1e-9,
                 ranks);
        fault(meeting, WEFT_ERR_TIMEOUT, text);
    }
    if (meeting->status)
        return refuse(meeting);
    snprintf(text, sizeof text, "%d ranks are there already: another job has this name",
             meeting->size);
    fault(meeting, WEFT_ERR_INVALID, text);
    turn_away(meeting, 0);
    meeting->status = WEFT_OK; /* of those that are there */
    meeting->count = 0;
    /* Who has gone shows at the next gather. */
    for (int r = 1; r < meeting->size; r++)
        (void)weft__socket_send(meeting->sockets[r], &welcome, sizeof welcome, 0);
    return WEFT_OK;
}

/* ---- the others ---- */

static int gone(const struct weft__meeting *meeting, int error)
{
    char text[TEXT_BYTES];

    if (has_ended(meeting, text))
        return peer_ended(meeting, text);
    if (error == ETIMEDOUT)
        return weft__error(WEFT_ERR_TIMEOUT,
                           "%s: the rendezvous `%s`: rank 0 has come, but not all others within "
                           "%g s",
                           meeting->who, meeting->name, (double)meeting->meet_ns * 1e-9);
    return weft__error(WEFT_ERR_PEER, "%s: the rendezvous `%s`: rank 0 has gone (%s)", meeting->who,
                       meeting->name, strerror(error));
}

/* Hears what rank 0 answers, and `bytes` bytes of it. */
static int hear_answer(struct weft__meeting *meeting, void *all, size_t bytes, uint64_t until)
{
    struct answer answer;
    char text[TEXT_BYTES];
    int socket = meeting->sockets[0];
    int error = weft__socket_receive(socket, &answer, sizeof answer, until);

    if (error)
        return gone(meeting, error);
    if (answer.magic != MAGIC || answer.status > 0 ||
        (answer.status < 0 ? answer.bytes >= sizeof text : answer.bytes != bytes))
        return weft__error(WEFT_ERR_STATE,
                           "%s: the rendezvous `%s`: what listens there is no rank 0 of weft %s",
                           meeting->who, meeting->name, WEFT_VERSION);
    if (answer.status == WEFT_OK) {
        error = weft__socket_receive(socket, all, bytes, until);
        return error ? gone(meeting, error) : WEFT_OK;
    }
    error = weft__socket_receive(socket, text, (size_t)answer.bytes, until);
    if (error)
        return gone(meeting, error);
    return weft__error(answer.status, "%s: the rendezvous `%s`: %.*s", meeting->who, meeting->name,
                       (int)answer.bytes, text);
}

static int check_trust(const struct weft__meeting *meeting, int socket)
{
    pid_t pid = 0;
    uid_t user = 0;
    int error = weft__socket_peer(socket, &pid, &user);

    if (error)
        return out_of_order(meeting, "credentials", error);
    if (user != geteuid())
        return weft__error(WEFT_ERR_STATE,
                           "%s: the rendezvous `%s`: process %ld of user %lu listens there, "
                           "expected one of user %lu",
                           meeting->who, meeting->name, (long)pid, (unsigned long)user,
                           (unsigned long)geteuid());
    return WEFT_OK;
}

/* Says who this is, and waits until all are there. */
static int introduce(struct weft__meeting *meeting)
{
    struct hello hello = {.magic = MAGIC, .rank = meeting->rank, .size = meeting->size};
    uint64_t until = meeting->until;

    snprintf(hello.version, sizeof hello.version, "%s", WEFT_VERSION);
    /* Who is told why he is not wanted may be told so before he has introduced himself. */
    int error = weft__socket_send(meeting->sockets[0], &hello, sizeof hello, until);
    if (error && error != EPIPE && error != ECONNRESET)
        return gone(meeting, error);
    if (until < UINT64_MAX - ANSWER_NS)
        until += ANSWER_NS;
    return hear_answer(meeting, NULL, 0, until);
}

/* One attempt to get to where all meet: WEFT_OK; WEFT_IN_PROGRESS: not yet. */
static int attempt(struct weft__meeting *meeting, const char *name)
{
    int made = -EADDRINUSE;

    if (meeting->rank == 0) {
        made = weft__socket_listen(name, SOCK_STREAM, meeting->size);
        if (made >= 0) {
            meeting->listener = made;
            return WEFT_OK;
        }
        if (made != -EADDRINUSE)
            return out_of_order(meeting, "bind", -made);
    }
    /* A second rank 0 introduces itself, too, so that the first one knows. */
    made = weft__socket_connect(name, SOCK_STREAM);
    if (made == -ECONNREFUSED || made == -EAGAIN)
        return WEFT_IN_PROGRESS;
    if (made < 0)
        return out_of_order(meeting, "connect", -made);
    meeting->sockets[0] = made;
    return check_trust(meeting, made);
}

static int arrive(struct weft__meeting *meeting)
{
    char name[WEFT__SOCKET_NAME];
    uint64_t wait = AGAIN_MIN_NS;
    char text[TEXT_BYTES];
    int status;

    weft__meeting_socket(meeting->name, name);
    while ((status = attempt(meeting, name)) == WEFT_IN_PROGRESS) {
        if (has_ended(meeting, text))
            return peer_ended(meeting, text);
        if (weft__now() >= meeting->until)
            return weft__error(WEFT_ERR_TIMEOUT,
                               "%s: the rendezvous `%s`: rank 0 has not come within %g s",
                               meeting->who, meeting->name, (double)meeting->meet_ns * 1e-9);
        nanosleep(&(struct timespec){.tv_nsec = (long)wait}, NULL);
        wait = wait * 2 < AGAIN_MAX_NS ? wait * 2 : AGAIN_MAX_NS;
    }
    if (status != WEFT_OK)
        return status;
    return meeting->listener >= 0 ? serve(meeting) : introduce(meeting);
}

/* ---- both ---- */

int weft__meet(struct weft__meeting **out, const char *who, const char *name, int rank, int size,
               uint64_t meet_ns, const struct weft__launch_page *page)
{
    struct weft__meeting *meeting = weft__calloc(1, sizeof *meeting);
    uint64_t now = weft__now();

    if (!meeting)
        return weft__error_memory(who);
    meeting->who = who;
    meeting->name = name;
    meeting->rank = rank;
    meeting->size = size;
    meeting->listener = -1;
    meeting->page = page;
    meeting->meet_ns = meet_ns;
    meeting->until = meet_ns >= WEFT_NEVER - now ? WEFT_NEVER : now + meet_ns;
    meeting->sockets = weft__malloc((size_t)size, sizeof *meeting->sockets);
    for (int r = 0; meeting->sockets && r < size; r++)
        meeting->sockets[r] = -1;
    int status = meeting->sockets ? WEFT_OK : weft__error_memory(who);
    if (status == WEFT_OK && size > 1)
        status = arrive(meeting);
    if (status != WEFT_OK) {
        weft__meeting_end(meeting);
        return status;
    }
    *out = meeting;
    return WEFT_OK;
}

/* Rank 0: what rank r gives. */
static void take_block(struct weft__meeting *meeting, int r, void *into, size_t bytes)
{
    struct block block;
    char text[TEXT_BYTES];
    int socket = meeting->sockets[r];
    int error = weft__socket_receive(socket, &block, sizeof block, WEFT_NEVER);

    if (!error && (block.magic != MAGIC || block.bytes != bytes)) {
        snprintf(text, sizeof text, "rank %d gives %llu bytes, rank 0 %zu", r,
                 (unsigned long long)block.bytes, bytes);
        fault(meeting, WEFT_ERR_STATE, text);
        return;
    }
    if (!error)
        error = weft__socket_receive(socket, into, bytes, WEFT_NEVER);
    if (error) {
        snprintf(text, sizeof text, "rank %d has gone (%s)", r, strerror(error));
        fault(meeting, WEFT_ERR_PEER, text);
    }
}

static int gather_all(struct weft__meeting *meeting, const void *mine, size_t bytes, void *all)
{
    const struct answer answer = {MAGIC, WEFT_OK, (uint64_t)bytes * (uint64_t)meeting->size};

    memcpy(all, mine, bytes);
    for (int r = 1; r < meeting->size; r++)
        take_block(meeting, r, (char *)all + (size_t)r * bytes, bytes);
    for (int r = 1; r < meeting->size; r++) {
        if (meeting->status) {
            answer_fault(meeting, meeting->sockets[r]);
            continue;
        }
        /* Who goes now is missed later. */
        if (weft__socket_send(meeting->sockets[r], &answer, sizeof answer, WEFT_NEVER) == 0)
            (void)weft__socket_send(meeting->sockets[r], all, (size_t)answer.bytes, WEFT_NEVER);
    }
    if (meeting->status)
        return weft__error(meeting->status, "%s: the rendezvous `%s`: %s", meeting->who,
                           meeting->name, meeting->text);
    return WEFT_OK;
}

int weft__meeting_gather(void *user, const void *mine, size_t bytes, void *all)
{
    struct weft__meeting *meeting = user;
    const struct block block = {MAGIC, 0, bytes};

    if (meeting->rank == 0)
        return gather_all(meeting, mine, bytes, all);
    int error = weft__socket_send(meeting->sockets[0], &block, sizeof block, WEFT_NEVER);
    if (!error)
        error = weft__socket_send(meeting->sockets[0], mine, bytes, WEFT_NEVER);
    if (error)
        return gone(meeting, error);
    return hear_answer(meeting, all, bytes * (size_t)meeting->size, WEFT_NEVER);
}

void weft__meeting_end(struct weft__meeting *meeting)
{
    if (!meeting)
        return;
    for (size_t i = 0; i < meeting->count; i++)
        weft__socket_close(meeting->callers[i].socket);
    for (int r = 0; meeting->sockets && r < meeting->size; r++)
        weft__socket_close(meeting->sockets[r]);
    weft__socket_close(meeting->listener);
    weft__free(meeting->callers);
    weft__free(meeting->polls);
    weft__free(meeting->sockets);
    weft__free(meeting);
}
