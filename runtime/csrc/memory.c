/* Allocate blocks from their pool and free them; create storages over them. */
#include "native.h"

static long long to_integer(PyObject *number) { return PyLong_AsLongLong(number); }

/* Move freed blocks to their bins. Return 1, 0 for an invalid block (Python raises the error), -1 with an exception. */
static int drain_freed(PyObject *pool, long long *allocated) {
    PyObject *freed = SLOT(pool, Pool, _freed);
    while (PyObject_Size(freed) > 0) {
        PyObject *block = PyObject_CallMethodNoArgs(freed, s_popleft);
        if (block == NULL) return -1;
        if (!Py_IS_TYPE(block, Block.type) || PyObject_IsTrue(SLOT(block, Block, requested)) != 1) {
            PyObject *put_back = PyObject_CallMethodOneArg(freed, s_appendleft, block);
            Py_DECREF(block);
            Py_XDECREF(put_back);
            return put_back == NULL ? -1 : 0;
        }
        *allocated -= to_integer(SLOT(block, Block, size));
        set_slot(&SLOT(block, Block, requested), Py_NewRef(zero));
        int failed = PyList_Append(SLOT(block, Block, bin), block);
        Py_DECREF(block);
        if (failed) return -1;
    }
    return 1;
}

static PyObject *from_bin(PyObject *pool, PyObject *nbytes) {
    PyObject *size = PyLong_FromLongLong((to_integer(nbytes) + 511) & -512);
    PyObject *bin = size == NULL ? NULL : PyDict_GetItemWithError(SLOT(pool, Pool, _bins), size);
    Py_XDECREF(size);
    Py_ssize_t last = bin == NULL ? 0 : PyList_GET_SIZE(bin);
    if (last == 0) return NULL;
    PyObject *block = Py_NewRef(PyList_GET_ITEM(bin, last - 1));
    if (PyList_SetSlice(bin, last - 1, last, NULL)) Py_CLEAR(block);
    return block;
}

/* Allocate a block: the last freed one of this size, or else by the pool's Python method. */
static PyObject *allocate_block(PyObject *pool, PyObject *nbytes) {
    if (SLOT(pool, Pool, rehearsal) != Py_None) return PyObject_CallMethodOneArg(pool, s_allocate, nbytes);
    PyObject *lock = SLOT(pool, Pool, _lock), *acquired = PyObject_CallMethodOneArg(lock, s_acquire, Py_False);
    if (acquired == NULL) return NULL;
    Py_DECREF(acquired);
    if (acquired != Py_True) return PyObject_CallMethodOneArg(pool, s_allocate, nbytes);  /* waits for the lock */
    long long old_allocated = to_integer(SLOT(pool, Pool, _allocated)), allocated = old_allocated;
    PyObject *block = drain_freed(pool, &allocated) == 1 ? from_bin(pool, nbytes) : NULL;
    if (block != NULL) {
        set_slot(&SLOT(block, Block, requested), Py_NewRef(nbytes));
        allocated += to_integer(SLOT(block, Block, size));
        set_slot(&SLOT(pool, Pool, _allocations), PyNumber_Add(SLOT(pool, Pool, _allocations), one));
        if (allocated > to_integer(SLOT(pool, Pool, _allocated_peak)))
            set_slot(&SLOT(pool, Pool, _allocated_peak), PyLong_FromLongLong(allocated));
    }
    if (allocated != old_allocated) set_slot(&SLOT(pool, Pool, _allocated), PyLong_FromLongLong(allocated));
    PyObject *released = PyObject_CallMethodNoArgs(lock, s_release);
    Py_XDECREF(released);
    if (released == NULL || PyErr_Occurred()) Py_CLEAR(block);
    else if (block == NULL) block = PyObject_CallMethodOneArg(pool, s_allocate, nbytes);
    return block;
}

/* Allocate a storage, as `driver.allocate(nbytes, stream)` does. */
PyObject *storage_of(PyObject *device, PyObject *owner, PyObject *stream, PyObject *nbytes) {
    if (!is_a(stream, QueueStream.type))
        return PyObject_CallMethodObjArgs(owner, s_allocate, nbytes, stream, NULL);
    PyObject *pool = SLOT(stream, QueueStream, pool), *block = allocate_block(pool, nbytes);
    PyObject *storage = block == NULL ? NULL : new_object(Storage.type);
    if (storage == NULL) {
        Py_XDECREF(block);
        return NULL;
    }
    PyObject *handle = SLOT(SLOT(block, Block, segment), Segment, handle);
    INIT_SLOT(storage, Storage, device, device);
    INIT_SLOT(storage, Storage, nbytes, nbytes);
    INIT_SLOT(storage, Storage, buffer,
              Py_IS_TYPE(handle, HostSegment.type) ? SLOT(handle, HostSegment, buffer) : handle);
    INIT_SLOT(storage, Storage, start, SLOT(block, Block, offset));
    INIT_SLOT(storage, Storage, _pool, pool);
    INIT_SLOT_STEAL(storage, Storage, block, block);
    INIT_SLOT(storage, Storage, owner, Py_None);
    INIT_SLOT(storage, Storage, version, zero);
    INIT_SLOT(storage, Storage, pending, Py_None);
    return storage;
}

static PyObject *retire(PyObject *storage, PyObject *owner) {
    PyObject *memory_driver = PyObject_GetAttr(SLOT(storage, Storage, device), s_driver);
    if (memory_driver == NULL) return NULL;
    PyObject *result = PyObject_CallMethodObjArgs(memory_driver, s_retire, owner, SLOT(storage, Storage, buffer), NULL);
    Py_DECREF(memory_driver);
    return result;
}

/* `Storage.__del__`: return the block to its pool, or retire foreign memory.
 *
 * Python prints and drops an exception of a finalizer. A Ctrl-C that arrives while a driver's Python code runs would be
 * lost, so the interrupt is raised again, in the code that runs after the finalizer. */
PyObject *finalize(PyObject *storage, PyObject *Py_UNUSED(unused)) {
    PyObject *block = SLOT(storage, Storage, block), *owner = SLOT(storage, Storage, owner);
    if (block != NULL && block != Py_None)
        return PyObject_CallOneArg(SLOT(SLOT(storage, Storage, _pool), Pool, free), block);
    if (owner == NULL || owner == Py_None) Py_RETURN_NONE;
    PyObject *result = retire(storage, owner);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        PyErr_Clear();
        result = retire(storage, owner);
        PyErr_SetInterrupt();
    }
    return result;
}
