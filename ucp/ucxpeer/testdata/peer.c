/* A program with UCX for the tests of package ucxpeer. It reads commands, one a line, from standard input, executes
 * them one after the other, and prints a line for each: "ok" with results, or "failed" with the reason. Between
 * commands it makes progress; with PEER_WAKEUP in the environment it sleeps until UCX's event descriptor is readable.
 * It ends at the end of the input. Numbers are decimal, bytes are hexadecimal.
 *
 * The bytes of a message are those of a pattern that its seed gives; whoever receives them checks all. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define LINE (1 << 16)
#define MEMORY (4u << 20)
#define SECONDS 30

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static ucp_listener_h listener;
static ucp_conn_request_h request;
static ucp_mem_h memory;
static ucp_rkey_h rkey;
static unsigned long raddr;
static unsigned char *buffer, *window;
static int peer_errors, lost;
static int events = -1; /* descriptor */
static ucs_status_t lost_status;

static struct {
    int arrived, rndv;
    size_t length, header_length;
    char header[256];
    void *desc;
    ucp_ep_h reply;
} am;

static void reply(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pattern(unsigned char *b, size_t n, int seed) {
    for (size_t i = 0; i < n; i++) b[i] = (unsigned char)(i * 7 + seed + (i >> 8));
}

static int matches(const unsigned char *b, size_t n, int seed) {
    for (size_t i = 0; i < n; i++)
        if (b[i] != (unsigned char)(i * 7 + seed + (i >> 8))) return 0;
    return 1;
}

static void hex(const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) printf("%02x", ((const unsigned char *)data)[i]);
}

static size_t unhex(const char *text, unsigned char *out) {
    size_t n = 0;
    unsigned x;
    for (; sscanf(text + 2 * n, "%2x", &x) == 1; n++) out[n] = x;
    return n;
}

/* socket_address fills at from an IPv4 or IPv6 address, and returns its length; 0 if text is none. */
static socklen_t socket_address(struct sockaddr_storage *at, const char *text, int port) {
    struct sockaddr_in *v4 = (void *)at;
    struct sockaddr_in6 *v6 = (void *)at;
    memset(at, 0, sizeof *at);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        return sizeof *v6;
    }
    return 0;
}

/* until makes progress until *done, for SECONDS at most. */
static int until(const volatile int *done) {
    for (double end = now() + SECONDS; !*done;) {
        if (!ucp_worker_progress(worker) && now() > end) return 0;
    }
    return 1;
}

static ucs_status_t finish(void *r) {
    ucs_status_t st;
    if (r == NULL) return UCS_OK;
    if (UCS_PTR_IS_ERR(r)) return UCS_PTR_STATUS(r);
    double end = now() + SECONDS;
    while ((st = ucp_request_check_status(r)) == UCS_INPROGRESS)
        if (!ucp_worker_progress(worker) && now() > end) {
            ucp_request_cancel(worker, r);
            return UCS_ERR_TIMED_OUT;
        }
    ucp_request_free(r);
    return st;
}

static void report(ucs_status_t st) {
    if (st == UCS_OK) reply("ok");
    else reply("failed: %s", ucs_status_string(st));
}

static ucs_status_t on_am(void *arg, const void *header, size_t hl, void *data, size_t length, const ucp_am_recv_param_t *p) {
    am.header_length = hl;
    memcpy(am.header, header, hl < sizeof am.header ? hl : sizeof am.header);
    am.length = length;
    am.rndv = (p->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    am.reply = p->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? p->reply_ep : NULL;
    am.arrived = 1;
    if (am.rndv) {
        am.desc = data;
        return UCS_INPROGRESS;
    }
    memcpy(buffer, data, length);
    return UCS_OK;
}

static void on_error(void *arg, ucp_ep_h e, ucs_status_t st) {
    lost = 1;
    lost_status = st;
}

static void on_request(ucp_conn_request_h r, void *arg) { request = r; }

static ucs_status_t create(ucp_ep_params_t *p) {
    if (peer_errors) {
        p->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        p->err_mode = UCP_ERR_HANDLING_MODE_PEER;
        p->err_handler.cb = on_error;
    }
    return ucp_ep_create(worker, p, &ep);
}

static ucs_status_t start(void) {
    ucp_config_t *config;
    ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                      .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_STREAM};
    ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t hp = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
                                 .id = 7, .cb = on_am, .flags = UCP_AM_FLAG_WHOLE_MSG};
    int wakeup = getenv("PEER_WAKEUP") != NULL;
    ucs_status_t st = ucp_config_read(NULL, NULL, &config);
    if (st != UCS_OK) return st;
    if (wakeup) p.features |= UCP_FEATURE_WAKEUP;
    st = ucp_init(&p, config, &context);
    ucp_config_release(config);
    if (st == UCS_OK) st = ucp_worker_create(context, &wp, &worker);
    if (st == UCS_OK) st = ucp_worker_set_am_recv_handler(worker, &hp);
    if (st == UCS_OK && wakeup) st = ucp_worker_get_efd(worker, &events);
    return st;
}

static void atomic(const char *name, int size, unsigned long value, unsigned long compare, unsigned long offset) {
    static const struct { const char *name; ucp_atomic_op_t op; } ops[] = {
        {"add", UCP_ATOMIC_OP_ADD}, {"and", UCP_ATOMIC_OP_AND}, {"or", UCP_ATOMIC_OP_OR}, {"xor", UCP_ATOMIC_OP_XOR}, {"swap", UCP_ATOMIC_OP_SWAP}, {"cswap", UCP_ATOMIC_OP_CSWAP}};
    unsigned long old[1] = {0}, operand[1] = {value};
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER, .datatype = ucp_dt_make_contig(size), .reply_buffer = old};
    for (unsigned i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (!strcmp(name, ops[i].name)) {
            if (ops[i].op == UCP_ATOMIC_OP_CSWAP) { /* UCX: the operand is what to compare with, the new value comes in the buffer */
                operand[0] = compare;
                old[0] = value;
            }
            ucs_status_t st = finish(ucp_atomic_op_nbx(ep, ops[i].op, operand, 1, raddr + offset, rkey, &p));
            if (st == UCS_OK) reply("ok %lu", size == 4 ? old[0] & 0xffffffff : old[0]);
            else report(st);
            return;
        }
    reply("failed: no such operation");
}

static void execute(char *line) {
    char word[64] = "", text[LINE] = "";
    unsigned long a = 0, b = 0, c = 0;
    ucp_request_param_t p = {0};
    if (sscanf(line, "%63s", word) != 1) return;
    char *rest = line + strlen(word);
    if (!strcmp(word, "address")) {
        ucp_address_t *address;
        size_t n;
        ucs_status_t st = ucp_worker_get_address(worker, &address, &n);
        if (st != UCS_OK) { report(st); return; }
        printf("ok ");
        hex(address, n);
        reply("");
        ucp_worker_release_address(worker, address);
    } else if (!strcmp(word, "errors")) {
        peer_errors = 1;
        reply("ok");
    } else if (!strcmp(word, "connect")) {
        static unsigned char address[LINE];
        ucp_ep_params_t ep_p = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (void *)address};
        sscanf(rest, "%65535s", text);
        unhex(text, address);
        report(create(&ep_p));
    } else if (!strcmp(word, "listen")) {
        struct sockaddr_storage at;
        sscanf(rest, "%64s", text);
        socklen_t n = socket_address(&at, text, 0);
        ucp_listener_params_t lp = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                    .sockaddr = {(void *)&at, n}, .conn_handler = {on_request, NULL}};
        ucs_status_t st = ucp_listener_create(worker, &lp, &listener);
        ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
        if (st == UCS_OK) st = ucp_listener_query(listener, &attr);
        if (st == UCS_OK) reply("ok %d", ntohs(((struct sockaddr_in *)&attr.sockaddr)->sin_port) /* where IPv6 has it too */);
        else report(st);
    } else if (!strcmp(word, "accept")) { /* as servers do, it goes on after a client that cannot be accepted */
        ucs_status_t st = UCS_ERR_TIMED_OUT;
        peer_errors = 1;
        for (double end = now() + SECONDS; st != UCS_OK && now() < end; ucp_worker_progress(worker)) {
            ucp_ep_params_t ep_p = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST, .conn_request = request};
            if (request) st = create(&ep_p);
            request = NULL;
        }
        report(st);
    } else if (!strcmp(word, "dial")) {
        struct sockaddr_storage at;
        sscanf(rest, "%64s %lu", text, &a);
        socklen_t n = socket_address(&at, text, a);
        ucp_ep_params_t ep_p = {.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS,
                                .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, .sockaddr = {(void *)&at, n}};
        peer_errors = 1;
        report(create(&ep_p));
    } else if (!strcmp(word, "tagsend") || !strcmp(word, "syncsend")) {
        sscanf(rest, "%lu %lu %lu", &a, &b, &c);
        pattern(buffer, b, c);
        report(finish(word[0] == 's' ? ucp_tag_send_sync_nbx(ep, buffer, b, a, &p) : ucp_tag_send_nbx(ep, buffer, b, a, &p)));
    } else if (!strcmp(word, "tagrecv")) {
        sscanf(rest, "%lu %lu %lu", &a, &b, &c);
        memset(buffer, 0, b);
        ucs_status_t st = finish(ucp_tag_recv_nbx(worker, buffer, b, a, ~0ul, &p));
        if (st == UCS_OK && !matches(buffer, b, c)) reply("failed: wrong bytes");
        else report(st);
    } else if (!strcmp(word, "echo")) { /* tag count length: returns so many messages */
        ucs_status_t st = UCS_OK;
        sscanf(rest, "%lu %lu %lu", &a, &b, &c);
        for (; b > 0 && st == UCS_OK; b--) {
            st = finish(ucp_tag_recv_nbx(worker, buffer, c, a, ~0ul, &p));
            if (st == UCS_OK) st = finish(ucp_tag_send_nbx(ep, buffer, c, a, &p));
        }
        report(st);
    } else if (!strcmp(word, "sink")) { /* tag count length: receives so many messages */
        ucs_status_t st = UCS_OK;
        sscanf(rest, "%lu %lu %lu", &a, &b, &c);
        for (; b > 0 && st == UCS_OK; b--) st = finish(ucp_tag_recv_nbx(worker, buffer, c, a, ~0ul, &p));
        report(st);
    } else if (!strcmp(word, "amsend")) { /* length seed reply header */
        sscanf(rest, "%lu %lu %lu %255s", &a, &b, &c, text);
        pattern(buffer, a, b);
        p.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        p.flags = c ? UCP_AM_SEND_FLAG_REPLY : 0;
        report(finish(ucp_am_send_nbx(ep, 7, text, strlen(text), buffer, a, &p)));
    } else if (!strcmp(word, "amrecv")) { /* length seed header: the endpoint of later commands becomes that of the sender, if it wants replies */
        sscanf(rest, "%lu %lu %255s", &a, &b, text);
        ucs_status_t st = until(&am.arrived) ? UCS_OK : UCS_ERR_TIMED_OUT;
        if (st == UCS_OK && am.rndv) st = finish(ucp_am_recv_data_nbx(worker, am.desc, buffer, am.length, &p));
        am.arrived = 0;
        if (am.reply) ep = am.reply;
        if (st != UCS_OK) report(st);
        else if (am.length != a || !matches(buffer, a, b)) reply("failed: wrong bytes, %zu", am.length);
        else if (am.header_length != strlen(text) || memcmp(am.header, text, am.header_length)) reply("failed: wrong header");
        else reply("ok %d", am.reply != NULL);
    } else if (!strcmp(word, "streamsend")) {
        sscanf(rest, "%lu %lu", &a, &b);
        pattern(buffer, a, b);
        report(finish(ucp_stream_send_nbx(ep, buffer, a, &p)));
    } else if (!strcmp(word, "streamrecv")) {
        size_t n = 0;
        sscanf(rest, "%lu %lu", &a, &b);
        p.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        p.flags = UCP_STREAM_RECV_FLAG_WAITALL;
        memset(buffer, 0, a);
        ucs_status_t st = finish(ucp_stream_recv_nbx(ep, buffer, a, &n, &p));
        if (st == UCS_OK && !matches(buffer, a, b)) reply("failed: wrong bytes");
        else report(st);
    } else if (!strcmp(word, "memory")) { /* registers the window and prints its address and key */
        ucp_mem_map_params_t mp = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH, .address = window, .length = MEMORY};
        void *key;
        size_t n;
        ucs_status_t st = ucp_mem_map(context, &mp, &memory);
        if (st == UCS_OK) st = ucp_rkey_pack(context, memory, &key, &n);
        if (st != UCS_OK) { report(st); return; }
        printf("ok %lu ", (unsigned long)window);
        hex(key, n);
        reply("");
        ucp_rkey_buffer_release(key);
    } else if (!strcmp(word, "fill")) {
        sscanf(rest, "%lu %lu", &a, &b);
        pattern(window, a, b);
        reply("ok");
    } else if (!strcmp(word, "check")) {
        sscanf(rest, "%lu %lu", &a, &b);
        reply(matches(window, a, b) ? "ok" : "failed: wrong bytes");
    } else if (!strcmp(word, "word")) { /* sets a word of the window and prints what it was */
        sscanf(rest, "%lu %lu", &a, &b);
        unsigned long old = *(unsigned long *)(window + a);
        *(unsigned long *)(window + a) = b;
        reply("ok %lu", old);
    } else if (!strcmp(word, "key")) { /* address key: of the peer's memory */
        unsigned char key[256];
        sscanf(rest, "%lu %511s", &raddr, text);
        unhex(text, key);
        report(ucp_ep_rkey_unpack(ep, key, &rkey));
    } else if (!strcmp(word, "put")) {
        sscanf(rest, "%lu %lu %lu", &a, &b, &c);
        pattern(buffer, a, b);
        report(finish(ucp_put_nbx(ep, buffer, a, raddr + c, rkey, &p)));
    } else if (!strcmp(word, "get")) {
        sscanf(rest, "%lu %lu", &a, &b);
        memset(buffer, 0, a);
        ucs_status_t st = finish(ucp_get_nbx(ep, buffer, a, raddr, rkey, &p));
        if (st == UCS_OK && !matches(buffer, a, b)) reply("failed: wrong bytes");
        else report(st);
    } else if (!strcmp(word, "atomic")) { /* operation size value compare offset */
        unsigned long d = 0;
        sscanf(rest, "%63s %lu %lu %lu %lu", text, &a, &b, &c, &d);
        atomic(text, a, b, c, d);
    } else if (!strcmp(word, "flush")) {
        report(finish(ucp_ep_flush_nbx(ep, &p)));
    } else if (!strcmp(word, "close") || !strcmp(word, "remove")) { /* after close, UCX keeps an endpoint that a peer knows */
        p.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        p.flags = word[0] == 'r' ? UCP_EP_CLOSE_FLAG_FORCE : 0;
        report(finish(ucp_ep_close_nbx(ep, &p)));
        ep = NULL;
    } else if (!strcmp(word, "lost")) { /* waits for the failure of an endpoint */
        if (until(&lost)) reply("ok %s", ucs_status_string(lost_status));
        else reply("failed: no failure");
    } else {
        reply("failed: unknown command %s", word);
    }
}

int main(void) {
    static char line[LINE * 2];
    size_t have = 0;
    buffer = malloc(MEMORY);
    window = calloc(1, MEMORY);
    ucs_status_t st = start();
    if (st != UCS_OK) {
        reply("failed: %s", ucs_status_string(st));
        return 1;
    }
    reply("ok %s", ucp_get_version_string());
    for (;;) {
        struct pollfd in[2] = {{.fd = 0, .events = POLLIN}, {.fd = events, .events = POLLIN}}; /* a negative fd is ignored */
        int wait = ucp_worker_progress(worker) ? 0 : 1;
        if (events >= 0) wait = wait && ucp_worker_arm(worker) == UCS_OK ? -1 : 0;
        if (poll(in, 2, wait) > 0 && in[0].revents) {
            ssize_t n = read(0, line + have, sizeof line - 1 - have);
            if (n <= 0) _exit(0);
            have += n;
            line[have] = 0;
            for (char *end; (end = memchr(line, '\n', have)) != NULL;) {
                *end = 0;
                execute(line);
                have -= end + 1 - line;
                memmove(line, end + 1, have);
            }
        }
    }
}
