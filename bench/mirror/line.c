/* A long line between clients and a server on this machine: line PORT SERVER_PORT DELAY_MS BYTES_PER_S WINDOW
 *
 * Each direction holds what it relays for DELAY_MS, and passes at most BYTES_PER_S, all connections together (0: no
 * limit). A connection has at most WINDOW bytes under way for a round trip (0: no limit), as a TCP window has it that the
 * systems at both ends permit. One thread, one copy in and one out. On SIGUSR1 it prints what has passed: bytes to the
 * server, pieces to the server, bytes back, pieces back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 128 << 10, CONNECTIONS = 1024 };
static const int64_t QUEUE_NS = 5000000; /* what a router on the way holds */

struct chunk { struct chunk *next; int64_t at; int size, sent; char data[CHUNK]; };

struct flow { /* one direction of a connection */
    int from, to, ended, shut;
    struct chunk *first, *last; /* on the way */
    struct { int64_t at; int size; } acks[4096]; /* delivered, and not yet known to be */
    unsigned ack_first, ack_last;
    int64_t under_way;
};
struct pair { int used; struct flow flows[2]; } pairs[CONNECTIONS];
static struct chunk *spare;
static int64_t delay_ns, rate, window_, line_free[2], bytes[2], pieces[2];
static volatile sig_atomic_t asked;

static void ask(int signal_) { asked = signal_; }

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct chunk *new_chunk(void) {
    struct chunk *c = spare;
    if (c) spare = c->next; else c = malloc(sizeof *c);
    c->next = NULL; c->sent = 0;
    return c;
}

/* Takes what a side has sent. Returns 1 if something came. */
static int take(struct flow *f, int direction, int64_t now) {
    if (f->ended || (rate && line_free[direction] > now + QUEUE_NS)) return 0;
    if (window_ && f->under_way >= window_) return 0;
    struct chunk *c = new_chunk();
    int size = recv(f->from, c->data, CHUNK, MSG_DONTWAIT);
    if (size <= 0) {
        c->next = spare; spare = c;
        if (size == 0 || (errno != EAGAIN && errno != EINTR)) f->ended = 1;
        return 0;
    }
    if (line_free[direction] < now) line_free[direction] = now;
    if (rate) line_free[direction] += (int64_t)((double)size * 1e9 / rate);
    c->size = size; c->at = line_free[direction] + delay_ns;
    f->under_way += size;
    bytes[direction] += size; pieces[direction]++;
    if (f->last) f->last->next = c; else f->first = c;
    f->last = c;
    return 1;
}

/* Gives out what has arrived. Returns the time of the next arrival, or -1. */
static int64_t give(struct flow *f, int64_t now) {
    while (f->ack_first != f->ack_last && f->acks[f->ack_first % 4096].at <= now)
        f->under_way -= f->acks[f->ack_first++ % 4096].size;
    while (f->first && f->first->at <= now) {
        struct chunk *c = f->first;
        int n = send(f->to, c->data + c->sent, c->size - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR) return now + 1000000;
            f->ended = f->shut = 1;
            n = c->size - c->sent;
        }
        c->sent += n;
        if (c->sent < c->size) return now + 1000000;
        if (window_ && f->ack_last - f->ack_first < 4096) {
            f->acks[f->ack_last % 4096].at = now + delay_ns;
            f->acks[f->ack_last++ % 4096].size = c->size;
        } else f->under_way -= c->size;
        f->first = c->next;
        if (!f->first) f->last = NULL;
        c->next = spare; spare = c;
    }
    if (f->ended && !f->first && !f->shut) { shutdown(f->to, SHUT_WR); f->shut = 1; }
    int64_t next = f->first ? f->first->at : -1;
    if (f->ack_first != f->ack_last && window_ && f->under_way >= window_) {
        int64_t at = f->acks[f->ack_first % 4096].at;
        if (next < 0 || at < next) next = at;
    }
    return next;
}

static void greet(int listener, int server_port, int epoll) {
    int client = accept(listener, NULL, NULL), server = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(server_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int at = 0;
    while (at < CONNECTIONS && pairs[at].used) at++;
    if (client < 0 || at == CONNECTIONS || connect(server, (struct sockaddr *)&to, sizeof to)) {
        close(client); close(server);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    memset(&pairs[at], 0, sizeof pairs[at]);
    pairs[at].used = 1;
    pairs[at].flows[0].from = pairs[at].flows[1].to = client;
    pairs[at].flows[1].from = pairs[at].flows[0].to = server;
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.fd = at};
    epoll_ctl(epoll, EPOLL_CTL_ADD, client, &e);
    epoll_ctl(epoll, EPOLL_CTL_ADD, server, &e);
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "line PORT SERVER_PORT DELAY_MS BYTES_PER_S WINDOW\n"), 2;
    delay_ns = (int64_t)(atof(argv[3]) * 1e6), rate = atoll(argv[4]), window_ = atoll(argv[5]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, epoll = epoll_create1(0), turn = 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 128)) return perror("line"), 1;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    signal(SIGUSR1, ask);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = -1};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int64_t now = now_ns(), next = -1;
        int busy = 0;
        for (int k = 0; k < CONNECTIONS; k++) { /* in turns, so that no connection starves another */
            struct pair *p = &pairs[(k + turn) % CONNECTIONS];
            if (!p->used) continue;
            for (int d = 0; d < 2; d++) {
                busy |= take(&p->flows[d], d, now);
                int64_t t = give(&p->flows[d], now);
                if (t >= 0 && (next < 0 || t < next)) next = t;
                if (rate && !p->flows[d].ended && line_free[d] > now + QUEUE_NS) {
                    t = line_free[d] - QUEUE_NS;
                    if (next < 0 || t < next) next = t;
                }
            }
            if (p->flows[0].shut && p->flows[1].shut) {
                close(p->flows[0].from); close(p->flows[1].from);
                p->used = 0;
            }
        }
        turn++;
        struct epoll_event events[64];
        int64_t wait = busy ? 0 : next < 0 ? 1000000000 : next - now_ns();
        struct timespec limit = {wait > 0 ? wait / 1000000000 : 0, wait > 0 ? wait % 1000000000 : 0};
        int n = epoll_pwait2(epoll, events, 64, &limit, NULL);
        if (asked) {
            asked = 0;
            printf("%ld %ld %ld %ld\n", (long)bytes[0], (long)pieces[0], (long)bytes[1], (long)pieces[1]);
            fflush(stdout);
        }
        for (int i = 0; i < n; i++)
            if (events[i].data.fd == -1) greet(listener, atoi(argv[2]), epoll);
    }
}
