/* Blocks from their pool and back, and the storages over them. */
#include "native.h"

static long long counter(PyObject *number) { return PyLong_AsLongLong(number); }

/* Blocks that were freed go to their bins. 1, -1 with an exception; 0: one is not as it should be, as Python will say. */
static int drain(PyObject *pool, long long *allocated) {
    PyObject *freed = AT(pool, Pool, _freed);
    while (PyObject_Size(freed) > 0) {
        PyObject *block = PyObject_CallMethodNoArgs(freed, s_popleft);
        if (block == NULL) return -1;
        if (!Py_IS_TYPE(block, Block.type) || PyObject_IsTrue(AT(block, Block, requested)) != 1) {
            PyObject *back = PyObject_CallMethodOneArg(freed, s_appendleft, block);
            Py_DECREF(block);
            Py_XDECREF(back);
            return back == NULL ? -1 : 0;
        }
        *allocated -= counter(AT(block, Block, size));
        change(&AT(block, Block, requested), Py_NewRef(zero));
        int failed = PyList_Append(AT(block, Block, bin), block);
        Py_DECREF(block);
        if (failed) return -1;
    }
    return 1;
}

static PyObject *from_bin(PyObject *pool, PyObject *nbytes) {
    PyObject *size = PyLong_FromLongLong((counter(nbytes) + 511) & -512);
    PyObject *bin = size == NULL ? NULL : PyDict_GetItemWithError(AT(pool, Pool, _bins), size);
    Py_XDECREF(size);
    Py_ssize_t last = bin == NULL ? 0 : PyList_GET_SIZE(bin);
    if (last == 0) return NULL;
    PyObject *block = Py_NewRef(PyList_GET_ITEM(bin, last - 1));
    if (PyList_SetSlice(bin, last - 1, last, NULL)) Py_CLEAR(block);
    return block;
}

/* A block of the size that has just been freed, or what the pool finds. */
static PyObject *take(PyObject *pool, PyObject *nbytes) {
    if (AT(pool, Pool, rehearsal) != Py_None) return PyObject_CallMethodOneArg(pool, s_allocate, nbytes);
    PyObject *lock = AT(pool, Pool, _lock), *got = PyObject_CallMethodOneArg(lock, s_acquire, Py_False);
    if (got == NULL) return NULL;
    Py_DECREF(got);
    if (got != Py_True) return PyObject_CallMethodOneArg(pool, s_allocate, nbytes);  /* which waits */
    long long before = counter(AT(pool, Pool, _allocated)), allocated = before;
    PyObject *block = drain(pool, &allocated) == 1 ? from_bin(pool, nbytes) : NULL;
    if (block != NULL) {
        change(&AT(block, Block, requested), Py_NewRef(nbytes));
        allocated += counter(AT(block, Block, size));
        change(&AT(pool, Pool, _allocations), PyNumber_Add(AT(pool, Pool, _allocations), one));
        if (allocated > counter(AT(pool, Pool, _allocated_peak)))
            change(&AT(pool, Pool, _allocated_peak), PyLong_FromLongLong(allocated));
    }
    if (allocated != before) change(&AT(pool, Pool, _allocated), PyLong_FromLongLong(allocated));
    PyObject *let = PyObject_CallMethodNoArgs(lock, s_release);
    Py_XDECREF(let);
    if (let == NULL || PyErr_Occurred()) Py_CLEAR(block);
    else if (block == NULL) block = PyObject_CallMethodOneArg(pool, s_allocate, nbytes);
    return block;
}

/* `driver.allocate(nbytes, stream)` */
PyObject *storage_of(PyObject *device, PyObject *owner, PyObject *stream, PyObject *nbytes) {
    if (!is_a(stream, QueueStream.type))
        return PyObject_CallMethodObjArgs(owner, s_allocate, nbytes, stream, NULL);
    PyObject *pool = AT(stream, QueueStream, pool), *block = take(pool, nbytes);
    PyObject *storage = block == NULL ? NULL : made(Storage.type);
    if (storage == NULL) {
        Py_XDECREF(block);
        return NULL;
    }
    PyObject *handle = AT(AT(block, Block, segment), Segment, handle);
    PUT(storage, Storage, device, device);
    PUT(storage, Storage, nbytes, nbytes);
    PUT(storage, Storage, buffer, Py_IS_TYPE(handle, HostSegment.type) ? AT(handle, HostSegment, buffer) : handle);
    PUT(storage, Storage, start, AT(block, Block, offset));
    PUT(storage, Storage, _pool, pool);
    PUT_OWNED(storage, Storage, block, block);
    PUT(storage, Storage, owner, Py_None);
    PUT(storage, Storage, version, zero);
    PUT(storage, Storage, pending, Py_None);
    return storage;
}

/* `Storage.__del__` */
PyObject *finalize(PyObject *storage, PyObject *Py_UNUSED(nothing)) {
    PyObject *block = AT(storage, Storage, block), *owner = AT(storage, Storage, owner);
    if (block != NULL && block != Py_None)
        return PyObject_CallOneArg(AT(AT(storage, Storage, _pool), Pool, free), block);
    if (owner == NULL || owner == Py_None) Py_RETURN_NONE;
    PyObject *place = PyObject_GetAttr(AT(storage, Storage, device), s_driver);
    if (place == NULL) return NULL;
    PyObject *done = PyObject_CallMethodObjArgs(place, s_retire, owner, AT(storage, Storage, buffer), NULL);
    Py_DECREF(place);
    return done;
}
