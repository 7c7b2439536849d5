/* A binary operator of Tensor, which calls its op without Python frames in between. */
#include "native.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *record, *fallback;
    int reflected;
} Operator;

static int is_operand(PyObject *o) { return is_a(o, Tensor.type) || PyFloat_Check(o) || PyLong_Check(o); }

static PyObject *operator_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
    Operator *self = (Operator *)callable;
    if (PyVectorcall_NARGS(flags) == 2 && names == NULL && is_a(args[0], Tensor.type) && is_operand(args[1])) {
        PyObject *swapped[] = {args[1], args[0]};
        PyObject *result = try_call(self->record, (List){self->reflected ? swapped : args, 2}, empty_tuple);
        if (result != NULL || PyErr_Occurred()) return result;
    }
    return PyObject_Vectorcall(self->fallback, args, flags, names);
}

static PyObject *operator_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    PyObject *record, *fallback;
    int reflected;
    if (!PyArg_ParseTuple(args, "OOp", &record, &fallback, &reflected)) return NULL;
    Operator *self = (Operator *)new_object(type);
    if (self == NULL) return NULL;
    self->vectorcall = operator_call;
    self->record = Py_NewRef(record), self->fallback = Py_NewRef(fallback), self->reflected = reflected;
    return (PyObject *)self;
}

static PyObject *bind_method(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type)) {
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static int traverse(Operator *self, visitproc visit, void *arg) {
    Py_VISIT(self->record);
    Py_VISIT(self->fallback);
    return 0;
}

static int clear(Operator *self) {
    Py_CLEAR(self->record);
    Py_CLEAR(self->fallback);
    return 0;
}

static void dealloc(Operator *self) {
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* `__doc__`, `__name__` and so on are those of the Python method. */
static PyObject *fallback_attribute(Operator *self, void *name) { return PyObject_GetAttrString(self->fallback, name); }

static PyGetSetDef properties[] = {
    {"__doc__", (getter)fallback_attribute, NULL, NULL, "__doc__"},
    {"__module__", (getter)fallback_attribute, NULL, NULL, "__module__"},
    {"__name__", (getter)fallback_attribute, NULL, NULL, "__name__"},
    {"__qualname__", (getter)fallback_attribute, NULL, NULL, "__qualname__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Operator, fallback), READONLY, "The same in Python."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(doc,
"Operator(record, fallback, reflected)\n--\n\n"
"A method (self, other) that calls the op of `record` on both, in the other order if `reflected`.\n\n"
"fallback: the same method in Python, for operands that are neither tensors nor numbers, and for uncommon calls.");

PyTypeObject operator_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.Operator",
    .tp_basicsize = sizeof(Operator),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_doc = doc,
    .tp_new = operator_new,
    .tp_members = members,
    .tp_getset = properties,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_clear = (inquiry)clear,
    .tp_descr_get = bind_method,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Operator, vectorcall),
};
