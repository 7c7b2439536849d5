/* Launches: arguments packed as kernels read them, and given to the driver. */
#include "native.h"

#include <math.h>

enum { MOST_BYTES = 16 * MOST_BUFFERS, CL_MEM_HOST_PTR = 0x1103 };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *kernel, *geometry, *fallback, *counter, *function;
    PyObject *buffers[MOST_BUFFERS];  /* those of the last launch, what the driver calls them, and where they are */
    void *handles[MOST_BUFFERS], *hosts[MOST_BUFFERS];
    void *kernel_handle;
    Launch direct;
    uint32_t groups, helpers;
    long long work;
    size_t global_size[3], local_size[3];
    uint32_t dimensions;
    int where, divides, releases, has_local, buffer_count, integer_count, scalar_count;
    int buffer_places[MOST_BUFFERS], number_places[MOST_BUFFERS];
    char element;
} Launcher;

/* One number as Python's `struct` packs it: its bytes, or 0 where Python has to decide or say something. */
static size_t pack(char element, PyObject *value, char *to) {
    if (element == 'f' || element == 'd') {
        double x;
        if (PyFloat_Check(value)) x = PyFloat_AS_DOUBLE(value);
        else if (!PyLong_Check(value)) return 0;
        else if ((x = PyLong_AsDouble(value)) == -1.0 && PyErr_Occurred()) return PyErr_Clear(), 0;
        if (element == 'd') return memcpy(to, &x, 8), 8;
        float narrow = (float)x;
        if (isinf(narrow) && !isinf(x)) return 0;
        return memcpy(to, &narrow, 4), 4;
    }
    if (!PyLong_Check(value)) return 0;
    int overflow;
    long long x = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return 0;
#define WHOLE(letter, type, least, most)                                                                               \
    case letter: {                                                                                                     \
        type narrow = (type)x;                                                                                         \
        if (x < (least) || x > (most)) return 0;                                                                       \
        return memcpy(to, &narrow, sizeof narrow), sizeof narrow;                                                      \
    }
    switch (element) {
        WHOLE('b', int8_t, INT8_MIN, INT8_MAX)
        WHOLE('B', uint8_t, 0, UINT8_MAX)
        WHOLE('h', int16_t, INT16_MIN, INT16_MAX)
        WHOLE('H', uint16_t, 0, UINT16_MAX)
        WHOLE('i', int32_t, INT32_MIN, INT32_MAX)
        WHOLE('q', int64_t, INT64_MIN, INT64_MAX)
    }
#undef WHOLE
    return 0;
}

/* Where a tensor's storage begins to be of use: the slots of its buffer and of the last event on it; and whether others
 * than tensors see it. */
static int found_in(PyObject *tensor, PyObject **start, PyObject ***buffer, PyObject ***pending, int *shared) {
    PyObject *storage;
    if (is_a(tensor, Tensor.type)) *start = AT(tensor, Tensor, start), storage = AT(tensor, Tensor, storage);
    else if (Py_IS_TYPE(tensor, Scratch.type)) *start = AT(tensor, Scratch, start), storage = AT(tensor, Scratch, storage);
    else if (Py_IS_TYPE(tensor, Base.type)) *start = AT(tensor, Base, start), storage = tensor;
    else return 0;
    if (storage == NULL || *start == NULL) return 0;
    if (Py_IS_TYPE(storage, Storage.type)) {
        *buffer = &AT(storage, Storage, buffer), *pending = &AT(storage, Storage, pending);
        *shared |= AT(storage, Storage, owner) != Py_None;
    }
    else if (storage == tensor) *buffer = &AT(storage, Base, buffer), *pending = &AT(storage, Base, pending);
    else return 0;
    return **buffer != NULL && **buffer != Py_None;
}

/* Wait for an event; -1 with an exception. */
static int wait_for(PyObject *event) {
    PyObject *waited = PyObject_CallMethodNoArgs(event, s_wait);
    Py_XDECREF(waited);
    return waited == NULL ? -1 : 0;
}

/* Whether the calling thread's work can go on: that of the pooled queue goes first. 0: not now; -1 with an exception.
 * What is called would be done on return anyhow, so it waits; and behind the pool one launch would follow another. */
static int is_turn(Launcher *self, PyObject *stream) {
    PyObject *pending = Py_NewRef(AT(stream, QueueStream, pending));
    int turn = pending == Py_None ? 1 : is_done(pending);
    if (turn == 0 && self->function != Py_None)
        turn = wait_for(pending) ? -1 : AT(stream, QueueStream, pending) == pending;  /* nothing new came meanwhile */
    if (turn == 1 && pending != Py_None) change(&AT(stream, QueueStream, pending), Py_NewRef(Py_None));
    Py_DECREF(pending);
    return turn;
}

/* The queue of a stream on which this may be launched now, NULL if none, or with an exception. */
static void *queue_of(Launcher *self, PyObject *stream) {
    if (self->where != CALLING) return PyLong_AsVoidPtr(AT(stream, QueueStream, deep));
    if (is_turn(self, stream) != 1) return NULL;
    return PyLong_AsVoidPtr(AT(stream, QueueStream, swift));
}

static Status set_arguments(Launcher *self, const char *dynamic, size_t size) {
    void *kernel = self->kernel_handle;
    uint32_t position = 0;
    Status failed = 0;
    for (; position < (uint32_t)self->buffer_count; position++)
        failed |= driver.clSetKernelArg(kernel, position, sizeof(void *), &self->handles[position]);
    failed |= driver.clSetKernelArg(kernel, position, (size_t)PyBytes_GET_SIZE(self->geometry),
                                    PyBytes_AS_STRING(self->geometry));
    return failed | driver.clSetKernelArg(kernel, position + 1, size, dynamic);
}

static Status enqueue(Launcher *self, void *queue, void **event) {
    return driver.clEnqueueNDRangeKernel(queue, self->kernel_handle, self->dimensions, NULL, self->global_size,
                                         self->has_local ? self->local_size : NULL, 0, NULL,
                                         self->where == WORKERS ? event : NULL);
}

/* Whether the kernel can be called as a function on the memory of this launch. */
static int is_callable(Launcher *self, char *dynamic) {
    int count = self->buffer_count;
    if ((self->direct.code = code_of(self->function)) == NULL) return 0;
    self->direct.extended = is_extended(self->function);
    for (int i = 0; i < count; i++) {
        if (self->hosts[i] == NULL) return 0;
        self->direct.arguments[i] = &self->hosts[i];
    }
    self->direct.arguments[count] = PyBytes_AS_STRING(self->geometry);
    self->direct.arguments[count + 1] = dynamic;
    return 1;
}

/* Run the work-groups from `begin` on. */
static void call_directly(Launcher *self, uint32_t begin) {
    unsigned before = usual_rounding();
    if (self->releases) {
        Py_BEGIN_ALLOW_THREADS
        team_run(&self->direct, begin, self->groups, self->helpers, self->work);
        Py_END_ALLOW_THREADS
    } else team_run(&self->direct, begin, self->groups, self->helpers, self->work);
    restore_rounding(before);
}

/* The driver has to run a kernel once before it can be called: it runs the first work-group, if others do not notice,
 * so that even then the work is shared. */
static Status call_first(Launcher *self, void *queue, char *dynamic) {
    static const size_t ones[3] = {1, 1, 1};
    if (!self->divides) {
        Status failed = enqueue(self, queue, NULL);
        if (!failed) seek(self->function);
        return failed;
    }
    const size_t *groups = self->direct.context.num_groups;
    for (uint32_t i = 0; i < self->groups; i++) {
        size_t offset[3] = {i % groups[0], i / groups[0] % groups[1], i / groups[0] / groups[1]};
        Status failed = driver.clEnqueueNDRangeKernel(queue, self->kernel_handle, self->dimensions, offset, ones, ones,
                                                      0, NULL, NULL);
        if (failed) return failed;
        seek(self->function);
        if (is_callable(self, dynamic)) return call_directly(self, i + 1), 0;
    }
    return 0;
}

/* 1: launched; 0: not a plain case, which is Python's; -1: an exception. */
static int launch(Launcher *self, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                  Py_ssize_t scalar_count, PyObject *stream) {
    _Alignas(8) char dynamic[MOST_BYTES];
    size_t at = 0;
    PyObject **pending[MOST_BUFFERS];
    int shared = 0;
    if (!is_a(stream, QueueStream.type)) return 0;
    void *queue = queue_of(self, stream);
    if (queue == NULL) return PyErr_Occurred() ? -1 : 0;
    for (int i = 0; i < self->buffer_count; i++) {
        PyObject *start, **buffer;
        if (self->buffer_places[i] >= count) return 0;
        if (!found_in(tensors[self->buffer_places[i]], &start, &buffer, &pending[i], &shared)) return 0;
        if (*buffer != self->buffers[i]) {
            PyObject *handle = PyObject_GetAttr(*buffer, s_int_ptr);
            if (handle == NULL) return -1;
            self->handles[i] = PyLong_AsVoidPtr(handle), self->hosts[i] = NULL;
            Py_DECREF(handle);
            if (self->function != Py_None)
                driver.clGetMemObjectInfo(self->handles[i], CL_MEM_HOST_PTR, sizeof(void *), &self->hosts[i], NULL);
            Py_XSETREF(self->buffers[i], Py_NewRef(*buffer));
        }
        int64_t place = PyLong_AsLongLong(start);
        memcpy(dynamic + at, &place, sizeof place), at += sizeof place;
    }
    for (int i = 0; i < self->integer_count + self->scalar_count; i++) {
        if (self->number_places[i] >= scalar_count) return 0;
        size_t size = pack(i < self->integer_count ? 'q' : self->element, scalars[self->number_places[i]], dynamic + at);
        if (size == 0) return 0;
        at += size;
    }
    while (at % 8) dynamic[at++] = 0;
    if (self->function != Py_None && is_callable(self, dynamic)) call_directly(self, 0);
    else if (self->function != Py_None && is_sought(self->function)) return 0;  /* one that was not found */
    else {
        void *event = NULL;
        Status failed = set_arguments(self, dynamic, at);
        if (failed) return 0;
        failed = self->function != Py_None ? call_first(self, queue, dynamic) : enqueue(self, queue, &event);
        if (failed) return 0;  /* it does so again by pyopencl, which tells why */
        if (self->where == WORKERS) {
            team_rest();
            PyObject *end = event_of(event);
            if (end == NULL) return -1;
            for (int i = 0; i < self->buffer_count; i++) change(pending[i], Py_NewRef(end));
            change(&AT(stream, QueueStream, pending), end);
            if (shared && wait_for(end)) return -1;  /* NumPy's arrays see these bytes, too, and ask nobody */
        }
    }
    change(&AT(self->counter, Counter, value), PyNumber_Add(AT(self->counter, Counter, value), one));
    return 1;
}

/* Launch by what a plan has: 0, or -1 with an exception. */
int launched(PyObject *run, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
             Py_ssize_t scalar_count, PyObject *stream) {
    if (Py_IS_TYPE(run, &launcher_type)) {
        int done = launch((Launcher *)run, tensors, count, scalars, scalar_count, stream);
        if (done) return done < 0 ? -1 : 0;
        run = ((Launcher *)run)->fallback;
    }
    PyObject *all = PyList_New(count), *rest = PyList_New(scalar_count), *nothing = NULL;
    if (all != NULL && rest != NULL) {
        for (Py_ssize_t i = 0; i < count; i++) PyList_SET_ITEM(all, i, Py_NewRef(tensors[i]));
        for (Py_ssize_t i = 0; i < scalar_count; i++) PyList_SET_ITEM(rest, i, Py_NewRef(scalars[i]));
        nothing = PyObject_CallFunctionObjArgs(run, all, rest, stream, NULL);
    }
    Py_XDECREF(all);
    Py_XDECREF(rest);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

static PyObject *launcher_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
    Launcher *self = (Launcher *)callable;
    if (PyVectorcall_NARGS(flags) == 3 && names == NULL && is_list(args[0]) && is_list(args[1])) {
        int done = launch(self, PySequence_Fast_ITEMS(args[0]), PySequence_Fast_GET_SIZE(args[0]),
                          PySequence_Fast_ITEMS(args[1]), PySequence_Fast_GET_SIZE(args[1]), args[2]);
        if (done < 0) return NULL;
        if (done) Py_RETURN_NONE;
    }
    return PyObject_Vectorcall(self->fallback, args, flags, names);
}

static int places(PyObject *tuple, int *to, Py_ssize_t room) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > room) return -1;
    for (Py_ssize_t i = 0; i < count; i++) to[i] = (int)number_at(tuple, i);
    return PyErr_Occurred() ? -1 : (int)count;
}

static int sizes(PyObject *tuple, size_t *to) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > 3) return -1;
    for (Py_ssize_t i = 0; i < count; i++) to[i] = (size_t)number_at(tuple, i);
    return PyErr_Occurred() ? -1 : (int)count;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *kernel, *geometry, *global_size, *local_size, *buffers, *integers, *scalars, *fallback, *counter,
        *function;
    unsigned long long handle;
    unsigned helpers;
    long long work;
    int element, where, divides, releases;
    if (!PyArg_ParseTuple(args, "OKSO!OO!O!O!COO!iOILpp", &kernel, &handle, &geometry, &PyTuple_Type, &global_size,
                          &local_size, &PyTuple_Type, &buffers, &PyTuple_Type, &integers, &PyTuple_Type, &scalars, &element,
                          &fallback, Counter.type, &counter, &where, &function, &helpers,
                          &work, &divides, &releases))
        return NULL;
    if (function != Py_None && !Py_IS_TYPE(function, &function_type))
        return PyErr_Format(PyExc_TypeError, "function is a %s", Py_TYPE(function)->tp_name);
    Launcher *self = (Launcher *)made(type);
    if (self == NULL) return NULL;
    self->vectorcall = launcher_call;
    self->function = Py_NewRef(function), self->helpers = helpers;
    self->work = work, self->divides = divides, self->releases = releases;
    self->kernel = Py_NewRef(kernel), self->geometry = Py_NewRef(geometry);
    self->fallback = Py_NewRef(fallback), self->counter = Py_NewRef(counter);
    self->kernel_handle = (void *)(uintptr_t)handle;
    self->element = (char)element, self->where = where, self->has_local = PyTuple_Check(local_size);
    int dimensions = sizes(global_size, self->global_size);
    int matching = self->has_local ? sizes(local_size, self->local_size) : dimensions;
    self->dimensions = (uint32_t)dimensions;
    self->direct.context.work_dim = self->dimensions;
    self->groups = 1;
    for (int i = 0; i < 3; i++) {
        size_t local = i < dimensions && self->has_local ? self->local_size[i] : 1;
        size_t groups = i < dimensions && local ? self->global_size[i] / local : 1;
        self->direct.context.local_size[i] = local, self->direct.context.num_groups[i] = groups;
        self->groups *= (uint32_t)groups;
    }
    self->buffer_count = places(buffers, self->buffer_places, MOST_BUFFERS);
    self->integer_count = places(integers, self->number_places, MOST_BUFFERS / 2);
    self->scalar_count = self->integer_count < 0 ? -1 : places(scalars, self->number_places + self->integer_count,
                                                               MOST_BUFFERS - self->integer_count);
    if (dimensions < 1 || matching != dimensions || self->buffer_count < 0 || self->scalar_count < 0) {
        Py_DECREF(self);
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "more arguments or dimensions than a launcher has");
        return NULL;
    }
    return (PyObject *)self;
}

static int traverse(Launcher *self, visitproc visit, void *arg) {
    Py_VISIT(self->kernel);
    Py_VISIT(self->fallback);
    Py_VISIT(self->counter);
    Py_VISIT(self->function);
    for (int i = 0; i < MOST_BUFFERS; i++) Py_VISIT(self->buffers[i]);
    return 0;
}

static int clear(Launcher *self) {
    Py_CLEAR(self->kernel);
    Py_CLEAR(self->geometry);
    Py_CLEAR(self->fallback);
    Py_CLEAR(self->counter);
    Py_CLEAR(self->function);
    for (int i = 0; i < MOST_BUFFERS; i++) Py_CLEAR(self->buffers[i]);
    return 0;
}

static void dealloc(Launcher *self) {
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(doc,
"Launcher(kernel, handle, geometry, global_size, local_size, buffers, integers, scalars, element, fallback, counter,\n"
"where, function, helpers, work, divides, releases)\n--\n\n"
"`run(tensors, scalars, stream)` of one step on an OpenCL device.\n\n"
"kernel, handle: pyopencl's kernel object, and its address. element: the struct letter of the compute type.\n"
"counter: of the driver's launches. where: CALLING, WORKERS or DEVICE, as backends/queues.py says.\n"
"function: the kernel as a Function, by which it is launched once it can be called, or None; helpers: how many\n"
"threads share its work-groups with the calling one then (team.c). work: nanoseconds that one thread\n"
"takes, roughly. divides: its work-groups do not ask how many there are.\n"
"releases: other Python threads go on meanwhile.\n"
"fallback: the same in Python, for a stream that is busy or watched or has no such queue, memory without a buffer,\n"
"numbers that do not fit, and errors. ValueError: more arguments than a launcher has room for.");

static PyMemberDef members[] = {
    {"fallback", T_OBJECT, offsetof(Launcher, fallback), READONLY, "The same in Python."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject launcher_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.Launcher",
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = doc,
    .tp_new = launcher_new,
    .tp_members = members,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_clear = (inquiry)clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Launcher, vectorcall),
};
