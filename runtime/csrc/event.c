/* The end of a launch, with the names that pyopencl's events have for what is asked of it here. */
#include "native.h"

enum { CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3, CL_COMPLETE = 0 };

typedef struct {
    PyObject_HEAD
    void *handle;
} Event;

PyObject *event_of(void *handle) {  /* takes over the reference that the driver gave */
    Event *self = PyObject_New(Event, &event_type);
    if (self == NULL) driver.clReleaseEvent(handle);
    else self->handle = handle;
    return (PyObject *)self;
}

static Status status_of(void *handle) {
    Status found = CL_COMPLETE, failed;
    failed = driver.clGetEventInfo(handle, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof found, &found, NULL);
    return failed ? failed : found;
}

/* Whether what a stream waits behind is over: 1, 0, or -1 with an exception. */
int is_done(PyObject *event) {
    if (Py_IS_TYPE(event, &event_type)) return status_of(((Event *)event)->handle) <= CL_COMPLETE;
    PyObject *found = PyObject_GetAttr(event, s_command_execution_status);
    if (found == NULL) return -1;
    long status = PyLong_AsLong(found);
    Py_DECREF(found);
    return status == -1 && PyErr_Occurred() ? -1 : status <= CL_COMPLETE;
}

static PyObject *get_status(Event *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(status_of(self->handle)); }

static PyObject *wait_for(Event *self, PyObject *Py_UNUSED(nothing)) {
    Status failed;
    Py_BEGIN_ALLOW_THREADS
    failed = driver.clWaitForEvents(1, &self->handle);
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_Format(PyExc_RuntimeError, "a kernel failed on the device: OpenCL error %d", (int)failed);
    Py_RETURN_NONE;
}

static void dealloc(Event *self) {
    driver.clReleaseEvent(self->handle);
    PyObject_Free(self);
}

static PyGetSetDef properties[] = {
    {"command_execution_status", (getter)get_status, NULL, "0 when the work is done, less for an error.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"wait", (PyCFunction)wait_for, METH_NOARGS, "wait()\n--\n\nUntil the work is done. RuntimeError: it failed."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject event_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.Event",
    .tp_basicsize = sizeof(Event),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "The end of a launch that was made here.",
    .tp_dealloc = (destructor)dealloc,
    .tp_getset = properties,
    .tp_methods = methods,
};
