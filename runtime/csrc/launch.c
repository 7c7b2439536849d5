/* Launches on OpenCL devices: pack arguments as kernels read them, and pass them to the driver. */
#include "native.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *kernel, *geometry, *fallback, *counter;
    void *kernel_handle;
    size_t global_size[3], local_size[3];
    uint32_t dimensions;
    int has_local;
    Signature signature;
} Launcher;

/* Launch. Return 1 if launched, 0 if the Python version has to do it, -1 with an exception. No reference to an operand
 * is kept, so that its memory is free when the last tensor over it is deleted. */
static int launch(Launcher *self, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                  Py_ssize_t scalar_count, PyObject *stream) {
    _Alignas(8) char dynamic[MAX_DYNAMIC_BYTES];
    void *handles[MAX_BUFFERS];
    size_t size = 0;
    uint32_t position = 0;
    Status status = 0;
    if (!is_a(stream, QueueStream.type)) return 0;
    void *queue = PyLong_AsVoidPtr(SLOT(stream, QueueStream, queue_address));
    if (queue == NULL) return PyErr_Occurred() ? -1 : 0;
    for (int i = 0; i < self->signature.buffer_count; i++) {
        PyObject *buffer;
        int64_t start;
        int operand = self->signature.buffer_positions[i];
        if (operand >= count || !read_operand(tensors[operand], &start, &buffer)) return 0;
        PyObject *number = PyObject_GetAttr(buffer, s_int_ptr);
        if (number == NULL) return -1;
        handles[i] = PyLong_AsVoidPtr(number);
        Py_DECREF(number);
        memcpy(dynamic + size, &start, sizeof start), size += sizeof start;
    }
    Py_ssize_t packed = pack_numbers(&self->signature, scalars, scalar_count, dynamic, size);
    if (packed < 0) return 0;
    /* From here on no Python code runs: a finalizer that launches the same kernel would set its arguments. */
    for (; position < (uint32_t)self->signature.buffer_count; position++)
        status |= driver.clSetKernelArg(self->kernel_handle, position, sizeof handles[position], &handles[position]);
    status |= driver.clSetKernelArg(self->kernel_handle, position, (size_t)PyBytes_GET_SIZE(self->geometry),
                                    PyBytes_AS_STRING(self->geometry));
    status |= driver.clSetKernelArg(self->kernel_handle, position + 1, (size_t)packed, dynamic);
    /* If the driver returns an error, the Python version launches again, and pyopencl raises the error. */
    if (status || driver.clEnqueueNDRangeKernel(queue, self->kernel_handle, self->dimensions, NULL, self->global_size,
                                                self->has_local ? self->local_size : NULL, 0, NULL, NULL))
        return 0;
    set_slot(&SLOT(self->counter, Counter, value), PyNumber_Add(SLOT(self->counter, Counter, value), one));
    return 1;
}

/* Launch by a plan's launcher (from C or Python). Return 0, or -1 with an exception. */
int run_launcher(PyObject *run, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
             Py_ssize_t scalar_count, PyObject *stream) {
    int outcome = 0;
    if (Py_IS_TYPE(run, &sequence_type)) return run_sequence(run, tensors, count, scalars, scalar_count, stream);
    if (Py_IS_TYPE(run, &host_launcher_type)) outcome = host_launch(run, tensors, count, scalars, scalar_count);
    else if (Py_IS_TYPE(run, &launcher_type))
        outcome = launch((Launcher *)run, tensors, count, scalars, scalar_count, stream);
    if (outcome) return outcome < 0 ? -1 : 0;
    PyObject *result = call_fallback(run, tensors, count, scalars, scalar_count, stream);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static PyObject *launcher_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
    Launcher *self = (Launcher *)callable;
    if (PyVectorcall_NARGS(flags) == 3 && names == NULL && is_list(args[0]) && is_list(args[1])) {
        int outcome = launch(self, PySequence_Fast_ITEMS(args[0]), PySequence_Fast_GET_SIZE(args[0]),
                             PySequence_Fast_ITEMS(args[1]), PySequence_Fast_GET_SIZE(args[1]), args[2]);
        if (outcome < 0) return NULL;
        if (outcome) Py_RETURN_NONE;
    }
    return PyObject_Vectorcall(self->fallback, args, flags, names);
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *kernel, *geometry, *global_size, *local_size, *buffers, *integers, *scalars, *fallback, *counter;
    unsigned long long handle;
    int format;
    if (!PyArg_ParseTuple(args, "OKSO!OO!O!O!COO!", &kernel, &handle, &geometry, &PyTuple_Type, &global_size,
                          &local_size, &PyTuple_Type, &buffers, &PyTuple_Type, &integers, &PyTuple_Type, &scalars,
                          &format, &fallback, Counter.type, &counter))
        return NULL;
    if (driver.clSetKernelArg == NULL || driver.clEnqueueNDRangeKernel == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Launcher: call set_opencl_functions first, or set WEFTGRAD_NATIVE=0");
        return NULL;
    }
    Launcher *self = (Launcher *)new_object(type);
    if (self == NULL) return NULL;
    self->vectorcall = launcher_call;
    self->kernel = Py_NewRef(kernel), self->geometry = Py_NewRef(geometry);
    self->fallback = Py_NewRef(fallback), self->counter = Py_NewRef(counter);
    self->kernel_handle = (void *)(uintptr_t)handle;
    self->has_local = PyTuple_Check(local_size);
    int dimensions = read_sizes(global_size, self->global_size);
    int matching = self->has_local ? read_sizes(local_size, self->local_size) : dimensions;
    self->dimensions = (uint32_t)dimensions;
    int arguments = read_signature(&self->signature, buffers, integers, scalars, (char)format);
    if (arguments < 0 || dimensions < 1 || matching != dimensions) {
        Py_DECREF(self);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "global and local size need the same 1 to 3 dimensions");
        return NULL;
    }
    return (PyObject *)self;
}

static int traverse(Launcher *self, visitproc visit, void *arg) {
    Py_VISIT(self->kernel);
    Py_VISIT(self->fallback);
    Py_VISIT(self->counter);
    return 0;
}

static int clear(Launcher *self) {
    Py_CLEAR(self->kernel);
    Py_CLEAR(self->geometry);
    Py_CLEAR(self->fallback);
    Py_CLEAR(self->counter);
    return 0;
}

static void dealloc(Launcher *self) {
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(doc,
"Launcher(kernel, handle, geometry, global_size, local_size, buffers, integers, scalars, format, fallback, counter)\n"
"--\n\n"
"`run(tensors, scalars, stream)` of one step on an OpenCL device.\n\n"
"kernel, handle: pyopencl's kernel object, and its address. format: the struct letter of the compute type.\n"
"counter: counts the driver's launches. fallback: the same launch in Python, for a profiled stream, memory without a\n"
"buffer, numbers that do not fit, and errors. Raises ValueError for more than 40 arguments of one kind.");

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
