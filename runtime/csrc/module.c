/* The module `_native`: it is told the classes once, and OpenCL's functions when the driver is opened. */
#include "native.h"

#define DEFINE(class) struct class##Slots class;
CLASSES(DEFINE)
struct Driver driver;
PyObject *states, *slow_call, *slow_call_into, *slow_empty, *numbering, *zero, *one, *nothing;
PyObject *s_acquire, *s_allocate, *s_appendleft, *s_default_stream, *s_driver, *s_int_ptr, *s_popleft, *s_release,
    *s_retire, *s_state;

static PyTypeObject *class_of(PyObject *classes, const char *name) {
    PyObject *found = PyDict_GetItemString(classes, name);
    if (found != NULL && PyType_Check(found)) return (PyTypeObject *)Py_NewRef(found);
    PyErr_Format(PyExc_TypeError, "no class %s", name);
    return NULL;
}

static int place_of(PyTypeObject *class, const char *slot, Py_ssize_t *place) {
    PyObject *member = PyObject_GetAttrString((PyObject *)class, slot);
    if (member == NULL) return -1;
    int plain = Py_IS_TYPE(member, &PyMemberDescr_Type);
    if (plain) *place = ((PyMemberDescrObject *)member)->d_member->offset;
    else PyErr_Format(PyExc_TypeError, "%s of %R is not a slot", slot, class);
    Py_DECREF(member);
    return plain ? 0 : -1;
}

PyDoc_STRVAR(bind_doc,
"bind(classes, states, numbering, call, call_into, empty)\n--\n\n"
"Tell the classes by name, the threads' states, the iterator of nodes' numbers, and dispatch's functions in Python.\n\n"
"TypeError, AttributeError: a class is not there or has no such slot: the Python files are of another version.");

static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *classes, *local, *numbers, *slow[3];
    if (!PyArg_ParseTuple(args, "O!OOOOO", &PyDict_Type, &classes, &local, &numbers, slow, slow + 1, slow + 2)) return NULL;
#define PLACE(slot) || place_of(self->type, #slot, &self->slot)
#define LEARN(class)                                                                                                   \
    {                                                                                                                  \
        struct class##Slots *self = &class;                                                                            \
        if ((self->type = class_of(classes, #class)) == NULL SLOTS_##class(PLACE)) return NULL;                        \
    }
    CLASSES(LEARN)
    states = Py_NewRef(local), numbering = Py_NewRef(numbers);
    slow_call = Py_NewRef(slow[0]), slow_call_into = Py_NewRef(slow[1]), slow_empty = Py_NewRef(slow[2]);
    static PyMethodDef finalizer = {"__del__", finalize, METH_NOARGS, "Give the block back to its pool."};
    PyObject *method = PyDescr_NewMethod(Storage.type, &finalizer);
    int failed = method == NULL || PyObject_SetAttrString((PyObject *)Storage.type, "__del__", method);
    Py_XDECREF(method);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(use_doc,
"use(clSetKernelArg, clEnqueueNDRangeKernel)\n--\n\n"
"Tell the addresses of OpenCL's functions, by which kernels are launched from now on.");

static PyObject *use(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long set_argument, enqueue;
    if (!PyArg_ParseTuple(args, "KK", &set_argument, &enqueue)) return NULL;
    driver.clSetKernelArg = (void *)(uintptr_t)set_argument;
    driver.clEnqueueNDRangeKernel = (void *)(uintptr_t)enqueue;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(detour_doc, "detour(on)\n--\n\nHave launches on `cpu` go by Python from now on, or not.");

static PyObject *detour(PyObject *Py_UNUSED(module), PyObject *args) {
    int on;
    if (!PyArg_ParseTuple(args, "p", &on)) return NULL;
    set_detour(on);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(call_kernel_doc,
"call_kernel(kernel, buffers, geometry, dynamic, size, helpers, work, releases)\n--\n\n"
"Call a compiled Kernel on buffers at these addresses (a tuple), with the geometry and the packed offsets and numbers\n"
"as bytes, for a tuple of three numbers of work-items; the rest as HostLauncher takes it.");

PyDoc_STRVAR(limit_doc, "limit(helpers)\n--\n\nHave kernels shared with at most that many threads from now on.");

static PyObject *limit(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned helpers;
    if (!PyArg_ParseTuple(args, "I", &helpers)) return NULL;
    team_limit(helpers);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(features_doc,
"processor_features()\n--\n\nWhat kernels may use of an x86 processor, by the names in /proc/cpuinfo; empty elsewhere.");

static PyObject *processor_features(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    PyObject *names = PyList_New(0);
    if (names == NULL) return NULL;
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_cpu_init();
#define FEATURE(name, alias)                                                                                           \
    if (__builtin_cpu_supports(name)) {                                                                                \
        PyObject *text = PyUnicode_FromString(alias);                                                                  \
        int failed = text == NULL || PyList_Append(names, text);                                                       \
        Py_XDECREF(text);                                                                                              \
        if (failed) return Py_DECREF(names), NULL;                                                                     \
    }
    FEATURE("avx", "avx") FEATURE("avx2", "avx2") FEATURE("bmi", "bmi1") FEATURE("bmi2", "bmi2") FEATURE("fma", "fma")
    FEATURE("avx512f", "avx512f") FEATURE("avx512bw", "avx512bw") FEATURE("avx512cd", "avx512cd")
    FEATURE("avx512dq", "avx512dq") FEATURE("avx512vl", "avx512vl")
    FEATURE("avx2", "f16c") FEATURE("avx2", "movbe")  /* every processor with AVX2 has both */
#endif
    return names;
}

PyDoc_STRVAR(call_doc,
"call(record, operands, statics=())\n--\n\n`dispatch.call`, which it calls where a call is not plain.");

PyDoc_STRVAR(into_doc,
"call_into(record, operands, statics, outs, *, in_place)\n--\n\n"
"`dispatch.call_into`, which it calls where a call is not plain, and where gradients are wanted.");

PyDoc_STRVAR(empty_doc, "empty(layout, stream=None)\n--\n\n`dispatch.empty`, which it calls where there are gaps or nothing.");

static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS, bind_doc},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS, call_doc},
    {"call_into", (PyCFunction)(void (*)(void))call_into, METH_FASTCALL | METH_KEYWORDS, into_doc},
    {"empty", (PyCFunction)(void (*)(void))empty, METH_FASTCALL | METH_KEYWORDS, empty_doc},
    {"call_kernel", call_kernel, METH_VARARGS, call_kernel_doc},
    {"detour", detour, METH_VARARGS, detour_doc},
    {"limit", limit, METH_VARARGS, limit_doc},
    {"processor_features", processor_features, METH_NOARGS, features_doc},
    {"use", use, METH_VARARGS, use_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "The path of every op, in C (see runtime/csrc/native.h).",
    .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void) {
    struct { PyObject **to; const char *name; } names[] = {
        {&s_acquire, "acquire"}, {&s_allocate, "allocate"}, {&s_appendleft, "appendleft"},
        {&s_default_stream, "default_stream"}, {&s_driver, "driver"}, {&s_int_ptr, "int_ptr"}, {&s_popleft, "popleft"},
        {&s_release, "release"}, {&s_retire, "retire"}, {&s_state, "state"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].to = PyUnicode_InternFromString(names[i].name)) == NULL) return NULL;
    if ((zero = PyLong_FromLong(0)) == NULL || (one = PyLong_FromLong(1)) == NULL ||
        (nothing = PyTuple_New(0)) == NULL)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyType_Ready(&launcher_type) || PyType_Ready(&host_launcher_type) ||
        PyType_Ready(&operator_type) || PyType_Ready(&kernel_type) ||
        PyModule_AddObjectRef(module, "Kernel", (PyObject *)&kernel_type) ||
        PyModule_AddObjectRef(module, "Operator", (PyObject *)&operator_type) ||
        PyModule_AddObjectRef(module, "Launcher", (PyObject *)&launcher_type) ||
        PyModule_AddObjectRef(module, "HostLauncher", (PyObject *)&host_launcher_type)) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
