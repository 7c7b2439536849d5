/* Arguments of launches: where operands lie, and numbers as kernels read them. */
#include "native.h"

#include <math.h>

/* One number as Python's `struct` packs it: its bytes, or 0 where Python has to decide or say something. */
size_t pack(char element, PyObject *value, char *to) {
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

/* The slots of an operand that say where it lies: 1, or 0 where Python has to decide or say something. */
int operand_slots(PyObject *tensor, PyObject **start, PyObject **buffer) {
    PyObject *storage;
    if (is_a(tensor, Tensor.type)) *start = AT(tensor, Tensor, start), storage = AT(tensor, Tensor, storage);
    else if (Py_IS_TYPE(tensor, Scratch.type)) *start = AT(tensor, Scratch, start), storage = AT(tensor, Scratch, storage);
    else if (Py_IS_TYPE(tensor, Base.type)) {
        *start = AT(tensor, Base, start), *buffer = AT(tensor, Base, buffer);
        return *start != NULL && *buffer != NULL && *buffer != Py_None;
    } else return 0;
    if (storage == NULL || *start == NULL || !Py_IS_TYPE(storage, Storage.type)) return 0;
    *buffer = AT(storage, Storage, buffer);
    return *buffer != NULL && *buffer != Py_None;
}

/* The integers of a tuple; how many, -1 where they are more than there is room for. */
int positions_of(PyObject *tuple, int *to, Py_ssize_t room) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > room) return -1;
    for (Py_ssize_t i = 0; i < count; i++) to[i] = (int)number_at(tuple, i);
    return PyErr_Occurred() ? -1 : (int)count;
}

/* The sizes of up to three dimensions; how many, or -1. */
int sizes_of(PyObject *tuple, size_t *to) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > 3) return -1;
    for (Py_ssize_t i = 0; i < count; i++) to[i] = (size_t)number_at(tuple, i);
    return PyErr_Occurred() ? -1 : (int)count;
}

/* `fallback(tensors, scalars, stream)`, with lists made of the arrays. */
PyObject *launched_by(PyObject *fallback, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                      Py_ssize_t scalar_count, PyObject *stream) {
    PyObject *all = PyList_New(count), *rest = PyList_New(scalar_count), *result = NULL;
    if (all != NULL && rest != NULL) {
        for (Py_ssize_t i = 0; i < count; i++) PyList_SET_ITEM(all, i, Py_NewRef(tensors[i]));
        for (Py_ssize_t i = 0; i < scalar_count; i++) PyList_SET_ITEM(rest, i, Py_NewRef(scalars[i]));
        result = PyObject_CallFunctionObjArgs(fallback, all, rest, stream, NULL);
    }
    Py_XDECREF(all);
    Py_XDECREF(rest);
    return result;
}
