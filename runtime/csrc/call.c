/* Launches on the `cpu` device: a kernel is a C function that this thread and its team call on the tensors' memory. */
#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *name;
    WorkItems *code;  /* NULL until the kernel is compiled */
} Kernel;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *geometry, *fallback, *counter, *kernel;
    size_t size[3];
    uint32_t helpers;
    long long work;
    int releases;
    Signature signature;
} HostLauncher;

/* Nonzero if all launches go through Python, because launches are queued or a profiler records them. */
static int is_routed_through_python;

void set_python_route(int on) { is_routed_through_python = on; }

/* Run a launch on this thread and `helpers` others. `releases`: without the interpreter's lock. */
static void perform(const Launch *launch, uint32_t helpers, int64_t work, int releases) {
    Rounding mode = set_kernel_rounding();
    if (releases) {
        Py_BEGIN_ALLOW_THREADS
        team_run(launch, helpers, work);
        Py_END_ALLOW_THREADS
    } else team_run(launch, helpers, work);
    restore_rounding(mode);
}

/* Launch a kernel on tensors. Return 1 if done, 0 if the Python launcher has to do it, -1 with an exception set. */
int host_launch(PyObject *launcher, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                Py_ssize_t scalar_count) {
    HostLauncher *self = (HostLauncher *)launcher;
    _Alignas(8) char dynamic[MAX_DYNAMIC_BYTES];
    void *memory[MAX_BUFFERS];
    size_t filled = 0;  /* bytes of `dynamic`: the buffers' offsets, then the call's numbers */
    Launch launch;
    if (is_routed_through_python || (launch.code = ((Kernel *)self->kernel)->code) == NULL) return 0;
    const Signature *signature = &self->signature;
    for (int i = 0; i < signature->buffer_count; i++) {
        PyObject *start, *buffer;
        int position = signature->buffer_positions[i];
        if (position >= count || !operand_slots(tensors[position], &start, &buffer) || !PyLong_Check(buffer)) return 0;
        if ((memory[i] = PyLong_AsVoidPtr(buffer)) == NULL && PyErr_Occurred()) return -1;
        launch.arguments[i] = &memory[i];
        int64_t offset = PyLong_AsLongLong(start);
        memcpy(dynamic + filled, &offset, sizeof offset), filled += sizeof offset;
    }
    if (pack_numbers(signature, scalars, scalar_count, dynamic, filled) < 0) return 0;
    launch.arguments[signature->buffer_count] = PyBytes_AS_STRING(self->geometry);
    launch.arguments[signature->buffer_count + 1] = dynamic;
    memcpy(launch.size, self->size, sizeof launch.size);
    launch.items = self->size[0] * self->size[1] * self->size[2];
    perform(&launch, self->helpers, self->work, self->releases);
    set_slot(&SLOT(self->counter, Counter, value), PyNumber_Add(SLOT(self->counter, Counter, value), one));
    return 1;
}

/* The module's `call_kernel`: call a kernel with arguments that Python has prepared. */
PyObject *call_kernel(PyObject *Py_UNUSED(module), PyObject *args) {
    Kernel *kernel;
    PyObject *buffers;
    const char *geometry, *dynamic;
    Py_ssize_t geometry_size, dynamic_size;
    unsigned helpers;
    long long work;
    int releases;
    void *memory[MAX_BUFFERS];
    Launch launch;
    if (!PyArg_ParseTuple(args, "O!O!y#y#(nnn)ILp", &kernel_type, &kernel, &PyTuple_Type, &buffers, &geometry,
                          &geometry_size, &dynamic, &dynamic_size, &launch.size[0], &launch.size[1], &launch.size[2],
                          &helpers, &work, &releases))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(buffers);
    if (kernel->code == NULL || count > MAX_BUFFERS)
        return PyErr_Format(PyExc_ValueError, "%U: not compiled, or more buffers than %d", kernel->name,
                            MAX_BUFFERS);
    for (Py_ssize_t i = 0; i < count; i++) {
        memory[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(buffers, i));
        launch.arguments[i] = &memory[i];
    }
    if (PyErr_Occurred()) return NULL;
    launch.arguments[count] = (void *)geometry, launch.arguments[count + 1] = (void *)dynamic;
    launch.code = kernel->code, launch.items = launch.size[0] * launch.size[1] * launch.size[2];
    perform(&launch, helpers, work, releases);
    Py_RETURN_NONE;
}

/* The type Kernel. */

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *name;
    if (!PyArg_ParseTuple(args, "U", &name)) return NULL;
    Kernel *self = (Kernel *)new_object(type);
    if (self != NULL) self->name = Py_NewRef(name);
    return (PyObject *)self;
}

static void kernel_dealloc(Kernel *self) {
    Py_XDECREF(self->name);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *get_address(Kernel *self, void *Py_UNUSED(closure)) {
    return PyLong_FromVoidPtr((void *)(uintptr_t)self->code);
}

static int set_address(Kernel *self, PyObject *value, void *Py_UNUSED(closure)) {
    void *address = value == NULL ? NULL : PyLong_AsVoidPtr(value);
    if (address == NULL && PyErr_Occurred()) return -1;
    self->code = (WorkItems *)(uintptr_t)address;
    return 0;
}

static PyGetSetDef kernel_properties[] = {
    {"address", (getter)get_address, (setter)set_address, "Address of the compiled function, 0 until then.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef kernel_members[] = {
    {"name", T_OBJECT, offsetof(Kernel, name), READONLY, "The exported function."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.Kernel",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Kernel(name)\n--\n\nA kernel of the `cpu` device: launchers call the function at `address`.",
    .tp_new = kernel_new,
    .tp_members = kernel_members,
    .tp_getset = kernel_properties,
    .tp_dealloc = (destructor)kernel_dealloc,
};

/* The type HostLauncher. */

static PyObject *launcher_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
    if (PyVectorcall_NARGS(flags) == 3 && names == NULL && is_list(args[0]) && is_list(args[1])) {
        int outcome = host_launch(callable, PySequence_Fast_ITEMS(args[0]), PySequence_Fast_GET_SIZE(args[0]),
                                  PySequence_Fast_ITEMS(args[1]), PySequence_Fast_GET_SIZE(args[1]));
        if (outcome < 0) return NULL;
        if (outcome) Py_RETURN_NONE;
    }
    return PyObject_Vectorcall(((HostLauncher *)callable)->fallback, args, flags, names);
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *kernel, *geometry, *buffers, *integers, *scalars, *fallback, *counter;
    Py_ssize_t size[3];
    unsigned helpers;
    long long work;
    int element, releases;
    if (!PyArg_ParseTuple(args, "O!S(nnn)O!O!O!COO!ILp", &kernel_type, &kernel, &geometry, &size[0], &size[1], &size[2],
                          &PyTuple_Type, &buffers, &PyTuple_Type, &integers, &PyTuple_Type, &scalars, &element,
                          &fallback, Counter.type, &counter, &helpers, &work, &releases))
        return NULL;
    HostLauncher *self = (HostLauncher *)new_object(type);
    if (self == NULL) return NULL;
    self->vectorcall = launcher_call;
    self->kernel = Py_NewRef(kernel), self->geometry = Py_NewRef(geometry);
    self->fallback = Py_NewRef(fallback), self->counter = Py_NewRef(counter);
    self->helpers = helpers, self->work = work, self->releases = releases;
    for (int i = 0; i < 3; i++) self->size[i] = (size_t)size[i];
    if (read_signature(&self->signature, buffers, integers, scalars, (char)element) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int traverse(HostLauncher *self, visitproc visit, void *arg) {
    Py_VISIT(self->fallback);
    Py_VISIT(self->counter);
    Py_VISIT(self->kernel);
    return 0;
}

static int clear(HostLauncher *self) {
    Py_CLEAR(self->geometry);
    Py_CLEAR(self->fallback);
    Py_CLEAR(self->counter);
    Py_CLEAR(self->kernel);
    return 0;
}

static void dealloc(HostLauncher *self) {
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(doc,
"HostLauncher(kernel, geometry, size, buffers, integers, scalars, element, fallback, counter, helpers, work, "
"releases)\n--\n\n"
"`run(tensors, scalars, stream)` of one step on the `cpu` device.\n\n"
"kernel: a Kernel. size: work-items in three dimensions. element: the struct letter of the compute type. counter:\n"
"counts the driver's launches. helpers: maximum number of threads that share the work-items with the calling one\n"
"(team.c). work: estimated cost, as in `Step.work`. releases: release the interpreter's lock while the kernel runs.\n"
"fallback: the same launch in Python, for a kernel that is not compiled yet, profiled launches, numbers that do not\n"
"fit, and errors. Raises ValueError for more than 40 arguments of one kind.");

static PyMemberDef members[] = {
    {"fallback", T_OBJECT, offsetof(HostLauncher, fallback), READONLY, "The same in Python."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject host_launcher_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.HostLauncher",
    .tp_basicsize = sizeof(HostLauncher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = doc,
    .tp_new = launcher_new,
    .tp_members = members,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_clear = (inquiry)clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(HostLauncher, vectorcall),
};
