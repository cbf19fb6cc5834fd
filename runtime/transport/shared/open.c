/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a channel begins.
 *
 *   1. Each member listens on a socket of its own, and gathers all members' cards: the names of
 *      their sockets, what they want, or why they cannot. From these all make the same layout.
 *   2. Each makes its region, connects to every other member and hands over the region's file; what
 *      comes of others it checks, maps and confirms. Whoever goes meanwhile closes his sockets,
 *      which those see that wait for him: so nobody needs a time after which he gives up.
 *   3. All gather how it went. If one could not, none has a channel.
 *
 * Each watches only one socket for each that he connects to, and one for each that comes, for a
 * moment; and of those he connects to only some at a time. What stays are the processes'
 * descriptors, by which their deaths are known.
 */
#include "runtime/transport/shared/launched.h"

#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/transport/shared/inside.h"
#include "runtime/transport/shared/map.h"
#include "runtime/transport/shared/socket.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/shared.h>
#include <weft/sized.h>
#include <weft/version.h>

#ifndef SO_PEERPIDFD
#    define SO_PEERPIDFD 77
#endif

enum {
    TEXT_BYTES = 320,
    VERSION_BYTES = 32,
    OUTGOING = 16, /* members that one connects to at a time */
    INCOMING = 32  /* that have connected, and not yet said who they are */
};
#define AGAIN_NS UINT64_C(1000000)

_Static_assert((int)WEFT__LAUNCH_MOST == (int)WEFT__CHANNEL_MOST, "a launch can have a context");

/* What each tells all others first. */
struct card {
    uint64_t magic;
    int32_t status;
    int32_t large;
    uint64_t eager_bytes, ahead_bytes, arena_bytes;
    char version[VERSION_BYTES];
    char socket[WEFT__SOCKET_NAME];
    char text[TEXT_BYTES];
};

/* And last. */
struct verdict {
    int32_t status;
    char text[TEXT_BYTES];
};

/* What goes over a socket, with the region's file. */
struct parcel {
    uint64_t magic;
    uint64_t bytes;
    uint64_t number; /* of the map, for who is in the same process */
    int32_t member;
    uint32_t version;
    struct weft__launched launched;
};

/* Kept as long as the channel. */
struct open {
    struct weft__map *own;
    struct weft__map *maps[]; /* [size] */
};

/* A member that this one connects to. */
struct outgoing {
    int member; /* -1: none */
    int socket; /* -1: to be connected, again */
};

struct opening {
    const struct weft__channel_config *config;
    const char *who;
    struct weft__channel *channel;
    struct weft__layout layout;
    struct open *open;
    void *room;
    struct card *cards;       /* [size], the own one before them */
    struct verdict *verdicts; /* the own one, and [size] */
    struct weft__launched launched;
    int listener;
    struct outgoing outgoing[OUTGOING];
    int incoming[INCOMING];
    int incoming_count;
    int begun, handed, taken; /* members connected to, that have confirmed, that have come */
    uint64_t again;           /* when to try to connect again; WEFT_NEVER: nobody waits */
};

/* ---- 1: cards ---- */

static int fill_card(struct opening *opening, struct card *card)
{
    const struct weft__channel_config *config = opening->config;

    memset(card, 0, sizeof *card);
    card->magic = WEFT__REGION_MAGIC;
    card->large = config->large;
    snprintf(card->version, sizeof card->version, "%s", WEFT_VERSION);
    int status =
        weft_sized_number(opening->who, "shared->large", config->large, 0, WEFT_SHARED_LARGE_COPY);
    if (status == WEFT_OK)
        status = weft__layout_make(&opening->layout, config);
    if (status != WEFT_OK)
        return status;
    card->eager_bytes = opening->layout.eager_bytes;
    card->ahead_bytes = opening->layout.ahead_bytes;
    size_t other = opening->layout.total_bytes - opening->layout.arena_bytes;
    card->arena_bytes = weft__map_arena(opening->layout.arena_bytes, other, config->size);
    if (card->arena_bytes == 0 || card->arena_bytes < config->arena_bytes)
        return weft__error(WEFT_ERR_SYSTEM,
                           "%s: %zu bytes of shared memory on each of %d ranks are more than the "
                           "limits of this process leave (ulimit -f, -v)",
                           opening->who, opening->layout.total_bytes, config->size);
    int error = weft__socket_name(card->socket);
    if (!error) {
        opening->listener = weft__socket_listen(card->socket, SOCK_SEQPACKET, config->size + 16);
        error = opening->listener < 0 ? -opening->listener : 0;
    }
    return error ? weft__error(WEFT_ERR_SYSTEM, "%s: a socket: %s", opening->who, strerror(error))
                 : WEFT_OK;
}

/* Another rank's error, or one's own, as all tell it. */
static int rank_error(const struct opening *opening, int member, int status, const char *text)
{
    const struct weft__channel_config *config = opening->config;
    int rank = config->ranks ? config->ranks[member] : member;

    if (member == config->rank)
        return weft__error(status, "%.*s", TEXT_BYTES, text);
    return weft__error(status, "rank %d: %.*s", rank, TEXT_BYTES, text);
}

static int check_same(const struct opening *opening, int member, const char *what, uint64_t first,
                      uint64_t value)
{
    const int *ranks = opening->config->ranks;

    if (first == value)
        return WEFT_OK;
    return weft__error(WEFT_ERR_INVALID, "%s: %s is %llu on rank %d, but %llu on rank %d",
                       opening->who, what, (unsigned long long)value,
                       ranks ? ranks[member] : member, (unsigned long long)first,
                       ranks ? ranks[0] : 0);
}

/* The cards are the same for all, so all find the same. */
static int check_cards(const struct opening *opening)
{
    const struct card *first = opening->cards;
    int status = WEFT_OK;

    for (int i = 0; i < opening->config->size && status == WEFT_OK; i++) {
        const struct card *card = &opening->cards[i];
        if (card->magic != WEFT__REGION_MAGIC ||
            strncmp(card->version, WEFT_VERSION, sizeof card->version) != 0)
            status = weft__error(WEFT_ERR_STATE, "%s: member %d is not of weft %s", opening->who, i,
                                 WEFT_VERSION);
        else if (card->status < 0)
            status = rank_error(opening, i, card->status, card->text);
        if (status == WEFT_OK)
            status = check_same(opening, i, "eager_bytes", first->eager_bytes, card->eager_bytes);
        if (status == WEFT_OK)
            status = check_same(opening, i, "ahead_bytes", first->ahead_bytes, card->ahead_bytes);
        if (status == WEFT_OK)
            status = check_same(opening, i, "large", (uint64_t)first->large, (uint64_t)card->large);
    }
    return status;
}

/* The own card, those of all, the own verdict, those of all. */
size_t weft__channel_room(int size)
{
    return ((size_t)size + 1) * (sizeof(struct card) + sizeof(struct verdict));
}

static int gather_cards(struct opening *opening, struct weft__channel_config *agreed)
{
    const struct weft__channel_config *config = opening->config;
    struct card *mine = opening->room;

    opening->cards = mine + 1;
    opening->verdicts = (struct verdict *)(opening->cards + config->size);
    int status = fill_card(opening, mine);
    mine->status = status;
    if (status != WEFT_OK)
        snprintf(mine->text, sizeof mine->text, "%s", weft_error_text());
    status = config->gather(config->user, mine, sizeof *mine, opening->cards);
    if (status == WEFT_OK)
        status = check_cards(opening);
    for (int i = 0; i < config->size && status == WEFT_OK; i++) {
        opening->cards[i].socket[WEFT__SOCKET_NAME - 1] = '\0';
        if (i == 0 || opening->cards[i].arena_bytes < agreed->arena_bytes)
            agreed->arena_bytes = (size_t)opening->cards[i].arena_bytes;
    }
    return status;
}

/* ---- 2: regions ---- */

static int make_region(struct opening *opening, const struct weft__channel_config *agreed,
                       struct weft__transport *transport)
{
    size_t size = (size_t)agreed->size;
    int status = weft__layout_make(&opening->layout, agreed);

    if (status != WEFT_OK)
        return status;
    opening->open = weft__calloc(1, sizeof *opening->open + size * sizeof(struct weft__map *));
    if (!opening->open)
        return weft__error_memory(opening->who);
    status = weft__map_make(&opening->open->own, opening->layout.total_bytes, opening->who);
    if (status != WEFT_OK)
        return status;
    void *memory = weft__map_memory(opening->open->own);
    weft__region_init(memory, &opening->layout, agreed->rank);
    status = weft__channel_create(&opening->channel, transport, agreed, &opening->layout, memory);
    if (status == WEFT_OK)
        opening->channel->open = opening->open;
    return status;
}

static int rank_of(const struct opening *opening, int member)
{
    return opening->config->ranks ? opening->config->ranks[member] : member;
}

static int lost(const struct opening *opening, int member, const char *what, int error)
{
    return weft__error(WEFT_ERR_PEER, "%s: rank %d has gone (%s%s%s)", opening->who,
                       rank_of(opening, member), what, error ? ": " : "",
                       error ? strerror(error) : "");
}

static int failed_call(const struct opening *opening, const char *call, int error)
{
    return weft__error(WEFT_ERR_SYSTEM, "%s: %s: %s", opening->who, call, strerror(error));
}

/* Sends the region's file. 0, or an errno. */
static int hand_over(const struct opening *opening, int socket)
{
    struct parcel parcel = {
        .magic = WEFT__REGION_MAGIC,
        .bytes = opening->layout.total_bytes,
        .number = weft__map_number(opening->open->own),
        .member = opening->config->rank,
        .version = WEFT__REGION_VERSION,
    };
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&parcel, sizeof parcel};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    int file = weft__map_file(opening->open->own);
    ssize_t sent;

    parcel.launched = opening->launched;
    memset(&control, 0, sizeof control);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

/* Connects to a member and hands the file over; what cannot be now is tried again. */
static int approach(struct opening *opening, struct outgoing *outgoing)
{
    const char *name = opening->cards[outgoing->member].socket;
    int socket = weft__socket_connect(name, SOCK_SEQPACKET);
    int error = socket < 0 ? -socket : 0;

    if (!error && !weft__socket_trusted(socket)) {
        weft__socket_close(socket);
        return weft__error(WEFT_ERR_STATE, "%s: rank %d is a process of another user", opening->who,
                           rank_of(opening, outgoing->member));
    }
    if (!error)
        error = hand_over(opening, socket);
    if (!error) {
        outgoing->socket = socket;
        return WEFT_OK;
    }
    weft__socket_close(socket);
    /* Too many wait at its socket, or too many files are on their way. */
    if (error == EAGAIN || error == ETOOMANYREFS || error == ENOBUFS) {
        opening->again = weft__now() + AGAIN_NS;
        return WEFT_OK;
    }
    if (error == ECONNREFUSED || error == EPIPE || error == ECONNRESET || error == ENOTCONN)
        return lost(opening, outgoing->member, "connecting", error);
    return failed_call(opening, "connecting", error);
}

/* Begins what there is room for. */
static int approach_all(struct opening *opening)
{
    int size = opening->config->size;
    int status = WEFT_OK;

    opening->again = WEFT_NEVER;
    for (int i = 0; i < OUTGOING && status == WEFT_OK; i++) {
        struct outgoing *outgoing = &opening->outgoing[i];
        if (outgoing->member < 0 && opening->begun < size - 1)
            outgoing->member = (opening->config->rank + ++opening->begun) % size;
        if (outgoing->member >= 0 && outgoing->socket < 0)
            status = approach(opening, outgoing);
    }
    return status;
}

/* A member confirms, or goes. */
static int confirmed(struct opening *opening, struct outgoing *outgoing)
{
    char byte = 0;
    ssize_t got = recv(outgoing->socket, &byte, sizeof byte, 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return WEFT_OK;
    if (got != sizeof byte)
        return lost(opening, outgoing->member, "it did not confirm", got < 0 ? errno : 0);
    weft__socket_close(outgoing->socket);
    *outgoing = (struct outgoing){-1, -1};
    opening->handed++;
    return WEFT_OK;
}

/* A descriptor of the process at the other end, by which its end is known; -1: the kernel has none.
 * Or an error. */
static int process_of(const struct opening *opening, int socket, int member, int pid, int *file)
{
    socklen_t length = sizeof *file;

    *file = -1;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, file, &length) == 0)
        return WEFT_OK;
    if (errno != EMFILE && errno != ENFILE) {
        /* The other end stays until it is confirmed, so the number is still its. */
        *file = (int)syscall(SYS_pidfd_open, pid, 0u);
        if (*file >= 0 || errno == ENOSYS || errno == EPERM || errno == EINVAL)
            return WEFT_OK;
        if (errno == ESRCH) /* unless it has been killed */
            return lost(opening, member, "its process", errno);
    }
    return failed_call(opening, "a descriptor of another rank's process", errno);
}

/* Reads a parcel and its file; *file is -1 if there is none. The bytes, or an errno below 0. */
static ssize_t read_parcel(int socket, struct parcel *parcel, int *file)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int) * 8)];
    } control;
    struct iovec part = {parcel, sizeof *parcel};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    ssize_t got;

    *file = -1;
    memset(&control, 0, sizeof control);
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t files = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < files; i++) {
            int each;
            memcpy(&each, CMSG_DATA(header) + i * sizeof each, sizeof each);
            if (*file < 0)
                *file = each;
            else
                close(each);
        }
    }
    return got;
}

/* Maps a member's region. */
static int take_region(struct opening *opening, const struct parcel *parcel, int socket, int file)
{
    struct weft__peer *peer = &opening->channel->peers[parcel->member];
    const struct weft__layout *layout = &opening->layout;
    struct weft__map *map = NULL;
    uid_t user = 0;
    pid_t pid = 0;
    int status = WEFT_OK;

    if (weft__socket_peer(socket, &pid, &user) != 0)
        pid = 0;
    if (pid == getpid()) {
        map = weft__map_find(parcel->number);
        if (!map)
            return lost(opening, parcel->member, "its memory is gone", 0);
    } else if (file < 0) {
        return weft__error(WEFT_ERR_SYSTEM, "%s: no descriptor is left for rank %d's memory",
                           opening->who, rank_of(opening, parcel->member));
    } else {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        status = weft__map_other(&map, file, layout->total_bytes,
                                 (layout->arena_at + page - 1) / page * page, opening->who);
    }
    if (status == WEFT_OK)
        status = weft__region_check(weft__map_memory(map), layout->total_bytes, layout,
                                    parcel->member, opening->who);
    if (status == WEFT_OK && pid != getpid())
        status = process_of(opening, socket, parcel->member, pid, &peer->pidfd);
    if (status != WEFT_OK) {
        weft__map_drop(map);
        return status;
    }
    opening->open->maps[parcel->member] = map;
    peer->pid = pid;
    peer->mapped_bytes = pid == getpid() ? 0 : layout->total_bytes;
    peer->launched = parcel->launched;
    weft__channel_attach(opening->channel, parcel->member, weft__map_memory(map));
    opening->taken++;
    return WEFT_OK;
}

/* Hears who has connected. WEFT_IN_PROGRESS: he has not said it. */
static int receive(struct opening *opening, int socket)
{
    struct parcel parcel = {.member = -1};
    int file = -1;
    int status = WEFT_OK;
    ssize_t got = read_parcel(socket, &parcel, &file);

    if (got == -EAGAIN)
        return WEFT_IN_PROGRESS;
    int known = got == (ssize_t)sizeof parcel && parcel.magic == WEFT__REGION_MAGIC &&
                parcel.version == WEFT__REGION_VERSION && parcel.member >= 0 &&
                parcel.member < opening->config->size && parcel.member != opening->config->rank;
    /* Whoever else finds the socket is none of the members. */
    if (known && !opening->open->maps[parcel.member]) {
        status = take_region(opening, &parcel, socket, file);
        if (status == WEFT_OK)
            (void)send(socket, "", 1, MSG_NOSIGNAL);
    }
    if (file >= 0)
        close(file);
    return status;
}

static int accept_all(struct opening *opening)
{
    while (opening->incoming_count < INCOMING) {
        int socket = weft__socket_accept(opening->listener);
        if (socket == -EAGAIN)
            return WEFT_OK;
        if (socket < 0)
            return failed_call(opening, "accept", -socket);
        if (!weft__socket_trusted(socket)) {
            weft__socket_close(socket);
            continue;
        }
        int status = receive(opening, socket);
        if (status == WEFT_IN_PROGRESS) {
            opening->incoming[opening->incoming_count++] = socket;
            continue;
        }
        weft__socket_close(socket);
        if (status != WEFT_OK)
            return status;
    }
    return WEFT_OK;
}

/* poll() of those sockets that there are: it takes no more entries than the process may have
 * descriptors, in use or not. As weft__socket_poll(). */
static int poll_those(struct pollfd *polls, size_t count, uint64_t until)
{
    struct pollfd used[OUTGOING + INCOMING + 1];
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        if (polls[i].fd >= 0)
            used[n++] = polls[i];
    int ready = weft__socket_poll(used, n, until);
    n = 0;
    for (size_t i = 0; i < count; i++)
        if (polls[i].fd >= 0)
            polls[i].revents = used[n++].revents;
    return ready;
}

/* One look at all sockets. */
static int look(struct opening *opening)
{
    struct pollfd polls[OUTGOING + INCOMING + 1];
    int status = WEFT_OK;
    int waiting = opening->incoming_count;

    for (int i = 0; i < OUTGOING; i++)
        polls[i] = (struct pollfd){.fd = opening->outgoing[i].socket, .events = POLLIN};
    for (int i = 0; i < INCOMING; i++)
        polls[OUTGOING + i] =
            (struct pollfd){.fd = i < waiting ? opening->incoming[i] : -1, .events = POLLIN};
    polls[OUTGOING + INCOMING] =
        (struct pollfd){.fd = waiting < INCOMING ? opening->listener : -1, .events = POLLIN};
    int ready = poll_those(polls, OUTGOING + INCOMING + 1, opening->again);
    if (ready < 0)
        return failed_call(opening, "poll", -ready);
    for (int i = 0; i < OUTGOING && status == WEFT_OK; i++)
        if (polls[i].revents)
            status = confirmed(opening, &opening->outgoing[i]);
    /* From behind, since who goes is replaced by the last. */
    for (int i = waiting; i-- > 0 && status == WEFT_OK;) {
        if (!polls[OUTGOING + i].revents)
            continue;
        status = receive(opening, opening->incoming[i]);
        if (status == WEFT_IN_PROGRESS) {
            status = WEFT_OK;
            continue;
        }
        weft__socket_close(opening->incoming[i]);
        opening->incoming[i] = opening->incoming[--opening->incoming_count];
    }
    if (status == WEFT_OK && polls[OUTGOING + INCOMING].revents)
        status = accept_all(opening);
    return status;
}

static int exchange(struct opening *opening)
{
    int others = opening->config->size - 1;
    int status = WEFT_OK;

    while (status == WEFT_OK && (opening->handed < others || opening->taken < others)) {
        status = approach_all(opening);
        if (status == WEFT_OK)
            status = look(opening);
    }
    return status;
}

/* Whoever waits for this member sees that it does not go on. */
static void close_sockets(struct opening *opening)
{
    for (int i = 0; i < OUTGOING; i++)
        weft__socket_close(opening->outgoing[i].socket);
    for (int i = 0; i < opening->incoming_count; i++)
        weft__socket_close(opening->incoming[i]);
    opening->incoming_count = 0;
    weft__socket_close(opening->listener);
    opening->listener = -1;
    if (opening->open && opening->open->own)
        weft__map_shut(opening->open->own);
}

/* ---- 3: all or none ---- */

/* Which error all return: the first that does not only tell of another's. */
static int cause_of(const struct verdict *verdicts, int size)
{
    int found = -1;

    for (int i = 0; i < size; i++) {
        if (verdicts[i].status >= 0)
            continue;
        if (!weft__error_elsewhere(verdicts[i].status))
            return i;
        if (found < 0)
            found = i;
    }
    return found;
}

static int gather_verdicts(struct opening *opening, int status)
{
    const struct weft__channel_config *config = opening->config;
    struct verdict *mine = opening->verdicts;

    mine->status = status;
    if (status != WEFT_OK)
        snprintf(mine->text, sizeof mine->text, "%s", weft_error_text());
    int gathered = config->gather(config->user, mine, sizeof *mine, mine + 1);
    int cause = gathered == WEFT_OK ? cause_of(mine + 1, config->size) : -1;
    if (gathered != WEFT_OK && status == WEFT_OK)
        status = gathered;
    else if (gathered != WEFT_OK)
        weft__error(status, "%s", mine->text);
    else if (cause >= 0)
        status = rank_error(opening, cause, mine[1 + cause].status, mine[1 + cause].text);
    return status;
}

static void unmap(struct open *open, int size)
{
    if (!open)
        return;
    for (int i = 0; i < size; i++)
        weft__map_drop(open->maps[i]);
    weft__map_drop(open->own);
    weft__free(open);
}

/* Nobody may wait for who has no channel while others have one: the second gather has failed on
 * this member alone. */
static void say_closed(struct weft__channel *channel)
{
    static const uint8_t kinds[] = {WEFT__LINE_LEAVE, WEFT__LINE_CLOSED};

    for (int i = 0; i < channel->size; i++)
        for (size_t k = 0; k < sizeof kinds && channel->peers[i].region && i != channel->rank; k++)
            (void)weft__channel_line(channel, &channel->peers[i],
                                     &(struct weft__line){.kind = kinds[k]});
}

int weft__channel_open(struct weft__channel **out, struct weft__transport *transport,
                       const struct weft__channel_config *config)
{
    void *room = config->room ? config->room : weft__calloc(1, weft__channel_room(config->size));
    struct opening opening = {
        .config = config, .who = config->who, .room = room, .listener = -1, .again = WEFT_NEVER};
    struct weft__channel_config agreed = *config;

    if (!room)
        return weft__error_memory(opening.who);
    for (int i = 0; i < OUTGOING; i++)
        opening.outgoing[i] = (struct outgoing){-1, -1};
    weft__launched_quietly(&opening.launched);
    int status = gather_cards(&opening, &agreed);
    if (status == WEFT_OK) {
        status = make_region(&opening, &agreed, transport);
        if (status == WEFT_OK)
            status = exchange(&opening);
        if (status == WEFT_OK)
            status = weft__bulk_open(opening.channel, &agreed);
        if (status == WEFT_OK)
            status = weft__death_watch(opening.channel);
        close_sockets(&opening);
        status = gather_verdicts(&opening, status);
    }
    close_sockets(&opening);
    if (!config->room)
        weft__free(room);
    if (status == WEFT_OK) {
        *out = opening.channel;
        return WEFT_OK;
    }
    if (opening.channel) {
        say_closed(opening.channel);
        weft__death_unwatch(opening.channel);
        weft__bulk_close(opening.channel);
        weft__channel_unmap(opening.channel);
        weft__channel_discard(opening.channel);
    } else {
        unmap(opening.open, config->size);
    }
    return status;
}

void weft__channel_forget(struct weft__channel *channel, struct weft__peer *peer)
{
    const struct open *open = channel->open;
    if (peer->mapped_bytes != 0)
        weft__map_void(open->maps[peer->index]);
}

void weft__channel_unmap(struct weft__channel *channel)
{
    for (int i = 0; i < channel->size; i++) {
        if (channel->peers[i].pidfd >= 0)
            close(channel->peers[i].pidfd);
        channel->peers[i].pidfd = -1;
    }
    unmap(channel->open, channel->size);
    channel->open = NULL;
}
