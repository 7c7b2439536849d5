/* Arguments of launches: read operands' offsets and buffers, and pack numbers as kernels read them. */
#include "native.h"

#include <math.h>

/* Write a number to `target` in the format of a letter of Python's `struct`. Return its size in bytes, or 0 if the
 * Python version has to handle it: it converts other types, and raises the errors. */
static size_t pack(char format, PyObject *value, char *target) {
    if (format == 'f' || format == 'd') {
        double x;
        if (PyFloat_Check(value)) x = PyFloat_AS_DOUBLE(value);
        else if (!PyLong_Check(value)) return 0;
        else if ((x = PyLong_AsDouble(value)) == -1.0 && PyErr_Occurred()) return PyErr_Clear(), 0;
        if (format == 'd') return memcpy(target, &x, 8), 8;
        float narrow = (float)x;
        if (isinf(narrow) && !isinf(x)) return 0;  /* an OverflowError in Python */
        return memcpy(target, &narrow, 4), 4;
    }
    if (!PyLong_Check(value)) return 0;
    int overflow;
    long long x = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return 0;
#define PACK_INTEGER(letter, type, min, max)                                                                           \
    case letter: {                                                                                                     \
        type narrow = (type)x;                                                                                         \
        if (x < (min) || x > (max)) return 0;                                                                          \
        return memcpy(target, &narrow, sizeof narrow), sizeof narrow;                                                  \
    }
    switch (format) {
        PACK_INTEGER('b', int8_t, INT8_MIN, INT8_MAX)
        PACK_INTEGER('B', uint8_t, 0, UINT8_MAX)
        PACK_INTEGER('h', int16_t, INT16_MIN, INT16_MAX)
        PACK_INTEGER('H', uint16_t, 0, UINT16_MAX)
        PACK_INTEGER('i', int32_t, INT32_MIN, INT32_MAX)
        PACK_INTEGER('q', int64_t, INT64_MIN, INT64_MAX)
    }
#undef PACK_INTEGER
    return 0;
}

/* Read the buffer of a Tensor, Scratch or Base (a borrowed reference), and where in it the operand starts, in bytes.
 * Return 1, or 0 if the Python version has to handle the operand. */
int read_operand(PyObject *tensor, int64_t *start, PyObject **buffer) {
    PyObject *number, *storage;
    int overflow;
    if (Py_IS_TYPE(tensor, Base.type)) number = SLOT(tensor, Base, start), *buffer = SLOT(tensor, Base, buffer);
    else {
        if (is_a(tensor, Tensor.type)) number = SLOT(tensor, Tensor, start), storage = SLOT(tensor, Tensor, storage);
        else if (Py_IS_TYPE(tensor, Scratch.type))
            number = SLOT(tensor, Scratch, start), storage = SLOT(tensor, Scratch, storage);
        else return 0;
        if (storage == NULL || !Py_IS_TYPE(storage, Storage.type)) return 0;
        *buffer = SLOT(storage, Storage, buffer);
    }
    if (*buffer == NULL || *buffer == Py_None || number == NULL || !PyLong_Check(number)) return 0;
    *start = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow;
}

/* Copy a tuple's integers to an array with `capacity` elements. Return their number, or -1 with an exception. */
static int copy_positions(PyObject *tuple, int *target, Py_ssize_t capacity) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > capacity) {
        PyErr_Format(PyExc_ValueError, "a launch from C has at most %zd buffers, integers or scalars, not %zd",
                     capacity, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) target[i] = (int)index_at(tuple, i);
    return PyErr_Occurred() ? -1 : (int)count;
}

/* Fill a signature. Return 0, or -1 with an exception: ValueError if there are too many arguments.
 * buffers: tuple of positions in the call's list of tensors. integers, scalars: in its list of numbers. */
int read_signature(Signature *signature, PyObject *buffers, PyObject *integers, PyObject *scalars, char format) {
    int *positions = signature->number_positions;
    signature->format = format;
    signature->buffer_count = copy_positions(buffers, signature->buffer_positions, MAX_BUFFERS);
    if (signature->buffer_count < 0) return -1;
    signature->integer_count = copy_positions(integers, positions, MAX_BUFFERS / 2);
    if (signature->integer_count < 0) return -1;
    signature->scalar_count =
        copy_positions(scalars, positions + signature->integer_count, MAX_BUFFERS - signature->integer_count);
    return signature->scalar_count < 0 ? -1 : 0;
}

/* Append a call's numbers to the `size` bytes of offsets in `dynamic`, which holds MAX_DYNAMIC_BYTES, and zeros up to a
 * multiple of 8 bytes. Return the new size in bytes, or -1 if the Python version has to handle the numbers. */
Py_ssize_t pack_numbers(const Signature *signature, PyObject *const *scalars, Py_ssize_t count, char *dynamic,
                        size_t size) {
    for (int i = 0; i < signature->integer_count + signature->scalar_count; i++) {
        int position = signature->number_positions[i];
        if (position >= count) return -1;
        size_t width = pack(i < signature->integer_count ? 'q' : signature->format, scalars[position], dynamic + size);
        if (width == 0) return -1;
        size += width;
    }
    while (size % 8) dynamic[size++] = 0;
    return (Py_ssize_t)size;
}

/* Read the sizes of up to three dimensions. Return the number of dimensions, or -1: without an exception if there are
 * more, with one if a size is no integer. */
int read_sizes(PyObject *tuple, size_t *target) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count > 3) return -1;
    for (Py_ssize_t i = 0; i < count; i++) target[i] = (size_t)index_at(tuple, i);
    return PyErr_Occurred() ? -1 : (int)count;
}

/* Call the Python version of a launch, `fallback(tensors, scalars, stream)`, with lists of the arrays' elements. */
PyObject *call_fallback(PyObject *fallback, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                        Py_ssize_t scalar_count, PyObject *stream) {
    PyObject *tensor_list = PyList_New(count), *scalar_list = PyList_New(scalar_count), *result = NULL;
    if (tensor_list != NULL && scalar_list != NULL) {
        for (Py_ssize_t i = 0; i < count; i++) PyList_SET_ITEM(tensor_list, i, Py_NewRef(tensors[i]));
        for (Py_ssize_t i = 0; i < scalar_count; i++) PyList_SET_ITEM(scalar_list, i, Py_NewRef(scalars[i]));
        result = PyObject_CallFunctionObjArgs(fallback, tensor_list, scalar_list, stream, NULL);
    }
    Py_XDECREF(tensor_list);
    Py_XDECREF(scalar_list);
    return result;
}
