/* Launches on the `cpu` device: a kernel is a C function that this thread and its team call on the tensors' memory. */
#include "native.h"

typedef struct {
    PyObject_HEAD
    PyObject *name;
    WorkItems *code;  /* NULL until the kernel is compiled */
} Kernel;

/* What launches have in common that differ in sizes only, such as those of a plan family. */
typedef struct {
    PyObject_HEAD
    PyObject *kernel, *counter, *make_fallback;
    uint32_t helpers;
    long long max_locked_work;  /* up to this much work, the interpreter's lock is held while the kernel runs */
    Signature signature;
} HostTemplate;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *geometry, *fallback, *template;  /* fallback: NULL until it is needed */
    size_t size[3];
    long long work;
} HostLauncher;

#define TEMPLATE(launcher) ((HostTemplate *)(launcher)->template)

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

/* Run a launch without the interpreter's lock. Other threads may give the tensors other storages meanwhile, as in
 * `x.data = y`, so hold the storages. */
static void perform_unlocked(const HostLauncher *self, const Launch *launch, PyObject *const *tensors) {
    PyObject *storages[MAX_BUFFERS];
    const Signature *signature = &TEMPLATE(self)->signature;
    int count = signature->buffer_count;
    for (int i = 0; i < count; i++) {
        PyObject *tensor = tensors[signature->buffer_positions[i]];
        storages[i] = is_a(tensor, Tensor.type) ? Py_NewRef(SLOT(tensor, Tensor, storage)) : NULL;
    }
    perform(launch, TEMPLATE(self)->helpers, self->work, 1);
    for (int i = 0; i < count; i++) Py_XDECREF(storages[i]);
}

/* Launch a kernel on tensors. Return 1 if done, 0 if the Python launcher has to do it, -1 with an exception set. */
int host_launch(PyObject *launcher, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                Py_ssize_t scalar_count) {
    HostLauncher *self = (HostLauncher *)launcher;
    HostTemplate *template = TEMPLATE(self);
    _Alignas(8) char dynamic[MAX_DYNAMIC_BYTES];
    void *memory[MAX_BUFFERS];
    size_t filled = 0;  /* bytes of `dynamic`: the buffers' offsets, then the call's numbers */
    Launch launch;
    if (is_routed_through_python || (launch.code = ((Kernel *)template->kernel)->code) == NULL) return 0;
    const Signature *signature = &template->signature;
    for (int i = 0; i < signature->buffer_count; i++) {
        PyObject *buffer;
        int64_t start;
        int position = signature->buffer_positions[i];
        if (position >= count || !read_operand(tensors[position], &start, &buffer) || !PyLong_Check(buffer)) return 0;
        if ((memory[i] = PyLong_AsVoidPtr(buffer)) == NULL && PyErr_Occurred()) return -1;
        launch.arguments[i] = &memory[i];
        memcpy(dynamic + filled, &start, sizeof start), filled += sizeof start;
    }
    if (pack_numbers(signature, scalars, scalar_count, dynamic, filled) < 0) return 0;
    launch.arguments[signature->buffer_count] = PyBytes_AS_STRING(self->geometry);
    launch.arguments[signature->buffer_count + 1] = dynamic;
    memcpy(launch.size, self->size, sizeof launch.size);
    launch.items = self->size[0] * self->size[1] * self->size[2];
    PyObject **launches = &SLOT(template->counter, Counter, value);
    if (self->work > template->max_locked_work) perform_unlocked(self, &launch, tensors);
    else perform(&launch, template->helpers, self->work, 0);
    set_slot(launches, PyNumber_Add(*launches, one));
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

/* The types HostTemplate and HostLauncher. */

/* Return the Python launcher, borrowed. Most launchers never need it. */
static PyObject *fallback_of(HostLauncher *self) {
    if (self->fallback == NULL)
        set_slot(&self->fallback, PyObject_CallFunction(TEMPLATE(self)->make_fallback, "O(nnn)L", self->geometry,
                                                        self->size[0], self->size[1], self->size[2], self->work));
    return self->fallback;
}

PyObject *fallback_of_host(PyObject *launcher) { return fallback_of((HostLauncher *)launcher); }

static PyObject *launcher_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
    if (PyVectorcall_NARGS(flags) == 3 && names == NULL && is_list(args[0]) && is_list(args[1])) {
        int outcome = host_launch(callable, PySequence_Fast_ITEMS(args[0]), PySequence_Fast_GET_SIZE(args[0]),
                                  PySequence_Fast_ITEMS(args[1]), PySequence_Fast_GET_SIZE(args[1]));
        if (outcome < 0) return NULL;
        if (outcome) Py_RETURN_NONE;
    }
    PyObject *fallback = fallback_of((HostLauncher *)callable);
    return fallback == NULL ? NULL : PyObject_Vectorcall(fallback, args, flags, names);
}

/* Return the launcher of a step. Steals `geometry`, which may be NULL with an exception. */
PyObject *host_launcher_of(PyObject *template, PyObject *geometry, const size_t *size, long long work) {
    HostLauncher *self = geometry == NULL ? NULL : (HostLauncher *)new_object(&host_launcher_type);
    if (self == NULL) {
        Py_XDECREF(geometry);
        return NULL;
    }
    self->vectorcall = launcher_call;
    self->geometry = geometry, self->template = Py_NewRef(template);
    memcpy(self->size, size, sizeof self->size), self->work = work;
    PyObject_GC_UnTrack(self);  /* in no cycle, and programs may have many */
    return (PyObject *)self;
}

static PyObject *template_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *kernel, *buffers, *integers, *scalars, *make_fallback, *counter;
    unsigned helpers;
    long long max_locked_work;
    int format;
    if (!PyArg_ParseTuple(args, "O!O!O!O!COO!IL", &kernel_type, &kernel, &PyTuple_Type, &buffers, &PyTuple_Type,
                          &integers, &PyTuple_Type, &scalars, &format, &make_fallback, Counter.type, &counter,
                          &helpers, &max_locked_work))
        return NULL;
    HostTemplate *self = (HostTemplate *)new_object(type);
    if (self == NULL) return NULL;
    self->kernel = Py_NewRef(kernel), self->counter = Py_NewRef(counter);
    self->make_fallback = Py_NewRef(make_fallback);
    self->helpers = helpers, self->max_locked_work = max_locked_work;
    if (read_signature(&self->signature, buffers, integers, scalars, (char)format) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *template_call(PyObject *self, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *geometry;
    Py_ssize_t size[3];
    long long work;
    if (!PyArg_ParseTuple(args, "S(nnn)L", &geometry, &size[0], &size[1], &size[2], &work)) return NULL;
    return host_launcher_of(self, Py_NewRef(geometry), (size_t[]){size[0], size[1], size[2]}, work);
}

static int template_traverse(HostTemplate *self, visitproc visit, void *arg) {
    Py_VISIT(self->kernel);
    Py_VISIT(self->counter);
    Py_VISIT(self->make_fallback);
    return 0;
}

static int template_clear(HostTemplate *self) {
    Py_CLEAR(self->kernel);
    Py_CLEAR(self->counter);
    Py_CLEAR(self->make_fallback);
    return 0;
}

static void template_dealloc(HostTemplate *self) {
    PyObject_GC_UnTrack(self);
    template_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int traverse(HostLauncher *self, visitproc visit, void *arg) {
    Py_VISIT(self->fallback);
    Py_VISIT(self->template);
    return 0;
}

/* No `tp_clear`: a launcher without its template could not be called any more, and a cycle through a launcher goes
 * through its template or its fallback, which have one. */
static void dealloc(HostLauncher *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->geometry);
    Py_XDECREF(self->fallback);
    Py_XDECREF(self->template);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(template_doc,
"HostTemplate(kernel, buffers, integers, scalars, format, make_fallback, counter, helpers, max_locked_work)\n--\n\n"
"`template(geometry, size, work)` returns the HostLauncher of a step with these sizes on the `cpu` device.\n\n"
"kernel: a Kernel. format: the struct letter of the compute type. counter: counts the driver's launches. helpers:\n"
"maximum number of threads that share the work-items with the calling one (team.c). max_locked_work: with more work\n"
"than this, a kernel runs without the interpreter's lock. make_fallback(geometry, size, work): returns the same\n"
"launcher in Python, for a kernel that is not compiled yet, profiled launches, numbers that do not fit, and errors.\n"
"Raises ValueError for more than 40 arguments of one kind.");

PyDoc_STRVAR(doc,
"`run(tensors, scalars, stream)` of one step on the `cpu` device. A HostTemplate makes them.\n\n"
"Its size is the work-items in three dimensions, its work the estimated cost, as in `Step.work`.");

static PyMemberDef members[] = {
    {"template", T_OBJECT, offsetof(HostLauncher, template), READONLY, "The HostTemplate that made it."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *get_fallback(PyObject *self, void *Py_UNUSED(closure)) { return Py_XNewRef(fallback_of_host(self)); }

static PyGetSetDef properties[] = {
    {"fallback", get_fallback, NULL, "The same in Python.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject host_template_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.HostTemplate",
    .tp_basicsize = sizeof(HostTemplate),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = template_doc,
    .tp_new = template_new,
    .tp_call = template_call,
    .tp_dealloc = (destructor)template_dealloc,
    .tp_traverse = (traverseproc)template_traverse,
    .tp_clear = (inquiry)template_clear,
};

PyTypeObject host_launcher_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.HostLauncher",
    .tp_basicsize = sizeof(HostLauncher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = doc,
    .tp_members = members,
    .tp_getset = properties,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(HostLauncher, vectorcall),
};
