/* Arguments of launches: where operands lie, and numbers as kernels read them. */
#include "native.h"

#include <math.h>

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

/* Copy the integers of a tuple to an array with room for `room`. Return how many they are, or -1 with an exception. */
static int copy_positions(PyObject *tuple, int *to, Py_ssize_t room) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > room) {
        PyErr_Format(PyExc_ValueError, "a launch has %zd arguments of one kind, more than the %zd there is room for",
                     count, room);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) to[i] = (int)number_at(tuple, i);
    return PyErr_Occurred() ? -1 : (int)count;
}

/* Fill a signature from tuples of positions. Return 0, or -1 with an exception. */
int read_signature(Signature *signature, PyObject *buffers, PyObject *integers, PyObject *scalars, char element) {
    int *numbers = signature->number_positions;
    signature->element = element;
    signature->buffer_count = copy_positions(buffers, signature->buffer_positions, MOST_BUFFERS);
    if (signature->buffer_count < 0) return -1;
    signature->integer_count = copy_positions(integers, numbers, MOST_BUFFERS / 2);
    if (signature->integer_count < 0) return -1;
    signature->scalar_count =
        copy_positions(scalars, numbers + signature->integer_count, MOST_BUFFERS - signature->integer_count);
    return signature->scalar_count < 0 ? -1 : 0;
}

/* Append a call's numbers to the `size` bytes of offsets in `dynamic`, and zeros up to a multiple of 8 bytes. Return the
 * size in bytes, or -1 where Python has to decide or say something. */
Py_ssize_t pack_numbers(const Signature *signature, PyObject *const *scalars, Py_ssize_t count, char *dynamic,
                        size_t size) {
    for (int i = 0; i < signature->integer_count + signature->scalar_count; i++) {
        int position = signature->number_positions[i];
        if (position >= count) return -1;
        size_t width = pack(i < signature->integer_count ? 'q' : signature->element, scalars[position], dynamic + size);
        if (width == 0) return -1;
        size += width;
    }
    while (size % 8) dynamic[size++] = 0;
    return (Py_ssize_t)size;
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
