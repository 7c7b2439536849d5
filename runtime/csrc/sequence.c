/* The launches of a plan with several steps or with scratch memory, in order, as `arguments.launch_in_order` does. */
#include "native.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *device, *driver, *launchers, *scratch;
} Sequence;

enum { MAX_STACK_OPERANDS = 3 * MAX_BUFFERS };

/* Return memory for the duration of a call. */
static PyObject *scratch_of(const Sequence *self, PyObject *nbytes, PyObject *stream) {
    PyObject *storage = storage_of(self->device, self->driver, stream, nbytes);
    PyObject *scratch = storage == NULL ? NULL : new_object(Scratch.type);
    if (scratch == NULL) {
        Py_XDECREF(storage);
        return NULL;
    }
    INIT_SLOT(scratch, Scratch, start, SLOT(storage, Storage, start));
    INIT_SLOT_STEAL(scratch, Scratch, storage, storage);
    return scratch;
}

/* Launch all steps. Return 0, or -1 with an exception. A step may run without the interpreter's lock or call Python,
 * and then the caller's lists may change, so hold what is in them. */
int run_sequence(PyObject *sequence, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                 Py_ssize_t scalar_count, PyObject *stream) {
    const Sequence *self = (Sequence *)sequence;
    PyObject *stack[MAX_STACK_OPERANDS], **references = stack;
    Py_ssize_t scratch_count = PyTuple_GET_SIZE(self->scratch), launch_count = PyTuple_GET_SIZE(self->launchers);
    Py_ssize_t total = count, capacity = scalar_count + count + scratch_count;
    int failed = 0;
    if (capacity > MAX_STACK_OPERANDS) references = PyMem_New(PyObject *, capacity);
    if (references == NULL) return PyErr_NoMemory(), -1;
    PyObject **numbers = references, **operands = numbers + scalar_count;
    for (Py_ssize_t i = 0; i < scalar_count; i++) numbers[i] = Py_NewRef(scalars[i]);
    for (Py_ssize_t i = 0; i < count; i++) operands[i] = Py_NewRef(tensors[i]);
    for (Py_ssize_t i = 0; !failed && i < scratch_count; i++) {
        operands[total] = scratch_of(self, PyTuple_GET_ITEM(self->scratch, i), stream);
        if (operands[total] == NULL) failed = -1;
        else total++;
    }
    for (Py_ssize_t i = 0; !failed && i < launch_count; i++)
        failed = run_launcher(PyTuple_GET_ITEM(self->launchers, i), operands, total, numbers, scalar_count, stream);
    while (total > 0) Py_DECREF(operands[--total]);
    for (Py_ssize_t i = 0; i < scalar_count; i++) Py_DECREF(numbers[i]);
    if (references != stack) PyMem_Free(references);
    return failed;
}

static PyObject *sequence_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
    if (PyVectorcall_NARGS(flags) != 3 || names != NULL || !is_list(args[0]) || !is_list(args[1]))
        return PyErr_Format(PyExc_TypeError, "a launcher takes a sequence of tensors, one of numbers, and a stream");
    List tensors = list_of(args[0]), scalars = list_of(args[1]);
    if (run_sequence(callable, tensors.items, tensors.count, scalars.items, scalars.count, args[2])) return NULL;
    Py_RETURN_NONE;
}

/* Return the sequence of some launches. */
PyObject *sequence_of(PyObject *device, PyObject *owner, PyObject *launchers, PyObject *scratch) {
    if (!PyTuple_Check(launchers) || !PyTuple_Check(scratch))
        return PyErr_Format(PyExc_TypeError, "a sequence takes tuples of launchers and of scratch sizes, not %s and %s",
                            Py_TYPE(launchers)->tp_name, Py_TYPE(scratch)->tp_name);
    Sequence *self = (Sequence *)new_object(&sequence_type);
    if (self == NULL) return NULL;
    self->vectorcall = sequence_call;
    self->device = Py_NewRef(device), self->driver = Py_NewRef(owner);
    self->launchers = Py_NewRef(launchers), self->scratch = Py_NewRef(scratch);
    return (PyObject *)self;
}

static PyObject *sequence_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *device, *owner, *launchers, *scratch;
    if (!PyArg_ParseTuple(args, "O!OO!O!", Device.type, &device, &owner, &PyTuple_Type, &launchers, &PyTuple_Type,
                          &scratch))
        return NULL;
    return sequence_of(device, owner, launchers, scratch);
}

static int traverse(Sequence *self, visitproc visit, void *arg) {
    Py_VISIT(self->device);
    Py_VISIT(self->driver);
    Py_VISIT(self->launchers);
    return 0;
}

/* No `tp_clear`: a cycle through a sequence goes through its driver or a launcher's template, which have one. */
static void dealloc(Sequence *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->device);
    Py_XDECREF(self->driver);
    Py_XDECREF(self->launchers);
    Py_XDECREF(self->scratch);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(doc,
"Sequence(device, driver, launchers, scratch)\n--\n\n"
"`run(tensors, scalars, stream)` of several launches. Scratch buffers of these sizes in bytes follow the tensors.");

static PyMemberDef members[] = {
    {"launchers", T_OBJECT, offsetof(Sequence, launchers), READONLY, "The launcher of each step."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject sequence_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.Sequence",
    .tp_basicsize = sizeof(Sequence),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = doc,
    .tp_new = sequence_new,
    .tp_members = members,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Sequence, vectorcall),
};
