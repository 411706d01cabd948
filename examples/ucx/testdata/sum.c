/* A service that adds up bytes, and a client of it, with UCX. The other side of both is the Go program of this example.
 *
 *   sum serve PORT
 *   sum call PORT LENGTH COUNT
 *
 * A request is active message 1: its header is a number, its data the bytes. The reply is active message 2: its
 * header is the number and the sum. Build: cc -O2 sum.c -lucp -lucs */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { REQUEST = 1, REPLY = 2 };

static ucp_worker_h worker;
static int lost, answered;
static uint64_t sums[2];

/* pending is a reply under way: UCX needs its header until it is sent. */
struct pending {
    uint64_t header[2];
    ucp_ep_h ep;
    unsigned char *data; /* of a long request */
    size_t length;
};

static void check(ucs_status_t st, const char *what) {
    if (st == UCS_OK) return;
    fprintf(stderr, "%s: %s\n", what, ucs_status_string(st));
    exit(1);
}

static void wait_for(void *request, const char *what) {
    ucs_status_t st;
    if (request == NULL) return;
    if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), what);
    while ((st = ucp_request_check_status(request)) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(request);
    check(st, what);
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t st) { lost = 1; }

static void sent(void *request, ucs_status_t st, void *arg) {
    ucp_request_free(request);
    free(arg);
}

static void answer(struct pending *p) {
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = sent, .user_data = p};
    for (size_t i = 0; i < p->length; i++) p->header[1] += p->data[i];
    void *r = ucp_am_send_nbx(p->ep, REPLY, p->header, sizeof p->header, NULL, 0, &param);
    if (r == NULL || UCS_PTR_IS_ERR(r)) free(p);
}

static void fetched(void *request, ucs_status_t st, size_t length, void *arg) {
    struct pending *p = arg;
    unsigned char *data = p->data;
    if (request != NULL) ucp_request_free(request);
    if (st == UCS_OK) answer(p);
    else free(p);
    free(data);
}

static ucs_status_t on_request(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param) {
    if (header_length != 8 || !(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP)) return UCS_OK;
    struct pending *p = calloc(1, sizeof *p);
    memcpy(p->header, header, 8);
    p->ep = param->reply_ep;
    p->data = data;
    p->length = length;
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        answer(p);
        return UCS_OK;
    }
    p->data = malloc(length);
    ucp_request_param_t rp = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                              .cb.recv_am = fetched, .user_data = p};
    ucp_am_recv_data_nbx(worker, data, p->data, length, &rp);
    return UCS_INPROGRESS;
}

static ucs_status_t on_reply(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param) {
    if (header_length == sizeof sums) memcpy(sums, header, sizeof sums);
    answered = 1;
    return UCS_OK;
}

static void handle(unsigned id, ucp_am_recv_callback_t f) {
    ucp_am_handler_param_t p = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
                                .id = id, .cb = f, .flags = UCP_AM_FLAG_WHOLE_MSG};
    check(ucp_worker_set_am_recv_handler(worker, &p), "handler");
}

static ucs_status_t make_ep(ucp_ep_params_t *p, ucp_ep_h *ep) {
    p->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    p->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    p->err_handler.cb = on_error;
    return ucp_ep_create(worker, p, ep);
}

/* on_client makes an endpoint. UCX rejects a client whose data it cannot read, as releases before 1.14 those of a later
 * one: the Go side then tries the other form. */
static void on_client(ucp_conn_request_h request, void *arg) {
    ucp_ep_h ep;
    ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST, .conn_request = request};
    if (make_ep(&p, &ep) != UCS_OK) fprintf(stderr, "a client was rejected\n");
}

/* serve ends at the end of its standard input. */
static void serve(struct sockaddr_in *addr) {
    ucp_listener_h listener;
    ucp_listener_params_t p = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                               .sockaddr = {(struct sockaddr *)addr, sizeof *addr}, .conn_handler.cb = on_client};
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    handle(REQUEST, on_request);
    check(ucp_listener_create(worker, &p, &listener), "listener");
    check(ucp_listener_query(listener, &attr), "port of the listener");
    printf("listening on 127.0.0.1:%d\n", ntohs(((struct sockaddr_in *)&attr.sockaddr)->sin_port));
    fflush(stdout);
    for (struct pollfd in = {.fd = 0, .events = POLLIN}; poll(&in, 1, 0) == 0;)
        for (int i = 0; i < 100; i++) ucp_worker_progress(worker);
    ucp_listener_destroy(listener);
}

static void call(struct sockaddr_in *addr, size_t length, int count) {
    ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
                         .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, .sockaddr = {(struct sockaddr *)addr, sizeof *addr}};
    ucp_request_param_t send = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_REPLY};
    ucp_request_param_t flush = {0};
    unsigned char *data = malloc(length + 1);
    uint64_t want = 0;
    for (size_t i = 0; i < length; i++) want += data[i] = (unsigned char)(i * 7 + 1);
    handle(REPLY, on_reply);
    ucp_ep_h ep;
    check(make_ep(&p, &ep), "endpoint");
    for (uint64_t n = 1; n <= (uint64_t)count; n++) {
        answered = 0;
        wait_for(ucp_am_send_nbx(ep, REQUEST, &n, sizeof n, data, length, &send), "request");
        while (!answered && !lost) ucp_worker_progress(worker);
        if (lost || sums[0] != n || sums[1] != want) {
            fprintf(stderr, "reply %d: number %lu, sum %lu\n", lost, (unsigned long)sums[0], (unsigned long)sums[1]);
            exit(1);
        }
    }
    printf("sum: %lu\n", (unsigned long)want);
    wait_for(ucp_ep_close_nbx(ep, &flush), "close");
}

int main(int argc, char **argv) {
    ucp_context_h context;
    ucp_params_t cp = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (argc == 2 && !strcmp(argv[1], "version")) {
        unsigned major, minor, release;
        ucp_get_version(&major, &minor, &release);
        printf("%u.%u\n", major, minor);
        return 0;
    }
    if (argc < 3) return 2;
    addr.sin_port = htons(atoi(argv[2]));
    check(ucp_init(&cp, NULL, &context), "context");
    check(ucp_worker_create(context, &wp, &worker), "worker");
    if (!strcmp(argv[1], "serve")) serve(&addr);
    else if (argc == 5) call(&addr, strtoul(argv[3], NULL, 0), atoi(argv[4]));
    else return 2;
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}
