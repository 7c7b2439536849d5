/* Exchange messages with each other rank of a small process group, by MPI's persistent requests. The same in Python
 * is `DirectMessages._exchange` of api/distributed/exchanges.py.
 *
 * MPI is not needed to compile this: requests are passed by their addresses, whatever type MPI gives them, and MPI's
 * functions come from the library that mpi4py has loaded.
 */
#include "native.h"

enum { HEADER_BYTES = 64, MAX_MESSAGES = 64 };
enum { STATUS_BYTES = 256 };  /* more than the status of any MPI */
enum { ARRIVED, PENDING, DIFFERENT, BUSY };  /* results; errors of MPI are negative */

static int (*start_request)(void *request);
static int (*test_request)(void *request, int *is_complete, void *status);

PyObject *set_mpi_functions(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long start, test;
    if (!PyArg_ParseTuple(args, "KK", &start, &test)) return NULL;
    start_request = (int (*)(void *))(uintptr_t)start;
    test_request = (int (*)(void *, int *, void *))(uintptr_t)test;
    Py_RETURN_NONE;
}

/* Test requests up to `polls` times each. Return 1 if all are complete, 0 if not, or MPI's error code, negated.
 * The test of a persistent request that has completed before is successful. */
static int test_all(const uint64_t *requests, uint64_t count, long polls) {
    _Alignas(16) char status[STATUS_BYTES];
    for (uint64_t i = 0; i < count; i++) {
        int is_complete = 0;
        for (; !is_complete; polls--) {
            if (polls < 0) return 0;
            int error = test_request((void *)(uintptr_t)requests[i], &is_complete, status);
            if (error) return -error;
        }
    }
    return 1;
}

static int start_all(const uint64_t *requests, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        int error = start_request((void *)(uintptr_t)requests[i]);
        if (error) return -error;
    }
    return 0;
}

/* plan: 64-bit words: the number of messages, the bytes of the values, the address of this rank's row, and for each
 * message the addresses of the request that sends, of the request that receives, and of the other rank's row, or 0 if
 * the message has no header, because it continues an earlier one. */
static int send_messages(const uint64_t *plan, uint32_t number, const void *values, long polls) {
    uint64_t count = plan[0];
    char *row = (char *)(uintptr_t)plan[2];
    const uint64_t *sends = plan + 3, *receives = sends + count;
    int state = test_all(sends, count, polls);  /* of the call before: a large message may still be under way */
    if (state <= 0) return state ? state : BUSY;
    memcpy(row, &number, sizeof number);  /* the low byte first, on the processors that we know */
    memcpy(row + HEADER_BYTES, values, plan[1]);
    if ((state = start_all(sends, count)) || (state = start_all(receives, count))) return state;
    return PENDING;
}

static int receive_messages(const uint64_t *plan, uint64_t request, long polls) {
    uint64_t count = plan[0];
    const uint64_t *receives = plan + 3 + count, *rows = receives + count;
    int state = request ? test_all(&request, 1, polls) : 1;
    if (state <= 0) return state ? state : PENDING;
    for (uint64_t i = 0; i < count; i++) {  /* a rank with another header may not send what continues its message */
        if ((state = test_all(receives + i, 1, polls)) <= 0) return state ? state : PENDING;
        if (rows[i] && memcmp((char *)(uintptr_t)plan[2], (char *)(uintptr_t)rows[i], HEADER_BYTES)) return DIFFERENT;
    }
    return ARRIVED;
}

PyObject *exchange_messages(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count != 6 || !PyBytes_Check(args[0]) || start_request == NULL) {
        PyErr_SetString(PyExc_TypeError, "exchange_messages: expects a plan, a number, two addresses, and polls of sends and receives");
        return NULL;
    }
    const uint64_t *plan = (const uint64_t *)(const void *)PyBytes_AS_STRING(args[0]);
    size_t words = (size_t)PyBytes_GET_SIZE(args[0]) / sizeof *plan;
    if (words < 3 || plan[0] > MAX_MESSAGES || words != 3 + 3 * plan[0]) {
        PyErr_SetString(PyExc_ValueError, "exchange_messages: not a plan");
        return NULL;
    }
    long long number = PyLong_AsLongLong(args[1]);
    void *values = PyLong_AsVoidPtr(args[2]), *request = PyLong_AsVoidPtr(args[3]);
    long send_polls = PyLong_AsLong(args[4]), receive_polls = PyLong_AsLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    int state = number < 0 ? PENDING : send_messages(plan, (uint32_t)number, values, send_polls);
    if (state == PENDING && receive_polls) state = receive_messages(plan, (uintptr_t)request, receive_polls);
    return PyLong_FromLong(state);
}
