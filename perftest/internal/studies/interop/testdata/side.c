/* One side of a measurement, with UCX: package interop has the protocol, which it speaks on stdin and stdout. */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define LINE 65536
#define AM_ID 1

enum { TAG_DATA = 1, TAG_DONE = 2 };

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static ucp_rkey_h rkey;
static unsigned long raddr;
static unsigned char *in, *out, *window; /* of messages that arrive and leave, and what the peer puts into and gets from */
static size_t capacity;
static void **slots; /* requests in flight */

/* Active messages: the other side's first one may arrive before this side begins to serve. */
static struct {
    unsigned long arrived, received;
    size_t length;
    void *announced; /* by rendezvous, and not fetched yet */
} am;

static void reply(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static void fail(const char *what, ucs_status_t status) {
    reply("failed: %s: %s", what, ucs_status_string(status));
    _exit(1);
}

static void check(const char *what, ucs_status_t status) {
    if (status != UCS_OK) fail(what, status);
}

static void hex(const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) printf("%02x", ((const unsigned char *)data)[i]);
}

static size_t unhex(const char *text, unsigned char *to, size_t room) {
    size_t n = 0;
    for (unsigned x; n < room && sscanf(text + 2 * n, "%2x", &x) == 1; n++) to[n] = x;
    return n;
}

/* fill writes the bytes of a run of this length. */
static void fill(unsigned char *b, size_t n) {
    for (size_t i = 0; i < n; i++) b[i] = (unsigned char)(i * 7 + n + (i >> 8));
}

static int filled(const unsigned char *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (b[i] != (unsigned char)(i * 7 + n + (i >> 8))) return 0;
    return 1;
}

/* finish waits for a request. */
static void finish(const char *what, void *r) {
    if (r == NULL) return;
    if (UCS_PTR_IS_ERR(r)) fail(what, UCS_PTR_STATUS(r));
    ucs_status_t status;
    while ((status = ucp_request_check_status(r)) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(r);
    check(what, status);
}

static const ucp_request_param_t plain;

static void *receive(int tag, size_t size) { return ucp_tag_recv_nbx(worker, in, size, tag, ~0ul, &plain); }
static void *send_tag(int tag, size_t size) { return ucp_tag_send_nbx(ep, out, size, tag, &plain); }
static void flush(void) { finish("flush", ucp_ep_flush_nbx(ep, &plain)); }

static ucs_status_t on_am(void *arg, const void *header, size_t header_length, void *data, size_t length, const ucp_am_recv_param_t *p) {
    am.arrived++;
    am.length = length;
    if (p->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        am.announced = data;
        return UCS_INPROGRESS;
    }
    memcpy(in, data, length);
    return UCS_OK;
}

/* receive_am waits for the next active message. */
static void receive_am(void) {
    am.received++;
    while (am.arrived < am.received) ucp_worker_progress(worker);
    if (am.announced) {
        void *data = am.announced;
        am.announced = NULL;
        finish("receive active message", ucp_am_recv_data_nbx(worker, data, in, am.length, &plain));
    }
}

static void send_am(size_t size) { finish("send active message", ucp_am_send_nbx(ep, AM_ID, NULL, 0, out, size, &plain)); }

/* run does count operations of a test. */
static void run(const char *test, size_t size, unsigned long count, unsigned long width) {
    if (!strcmp(test, "tag_lat")) {
        for (unsigned long i = 0; i < count; i++) {
            void *r = receive(TAG_DATA, size);
            finish("send", send_tag(TAG_DATA, size));
            finish("receive", r);
        }
        return;
    }
    if (!strcmp(test, "am_lat")) {
        for (unsigned long i = 0; i < count; i++) {
            send_am(size);
            receive_am();
        }
        return;
    }
    if (!strcmp(test, "put_lat") || !strcmp(test, "get_lat")) width = 1;
    int kind = test[0];
    memset(slots, 0, width * sizeof *slots);
    for (unsigned long i = 0; i < count; i++) {
        void **slot = &slots[i % width];
        finish(test, *slot);
        *slot = kind == 't' ? send_tag(TAG_DATA, size) : kind == 'p' ? ucp_put_nbx(ep, out, size, raddr, rkey, &plain) : ucp_get_nbx(ep, in, size, raddr, rkey, &plain);
        if (kind == 'p' && (i + 1) % width == 0) flush();
    }
    for (unsigned long i = 0; i < width; i++) finish(test, slots[i]);
    if (kind == 'p') flush();
    if (kind == 't') finish("receive", receive(TAG_DONE, 0));
}

/* one_sided reports that the other side has only to make progress until it is told that the run has ended. */
static int one_sided(const char *test) { return test[0] == 'p' || test[0] == 'g'; }

/* serve is the other side of run. */
static void serve(const char *test, size_t size, unsigned long count, unsigned long width) {
    if (!strcmp(test, "tag_lat")) {
        for (unsigned long i = 0; i < count; i++) {
            finish("receive", receive(TAG_DATA, size));
            finish("send", send_tag(TAG_DATA, size));
        }
    } else if (!strcmp(test, "am_lat")) {
        for (unsigned long i = 0; i < count; i++) {
            receive_am();
            send_am(size);
        }
    } else if (!strcmp(test, "tag_bw")) {
        memset(slots, 0, width * sizeof *slots);
        for (unsigned long i = 0; i < count; i++) {
            finish("receive", slots[i % width]);
            slots[i % width] = receive(TAG_DATA, size);
        }
        for (unsigned long i = 0; i < width; i++) finish("receive", slots[i]);
        finish("send", send_tag(TAG_DONE, 0));
    } else {
        finish("receive", receive(TAG_DONE, 0));
    }
}

static void execute(char *line) {
    static char word[64], test[64], text[LINE];
    static unsigned char bytes[LINE / 2];
    unsigned long size = 0, count = 0, width = 1;
    int at = 0;
    if (sscanf(line, "%63s%n", word, &at) != 1) return;
    char *rest = line + at;
    if (!strcmp(word, "address")) {
        ucp_address_t *address;
        size_t n;
        check(word, ucp_worker_get_address(worker, &address, &n));
        printf("ok ");
        hex(address, n);
        ucp_worker_release_address(worker, address);
        reply("");
    } else if (!strcmp(word, "connect")) {
        ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (void *)bytes};
        sscanf(rest, "%65535s", text);
        unhex(text, bytes, sizeof bytes);
        check(word, ucp_ep_create(worker, &p, &ep));
        reply("ok");
    } else if (!strcmp(word, "memory")) {
        sscanf(rest, "%zu %lu", &capacity, &width);
        if (posix_memalign((void **)&in, 4096, capacity) || posix_memalign((void **)&out, 4096, capacity) ||
            posix_memalign((void **)&window, 4096, capacity) || !(slots = calloc(width, sizeof *slots))) fail(word, UCS_ERR_NO_MEMORY);
        ucp_mem_map_params_t p = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH, .address = window, .length = capacity};
        ucp_mem_h mem;
        void *key;
        size_t n;
        check(word, ucp_mem_map(context, &p, &mem));
        check(word, ucp_rkey_pack(context, mem, &key, &n));
        printf("ok %lu ", (unsigned long)window);
        hex(key, n);
        ucp_rkey_buffer_release(key);
        reply("");
    } else if (!strcmp(word, "key")) {
        sscanf(rest, "%lu %65535s", &raddr, text);
        unhex(text, bytes, sizeof bytes);
        check(word, ucp_ep_rkey_unpack(ep, bytes, &rkey));
        reply("ok");
    } else if (!strcmp(word, "prepare")) {
        sscanf(rest, "%63s %zu", test, &size);
        memset(in, 0, size);
        memset(window, 0, size);
        fill(out, size);
        if (!strncmp(test, "get", 3)) fill(window, size);
        reply("ok");
    } else if (!strcmp(word, "check")) {
        sscanf(rest, "%63s %zu", test, &size);
        if (filled(!strncmp(test, "put", 3) ? window : in, size)) reply("ok");
        else reply("failed: wrong data");
    } else if (!strcmp(word, "serve")) {
        sscanf(rest, "%63s %zu %lu %lu", test, &size, &count, &width);
        serve(test, size, count, width);
        reply("ok");
    } else if (!strcmp(word, "run")) {
        struct timespec a, b;
        sscanf(rest, "%63s %zu %lu %lu", test, &size, &count, &width);
        clock_gettime(CLOCK_MONOTONIC, &a);
        run(test, size, count, width);
        clock_gettime(CLOCK_MONOTONIC, &b);
        if (one_sided(test)) finish("send", send_tag(TAG_DONE, 0));
        reply("ok %lld", (b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec);
    } else {
        reply("failed: unknown command %s", word);
    }
}

int main(void) {
    static char line[LINE * 2];
    size_t have = 0;
    ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA};
    ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t hp = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
                                 .id = AM_ID, .cb = on_am, .flags = UCP_AM_FLAG_WHOLE_MSG};
    check("ucp_init", ucp_init(&p, NULL, &context));
    check("ucp_worker_create", ucp_worker_create(context, &wp, &worker));
    check("ucp_worker_set_am_recv_handler", ucp_worker_set_am_recv_handler(worker, &hp));
    reply("ok UCX %s", ucp_get_version_string());
    for (;;) { /* replies to the peer must go out, also while there is no command */
        struct pollfd input = {.fd = 0, .events = POLLIN};
        if (poll(&input, 1, ucp_worker_progress(worker) ? 0 : 20) <= 0) continue;
        ssize_t n = read(0, line + have, sizeof line - 1 - have);
        if (n <= 0) return 0;
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
